//! The step `contract`: `/v1` answers as it says of itself. Schemathesis makes requests out of the description, well-formed and not,
//! and looks for answers that are no problem document, aren't described, or are the server's own mistake. Clients that others'
//! generators make of it, in Python and TypeScript, do the main job.

use std::path::Path;

use crate::Result;
use crate::broker::{self, Kind, Spec};
use crate::place::{self, Scratch};
use crate::run::program;
use crate::{console, tools};

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
    let url = format!("http://{http}");
    python_client(&python, scratch.path(), &url)?;
    typescript_client(scratch.path(), &url)?;
    drop(broker);
    Ok(())
}

fn description() -> std::path::PathBuf {
    place::root().join("docs/protocol/openapi.json")
}

fn python_client(python: &Path, dir: &Path, url: &str) -> Result<()> {
    program(python.with_file_name("openapi-python-client"))
        .args(["generate", "--meta", "none", "--path"])
        .arg(description())
        .arg("--output-path")
        .arg(dir.join("riverlog_v1"))
        .limit(120)
        .output()?;
    program(python)
        .env("PYTHONPATH", dir)
        .arg(place::root().join("tests/contract/client.py"))
        .arg(url)
        .limit(120)
        .shown_live()
}

fn typescript_client(dir: &Path, url: &str) -> Result<()> {
    if console::not_here()?.is_some() {
        let why = "the TypeScript client wants Node 20.19 or newer";
        return match tools::in_ci() {
            true => Err(why.into()),
            false => {
                eprintln!("xtask: skipped: {why}");
                Ok(())
            }
        };
    }
    let from = place::root().join("tests/contract/typescript");
    let dir = dir.join("typescript");
    std::fs::create_dir_all(&dir)?;
    for name in [
        "package.json",
        "package-lock.json",
        "tsconfig.json",
        "client.ts",
    ] {
        std::fs::copy(from.join(name), dir.join(name))?;
    }
    console::install(&dir)?;
    let npx = |words: &[&str]| {
        let npx = program("npx").dir(&dir).arg("--no-install").args(words);
        npx.limit(120)
    };
    npx(&["openapi-typescript"])
        .arg(description())
        .args(["--output", "v1.d.ts"])
        .output()?;
    npx(&["tsc"]).output()?;
    program("node")
        .dir(&dir)
        .arg("client.js")
        .arg(url)
        .limit(120)
        .shown_live()
}
