//! `cargo xtask readme`: runs the commands that the documents show, so that they go on working.
//!
//! A fenced block of README.md or docs/ is run when its first line is one of
//!
//! - ```` ```sh test ````: a script; it must end with 0.
//! - ```` ```sh test=background ````: a program that runs until the page ends; `wait=PORT` on the same line
//!   waits until something listens there.
//! - ```` ```console test ````: lines that begin with `$ ` are commands (`> ` continues one), the others are what
//!   they print; `…` stands for any text, a line of it for any lines.
//!
//! The blocks of a page run one after another in one scratch folder, with the dev build of `riverlog` on the
//! PATH and `target` of the repository as `REPO_TARGET`. What runs in the background is ended with the page.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;

use crate::Result;
use crate::broker;
use crate::place::{self, Scratch};
use crate::run::{self, Run, program};

/// Seconds for one block.
const LIMIT_S: u64 = 60;

#[derive(Default, Parser)]
pub(crate) struct Args {
    /// Only these pages
    pages: Vec<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Script,
    Background { wait: Option<u16> },
    Session,
}

#[derive(Debug, PartialEq, Eq)]
struct Block {
    line: usize,
    kind: Kind,
    text: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let pages = if args.pages.is_empty() {
        all_pages()?
    } else {
        args.pages.clone()
    };
    let mut failed = 0;
    for page in pages {
        let blocks = blocks(&fs::read_to_string(&page)?)?;
        if blocks.is_empty() {
            continue;
        }
        let name = page
            .strip_prefix(place::root())
            .unwrap_or(&page)
            .display()
            .to_string();
        match run_page(&name, &blocks) {
            Ok(()) => println!("readme: {name}: {} blocks work", blocks.len()),
            Err(why) => {
                eprintln!("{why}");
                failed += 1;
            }
        }
    }
    match failed {
        0 => Ok(()),
        n => Err(format!("{n} of the documents show commands that don't work").into()),
    }
}

fn all_pages() -> Result<Vec<PathBuf>> {
    let root = place::root();
    let list = program("git")
        .dir(&root)
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "README.md",
            "docs/*.md",
        ])
        .output()?;
    Ok(list
        .lines()
        .map(|path| root.join(path))
        .filter(|path| path.is_file())
        .collect())
}

fn blocks(text: &str) -> Result<Vec<Block>> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((n, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let mut text = String::new();
        for (_, line) in lines.by_ref() {
            if line.trim() == "```" {
                break;
            }
            text.push_str(line.get(indent..).unwrap_or_default());
            text.push('\n');
        }
        if let Some(kind) = kind(info, n + 1)? {
            found.push(Block {
                line: n + 1,
                kind,
                text,
            });
        }
    }
    Ok(found)
}

fn kind(info: &str, line: usize) -> Result<Option<Kind>> {
    let mut words = info.split_whitespace();
    let language = words.next().unwrap_or_default();
    let mut background = None;
    let mut wait = None;
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("test", "") => background = Some(false),
            ("test", "background") => background = Some(true),
            ("wait", port) => wait = Some(port.parse()?),
            _ => return Err(format!("line {line}: '{word}' isn't known here").into()),
        }
    }
    match (language, background) {
        (_, None) => Ok(None),
        ("sh", Some(false)) => Ok(Some(Kind::Script)),
        ("sh", Some(true)) => Ok(Some(Kind::Background { wait })),
        ("console", Some(false)) => Ok(Some(Kind::Session)),
        _ => {
            Err(format!("line {line}: ```{info}: only sh and console blocks can be tested").into())
        }
    }
}

/// Ends what a page left running.
struct Background(Vec<std::process::Child>);

