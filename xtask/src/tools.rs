//! Programs that come from the system: found, or installed with apt where that is allowed.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::Result;
use crate::run::program;

/// A program that some step needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tool {
    Chromium,
    Faketime,
    Go,
    Java,
    Kcat,
    Maven,
    Node,
    Npm,
    Promtool,
    Python,
}

impl Tool {
    /// The program, and the Debian package that brings it.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Tool::Chromium => ("chromium", "chromium"),
            Tool::Faketime => ("faketime", "faketime"),
            Tool::Go => ("go", "golang-go"),
            Tool::Java => ("java", "openjdk-17-jdk-headless"),
            Tool::Kcat => ("kcat", "kcat"),
            Tool::Maven => ("mvn", "maven"),
            Tool::Node => ("node", "nodejs"),
            Tool::Npm => ("npm", "npm"),
            Tool::Promtool => ("promtool", "prometheus"),
            Tool::Python => ("python3", "python3-venv"),
        }
    }

    fn there(self) -> bool {
        let (name, _) = self.names();
        // Debian splits venv off; a python3 without it is there and can't be used.
        find(name).is_some()
            && (self != Tool::Python
                || program(name)
                    .args(["-c", "import venv, ensurepip"])
                    .output()
                    .is_ok())
    }
}

/// Something that the system lacks and that this user can't install: outside CI a reason to skip a step.
#[derive(Debug)]
pub(crate) struct Missing(String);

impl Missing {
    pub(crate) fn new(what: String) -> Self {
        Self(what)
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// The first program `name` on the PATH.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|p| p.is_file())
}

/// True in CI, where nothing may be skipped.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|v| v == "true" || v == "1")
}

/// Sees to it that the tools are there, installing the missing ones when this user may.
///
/// The error is [`Missing`] and names the packages to install by hand.
pub(crate) fn ensure(tools: &[Tool]) -> Result<()> {
    let missing: Vec<Tool> = tools.iter().copied().filter(|t| !t.there()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|t| t.names().1).collect();
    let by_hand = format!(
        "missing: {}; install with: apt-get install {}",
        missing
            .iter()
            .map(|t| t.names().0)
            .collect::<Vec<_>>()
            .join(", "),
        packages.join(" ")
    );
    if !rustix::process::geteuid().is_root() || find("apt-get").is_none() {
        return Err(Missing(by_hand).into());
    }
    eprintln!("xtask: installing {}", packages.join(" "));
    let apt = || program("apt-get").env("DEBIAN_FRONTEND", "noninteractive");
    let lists_are_fresh = {
        static UPDATED: OnceLock<bool> = OnceLock::new();
        *UPDATED.get_or_init(|| apt().args(["-q", "update"]).limit(180).output().is_ok())
    };
    let installed = apt()
        .args(["-q", "-y", "install", "--no-install-recommends"])
        .args(&packages)
        .limit(400)
        .output();
    match installed {
        Ok(_) => Ok(()),
        Err(why) if lists_are_fresh => Err(Missing(format!("{by_hand}\n{why}")).into()),
        Err(why) => {
            Err(Missing(format!("{by_hand}\n(apt-get update failed as well)\n{why}")).into())
        }
    }
}

/// Packages of a registry didn't come: without a network that is nobody's mistake.
pub(crate) fn unreachable_packages(registry: &str, why: &dyn std::fmt::Display) -> Missing {
    Missing::new(format!("packages can't be had from {registry}: {why}"))
}

/// A Python environment in the cache with what `requirements` (a pip file, pinned) names; its `python`.
pub(crate) fn python_env(name: &str, requirements: &Path) -> Result<PathBuf> {
    ensure(&[Tool::Python])?;
    let recipe = std::fs::read_to_string(requirements)?;
    let dir = crate::place::cached(name, &recipe, |dir| {
        program("python3")
            .args(["-m", "venv"])
            .arg(dir)
            .limit(120)
            .output()?;
        let installed = program(dir.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--requirement"])
            .arg(requirements)
            .limit(300)
            .output();
        match installed {
            Ok(_) => Ok(()),
            Err(why) => Err(unreachable_packages("PyPI", &why).into()),
        }
    })?;
    Ok(dir.join("bin/python"))
}

/// Builds a package of the Go module in `module` as `binary`. Go's own cache makes this a moment when nothing changed.
pub(crate) fn go_build(module: &Path, package: &str, binary: &Path) -> Result<()> {
    ensure(&[Tool::Go])?;
    program("go")
        .dir(module)
        .args(["build", "-o"])
        .arg(binary)
        .arg(package)
        .limit(400)
        .output()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_on_the_path_and_a_made_up_one_is_not() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-here").is_none());
    }
}
