//! Links in the documents that lead nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::{File, Finding};

pub(super) fn check(files: &[File], root: &Path) -> Vec<Finding> {
    let pages: Vec<&File> = files.iter().filter(|f| f.path.ends_with(".md")).collect();
    let anchors: BTreeMap<&str, BTreeSet<String>> = pages
        .iter()
        .map(|page| (page.path.as_str(), headings(&page.text)))
        .collect();
    let mut found = Vec::new();
    for page in &pages {
        for (line, target) in links(&page.text) {
            if let Some(what) = dead(page, &target, &anchors, root) {
                found.push(Finding {
                    file: page.path.clone(),
                    line,
                    what,
                    why: "a reader who follows it is lost".into(),
                    remedy: "mend the link, or write what it promises".into(),
                });
            }
        }
    }
    found
}

/// What is wrong with a link on `page`, if anything. Addresses on the net aren't followed.
fn dead(
    page: &File,
    target: &str,
    anchors: &BTreeMap<&str, BTreeSet<String>>,
    root: &Path,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() {
        page.path.clone()
    } else {
        let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        let Some(file) = normal(&folder.join(path)) else {
            return Some(format!("`{target}` leads out of the repository"));
        };
        if !root.join(&file).exists() {
            return Some(format!("`{target}`: there is no {file}"));
        }
        file
    };
    let known = anchors.get(file.as_str())?;
    (!anchor.is_empty() && !known.contains(anchor))
        .then(|| format!("`{target}`: {file} has no such heading"))
}

/// `a/../b` as `b`; `None` when it leads above the root.
fn normal(path: &Path) -> Option<String> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                if !out.pop() {
                    return None;
                }
            }
            Component::Normal(name) => out.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(out.display().to_string())
}

/// The lines outside fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(n, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((n + 1, line))
    })
}

/// Targets of `[text](target)` and `[name]: target`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (n, line) in prose(text) {
        let plain = without_code(line);
        let mut rest = plain.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let (target, next) = after.split_once(')').unwrap_or((after, ""));
            let target = target.split_whitespace().next().unwrap_or_default();
            found.push((n, target.trim_matches(['<', '>']).to_owned()));
            rest = next;
        }
        if plain.trim_start().starts_with('[')
            && let Some((_, target)) = plain.split_once("]: ")
        {
            found.push((
                n,
                target
                    .split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            ));
        }
    }
    found
}

/// The line without its `code`.
fn without_code(line: &str) -> String {
    let mut parts = line.split('`');
    let mut out = parts.next().unwrap_or_default().to_owned();
    // Every second part is code; what stands before and after is not.
    while let (Some(_), Some(text)) = (parts.next(), parts.next()) {
        out.push_str(text);
    }
    out
}

/// The anchors that the headings of a page get.
fn headings(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim();
        let anchor: String = title
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let times = seen.entry(anchor.clone()).or_default();
        anchors.insert(match *times {
            0 => anchor,
            n => format!("{anchor}-{n}"),
        });
        *times += 1;
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for (path, text) in pages {
            let file = dir.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
            files.push(File {
                path: (*path).into(),
                text: (*text).into(),
            });
        }
        let found = check(&files, dir.path());
        found
            .into_iter()
            .map(|f| format!("{}:{}: {}", f.file, f.line, f.what))
            .collect()
    }

    #[test]
    fn files_and_headings_are_looked_up_from_the_page() {
        let readme = (
            "README.md",
            "# A\n## What's new?\n[x](docs/a.md#b-c) [y](#whats-new) [z](docs/)",
        );
        let page = ("docs/a.md", "## B, c\n[up](../README.md#a)\n");
        assert!(found(&[readme, page]).is_empty());
    }

    #[test]
    fn dead_ones_are_found_with_their_line() {
        let page = (
            "docs/a.md",
            "text\n[x](b.md) and [y](#z)\n[n]: ../gone.md\n[o](../../out)",
        );
        assert_eq!(
            found(&[page]),
            [
                "docs/a.md:2: `b.md`: there is no docs/b.md",
                "docs/a.md:2: `#z`: docs/a.md has no such heading",
                "docs/a.md:3: `../gone.md`: there is no gone.md",
                "docs/a.md:4: `../../out` leads out of the repository",
            ]
        );
    }

    #[test]
    fn code_and_addresses_are_left_alone() {
        let page = (
            "a.md",
            "```\n[x](gone.md)\n```\n`[x](gone.md)` [y](https://example.org/gone)\n",
        );
        assert!(found(&[page]).is_empty());
    }

    #[test]
    fn a_heading_that_comes_twice_gets_a_number() {
        let page = ("a.md", "# Same\n# Same\n[x](#same) [y](#same-1)");
        assert!(found(&[page]).is_empty());
    }
}
