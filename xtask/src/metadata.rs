//! What `cargo metadata` says about the workspace: packages, and who depends on whom.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::Result;
use crate::run::cargo;

/// The platform whose dependencies count; `deny.toml` names the same.
pub(crate) const PLATFORM: &str = "x86_64-unknown-linux-gnu";

#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The SPDX expression of its manifest.
    pub(crate) licence: Option<String>,
    /// From the workspace, or brought from a registry.
    pub(crate) ours: bool,
    /// Absolute path of its Cargo.toml.
    pub(crate) manifest: String,
    /// Where it comes from (`registry+…`, `git+…`); `None` for a path.
    pub(crate) source: Option<String>,
    /// Ids of the packages that it links with or that its build script or macros use.
    pub(crate) uses: BTreeSet<String>,
    /// Ids of those only its tests use.
    pub(crate) tests_use: BTreeSet<String>,
}

/// All packages by id.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) packages: BTreeMap<String, Package>,
}

impl Workspace {
    /// Asks cargo. The lock file must be current: nothing is resolved anew behind the user's back.
    pub(crate) fn load() -> Result<Self> {
        let text = cargo()
            .args(["metadata", "--format-version", "1", "--locked"])
            .args(["--filter-platform", PLATFORM])
            .limit(120)
            .output()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text)?;
        let list = |value: &Value, key: &str| -> Vec<Value> {
            value[key].as_array().cloned().unwrap_or_default()
        };
        let word = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
        let members: BTreeSet<String> = list(&json, "workspace_members")
            .iter()
            .filter_map(|id| id.as_str().map(str::to_owned))
            .collect();
        let mut packages = BTreeMap::new();
        for p in list(&json, "packages") {
            let id = word(&p, "id").ok_or("a package without an id")?;
            let package = Package {
                name: word(&p, "name").ok_or("a package without a name")?,
                version: word(&p, "version").unwrap_or_default(),
                licence: word(&p, "license"),
                ours: members.contains(&id),
                manifest: word(&p, "manifest_path").unwrap_or_default(),
                source: word(&p, "source"),
                uses: BTreeSet::new(),
                tests_use: BTreeSet::new(),
            };
            packages.insert(id, package);
        }
        for node in list(&json["resolve"], "nodes") {
            let Some(package) = node["id"].as_str().and_then(|id| packages.get_mut(id)) else {
                continue;
            };
            for dep in list(&node, "deps") {
                let Some(id) = word(&dep, "pkg") else {
                    continue;
                };
                let kinds = list(&dep, "dep_kinds");
                if kinds.iter().any(|k| k["kind"] != "dev") {
                    package.uses.insert(id);
                } else {
                    package.tests_use.insert(id);
                }
            }
        }
        Ok(Self { packages })
    }

    /// The packages of this workspace.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages.values().filter(|p| p.ours)
    }

    pub(crate) fn name_of(&self, id: &str) -> &str {
        self.packages.get(id).map_or("?", |p| &p.name)
    }

    /// Everything that `package` is built from, directly or not, with the name through which it came in
    /// first.
    pub(crate) fn built_from<'a>(&'a self, package: &'a Package) -> BTreeMap<&'a str, &'a str> {
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        let mut todo: Vec<(&Package, &str)> = vec![(package, package.name.as_str())];
        while let Some((from, _)) = todo.pop() {
            for id in &from.uses {
                if !seen.contains_key(id.as_str())
                    && let Some(next) = self.packages.get(id)
                {
                    seen.insert(id, &from.name);
                    todo.push((next, &from.name));
                }
            }
        }
        seen
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A workspace of packages `(name, what it uses, what its tests use)`, all ours.
    pub(crate) fn workspace(packages: &[(&str, &[&str], &[&str])]) -> Workspace {
        let ids = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let entry = |&(name, uses, tests_use): &(&str, &[&str], &[&str])| {
            let package = Package {
                name: name.to_owned(),
                ours: true,
                manifest: format!("{name}/Cargo.toml"),
                uses: ids(uses),
                tests_use: ids(tests_use),
                ..Package::default()
            };
            (name.to_owned(), package)
        };
        Workspace {
            packages: packages.iter().map(entry).collect(),
        }
    }

    #[test]
    fn normal_and_build_dependencies_are_used_dev_ones_by_tests_alone() {
        let text = r#"{
            "workspace_members": ["a"],
            "packages": [
                {"id": "a", "name": "a", "version": "1.0.0", "license": "MIT", "manifest_path": "/x/Cargo.toml"},
                {"id": "b", "name": "b", "version": "1.0.0", "source": "registry+x"},
                {"id": "c", "name": "c", "version": "1.0.0"}
            ],
            "resolve": {"nodes": [{"id": "a", "deps": [
                {"pkg": "b", "dep_kinds": [{"kind": "dev"}, {"kind": "build"}]},
                {"pkg": "c", "dep_kinds": [{"kind": "dev"}]}
            ]}]}
        }"#;
        let w = Workspace::parse(text).unwrap();
        let a = &w.packages["a"];
        assert!(a.ours && !w.packages["b"].ours);
        assert!(a.uses.contains("b") && !a.uses.contains("c"));
        assert!(a.tests_use.contains("c"));
    }

    #[test]
    fn built_from_follows_the_arrows_but_not_those_of_tests() {
        let w = workspace(&[
            ("a", &["b"], &["d"]),
            ("b", &["c"], &[]),
            ("c", &[], &[]),
            ("d", &[], &[]),
        ]);
        let all = w.built_from(&w.packages["a"]);
        assert_eq!(all.get("c"), Some(&"b"));
        assert!(!all.contains_key("d"));
    }
}
