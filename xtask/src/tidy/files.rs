//! What holds for whole files: their length, whose machine they speak of, what each manifest says.

use super::{File, Finding};

/// A file can be read in one sitting.
const MOST_LINES: usize = 1000;

/// Sources that the length counts for.
const SOURCES: &[&str] = &[".rs", ".py", ".js", ".ts", ".tsx", ".go", ".java", ".sh"];

/// `folders`: those whose names mean something on this machine only.
pub(super) fn check(files: &[File], folders: &[String]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in files {
        length(file, &mut found);
        places(file, folders, &mut found);
        manifest(file, &mut found);
    }
    found
}

fn length(file: &File, found: &mut Vec<Finding>) {
    let lines = file.text.lines().count();
    if lines > MOST_LINES
        && SOURCES.iter().any(|end| file.path.ends_with(end))
        && !file.is_generated()
    {
        found.push(Finding {
            file: file.path.clone(),
            line: 0,
            what: format!("{lines} lines; {MOST_LINES} is the limit"),
            why: "a file holds one idea and can be read in one sitting".into(),
            remedy: "split it by what its parts decide; long tests go to `…/tests.rs`".into(),
        });
    }
}

fn places(file: &File, folders: &[String], found: &mut Vec<Finding>) {
    for (n, line) in file.text.lines().enumerate() {
        let here = folders
            .iter()
            .find_map(|f| begins_at_a_boundary(line, f).then_some(f.as_str()));
        let someones = ["/home/", "/Users/"]
            .into_iter()
            .find(|home| names_a_user(line, home));
        if let Some(folder) = here.or(someones) {
            found.push(Finding {
                file: file.path.clone(),
                line: n + 1,
                what: format!("a path of one machine: `{folder}…`"),
                why: "it exists on nobody else's machine".into(),
                remedy: "name it from the repository's root, the cache folder or an argument"
                    .into(),
            });
        }
    }
}

/// Whether an absolute path in `line` begins with `folder`, rather than an address or a longer path.
fn begins_at_a_boundary(line: &str, folder: &str) -> bool {
    let mut at = line.match_indices(folder).map(|(at, _)| at);
    at.any(|at| starts_a_path(line, at))
}

/// Whether the slash at `at` is the first of its path.
fn starts_a_path(line: &str, at: usize) -> bool {
    let before = line[..at].chars().next_back();
    !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '}' | '/' | '*'))
}

fn names_a_user(line: &str, home: &str) -> bool {
    // Names that stand for anybody.
    const ANYBODY: [&str; 6] = ["", "someone", "user", "you", "app", "runner"];
    line.match_indices(home).any(|(at, _)| {
        let rest = &line[at + home.len()..];
        let user: String = rest
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        starts_a_path(line, at) && !ANYBODY.contains(&user.as_str())
    })
}

fn manifest(file: &File, found: &mut Vec<Finding>) {
    let member = (file.path.starts_with("crates/") || file.path.starts_with("xtask/"))
        && file.path.ends_with("/Cargo.toml");
    if !member {
        return;
    }
    let Ok(toml) = file.text.parse::<toml::Table>() else {
        // Cargo says it better.
        return;
    };
    let workspace = |section: &str, key: &str| {
        let value = toml.get(section).and_then(|s| s.get(key));
        value
            .and_then(|v| v.get("workspace"))
            .and_then(toml::Value::as_bool)
            == Some(true)
    };
    let mut finding = |what: &str, why: &str, remedy: &str| {
        found.push(Finding {
            file: file.path.clone(),
            line: 0,
            what: what.into(),
            why: why.into(),
            remedy: remedy.into(),
        });
    };
    let lints = toml
        .get("lints")
        .and_then(|l| l.get("workspace"))
        .and_then(toml::Value::as_bool);
    if lints != Some(true) {
        finding(
            "the workspace's lints aren't inherited",
            "unsafe code and undocumented items would pass unseen",
            "add `[lints]` with `workspace = true`",
        );
    }
    for key in ["version", "edition", "rust-version", "license"] {
        if !workspace("package", key) {
            finding(
                &format!("`{key}` isn't the workspace's"),
                "all crates are released together",
                &format!("write `{key}.workspace = true`"),
            );
        }
    }
    let described = toml.get("package").and_then(|p| p.get("description"));
    if described.is_none() {
        finding(
            "no description",
            "a crate that can't be described in a sentence has no place yet",
            "add `description = \"…\"`",
        );
    }
    for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let table = toml.get(section).and_then(toml::Value::as_table);
        for (name, _) in table
            .into_iter()
            .flatten()
            .filter(|(name, _)| !workspace(section, name))
        {
            finding(
                &format!("`{name}` has a version of its own in [{section}]"),
                "one version of each dependency, chosen in one place",
                &format!("name it in the root Cargo.toml and write `{name}.workspace = true`"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = File {
            path: path.into(),
            text: text.into(),
        };
        let folders = ["/data/checkout/".to_owned()];
        check(&[file], &folders)
            .into_iter()
            .map(|f| format!("{}: {}", f.line, f.what))
            .collect()
    }

    #[test]
    fn a_long_file_is_found_unless_a_program_wrote_it() {
        let long = "x\n".repeat(1001);
        assert_eq!(
            found("crates/a/src/b.rs", &long),
            ["0: 1001 lines; 1000 is the limit"]
        );
        assert!(found("crates/a/src/b.rs", &format!("// @generated by x\n{long}")).is_empty());
        assert!(found("docs/table.csv", &long).is_empty());
        assert!(found("crates/a/src/b.rs", &"x\n".repeat(1000)).is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        assert_eq!(found("docs/a.md", "see\n/data/checkout/x").len(), 1);
        assert_eq!(
            found("docs/a.md", concat!("`/ho", "me/jane/x`")),
            ["1: a path of one machine: `/home/…`"]
        );
        assert!(
            found(
                "docs/a.md",
                "/home/someone/x and https://a.b/data/checkout/x"
            )
            .is_empty()
        );
        assert!(found("docs/a.md", "/home/").is_empty());
    }

    #[test]
    fn a_manifest_inherits_what_the_workspace_settles() {
        let good = "[package]\nname = \"a\"\ndescription = \"b\"\nversion.workspace = true\nedition.workspace = true\n\
                    rust-version.workspace = true\nlicense.workspace = true\n[lints]\nworkspace = true\n\
                    [dependencies]\nbytes.workspace = true\n";
        assert!(found("crates/a/Cargo.toml", good).is_empty());
        let own = good.replace("bytes.workspace = true", "bytes = \"1\"");
        assert_eq!(
            found("crates/a/Cargo.toml", &own),
            ["0: `bytes` has a version of its own in [dependencies]"]
        );
        let lax = good.replace("[lints]\nworkspace = true\n", "");
        assert_eq!(
            found("crates/a/Cargo.toml", &lax),
            ["0: the workspace's lints aren't inherited"]
        );
    }
}
