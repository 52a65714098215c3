//! Which crate may use which. Decisions and I/O live apart: the crates that decide see no clock, socket or runtime.

use crate::metadata::{Package, Workspace};
use crate::place;

use super::Finding;

/// A crate of the workspace and the ones it may use. What its tests use obeys the same table, plus `FOR_TESTS`.
const ARROWS: &[(&str, &[&str])] = &[
    ("riverlog-mutants", &[]),
    ("riverlog-wire", &["riverlog-mutants"]),
    ("riverlog-log", &["riverlog-mutants", "riverlog-wire"]),
    ("riverlog-core", &["riverlog-mutants", "riverlog-wire"]),
    (
        "riverlog-node",
        &[
            "riverlog-mutants",
            "riverlog-wire",
            "riverlog-log",
            "riverlog-core",
        ],
    ),
    (
        "riverlog-quorum",
        &[
            "riverlog-mutants",
            "riverlog-wire",
            "riverlog-log",
            "riverlog-core",
            "riverlog-node",
        ],
    ),
    (
        "riverlog-host",
        &[
            "riverlog-wire",
            "riverlog-core",
            "riverlog-log",
            "riverlog-node",
        ],
    ),
    ("riverlog-schema", &[]),
    (
        "riverlog-api",
        &[
            "riverlog-wire",
            "riverlog-core",
            "riverlog-node",
            "riverlog-schema",
        ],
    ),
    (
        "riverlog-http",
        &[
            "riverlog-wire",
            "riverlog-core",
            "riverlog-node",
            "riverlog-api",
        ],
    ),
    (
        "riverlog",
        &[
            "riverlog-wire",
            "riverlog-log",
            "riverlog-core",
            "riverlog-node",
            "riverlog-host",
            "riverlog-api",
        ],
    ),
    (
        "riverlog-server",
        &[
            "riverlog-wire",
            "riverlog-log",
            "riverlog-core",
            "riverlog-node",
            "riverlog-quorum",
            "riverlog-host",
            "riverlog-schema",
            "riverlog-api",
            "riverlog-http",
        ],
    ),
    ("riverlog-checker", &[]),
    ("riverlog-checks", &["riverlog-wire"]),
    (
        "riverlog-sim",
        &[
            "riverlog-mutants",
            "riverlog-wire",
            "riverlog-log",
            "riverlog-core",
            "riverlog-node",
            "riverlog-quorum",
            "riverlog-api",
            "riverlog-checker",
        ],
    ),
    ("riverlog-chaos", &["riverlog-checker"]),
    ("riverlog-bench", &["riverlog-wire", "riverlog"]),
    ("xtask", &[]),
];

/// Of tests alone: an end-to-end test may look at bytes and rules that the crate itself doesn't touch.
const FOR_TESTS: &[(&str, &[&str])] = &[
    ("riverlog-api", &["riverlog-log", "riverlog-checks"]),
    ("riverlog-http", &["riverlog-host", "riverlog-log"]),
    ("riverlog-server", &["riverlog", "riverlog-checker"]),
    ("riverlog-chaos", &["riverlog-wire"]),
];

/// Crates from outside that some of ours must not be built from, however far down.
struct Ban {
    crates: &'static [&'static str],
    within: &'static [&'static str],
    why: &'static str,
    remedy: &'static str,
}

const BANS: &[Ban] = &[
    Ban {
        crates: &["tokio", "async-std", "smol", "mio", "hyper", "axum"],
        within: &[
            "riverlog-wire",
            "riverlog-log",
            "riverlog-core",
            "riverlog-node",
            "riverlog-api",
            "riverlog-schema",
            "riverlog-host",
            "riverlog",
            "riverlog-sim",
            "riverlog-checker",
        ],
        why: "the engine is embedded without an async runtime, and the simulator owns all scheduling",
        remedy: "put what needs the runtime into riverlog-server or riverlog-http and hand the crate bytes and the time",
    },
    Ban {
        crates: &["rand", "fastrand", "getrandom", "oorandom"],
        within: &[
            "riverlog-wire",
            "riverlog-log",
            "riverlog-core",
            "riverlog-node",
        ],
        why: "randomness from outside the seed ends bit-exact replay",
        remedy: "take random values as part of the command, or from the host's entropy source",
    },
    Ban {
        crates: &["chrono", "time", "jiff"],
        within: &[
            "riverlog-wire",
            "riverlog-log",
            "riverlog-core",
            "riverlog-node",
        ],
        why: "time is an argument below the hosts; a calendar library brings a clock",
        remedy: "take the time in milliseconds; format it in the host",
    },
    Ban {
        crates: &["mimalloc", "jemallocator", "tikv-jemallocator"],
        within: &["riverlog", "riverlog-node", "riverlog-log", "riverlog-sim"],
        why: "a library leaves the allocator to the program it is in",
        remedy: "keep the allocator in the riverlog-server binary",
    },
];

