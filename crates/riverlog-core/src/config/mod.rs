//! Every configuration key: name, type, default, range, one line of words. One table feeds parser, `--help`, answers and docs.
//!
//! Names, types and ranges are Kafka 4.4's; defaults are too unless the key says what Kafka's is. Keys that Kafka has and
//! that nothing here looks at yet are in the table when tools ask for them ([`Key::used`] is `false`); the rest is in
//! [`standing`]'s lists.

mod describe;
mod document;
mod standing;
mod table;
mod table_broker;
mod topic;
mod values;

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

pub use describe::{
    ConfigSource, Described, Layers, SynonymValue, describe, describe_cluster_default,
};
pub use document::markdown;
pub use standing::{Standing, standing};
pub use topic::TopicConfig;
pub use values::BrokerValues;
pub(crate) use values::items;

/// What a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// A topic (Kafka's topic keys, and `riverlog.…`).
    Topic,
    /// A node.
    Broker,
    /// A group (KIP-848 group configs).
    Group,
}

/// The type of a key's value, with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// 16 bits, from..=to.
    Short(i16, i16),
    /// 32 bits, from..=to.
    Int(i32, i32),
    /// 64 bits, from..=to.
    Long(i64, i64),
    /// A fraction, from..=to.
    Double(f64, f64),
    /// Any words.
    String,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// Comma-separated; of these, when any are named.
    List(&'static [&'static str]),
    /// Words that are never shown.
    Password,
}

impl Kind {
    /// The type's number in DescribeConfigs (v3+, KIP-569).
    pub fn number(self) -> i8 {
        match self {
            Kind::Bool => 1,
            Kind::String | Kind::OneOf(_) => 2,
            Kind::Int(..) => 3,
            Kind::Short(..) => 4,
            Kind::Long(..) => 5,
            Kind::Double(..) => 6,
            Kind::List(_) => 7,
            Kind::Password => 9,
        }
    }

    /// The type and its range in words.
    pub fn words(self) -> String {
        fn range<T: PartialEq + std::fmt::Display>(
            what: &str,
            (from, min): (T, T),
            (to, max): (T, T),
        ) -> String {
            match (from == min, to == max) {
                (true, true) => what.to_owned(),
                (false, true) => format!("{what}, {from} or more"),
                (true, false) => format!("{what}, {to} or less"),
                (false, false) => format!("{what}, {from} to {to}"),
            }
        }
        match self {
            Kind::Bool => "true or false".to_owned(),
            Kind::Short(a, b) => range("a 16-bit number", (a, i16::MIN), (b, i16::MAX)),
            Kind::Int(a, b) => range("a 32-bit number", (a, i32::MIN), (b, i32::MAX)),
            Kind::Long(a, b) => range("a 64-bit number", (a, i64::MIN), (b, i64::MAX)),
            Kind::Double(a, b) => range("a fraction", (a, f64::MIN), (b, f64::MAX)),
            Kind::String => "any text".to_owned(),
            Kind::OneOf(of) => format!("one of {}", of.join(", ")),
            Kind::List([]) => "a comma-separated list".to_owned(),
            Kind::List(of) => format!("a comma-separated list of {}", of.join(", ")),
            Kind::Password => "secret text".to_owned(),
        }
    }
}

/// When a key may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only with a restart.
    Restart,
    /// While the node runs, for one node.
    PerBroker,
    /// While the node runs, for one node or for all.
    Any,
    /// While the node runs, for all nodes: they must agree on it.
    Cluster,
}

/// A broker key that gives a topic or group key its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// The broker key.
    pub name: &'static str,
    /// What its number is multiplied by: hours and minutes become milliseconds. Numbers below zero stay as they are.
    pub factor: i64,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As Kafka writes it.
    pub name: &'static str,
    /// What it belongs to.
    pub scope: Scope,
    /// Type and range.
    pub kind: Kind,
    /// In text; `None`: no default, or one that depends on the cluster (the doc says how).
    pub default: Option<&'static str>,
    /// Kafka 4.4's default where ours differs.
    pub kafka_default: Option<&'static str>,
    /// For a topic or group key: the broker keys that give its default, the strongest first.
    pub synonyms: &'static [Synonym],
    /// When it can be changed.
    pub change: Change,
    /// Whether it has an effect; other keys are accepted and shown.
    pub used: bool,
    /// One line.
    pub doc: &'static str,
}

