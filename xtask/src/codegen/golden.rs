//! The test vectors that Kafka's own client makes: compiles and runs our Java programs against it.

use std::env;
use std::path::Path;
use std::process::Command;

use super::Result;
use super::source;

/// Folders of `riverlog-wire`'s tests, with the program in each and the file that it writes.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("golden_messages", "MakeGolden", "messages.bin.gz"),
    ("golden_partitions", "MakePartitions", "partitions.bin"),
];

/// What the client logs through; any release does, nothing is logged.
const SLF4J: &str = "org.slf4j:slf4j-api:1.7.36";

/// Writes the vectors of that release over those that are there.
pub(super) fn make(root: &Path, kafka_version: &str) -> Result<()> {
    let classes = source::cache()?.join("golden-classes");
    let jars = [
        source::jar(&format!("org.apache.kafka:kafka-clients:{kafka_version}"))?,
        source::jar(SLF4J)?,
    ];
    let path = env::join_paths(jars.iter().chain([&classes]))?;
    for (folder, program, file) in PROGRAMS {
        let folder = root.join("crates/riverlog-wire/tests").join(folder);
        let javac = Command::new("javac")
            .arg("-cp")
            .arg(&path)
            .arg("-d")
            .arg(&classes)
            .arg(folder.join(format!("{program}.java")))
            .status()?;
        if !javac.success() {
            return Err("javac failed; the client's internal classes may have moved".into());
        }
        let java = Command::new("java")
            .arg("-cp")
            .arg(&path)
            .arg(program)
            .arg(folder.join(file))
            .status()?;
        if !java.success() {
            return Err(format!("{program} failed").into());
        }
    }
    Ok(())
}