/// Packages that the released binary may be built from, itself included.
const MOST_PACKAGES: usize = 300;

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in workspace.ours() {
        arrows_of(workspace, package, &mut found);
        bans_of(workspace, package, &mut found);
        if package.name == "riverlog-server" {
            let n = workspace.built_from(package).len() + 1;
            if n > MOST_PACKAGES {
                found.push(Finding {
                    file: manifest(package),
                    line: 0,
                    what: format!(
                        "the binary is built from {n} packages; {MOST_PACKAGES} is the limit"
                    ),
                    why: "every package is code that we answer for and that every build waits for"
                        .into(),
                    remedy: "leave out features or a dependency (`cargo tree -p riverlog-server`)"
                        .into(),
                });
            }
        }
    }
    found
}

fn arrows_of(workspace: &Workspace, package: &Package, found: &mut Vec<Finding>) {
    let row = |table: &[(&str, &'static [&'static str])]| {
        let row = table.iter().find(|(name, _)| *name == package.name);
        row.map(|(_, may)| *may)
    };
    let Some(may) = row(ARROWS) else {
        found.push(Finding {
            file: manifest(package),
            line: 0,
            what: format!("`{}` isn't in the table of crates", package.name),
            why: "each crate has its place: what it may use and what it must not know".into(),
            remedy: "add a row to ARROWS in xtask/src/tidy/arrows.rs and to the table in ARCHITECTURE.md".into(),
        });
        return;
    };
    let tests_may = row(FOR_TESTS).unwrap_or_default();
    let uses = package.uses.iter().map(|id| (id, may, &[][..]));
    let tests = package.tests_use.iter().map(|id| (id, may, tests_may));
    for (id, may, also) in uses.chain(tests) {
        let Some(other) = workspace.packages.get(id).filter(|p| p.ours) else {
            continue;
        };
        let name = other.name.as_str();
        // A crate's own tests name it again when they want another feature.
        if name != package.name && !may.contains(&name) && !also.contains(&name) {
            found.push(Finding {
                file: manifest(package),
                line: 0,
                what: format!("`{}` must not use `{name}`", package.name),
                why: "decisions and I/O live apart; a new arrow between crates needs an ADR".into(),
                remedy: format!(
                    "move the code to where both are known, or write the ADR and add `{name}` to ARROWS in \
                     xtask/src/tidy/arrows.rs"
                ),
            });
        }
    }
}

fn bans_of(workspace: &Workspace, package: &Package, found: &mut Vec<Finding>) {
    let bans: Vec<&Ban> = BANS
        .iter()
        .filter(|ban| ban.within.contains(&package.name.as_str()))
        .collect();
    if bans.is_empty() {
        return;
    }
    for (id, through) in workspace.built_from(package) {
        let name = workspace.name_of(id);
        for ban in bans.iter().filter(|ban| ban.crates.contains(&name)) {
            found.push(Finding {
                file: manifest(package),
                line: 0,
                what: format!(
                    "`{}` is built from `{name}` (through `{through}`)",
                    package.name
                ),
                why: ban.why.into(),
                remedy: ban.remedy.into(),
            });
        }
    }
}

/// The manifest's path seen from the workspace root.
fn manifest(package: &Package) -> String {
    let root = format!("{}/", place::root().display());
    package
        .manifest
        .strip_prefix(&root)
        .unwrap_or(&package.manifest)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::workspace;

    fn whats(packages: &[(&str, &[&str], &[&str])]) -> Vec<String> {
        check(&workspace(packages))
            .into_iter()
            .map(|f| f.what)
            .collect()
    }

    #[test]
    fn the_log_and_the_rules_never_see_each_other() {
        let core = ("riverlog-core", &["riverlog-wire"][..], &[][..]);
        let wire = ("riverlog-wire", &[][..], &[][..]);
        assert!(whats(&[core, wire, ("riverlog-log", &["riverlog-wire"], &[])]).is_empty());
        let bad = whats(&[core, wire, ("riverlog-log", &["riverlog-core"], &[])]);
        assert_eq!(bad, ["`riverlog-log` must not use `riverlog-core`"]);
    }

    #[test]
    fn an_arrow_for_tests_counts_too() {
        let bad = whats(&[
            ("riverlog-log", &[], &["riverlog-core"]),
            ("riverlog-core", &[], &[]),
        ]);
        assert_eq!(bad, ["`riverlog-log` must not use `riverlog-core`"]);
        let own = whats(&[("riverlog-log", &[], &["riverlog-log"])]);
        assert!(own.is_empty(), "{own:?}");
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(
            whats(&[("riverlog-new", &[], &[])]),
            ["`riverlog-new` isn't in the table of crates"]
        );
    }

    #[test]
    fn a_runtime_is_found_however_far_down() {
        let mut w = workspace(&[
            ("riverlog", &["middle"], &[]),
            ("middle", &["tokio"], &[]),
            ("tokio", &[], &[]),
        ]);
        for outside in ["middle", "tokio"] {
            w.packages.get_mut(outside).unwrap().ours = false;
        }
        let found = check(&w);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].what,
            "`riverlog` is built from `tokio` (through `middle`)"
        );
    }

    #[test]
    fn the_runtime_in_tests_only_is_no_finding() {
        let mut w = workspace(&[("riverlog", &[], &["tokio"]), ("tokio", &[], &[])]);
        w.packages.get_mut("tokio").unwrap().ours = false;
        assert!(check(&w).is_empty());
    }
}
