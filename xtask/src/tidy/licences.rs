//! Licences, doubles and banned crates over the whole dependency tree, by the same `deny.toml` that cargo-deny
//! reads (`cargo xtask long deny` runs that one).

use std::collections::{BTreeMap, BTreeSet};

use crate::Result;
use crate::metadata::{PLATFORM, Package, Workspace};

use super::Finding;

const FILE: &str = "deny.toml";

/// What `deny.toml` allows, as far as it is used here.
#[derive(Default)]
struct Policy {
    licences: BTreeSet<String>,
    /// Licences allowed for one crate only.
    exceptions: BTreeMap<String, BTreeSet<String>>,
    banned: BTreeMap<String, Ban>,
    doubles: BTreeSet<String>,
}

#[derive(Default)]
struct Ban {
    reason: String,
    /// Crates that may name it all the same.
    wrappers: BTreeSet<String>,
}

pub(super) fn check(workspace: &Workspace, deny_toml: &str) -> Result<Vec<Finding>> {
    let policy = Policy::parse(deny_toml)?;
    let mut found = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in workspace.packages.values() {
        versions
            .entry(&package.name)
            .or_default()
            .insert(&package.version);
        licence(&policy, package, &mut found);
        source(package, &mut found);
        if let Some(ban) = policy.banned.get(&package.name) {
            let users = workspace.packages.values().filter(|p| {
                let mut all = p.uses.iter().chain(&p.tests_use);
                all.any(|id| workspace.name_of(id) == package.name)
            });
            let users = users.map(|p| p.name.as_str());
            let (wrapping, users): (Vec<&str>, Vec<&str>) =
                users.partition(|user| ban.wrappers.contains(*user));
            if users.is_empty() && !wrapping.is_empty() {
                continue;
            }
            found.push(finding(
                format!(
                    "`{}` is banned and comes in through {}",
                    package.name,
                    users.join(", ")
                ),
                &ban.reason,
                "leave out the feature or the crate that brings it",
            ));
        }
    }
    let doubles = versions.iter().filter(|(_, v)| v.len() > 1);
    for (name, v) in doubles
        .clone()
        .filter(|(name, _)| !policy.doubles.contains(**name))
    {
        let v: Vec<&str> = v.iter().copied().collect();
        found.push(finding(
            format!("`{name}` is there more than once: {}", v.join(", ")),
            "each copy is built, shipped and audited again",
            "move to one version (`cargo tree -d`); where that can't be, add it to bans.skip with the reason",
        ));
    }
    let doubled: BTreeSet<&str> = doubles.map(|(name, _)| *name).collect();
    for name in policy
        .doubles
        .iter()
        .filter(|name| !doubled.contains(name.as_str()))
    {
        found.push(finding(
            format!("bans.skip names `{name}`, of which there is one version at most"),
            "an exception that nobody needs hides the next double",
            "remove the line",
        ));
    }
    Ok(found)
}

fn licence(policy: &Policy, package: &Package, found: &mut Vec<Finding>) {
    let who = format!("{} {}", package.name, package.version);
    let Some(text) = &package.licence else {
        found.push(finding(
            format!("{who} names no licence"),
            "what may not be used can't be shipped",
            "use another crate",
        ));
        return;
    };
    let own = policy.exceptions.get(&package.name);
    let allowed =
        |name: &str| policy.licences.contains(name) || own.is_some_and(|set| set.contains(name));
    let accepted = spdx::Expression::parse_mode(text, spdx::ParseMode::LAX).map(|expression| {
        expression.evaluate(|req| {
            let exception = req
                .addition
                .as_ref()
                .map(|a| format!(" WITH {a}"))
                .unwrap_or_default();
            let name = format!("{}{exception}", req.license);
            allowed(&name)
        })
    });
    if !accepted.unwrap_or(false) {
        found.push(finding(
            format!("{who} is under `{text}`, which isn't allowed"),
            "everything in the binary must go with Apache-2.0",
            "use another crate, or allow the licence in deny.toml after reading it",
        ));
    }
}

fn source(package: &Package, found: &mut Vec<Finding>) {
    let from_registry =
        |s: &String| s.starts_with("registry+https://github.com/rust-lang/crates.io-index");
    if !package.ours && !package.source.as_ref().is_some_and(from_registry) {
        let source = package.source.as_deref().unwrap_or("a path");
        found.push(finding(
            format!("{} {} comes from {source}", package.name, package.version),
            "only crates.io keeps every version for ever",
            "depend on a released version",
        ));
    }
}

fn finding(what: String, why: &str, remedy: &str) -> Finding {
    Finding {
        file: FILE.into(),
        line: 0,
        what,
        why: why.into(),
        remedy: remedy.into(),
    }
}

