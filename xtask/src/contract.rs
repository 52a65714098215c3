//! The step `contract`: `/v1` answers as it says of itself. Schemathesis makes requests out of the description, well-formed and not,
//! and looks for answers that are no problem document, aren't described, or are the server's own mistake.

use crate::Result;
use crate::broker::{self, Kind, Spec};
use crate::place::{self, Scratch};
use crate::run::program;
use crate::tools;

/// Requests that are made up for each call, beside those that go through its description point by point. The same in each run.
const MADE_UP: &str = "10";

pub(crate) fn run() -> Result<()> {
    let requirements = place::root().join("tests/contract/requirements.txt");
    let python = tools::python_env("contract-python", &requirements)?;
    let scratch = Scratch::new("contract")?;
    let http = broker::address(broker::free_port()?);
    let broker = Spec::new(Kind::Riverlog, scratch.path())?
        .set("riverlog.http.address", &http.to_string())
        .start(false)?;
    program(python.with_file_name("schemathesis"))
        .dir(scratch.path())
        .args(["run", &format!("http://{http}/v1/openapi.json")])
        .args(["--phases", "examples,coverage,fuzzing"])
        .args([
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        ])
        .args(["--max-examples", MADE_UP, "--seed", "1", "--request-timeout", "20"])
        .args(["--generation-database", "none"])
        .args(["--suppress-health-check", "all", "--warnings", "off"])
        .limit(300)
        .shown_live()?;
    drop(broker);
    Ok(())
}