impl Drop for Background {
    fn drop(&mut self) {
        for child in &mut self.0 {
            broker::terminate(child.id());
            if !matches!(run::wait(child, Duration::from_secs(10)), Ok(Some(_))) {
                // An error means that it ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn run_page(name: &str, blocks: &[Block]) -> Result<()> {
    let binary = broker::riverlog_binary(false)?;
    let folder = binary.parent().unwrap_or(Path::new(""));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", folder.display());
    let scratch = Scratch::new("readme")?;
    let shell = |text: &str| -> Run {
        program("bash")
            .dir(scratch.path())
            .args(["-euo", "pipefail", "-c", text])
            .env("PATH", &path)
            .env("REPO_TARGET", place::target())
            .env("NO_COLOR", "1")
            .limit(LIMIT_S)
    };
    let mut running = Background(Vec::new());
    for block in blocks {
        let at = format!("{name}:{}", block.line);
        match block.kind {
            Kind::Script => {
                let out = shell(&block.text).outcome()?;
                if !out.ok() {
                    let said = run::last_lines(&format!("{}{}", out.stdout, out.stderr), 20);
                    return Err(format!("{at}: {}\n{said}", out.how_it_ended()).into());
                }
            }
            Kind::Background { wait } => {
                let log = scratch
                    .path()
                    .join(format!("background-{}.log", block.line));
                // The shell gives way to the program, so that ending one ends the other.
                let text = format!("exec {}", block.text.trim());
                running.0.push(shell(&text).spawn_logged(&log, false)?);
                if let Some(port) = wait {
                    wait_for(port).map_err(|why| {
                        let said = fs::read_to_string(&log).unwrap_or_default();
                        format!("{at}: {why}\n{}", run::last_lines(&said, 20))
                    })?;
                }
            }
            Kind::Session => {
                for (command, expected) in session(&block.text) {
                    let out = shell(&command).outcome()?;
                    let said = format!("{}{}", out.stdout, out.stderr);
                    if !out.ok() || !matches(&expected, &said) {
                        let ended = out.how_it_ended();
                        let said = run::last_lines(&said, 30);
                        return Err(format!(
                            "{at}: `{command}`: {ended}; it should print\n{expected}\nand prints\n{said}"
                        )
                        .into());
                    }
                }
            }
        }
    }
    Ok(())
}

fn wait_for(port: u16) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(broker::address(port)).is_err() {
        if Instant::now() > end {
            return Err(format!("nobody listens on port {port} after 20 s").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The commands of a console block, each with what it should print.
fn session(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            found.push((command.to_owned(), String::new()));
        } else if let Some((command, expected)) = found.last_mut() {
            match line.strip_prefix("> ") {
                Some(more) if expected.is_empty() => {
                    // Writing to a string can't fail.
                    let _ = write!(command, "\n{more}");
                }
                _ => {
                    let _ = writeln!(expected, "{line}");
                }
            }
        }
    }
    found
}

/// Whether `said` is `expected`, in which `…` stands for any text. Nothing expected: anything goes.
fn matches(expected: &str, said: &str) -> bool {
    let expected = expected.trim_end();
    if expected.is_empty() {
        return true;
    }
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = said.trim_end().strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_blocks_are_taken() {
        let text = "```sh\nno\n```\n```sh test\nyes\n```\n- x\n  ```sh test=background wait=9092\n  serve\n  ```\n\
                    ```console test\n$ a\n```\n";
        let found = blocks(text).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(
            found[0],
            Block {
                line: 4,
                kind: Kind::Script,
                text: "yes\n".into()
            }
        );
        assert_eq!(found[1].kind, Kind::Background { wait: Some(9092) });
        assert_eq!(found[1].text, "serve\n");
        assert_eq!(found[2].kind, Kind::Session);
    }

    #[test]
    fn a_mark_that_cannot_be_run_is_an_error() {
        assert!(blocks("```rust test\n```\n").is_err());
        assert!(blocks("```sh tset\n```\n").is_err());
    }

    #[test]
    fn a_session_is_commands_and_what_they_print() {
        let found = session("$ one \\\n> two\nout\n\n$ three\n");
        assert_eq!(found[0], ("one \\\ntwo".into(), "out\n\n".into()));
        assert_eq!(found[1], ("three".into(), String::new()));
    }

    #[test]
    fn dots_stand_for_any_text() {
        assert!(matches("offset … of 3\n", "offset 12 of 3\n"));
        assert!(matches("a\n…\nz\n", "a\nb\nc\nz\n"));
        assert!(matches("", "anything"));
        assert!(!matches("a\n", "a\nb\n"));
        assert!(!matches("a … c", "a b d"));
        assert!(!matches("b …", "a b"));
    }
}
