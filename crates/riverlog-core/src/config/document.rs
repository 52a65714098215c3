//! `docs/operations/configuration.md`, from the table.

use std::fmt::Write;

use super::standing::IGNORED;
use super::{Change, Key, Scope, keys_of};

/// The page that lists every key. A test compares it with the committed file; to write it anew:
/// `UPDATE_DOCS=1 cargo test -p riverlog-core configuration_page`.
pub fn markdown() -> String {
    let mut page = String::from(HEAD);
    for (scope, title, words) in [
        (Scope::Topic, "Topic keys", TOPIC_WORDS),
        (Scope::Group, "Group keys", GROUP_WORDS),
        (Scope::Broker, "Broker keys", BROKER_WORDS),
    ] {
        let _ = write!(page, "\n## {title}\n\n{words}\n\n");
        for (used, words) in [
            (true, "In effect:"),
            (false, "Accepted and shown, without effect in this release:"),
        ] {
            let _ = writeln!(page, "{words}\n");
            table(&mut page, keys_of(scope).filter(|k| k.used == used));
            page.push('\n');
        }
        page.pop();
    }
    page.push_str("\n## Keys that only Kafka has\n\n");
    page.push_str(IGNORED_WORDS);
    for (names, why) in IGNORED {
        let _ = write!(page, "\n- Ignored, because {why}: ");
        let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        let _ = writeln!(page, "{}.", names.join(", "));
    }
    page
}

fn table<'a>(page: &mut String, keys: impl Iterator<Item = &'a Key>) {
    page.push_str("| key | value | default | change | what it does |\n|---|---|---|---|---|\n");
    for key in keys {
        let change = match key.change {
            Change::Any => "any time",
            Change::PerBroker => "any time, one node",
            Change::Cluster => "any time, all nodes",
            Change::Restart => "restart",
        };
        let default = match (key.default, key.kafka_default) {
            (None, None) => "–".to_owned(),
            (Some(""), None) => "empty".to_owned(),
            (Some(ours), None) => format!("`{ours}`"),
            (None, Some(kafka)) => format!("see right (Kafka: {kafka})"),
            (Some(""), Some(kafka)) => format!("empty (Kafka: {kafka})"),
            (Some(ours), Some(kafka)) => format!("`{ours}` (Kafka: {kafka})"),
        };
        let synonyms: Vec<&str> = key
            .synonyms
            .iter()
            .map(|s| s.name)
            .filter(|name| *name != key.name)
            .collect();
        let from = match synonyms.as_slice() {
            [] => String::new(),
            names => format!(" Broker key: `{}`.", names.join("`, `")),
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {default} | {change} | {}{from} |",
            key.name,
            key.kind.words(),
            key.doc
        );
    }
}

const HEAD: &str = "# Configuration keys

<!-- Made from the table in crates/riverlog-core/src/config; to write it anew: UPDATE_DOCS=1 cargo test -p riverlog-core configuration_page -->

Names, types and ranges are those of Apache Kafka 4.4, and so are the defaults unless the table names Kafka's. Keys that begin
with `riverlog.`, and `cluster.id` and `record.validation`, are Riverlog's own.

A value is looked for in this order: set on the topic or group; set on the node while it runs; set on all nodes while they run;
given at start (command line, environment, file); the default.
";

const TOPIC_WORDS: &str = "Set on a topic, at any time. Most have a broker key that gives the default of topics that say nothing.";
const GROUP_WORDS: &str = "Set on a group, at any time.";
const BROKER_WORDS: &str = "Given at start. Those marked `any time` can also be changed while the node runs, for all nodes or for one.";
const IGNORED_WORDS: &str = "A file made for Kafka starts Riverlog too. These keys are accepted with one warning each; a key that nobody has is an error that
names the key that was probably meant. `alter.config.policy.class.name`, `client.quota.callback.class` and
`create.topic.policy.class.name` are refused, and so is an `authorizer.class.name`: a node that dropped them silently would protect
less than its owner believes. The families `listener.name.*`, `password.encoder.*`, `rlmm.config.*`, `rsm.config.*`, `zookeeper.*` and
`confluent.*` are ignored as well.
";
