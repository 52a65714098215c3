//! What the clients scored, side by side, and what they sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::Result;
use crate::broker::Kind;
use crate::place;
use crate::table::Table;

use super::relay::{Requests, api_name};
use super::{CASES, Run, Verdict};

/// Prints the tables, writes those of the requests to `target/compat/requests.md`, and returns the verdict:
/// an error names what failed.
pub(super) fn print(runs: &[Run], with_requests: bool) -> Result<std::result::Result<(), String>> {
    let clients: BTreeSet<&str> = runs.iter().flat_map(|r| r.scores.keys().copied()).collect();
    let mut head = vec!["client"];
    let names: Vec<String> = runs.iter().map(|r| r.kind.to_string()).collect();
    let titles: Vec<[String; 2]> = names
        .iter()
        .map(|n| [n.clone(), "seconds#".to_owned()])
        .collect();
    head.extend(titles.iter().flatten().map(String::as_str));
    let mut scores = Table::new(&head);
    let mut head = vec!["client", "case"];
    head.extend(names.iter().map(String::as_str));
    let mut differing = Table::new(&head);
    let mut worse = 0;
    for client in clients {
        let mut row = vec![client.to_owned()];
        for run in runs {
            let score = run.scores.get(client);
            row.push(score.map_or_else(|| "not run".to_owned(), |s| s.counts().trim().to_owned()));
            row.push(score.map_or_else(String::new, |s| format!("{:.1}", s.seconds)));
        }
        scores.row(row);
        for case in cases_of(runs, client) {
            let verdicts: Vec<Option<&Verdict>> = runs
                .iter()
                .map(|r| r.scores.get(client).and_then(|s| s.cases.get(&case)))
                .collect();
            let failed = verdicts
                .iter()
                .flatten()
                .any(|v| matches!(v, Verdict::Fail(_)));
            if failed || verdicts.windows(2).any(|w| kind(w[0]) != kind(w[1])) {
                let cells = verdicts.iter().map(|v| shown(*v));
                differing.row([client.to_owned(), case].into_iter().chain(cells));
                worse += 1;
            }
        }
    }
    println!("\n{scores}");
    if !differing.is_empty() {
        println!("What failed, or differs between the brokers:\n\n{differing}");
    }
    let requests = requests(runs)?;
    let file = place::target().join("compat/requests.md");
    std::fs::create_dir_all(place::target().join("compat"))?;
    std::fs::write(&file, &requests)?;
    if with_requests {
        println!("{requests}");
    } else {
        println!("The requests that each client sent: {}", file.display());
    }
    Ok(match worse {
        0 => Ok(()),
        n => Err(format!(
            "{n} cases of the clients fail, or differ between the brokers"
        )),
    })
}

/// What a client reported on any broker: the common cases in their order, then what is its own.
fn cases_of(runs: &[Run], client: &str) -> Vec<String> {
    let scores = runs.iter().filter_map(|r| r.scores.get(client));
    let reported: BTreeSet<&String> = scores.flat_map(|s| s.cases.keys()).collect();
    let mut cases: Vec<String> = reported.into_iter().cloned().collect();
    cases.sort_by_key(|case| CASES.iter().position(|c| c == case).unwrap_or(CASES.len()));
    cases
}

/// Pass, fail or skip, whatever the reason. A skip and a pass differ too: it means that a client saw
/// something missing.
fn kind(verdict: Option<&Verdict>) -> u8 {
    match verdict {
        // A whole program is only reported when it went wrong.
        Some(Verdict::Pass) | None => 0,
        Some(Verdict::Fail(_)) => 1,
        Some(Verdict::Skip(_)) => 2,
    }
}

fn shown(verdict: Option<&Verdict>) -> String {
    match verdict {
        None => String::new(),
        Some(Verdict::Pass) => "pass".into(),
        Some(Verdict::Fail(why)) => format!("FAIL {why}"),
        Some(Verdict::Skip(why)) => format!("skip {why}"),
    }
}

/// A table a client: each API, the versions sent, how many requests each broker got.
fn requests(runs: &[Run]) -> Result<String> {
    let mut text = String::from("# Requests that each client sent\n");
    let mut by_client: BTreeMap<&str, BTreeSet<i16>> = BTreeMap::new();
    for (client, key, _) in runs.iter().flat_map(|r| r.requests.keys()) {
        by_client.entry(client).or_default().insert(*key);
    }
    let mut head = vec!["API".to_owned()];
    for run in runs {
        head.extend([
            format!("{} versions", run.kind),
            format!("{} requests#", run.kind),
        ]);
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    // What came before the first client was the brokers' own.
    for (client, keys) in by_client
        .into_iter()
        .filter(|(client, _)| !client.is_empty())
    {
        let mut table = Table::new(&head);
        for key in keys {
            let cells = runs.iter().flat_map(|r| sent(&r.requests, client, key));
            table.row(std::iter::once(api_name(key)).chain(cells));
        }
        write!(text, "\n## {client}\n\n{table}")?;
    }
    let both = |kind| runs.iter().any(|r| r.kind == kind);
    if both(Kind::Kafka) && both(Kind::Riverlog) {
        text.push_str(
            "\nMany more requests to one broker than to the other mean that the client retried.\n",
        );
    }
    Ok(text)
}

/// The versions of an API that a client sent, and how many requests.
fn sent(requests: &Requests, client: &str, key: i16) -> [String; 2] {
    let of = requests
        .iter()
        .filter(|((c, k, _), _)| c == client && *k == key);
    let (mut versions, mut count) = (Vec::new(), 0);
    for ((_, _, version), n) in of {
        versions.push(version.to_string());
        count += n;
    }
    [versions.join(", "), count.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::Score;

    fn run(kind: Kind, verdict: Verdict) -> Run {
        let passed = |case: &&str| ((*case).to_owned(), Verdict::Pass);
        let mut cases: BTreeMap<String, Verdict> = CASES.iter().map(passed).collect();
        cases.insert("codec-zstd".to_owned(), verdict);
        let scores = [(
            "kcat",
            Score {
                cases,
                seconds: 1.0,
            },
        )]
        .into();
        let requests = [
            (("kcat".to_owned(), 0, 7), 2),
            (("kcat".to_owned(), 0, 9), 3),
            ((String::new(), 0, 12), 1),
        ];
        Run {
            kind,
            scores,
            requests: requests.into(),
        }
    }

    #[test]
    fn a_case_that_fails_here_and_passes_there_is_an_error() {
        let skip = || Verdict::Skip("no zstd".into());
        let fail = || Verdict::Fail("broken".into());
        let verdict = |a, b| print(&[run(Kind::Riverlog, a), run(Kind::Kafka, b)], false).unwrap();
        assert!(verdict(Verdict::Pass, Verdict::Pass).is_ok());
        assert!(verdict(skip(), skip()).is_ok());
        assert!(verdict(fail(), Verdict::Pass).is_err());
        assert!(verdict(skip(), Verdict::Pass).is_err());
        // A case that fails everywhere proves nothing: its program needs mending.
        assert!(verdict(fail(), fail()).is_err());
    }

    #[test]
    fn requests_are_summed_over_versions_and_the_brokers_own_left_out() {
        let text = requests(&[run(Kind::Kafka, Verdict::Pass)]).unwrap();
        let row = text.lines().find(|l| l.contains("Produce")).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells, ["", "Produce", "7, 9", "5", ""]);
        assert_eq!(text.matches("## ").count(), 1);
    }
}
