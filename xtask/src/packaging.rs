//! What users install, without installing it: the scripts of the container image, and the Debian package.

use std::path::Path;

use crate::Result;
use crate::broker::riverlog_binary;
use crate::place::{self, Scratch};
use crate::run::program;
use crate::tools::{self, Missing, Tool};

/// What the package must hold besides the program.
const IN_PACKAGE: &[&str] = &[
    "etc/riverlog/server.properties",
    "usr/lib/systemd/system/riverlog.service",
    "usr/lib/sysusers.d/riverlog.conf",
    "usr/share/man/man1/riverlog.1.gz",
    "usr/share/bash-completion/completions/riverlog",
    "usr/share/doc/riverlog/copyright",
];

pub(crate) fn run() -> Result<()> {
    tools::ensure(&[Tool::Python])?;
    let riverlog = riverlog_binary(false)?;
    let packaging = place::root().join("packaging");
    program("bash")
        .arg(packaging.join("check-testcontainers.sh"))
        .arg(&riverlog)
        .limit(300)
        .shown_live()?;
    for needed in ["dpkg-deb", "strip"] {
        if tools::find(needed).is_none() {
            return Err(Missing::new(format!("no {needed}: the package isn't built")).into());
        }
    }
    let scratch = Scratch::new("packaging")?;
    program("sh")
        .arg(packaging.join("deb/build.sh"))
        .arg(&riverlog)
        .arg(scratch.path())
        .limit(300)
        .output()?;
    debian_package(scratch.path())
}

/// Unpacks the package and asks the program in it about the configuration in it.
fn debian_package(folder: &Path) -> Result<()> {
    let mut packages = std::fs::read_dir(folder)?;
    let package = packages.next().ok_or("no package was built")??.path();
    let root = folder.join("root");
    program("dpkg-deb")
        .arg("-x")
        .arg(&package)
        .arg(&root)
        .output()?;
    for path in IN_PACKAGE {
        if !root.join(path).is_file() {
            return Err(format!("{} holds no {path}", package.display()).into());
        }
    }
    let kept = program("dpkg-deb")
        .arg("-I")
        .arg(&package)
        .arg("conffiles")
        .output()?;
    if kept.trim() != "/etc/riverlog/server.properties" {
        return Err(format!("conffiles are {kept:?}, not the configuration alone").into());
    }
    program(root.join("usr/bin/riverlog"))
        .args(["config", "lint"])
        .arg(root.join("etc/riverlog/server.properties"))
        .output()?;
    eprintln!("packaging: {} is whole", package.display());
    Ok(())
}
