//! Values: whether a key takes one, and typed reading of those that were checked.

use std::collections::BTreeMap;

use super::{Key, Kind, Scope, key};
use crate::groups::MigrationPolicy;
use crate::share::OffsetReset;

/// What is wrong with a value.
pub(super) struct Problem {
    pub(super) reason: String,
    /// What to give, where the type alone doesn't say it.
    pub(super) give: Option<&'static str>,
}

/// What is wrong with a value; `None`: nothing.
pub(super) fn problem(key: &Key, value: &str) -> Option<Problem> {
    let value = value.trim();
    let by_kind = match key.kind {
        Kind::Bool => {
            let sound = value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false");
            (!sound).then(|| "neither true nor false".to_owned())
        }
        Kind::Short(from, to) => number(value, from, to),
        Kind::Int(from, to) => number(value, from, to),
        Kind::Long(from, to) => number(value, from, to),
        Kind::Double(from, to) => match value.parse::<f64>() {
            Ok(n) if n >= from && n <= to => None,
            Ok(_) => Some("out of range".to_owned()),
            Err(_) => Some("not a number".to_owned()),
        },
        Kind::OneOf(of) if of.contains(&value) => None,
        Kind::OneOf(_) => Some("not one of the accepted values".to_owned()),
        Kind::List(of) => list_problem(of, value),
        Kind::String | Kind::Password => None,
    };
    match by_kind {
        Some(reason) => Some(Problem { reason, give: None }),
        None => special(key.name, value).map(|(reason, give)| Problem {
            reason: reason.to_owned(),
            give: Some(give),
        }),
    }
}

fn number<T: std::str::FromStr + PartialOrd>(value: &str, from: T, to: T) -> Option<String> {
    match value.parse::<T>() {
        Ok(n) if n >= from && n <= to => None,
        Ok(_) => Some("out of range".to_owned()),
        // A number with too many digits is out of range too, but one can't say by `FromStr` alone.
        Err(_)
            if !value.is_empty()
                && value
                    .trim_start_matches('-')
                    .bytes()
                    .all(|b| b.is_ascii_digit()) =>
        {
            Some("out of range".to_owned())
        }
        Err(_) => Some("not a whole number".to_owned()),
    }
}

fn list_problem(of: &[&str], value: &str) -> Option<String> {
    for item in items(value) {
        if item.is_empty() {
            return Some("an empty entry".to_owned());
        }
        if !of.is_empty() && !of.contains(&item) {
            return Some(format!("{item} is not one of the accepted values"));
        }
    }
    None
}

/// The entries of a comma-separated list; none for an empty text.
pub(crate) fn items(value: &str) -> impl Iterator<Item = &str> {
    let some = !value.trim().is_empty();
    value.split(',').map(str::trim).filter(move |_| some)
}

/// Kafka's own selectors of replicas; nothing is the one that always takes the leader.
const SELECTORS: &[&str] = &[
    "",
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
];

/// Rules that a type alone can't say: what is wrong, and what to give.
fn special(name: &str, value: &str) -> Option<(&'static str, &'static str)> {
    match name {
        "authorizer.class.name" if !value.is_empty() => Some((
            "access rules can't be enforced yet, and are not dropped silently",
            "nothing",
        )),
        "compression.gzip.level" if value == "0" => {
            Some(("gzip has no level 0", "1 to 9, or -1 for the codec's own"))
        }
        "group.consumer.migration.policy" if MigrationPolicy::parse(value).is_none() => Some((
            "no way for groups to move",
            "bidirectional, upgrade, downgrade or disabled",
        )),
        "leader.replication.throttled.replicas" | "follower.replication.throttled.replicas"
            if value != "*" && !items(value).all(is_partition_and_broker) =>
        {
            Some((
                "neither * nor a list of replicas",
                "* or partition:broker,… such as 0:1,1:2",
            ))
        }
        "remote.storage.enable" if value.eq_ignore_ascii_case("true") => {
            Some(("there is no tiered storage yet", "false"))
        }
        "replica.selector.class" if !SELECTORS.contains(&value) => Some((
            "a plug-in that isn't here",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector, or org.apache.kafka.common.replica.LeaderSelector",
        )),
        "share.auto.offset.reset" if OffsetReset::parse(value).is_none() => Some((
            "no place to begin at",
            "latest, earliest, or by_duration: and an ISO 8601 duration such as PT1H",
        )),
        _ => None,
    }
}

fn is_partition_and_broker(entry: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    entry
        .split_once(':')
        .is_some_and(|(partition, broker)| number(partition) && number(broker))
}

/// A node's values by Kafka's names: what was set, over the table's defaults. Values have been checked.
#[derive(Clone, Copy, Debug)]
pub struct BrokerValues<'a>(pub &'a BTreeMap<String, String>);

impl<'a> BrokerValues<'a> {
    /// The value set, else the default; `None` where there is neither.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        match self.0.get(name) {
            Some(set) => Some(set.trim()),
            None => key(Scope::Broker, name)?.default,
        }
    }

    /// A number of any width.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.text(name)?.parse().ok()
    }

    /// `true` only when the value is.
    pub fn is_true(&self, name: &str) -> bool {
        self.text(name)
            .is_some_and(|v| v.eq_ignore_ascii_case("true"))
    }

    /// A value in milliseconds that Kafka knows in several units, the finest one set first: `log.retention` (`.ms`,
    /// `.minutes`, `.hours`) or `log.roll` (`.ms`, `.hours`). Below zero: for ever.
    pub fn millis(&self, family: &str) -> Option<i64> {
        let set = |unit: &str| self.0.get(&format!("{family}.{unit}"))?.trim().parse().ok();
        [("ms", 1), ("minutes", 60_000), ("hours", 3_600_000)]
            .into_iter()
            .find_map(|(unit, factor)| set(unit).map(|n| times(n, factor)))
            .or_else(|| {
                self.number(&format!("{family}.hours"))
                    .map(|n| times(n, 3_600_000))
            })
    }
}

/// A number in another unit; below zero it means "no bound" in every unit.
pub(super) fn times(n: i64, factor: i64) -> i64 {
    if n < 0 { -1 } else { n.saturating_mul(factor) }
}
