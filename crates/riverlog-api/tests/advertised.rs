//! What the door advertises is a contract: clients pin versions by Kafka's release, and see a gap as a network fault.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_checks::{Client, Connection as _, Received};
use riverlog_wire::messages::{ApiKey, ApiVersionsRequest};
use support::InMemory;

/// What Riverlog advertises. A line that goes or shrinks breaks somebody's client; say so in the changelog.
const RIVERLOG: &str = include_str!("advertised/riverlog.txt");
/// What an Apache Kafka 4.4.0 broker advertises on its client listener with its default features.
const KAFKA: &str = include_str!("advertised/kafka-4.4.txt");

fn advertised() -> String {
    let mut broker = InMemory::new();
    let mut client = Client::new(&mut broker, "advertised".to_owned()).unwrap();
    let answer = client.ask(0, &ApiVersionsRequest::default()).unwrap();
    let lines = answer.api_keys.iter().map(|api| {
        let name = ApiKey::from_i16(api.api_key).map_or("?", ApiKey::name);
        let (number, from, to) = (api.api_key, api.min_version, api.max_version);
        format!("{number} {name} {from}-{to}\n")
    });
    lines.collect()
}

fn ranges(table: &'static str) -> BTreeMap<&'static str, (i16, i16)> {
    let line = |line: &'static str| {
        let mut words = line.split(' ').skip(1);
        let name = words.next()?;
        let (from, to) = words.next()?.split_once('-')?;
        Some((name, (from.parse().ok()?, to.parse().ok()?)))
    };
    let lines = table.lines();
    lines.map(|l| line(l).expect("a line of a table")).collect()
}

#[test]
fn the_advertised_table_is_the_committed_one() {
    assert_eq!(advertised(), RIVERLOG);
}

#[test]
fn nothing_is_narrower_than_in_kafka() {
    let kafka = ranges(KAFKA);
    for (name, (from, to)) in ranges(RIVERLOG) {
        let (kafka_from, kafka_to) = kafka[name];
        assert!(from <= kafka_from && to >= kafka_to, "{name} {from}-{to}");
    }
}

/// What isn't in the table ends the connection, with a reason that says what was asked.
#[test]
fn everything_else_ends_the_connection() {
    let broker = InMemory::new();
    let served = ranges(RIVERLOG);
    for key in ApiKey::ALL {
        for version in 0..=key.max_version() + 1 {
            let (from, to) = (key.min_version(), key.max_stable_version());
            let is_served = served.contains_key(key.name()) && (from..=to).contains(&version);
            if is_served || *key == ApiKey::ApiVersions {
                continue;
            }
            let mut connection = broker.open();
            let mut frame = vec![0, 0, 0, 26];
            frame.extend(key.number().to_be_bytes());
            frame.extend(version.to_be_bytes());
            // Correlation id, no client, no tags; a body of zeroes.
            frame.extend([0, 0, 0, 1, 0xff, 0xff]);
            frame.extend([0; 16]);
            connection.send(&frame);
            let what = format!("{} v{version}", key.name());
            assert_eq!(
                connection.receive(Duration::ZERO),
                Received::Closed,
                "{what}"
            );
            let reason = connection.closed().unwrap_or_default();
            assert!(reason.contains(key.name()), "{what}: {reason}");
        }
    }
}