impl Key {
    /// Whether it can be changed while the node runs.
    pub fn dynamic(&self) -> bool {
        self.change != Change::Restart
    }

    /// Whether its value is never shown.
    pub fn sensitive(&self) -> bool {
        self.kind == Kind::Password
    }

    /// A checked value as it is stored and shown: without blanks around it, `true` and `false` in small letters,
    /// lists without repetition.
    pub fn normal(&self, value: &str) -> String {
        match self.kind {
            Kind::Bool => value.trim().to_ascii_lowercase(),
            Kind::List(_) => {
                let mut list: Vec<&str> = Vec::new();
                for item in items(value) {
                    if !list.contains(&item) {
                        list.push(item);
                    }
                }
                list.join(",")
            }
            Kind::Password => value.to_owned(),
            _ => value.trim().to_owned(),
        }
    }

    /// Checks one value.
    pub fn check(&self, value: &str) -> Result<(), ConfigError> {
        let Some(problem) = values::problem(self, value) else {
            return Ok(());
        };
        let give = problem
            .give
            .map_or_else(|| self.kind.words(), str::to_owned);
        let default = match self.default {
            Some(default) if !default.is_empty() => format!(" (default {default})"),
            _ => String::new(),
        };
        Err(ConfigError {
            key: self.name.to_owned(),
            value: if self.sensitive() { HIDDEN } else { value }.to_owned(),
            reason: problem.reason,
            remedy: format!("give {give}{default}"),
        })
    }
}

static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let mut keys = [table::TOPIC, table::GROUP, table_broker::BROKER].concat();
    keys.sort_by_key(|k| (k.name, k.scope));
    keys
});

/// All keys in order of name; a name that two scopes share comes once for each.
pub fn keys() -> &'static [Key] {
    &KEYS
}

/// The key of that name.
pub fn key(scope: Scope, name: &str) -> Option<&'static Key> {
    let at = KEYS
        .binary_search_by(|k| (k.name, k.scope).cmp(&(name, scope)))
        .ok()?;
    KEYS.get(at)
}

/// The keys of one scope in order of name.
pub fn keys_of(scope: Scope) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |k| k.scope == scope)
}

/// A value that a key doesn't take.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[error("{key} = {value}: {reason}; {remedy}")]
pub struct ConfigError {
    /// The key.
    pub key: String,
    /// What was given.
    pub value: String,
    /// What is wrong.
    pub reason: String,
    /// Range, default, or the key that was probably meant.
    pub remedy: String,
}

/// Checks one value. An unknown key is an error that names the key that was probably meant; see [`standing`] for broker keys
/// that Kafka has and this table hasn't.
pub fn check(scope: Scope, name: &str, value: &str) -> Result<(), ConfigError> {
    match key(scope, name) {
        Some(key) => key.check(value),
        None => Err(ConfigError {
            key: name.to_owned(),
            value: if sounds_secret(name) { HIDDEN } else { value }.to_owned(),
            reason: format!("there is no such {} key", scope_word(scope)),
            remedy: match meant(scope, name) {
                Some(meant) => format!("did you mean {meant}?"),
                None => "leave it out".to_owned(),
            },
        }),
    }
}

const HIDDEN: &str = "[hidden]";

/// A misspelt key of a password must not bring it into a log.
fn sounds_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["password", "passphrase", "secret", "jaas", "credential"]
        .iter()
        .any(|word| name.contains(word))
}

fn scope_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Topic => "topic",
        Scope::Broker => "broker",
        Scope::Group => "group",
    }
}

/// The key that was probably meant by a name that isn't one.
pub(crate) fn meant(scope: Scope, name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase().replace('_', ".");
    // A broker key given to a topic: `log.retention.ms` for `retention.ms`.
    if let Some(key) = keys_of(scope).find(|k| k.synonyms.iter().any(|s| s.name == lower)) {
        return Some(key.name);
    }
    keys_of(scope)
        .map(|k| (strsim::damerau_levenshtein(&lower, k.name), k.name))
        .min()
        // A third of the letters wrong is another word.
        .filter(|(distance, key)| distance * 3 <= key.len())
        .map(|(_, key)| key)
}
