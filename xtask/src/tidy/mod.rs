//! `cargo xtask tidy`: the rules that neither the compiler nor clippy knows.
//!
//! Each rule reads the tree and returns [`Finding`]s; a finding says where, what, why it matters and what to do.

mod arrows;
mod calls;
mod catalogue;
mod files;
mod licences;
mod links;
mod source;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::Result;
use crate::metadata::Workspace;
use crate::place;
use crate::run::program;

#[derive(Parser)]
pub(crate) struct Args {}

/// Something to mend.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the workspace root.
    pub(crate) file: String,
    /// From 1; 0 when it is about the whole file.
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// The findings, those with one reason together, so that it is read once.
struct Report(Vec<Finding>);

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<&Finding> = self.0.iter().collect();
        sorted.sort_by_key(|x| (&x.why, &x.remedy, *x));
        let same = |a: &&Finding, b: &&Finding| (&a.why, &a.remedy) == (&b.why, &b.remedy);
        for group in sorted.chunk_by(same) {
            for finding in group {
                match finding.line {
                    0 => writeln!(f, "{}: {}", finding.file, finding.what)?,
                    line => writeln!(f, "{}:{line}: {}", finding.file, finding.what)?,
                }
            }
            if let Some(finding) = group.first() {
                writeln!(f, "    why:    {}", finding.why)?;
                writeln!(f, "    remedy: {}", finding.remedy)?;
            }
        }
        Ok(())
    }
}

/// A text file of the repository.
pub(crate) struct File {
    /// Relative to the workspace root, `/` between folders.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Written by a program: its first lines say so.
    pub(crate) fn is_generated(&self) -> bool {
        self.text.lines().take(3).any(|l| l.contains("@generated"))
    }
}

pub(crate) fn run(_: &Args) -> Result<()> {
    let root = place::root();
    let files = tracked(&root)?;
    let workspace = Workspace::load()?;
    let mut findings = arrows::check(&workspace);
    findings.extend(licences::check(
        &workspace,
        &fs::read_to_string(root.join("deny.toml"))?,
    )?);
    findings.extend(calls::check(&files));
    findings.extend(files::check(&files, &developer_folders(&root)));
    findings.extend(links::check(&files, &root));
    findings.extend(catalogue::check(&files));
    let count = findings.len();
    eprint!("{}", Report(findings));
    match count {
        0 => {
            println!(
                "tidy: {} files, {} packages, nothing to mend",
                files.len(),
                workspace.packages.len()
            );
            Ok(())
        }
        1 => Err("tidy: 1 finding".into()),
        n => Err(format!("tidy: {n} findings").into()),
    }
}

/// The text files that git tracks, and new ones that it doesn't ignore.
fn tracked(root: &Path) -> Result<Vec<File>> {
    let list = program("git")
        .dir(root)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()?;
    let mut files = Vec::new();
    for path in list.split('\0').filter(|p| !p.is_empty()) {
        // A file that was deleted but not committed is still listed; a link may lead anywhere.
        let absolute = root.join(path);
        if !absolute.symlink_metadata().is_ok_and(|m| m.is_file()) {
            continue;
        }
        if let Ok(text) = String::from_utf8(fs::read(&absolute)?) {
            let path = path.to_owned();
            files.push(File { path, text });
        }
    }
    Ok(files)
}

/// Folders whose names mean something on this machine only: the home folder and those above the checkout.
fn developer_folders(root: &Path) -> Vec<String> {
    let everywhere = [
        "", "tmp", "home", "usr", "var", "opt", "srv", "mnt", "builds",
    ];
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let above = root.ancestors().map(Path::to_path_buf);
    let mut folders: Vec<String> = above
        .chain(home)
        .filter(|p| !everywhere.iter().any(|e| *p == Path::new("/").join(e)))
        .map(|p| format!("{}/", p.display()))
        .collect();
    folders.sort();
    folders.dedup();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_say_where_what_why_and_what_to_do_and_the_reason_once() {
        let finding = |file: &str, line, why: &str| Finding {
            file: file.into(),
            line,
            what: "w".into(),
            why: why.into(),
            remedy: "r".into(),
        };
        let report = Report(vec![
            finding("b.rs", 3, "y"),
            finding("c", 0, "x"),
            finding("a.rs", 1, "y"),
        ]);
        let reason = |why| format!("    why:    {why}\n    remedy: r\n");
        let expected = format!("c: w\n{}a.rs:1: w\nb.rs:3: w\n{}", reason("x"), reason("y"));
        assert_eq!(report.to_string(), expected);
    }

    #[test]
    fn the_checkout_is_a_developer_folder_and_a_standard_one_above_it_is_not() {
        let folders = developer_folders(Path::new("/home/someone/riverlog"));
        assert!(folders.contains(&"/home/someone/riverlog/".to_owned()));
        assert!(folders.contains(&"/home/someone/".to_owned()));
        assert!(!folders.contains(&"/home/".to_owned()));
    }
}
