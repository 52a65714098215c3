//! The test vectors of the messages: compiles and runs our Java program against Kafka's own client.

use std::env;
use std::path::Path;
use std::process::Command;

use super::Result;
use super::source;

const FOLDER: &str = "crates/riverlog-wire/tests/golden_messages";

/// What the client logs through; any release does, nothing is logged.
const SLF4J: &str = "org.slf4j:slf4j-api:1.7.36";

/// Writes the vectors of that release over those that are there.
pub(super) fn make(root: &Path, kafka_version: &str) -> Result<()> {
    let folder = root.join(FOLDER);
    let classes = source::cache()?.join("golden-classes");
    let jars = [
        source::jar(&format!("org.apache.kafka:kafka-clients:{kafka_version}"))?,
        source::jar(SLF4J)?,
    ];
    let path = env::join_paths(jars.iter().chain([&classes]))?;
    let javac = Command::new("javac")
        .arg("-cp")
        .arg(&path)
        .arg("-d")
        .arg(&classes)
        .arg(folder.join("MakeGolden.java"))
        .status()?;
    if !javac.success() {
        return Err("javac failed; the client's internal classes may have moved".into());
    }
    let java = Command::new("java")
        .arg("-cp")
        .arg(&path)
        .arg("MakeGolden")
        .arg(folder.join("messages.bin.gz"))
        .status()?;
    if !java.success() {
        return Err("MakeGolden failed".into());
    }
    Ok(())
}
