//! Histories as short scripts, one event a line: `AT CLIENT WORD …`; `AT` is a number, in seconds.

use riverlog_checker::{Event, Place, What, place};

/// Reads a script; panics with the line that is none.
pub(crate) fn history(script: &str) -> Vec<Event> {
    let lines = script.lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).map(event).collect()
}

fn event(line: &str) -> Event {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [at, client, word, rest @ ..] = words.as_slice() else {
        panic!("no event: {line}");
    };
    let what = match (*word, rest) {
        ("open", flags) => What::Open {
            idempotent: flags.contains(&"idempotent"),
            retries: flags.contains(&"retries"),
            group: flags
                .iter()
                .find_map(|f| f.strip_prefix("group="))
                .map(str::to_owned),
            read_committed: flags.contains(&"committed"),
        },
        ("close", []) => What::Close,
        ("send", [place, value]) => What::Send {
            place: at_place(place),
            value: (*value).into(),
            txn: None,
        },
        ("send", [place, value, txn]) => What::Send {
            place: at_place(place),
            value: (*value).into(),
            txn: Some((*txn).into()),
        },
        ("ack", [place, value, offset]) => What::Ack {
            place: at_place(place),
            value: (*value).into(),
            offset: number(offset),
        },
        ("fail", [value, how]) => What::Fail {
            value: (*value).into(),
            maybe: *how == "maybe",
        },
        ("ending", [txn, how]) => What::Ending {
            txn: (*txn).into(),
            commit: *how == "commit",
        },
        ("ended", [txn, how]) => What::Ended {
            txn: (*txn).into(),
            committed: match *how {
                "committed" => Some(true),
                "aborted" => Some(false),
                _ => None,
            },
        },
        ("assign", places) => What::Assign {
            places: places.iter().map(|p| at_place(p)).collect(),
        },
        ("poll", [since, place, records @ ..]) => {
            let (records, txn) = match records {
                [records @ .., last] if last.starts_with("in=") => {
                    (records, Some(last[3..].to_owned()))
                }
                records => (records, None),
            };
            let there = at_place(place);
            let records = found(records).map(|(o, v)| (there.clone(), o, v)).collect();
            What::Poll {
                since: seconds(since),
                records,
                txn,
            }
        }
        ("committing", [group, place, offset]) => What::Committing {
            group: (*group).into(),
            place: at_place(place),
            offset: number(offset),
        },
        ("committed", [group, place, offset, how]) => What::Committed {
            group: (*group).into(),
            place: at_place(place),
            offset: number(offset),
            stored: *how == "stored",
        },
        ("offset", [since, group, place, offset]) => What::Offset {
            since: seconds(since),
            group: (*group).into(),
            place: at_place(place),
            offset: offset.parse().ok(),
        },
        ("bounds", [since, place, start, end]) => What::Bounds {
            since: seconds(since),
            place: at_place(place),
            start: number(start),
            end: number(end),
        },
        ("deleting", [place, to]) => What::Deleting {
            place: at_place(place),
            to: to.parse().ok(),
        },
        ("damaged", [place, from, to]) => What::Damaged {
            place: at_place(place),
            from: number(from),
            to: number(to),
        },
        ("whole" | "whole-committed", [since, place, records @ ..]) => {
            let records: Vec<_> = found(records).collect();
            What::Whole {
                since: seconds(since),
                place: at_place(place),
                start: records.first().map_or(0, |(offset, _)| *offset),
                end: records.last().map_or(0, |(offset, _)| *offset + 1),
                records,
                read_committed: *word == "whole-committed",
            }
        }
        ("drained", [group]) => What::Drained {
            group: (*group).into(),
        },
        ("fault", what) => What::Fault {
            what: what.join(" "),
        },
        ("lags", [most]) => What::Lags {
            most: seconds(most),
        },
        ("healed", []) => What::Healed,
        _ => panic!("no event: {line}"),
    };
    Event {
        at: seconds(at),
        client: (*client).to_owned(),
        what,
    }
}

fn at_place(word: &str) -> Place {
    let (topic, partition) = word.rsplit_once('-').expect("TOPIC-PARTITION");
    place(topic, partition.parse().expect("a partition"))
}

fn number(word: &str) -> i64 {
    word.parse().expect("a number")
}

fn seconds(word: &str) -> u64 {
    word.parse::<u64>().expect("seconds") * 1_000_000_000
}

/// `OFFSET:VALUE`.
fn found<'a>(words: &'a [&str]) -> impl Iterator<Item = (i64, String)> + use<'a> {
    words.iter().map(|word| {
        let (offset, value) = word.split_once(':').expect("OFFSET:VALUE");
        (number(offset), value.to_owned())
    })
}
