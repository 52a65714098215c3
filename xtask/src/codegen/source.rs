//! Where the definitions come from: the `kafka-clients` jar, through Maven.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Result;

const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1";

/// The folder of the message definitions of that release; fetched once, then kept in the cache.
pub(super) fn definitions(version: &str) -> Result<PathBuf> {
    let home = cache()?.join(format!("kafka-clients-{version}"));
    let folder = home.join("common/message");
    if !folder.is_dir() {
        fetch(version, &home)?;
    }
    if !folder.join("ProduceRequest.json").is_file() {
        return Err(format!(
            "{} holds no message definitions; remove it and try again",
            folder.display()
        )
        .into());
    }
    Ok(folder)
}

fn fetch(version: &str, home: &Path) -> Result<()> {
    // Unpacked beside its place and moved there whole: a run that was interrupted leaves no half of it.
    let unpacked = home.with_extension("part");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked)?;
    }
    maven(
        "unpack",
        &format!("org.apache.kafka:kafka-clients:{version}"),
        &unpacked,
        &["-Dmdep.unpack.includes=common/message/*.json"],
    )?;
    fs::rename(&unpacked, home)?;
    Ok(())
}

/// The jar of an artifact (`group:name:version`), in the cache.
pub(super) fn jar(artifact: &str) -> Result<PathBuf> {
    let [_, name, version] = artifact.split(':').collect::<Vec<_>>()[..] else {
        return Err(format!("{artifact} is not group:name:version").into());
    };
    let folder = cache()?.join("jars");
    let jar = folder.join(format!("{name}-{version}.jar"));
    if !jar.is_file() {
        maven("copy", artifact, &folder, &[])?;
    }
    Ok(jar)
}

fn maven(goal: &str, artifact: &str, into: &Path, more: &[&str]) -> Result<()> {
    fs::create_dir_all(into)?;
    let status = Command::new("mvn")
        // The plugin leaves markers in the folder that it runs in, and skips what they say is done.
        .current_dir(into)
        .args(["-q", "-B", &format!("{PLUGIN}:{goal}")])
        .arg(format!("-Dartifact={artifact}"))
        .arg(format!("-DoutputDirectory={}", into.display()))
        .args(more)
        .status()
        .map_err(|e| {
            format!("mvn can't be run ({e}); install Maven and a JDK, codegen alone needs them")
        })?;
    if !status.success() {
        return Err(format!("mvn could not fetch {artifact}: {status}").into());
    }
    Ok(())
}

/// `$RIVERLOG_CACHE`, else `~/.cache/riverlog`.
pub(super) fn cache() -> Result<PathBuf> {
    if let Some(dir) = env::var_os("RIVERLOG_CACHE") {
        return Ok(PathBuf::from(dir));
    }
    let home = env::var_os("HOME").ok_or("neither RIVERLOG_CACHE nor HOME is set")?;
    Ok(Path::new(&home).join(".cache/riverlog"))
}
