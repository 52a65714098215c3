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
    fs::create_dir_all(&unpacked)?;
    let status = Command::new("mvn")
        // The plugin leaves markers in the folder that it runs in, and skips what they say is done.
        .current_dir(&unpacked)
        .args(["-q", "-B", &format!("{PLUGIN}:unpack")])
        .arg(format!(
            "-Dartifact=org.apache.kafka:kafka-clients:{version}"
        ))
        .arg(format!("-DoutputDirectory={}", unpacked.display()))
        .arg("-Dmdep.unpack.includes=common/message/*.json")
        .status()
        .map_err(|e| {
            format!(
                "mvn can't be run ({e}); install Maven and a JDK, they are needed for this only"
            )
        })?;
    if !status.success() {
        return Err(format!("mvn could not fetch kafka-clients {version}: {status}").into());
    }
    fs::rename(&unpacked, home)?;
    Ok(())
}

/// `$RIVERLOG_CACHE`, else `~/.cache/riverlog`.
fn cache() -> Result<PathBuf> {
    if let Some(dir) = env::var_os("RIVERLOG_CACHE") {
        return Ok(PathBuf::from(dir));
    }
    let home = env::var_os("HOME").ok_or("neither RIVERLOG_CACHE nor HOME is set")?;
    Ok(Path::new(&home).join(".cache/riverlog"))
}