impl Policy {
    fn parse(text: &str) -> Result<Self> {
        let toml: toml::Table = text.parse()?;
        let list = |section: &str, key: &str| -> Vec<toml::Value> {
            let value = toml.get(section).and_then(|s| s.get(key));
            value
                .and_then(toml::Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let words = |values: &[toml::Value]| -> BTreeSet<String> {
            values
                .iter()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect()
        };
        let mut policy = Self {
            licences: words(&list("licenses", "allow")),
            ..Self::default()
        };
        if policy.licences.is_empty() {
            return Err("deny.toml allows no licence".into());
        }
        let platforms = list("graph", "targets");
        if platforms.iter().all(|p| p.as_str() != Some(PLATFORM)) {
            return Err(format!("deny.toml doesn't name {PLATFORM} in graph.targets").into());
        }
        // `"name"`, `"name@1.2"`, or a table with `crate` or `name`.
        let name = |value: &toml::Value| -> Option<String> {
            let text = value.as_str().or_else(|| value.get("crate")?.as_str());
            let text = text.or_else(|| value.get("name")?.as_str())?;
            Some(text.split(['@', ':']).next().unwrap_or(text).to_owned())
        };
        for ban in list("bans", "deny") {
            let reason = ban.get("reason").and_then(toml::Value::as_str);
            let name = name(&ban).ok_or("an entry of bans.deny names no crate")?;
            let wrappers = ban.get("wrappers").and_then(toml::Value::as_array);
            let ban = Ban {
                reason: reason.unwrap_or("deny.toml bans it").to_owned(),
                wrappers: words(wrappers.map_or(&[], Vec::as_slice)),
            };
            policy.banned.insert(name, ban);
        }
        for skip in list("bans", "skip") {
            policy
                .doubles
                .insert(name(&skip).ok_or("an entry of bans.skip names no crate")?);
        }
        for exception in list("licenses", "exceptions") {
            let name = name(&exception).ok_or("an entry of licenses.exceptions names no crate")?;
            let allow = exception.get("allow").and_then(toml::Value::as_array);
            policy
                .exceptions
                .insert(name, words(allow.map_or(&[], Vec::as_slice)));
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"
        [graph]
        targets = ["x86_64-unknown-linux-gnu"]
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        exceptions = [{ crate = "icu", allow = ["Unicode-3.0"] }]
        [bans]
        deny = [{ crate = "ring", reason = "one crypto provider", wrappers = ["web"] }]
        skip = [{ crate = "syn@1", reason = "old macros" }]
    "#;

    fn package(name: &str, version: &str, licence: &str) -> (String, Package) {
        let package = Package {
            name: name.into(),
            version: version.into(),
            licence: Some(licence.into()),
            source: Some("registry+https://github.com/rust-lang/crates.io-index".into()),
            ..Package::default()
        };
        (format!("{name} {version}"), package)
    }

    fn whats(packages: &[(&str, &str, &str)]) -> Vec<String> {
        let both = [("syn", "1.0.0", "MIT"), ("syn", "2.0.0", "MIT")];
        let all = packages.iter().chain(&both);
        let packages = all.map(|(n, v, l)| package(n, v, l)).collect();
        let found = check(&Workspace { packages }, POLICY).unwrap();
        found.into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn a_choice_of_licences_needs_one_that_is_allowed_and_a_sum_needs_all() {
        assert!(whats(&[("a", "1.0.0", "MIT OR GPL-3.0-only")]).is_empty());
        assert!(whats(&[("a", "1.0.0", "Unlicense/MIT")]).is_empty());
        assert_eq!(
            whats(&[("a", "1.0.0", "MIT AND GPL-3.0-only")]),
            ["a 1.0.0 is under `MIT AND GPL-3.0-only`, which isn't allowed"]
        );
    }

    #[test]
    fn an_exception_holds_for_its_crate_only() {
        assert!(whats(&[("icu", "1.0.0", "Unicode-3.0")]).is_empty());
        assert_eq!(whats(&[("other", "1.0.0", "Unicode-3.0")]).len(), 1);
    }

    #[test]
    fn doubles_are_found_unless_skipped() {
        let found = whats(&[("a", "1.0.0", "MIT"), ("a", "2.0.0", "MIT")]);
        assert_eq!(found, ["`a` is there more than once: 1.0.0, 2.0.0"]);
    }

    #[test]
    fn a_skip_that_nobody_needs_is_found() {
        let found = check(&Workspace::default(), POLICY).unwrap();
        assert_eq!(
            found[0].what,
            "bans.skip names `syn`, of which there is one version at most"
        );
    }

    #[test]
    fn a_banned_crate_is_found_with_the_reason() {
        let (id, ring) = package("ring", "0.17.0", "MIT");
        let (user, mut tls) = package("tls", "1.0.0", "MIT");
        let (wrapper, mut web) = package("web", "1.0.0", "MIT");
        tls.uses.insert(id.clone());
        web.uses.insert(id.clone());
        let workspace = Workspace {
            packages: [(id, ring), (user, tls), (wrapper, web)].into(),
        };
        let found = check(&workspace, POLICY).unwrap();
        assert_eq!(found[0].what, "`ring` is banned and comes in through tls");
        assert_eq!(found[0].why, "one crypto provider");
    }

    #[test]
    fn a_banned_crate_is_let_through_for_the_crates_that_may_name_it() {
        let (id, ring) = package("ring", "0.17.0", "MIT");
        let (user, mut web) = package("web", "1.0.0", "MIT");
        web.uses.insert(id.clone());
        let both = [("syn", "1.0.0"), ("syn", "2.0.0")];
        let others = both.map(|(name, version)| package(name, version, "MIT"));
        let packages = [(id, ring), (user, web)].into_iter().chain(others);
        let workspace = Workspace {
            packages: packages.collect(),
        };
        assert!(check(&workspace, POLICY).unwrap().is_empty());
    }

    #[test]
    fn a_git_dependency_is_found() {
        let (id, mut a) = package("a", "1.0.0", "MIT");
        a.source = Some("git+https://example.org/a".into());
        let found = check(
            &Workspace {
                packages: [(id, a)].into(),
            },
            POLICY,
        )
        .unwrap();
        assert_eq!(
            found[0].what,
            "a 1.0.0 comes from git+https://example.org/a"
        );
    }
}
