//! Tests that documents name and that aren't there: `path/to/file.rs::name`, `cargo xtask drill NAME` and the simulator's
//! `clients/NAME.rs` in backquotes.

use super::{File, Finding};

/// Pages that name tests.
const PAGES: &[&str] = &["docs/reliability/catalogue.md"];

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut found = Vec::new();
    for page in files.iter().filter(|f| PAGES.contains(&f.path.as_str())) {
        for (number, line) in (1..).zip(page.text.lines()) {
            for name in line.split('`').skip(1).step_by(2) {
                if let Some(what) = missing(name, files) {
                    found.push(Finding {
                        file: page.path.clone(),
                        line: number,
                        what,
                        why: "a test that isn't there shows nothing".into(),
                        remedy: "name the test as it is called now, or say that nothing shows it"
                            .into(),
                    });
                }
            }
        }
    }
    found
}

/// Where drills lie: those of one server, a file each, and those of three.
const DRILLS: &str = "crates/riverlog-chaos/src/drills";
const CLUSTER_DRILLS: &str = "crates/riverlog-chaos/src/cluster";
/// Where the simulator lies.
const SIMULATOR: &str = "crates/riverlog-sim/src";

/// What is wrong with a name in backquotes, if it is that of a test.
fn missing(name: &str, files: &[File]) -> Option<String> {
    if let Some(drill) = name.strip_prefix("cargo xtask drill ") {
        let (own, quoted) = (format!("name: \"{drill}\""), format!("drill(\"{drill}\""));
        let there = files.iter().any(|f| {
            (f.path.starts_with(DRILLS) && f.text.contains(&own))
                || (f.path.starts_with(CLUSTER_DRILLS) && f.text.contains(&quoted))
        });
        return (!there).then(|| format!("`{name}`: there is no such drill"));
    }
    if name.starts_with("clients/") {
        let path = format!("{SIMULATOR}/{name}");
        let there = files.iter().any(|f| f.path == path);
        return (!there).then(|| format!("`{name}`: there is no {path}"));
    }
    let (path, test) = name.split_once("::")?;
    let Some(file) = files.iter().find(|f| f.path == path) else {
        return Some(format!("`{name}`: there is no {path}"));
    };
    // A function, or a check of the table in tests/checks.
    let function = format!("fn {test}(");
    let check = format!("\"{test}\"");
    let there = file.text.contains(&function) || file.text.contains(&check);
    (!there).then(|| format!("`{name}`: {path} has no such test"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_test_that_is_not_there_is_found() {
        let page = "| A | `a/t.rs::one` | `a/t.rs::two` |\n| B | `a/c.rs::a-check` `no.rs::x` | `cargo test` |\n\
            | C | `cargo xtask drill kill` `cargo xtask drill flood` | `clients/maker.rs` `clients/none.rs` |\n";
        let files = [
            file("docs/reliability/catalogue.md", page),
            file("docs/other.md", "`no.rs::y`"),
            file("a/t.rs", "#[test]\nfn one() {}\n"),
            file("a/c.rs", "name: \"a-check\","),
            file(&format!("{DRILLS}/kill.rs"), "    name: \"kill\",\n"),
            file(&format!("{SIMULATOR}/clients/maker.rs"), ""),
        ];
        let whats: Vec<(usize, String)> = check(&files)
            .into_iter()
            .map(|f| (f.line, f.what))
            .collect();
        assert_eq!(
            whats,
            [
                (1, "`a/t.rs::two`: a/t.rs has no such test".to_owned()),
                (2, "`no.rs::x`: there is no no.rs".to_owned()),
                (
                    3,
                    "`cargo xtask drill flood`: there is no such drill".to_owned()
                ),
                (
                    3,
                    format!("`clients/none.rs`: there is no {SIMULATOR}/clients/none.rs")
                ),
            ]
        );
    }
}
