//! `cargo xtask console`: checks and builds the console in the browser, which the binary then carries.

use std::path::Path;

use clap::Parser;

use crate::Result;
use crate::broker::riverlog_binary;
use crate::place::{self, Scratch};
use crate::run::program;
use crate::tools::{self, Missing, Tool};

/// The least that the bundler runs on.
const NODE: (u32, u32) = (20, 19);

#[derive(Parser, Default)]
pub(crate) struct Args {
    /// Then looks at every page in a real browser, on a running broker: Debian's chromium
    #[arg(long)]
    browser: bool,
}

impl Args {
    /// All of it, in a browser too.
    pub(crate) fn in_a_browser() -> Args {
        Args { browser: true }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    tools::ensure(&[Tool::Node, Tool::Npm])?;
    if let Some(why) = unfit()? {
        return Err(Missing::new(why).into());
    }
    let dir = place::root().join("console");
    install(&dir)?;
    let npx = |words: &[&str]| {
        let npx = program("npx").dir(&dir).arg("--no-install");
        npx.args(words).limit(300).shown_live()
    };
    npx(&["tsc", "--noEmit"])?;
    npx(&["vitest", "run"])?;
    // It also weighs what it has built.
    npx(&["vite", "build", "--logLevel", "warn"])?;
    match args.browser {
        true => browser(&dir),
        false => Ok(()),
    }
}

/// Why the console can't be built here, where that is nobody's mistake: without Node the binary is built without it.
pub(crate) fn not_here() -> Result<Option<&'static str>> {
    let there = tools::find("node").is_some() && tools::find("npm").is_some();
    if !there || unfit()?.is_some() {
        return Ok(Some(
            "Node 20.19 or newer isn't there: the binary has no console",
        ));
    }
    Ok(None)
}

fn unfit() -> Result<Option<String>> {
    let version = program("node").arg("--version").output()?;
    let version = version.trim();
    let mut parts = version
        .trim_start_matches('v')
        .split('.')
        .map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= NODE => Ok(None),
        _ => Ok(Some(format!(
            "Node {version} is there, and {}.{} is the least that the console is built with",
            NODE.0, NODE.1
        ))),
    }
}

/// Brings what `package-lock.json` names, unless it is there already.
pub(crate) fn install(dir: &Path) -> Result<()> {
    let wanted = std::fs::read_to_string(dir.join("package-lock.json"))?;
    let mark = dir.join("node_modules/.riverlog-lock");
    if std::fs::read_to_string(&mark).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    // `npm ci` refuses a lock file that leaves out what only other systems need.
    let installed = program("npm")
        .dir(dir)
        .args([
            "install",
            "--ignore-scripts",
            "--prefer-offline",
            "--no-progress",
        ])
        .limit(300)
        .output();
    match installed {
        Ok(_) => Ok(std::fs::write(mark, wanted)?),
        Err(why) => Err(tools::unreachable_packages("npm's registry", &why).into()),
    }
}

/// Each page against a broker with data, by keyboard and by eye; screenshots are in `console/browser/shots`.
fn browser(dir: &Path) -> Result<()> {
    tools::ensure(&[Tool::Chromium])?;
    let riverlog = riverlog_binary(false)?;
    let mut scratch = Scratch::new("console")?;
    let result = program("node")
        .dir(dir)
        .arg("browser/run.mjs")
        .arg(&riverlog)
        .arg(scratch.path())
        .limit(600)
        .shown_live();
    if result.is_err() {
        scratch.keep();
        eprintln!(
            "xtask: what is left of it is in {}",
            scratch.path().display()
        );
    }
    result
}
