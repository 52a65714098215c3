//! A node's configuration from file, environment and command line, one laid over the other.
//!
//! Every mistake is found in one go, and every value knows where it comes from.

mod listeners;
mod properties;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use riverlog_core::config::{BrokerValues, Scope, Standing, check, standing};

pub(crate) use listeners::Listeners;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    File(PathBuf, Option<usize>),
    Environment(String),
    CommandLine(&'static str),
}

impl Source {
    fn same_layer(&self, other: &Source) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path, Some(line)) => write!(f, "{}:{line}", path.display()),
            Source::File(path, None) => write!(f, "{}", path.display()),
            Source::Environment(name) => write!(f, "environment variable {name}"),
            Source::CommandLine(flag) => write!(f, "{flag}"),
        }
    }
}

/// One value.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) value: String,
    pub(crate) source: Source,
}

/// Something that can't be used.
#[derive(Clone, Debug)]
pub(crate) struct Mistake {
    pub(crate) source: Option<Source>,
    pub(crate) words: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.words)?;
        match &self.source {
            Some(source) => write!(f, " ({source})"),
            None => Ok(()),
        }
    }
}

/// What to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    pub(crate) file: Option<PathBuf>,
    pub(crate) environment: Vec<(String, String)>,
    /// From the command line, with the flag that gave it; the last one counts.
    pub(crate) flags: Vec<(String, String, &'static str)>,
}

/// All values that were set, checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    pub(crate) settings: BTreeMap<String, Setting>,
    /// The values alone: what the node gets.
    pub(crate) values: BTreeMap<String, String>,
    /// Said once at start.
    pub(crate) warnings: Vec<String>,
}

impl Config {
    pub(crate) fn broker(&self) -> BrokerValues<'_> {
        BrokerValues(&self.values)
    }

    /// Addresses of the nodes of a cluster, by Kafka's keys; empty for a node alone.
    pub(crate) fn seeds(&self) -> Vec<String> {
        let list = |key: &str| {
            let text = self.broker().text(key).unwrap_or_default();
            let items = text.split(',').map(str::trim).filter(|i| !i.is_empty());
            items.map(str::to_owned).collect::<Vec<_>>()
        };
        let bootstrap = list("controller.quorum.bootstrap.servers");
        if !bootstrap.is_empty() {
            return bootstrap;
        }
        // ID@HOST:PORT; one that names this node only is a node alone.
        let voters = list("controller.quorum.voters");
        let address = |voter: &String| Some(voter.split_once('@')?.1.to_owned());
        match voters.len() {
            0 | 1 => Vec::new(),
            _ => voters.iter().filter_map(address).collect(),
        }
    }
}

/// Variables with our prefix that aren't keys.
const OWN_VARIABLES: &[&str] = &[
    "RIVERLOG_BROKERS",
    "RIVERLOG_CACHE",
    "RIVERLOG_CLUSTER_KEY",
    "RIVERLOG_CONFIG",
    "RIVERLOG_DATA",
    "RIVERLOG_HTTP",
    "RIVERLOG_INSECURE",
    "RIVERLOG_LISTEN",
    "RIVERLOG_LOG_COMPAT",
    "RIVERLOG_LOG_FORMAT",
    "RIVERLOG_LOG_LEVEL",
    "RIVERLOG_NODE_ID",
    "RIVERLOG_SEEDS",
];

/// Reads, lays over and checks.
pub(crate) fn load(inputs: &Inputs) -> Result<Config, Vec<Mistake>> {
    let mut loading = Loading::default();
    if let Some(path) = &inputs.file {
        loading.file(path);
    }
    loading.environment(&inputs.environment);
    for (key, value, flag) in &inputs.flags {
        loading.add(key.trim(), value, Source::CommandLine(flag));
    }
    loading.finish(&inputs.environment)
}

#[derive(Default)]
struct Loading {
    config: Config,
    mistakes: Vec<Mistake>,
}

impl Loading {
    fn mistake(&mut self, source: Option<Source>, words: impl Into<String>) {
        self.mistakes.push(Mistake {
            source,
            words: words.into(),
        });
    }

    fn file(&mut self, path: &Path) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                return self.mistake(
                    None,
                    format!(
                        "the configuration file {} can't be read: {error}; check --config",
                        path.display()
                    ),
                );
            }
        };
        if path.extension().is_some_and(|e| e == "toml") {
            let value: toml::Value = match toml::from_str(&text) {
                Ok(value) => value,
                Err(error) => {
                    return self.mistake(None, format!("{} isn't TOML: {error}", path.display()));
                }
            };
            let mut entries = Vec::new();
            properties::flatten("", &value, &mut entries);
            for (key, value) in entries {
                self.add(&key, &value, Source::File(path.to_owned(), None));
            }
        } else {
            for (line, key, value) in properties::parse(&text) {
                self.add(&key, &value, Source::File(path.to_owned(), Some(line)));
            }
        }
    }

    fn environment(&mut self, variables: &[(String, String)]) {
        for (name, value) in variables {
            let source = || Source::Environment(name.clone());
            if name == "CLUSTER_ID" {
                self.add("cluster.id", value, source());
            } else if let Some(rest) = name.strip_prefix("KAFKA_") {
                let key = key_of(rest);
                match standing(&key) {
                    Standing::Unknown(_) => {
                        self.config
                            .warnings
                            .push(format!("{name} is ignored: there is no key {key}"));
                    }
                    _ => self.add(&key, value, source()),
                }
            } else if let Some(rest) = name.strip_prefix("RIVERLOG_")
                && !OWN_VARIABLES.contains(&name.as_str())
            {
                let key = key_of(rest);
                let own = format!("riverlog.{key}");
                let key = if matches!(standing(&own), Standing::Known(_)) {
                    own
                } else {
                    key
                };
                self.add(&key, value, source());
            }
        }
    }

    fn add(&mut self, key: &str, value: &str, source: Source) {
        let setting = Setting {
            value: value.to_owned(),
            source,
        };
        let Some(before) = self.config.settings.insert(key.to_owned(), setting.clone()) else {
            return;
        };
        // One place over another is what layers are for; twice in one place is more likely a slip.
        if before.source.same_layer(&setting.source) {
            self.config.warnings.push(format!(
                "{key} is given twice: {} ({}), then {} ({}); the last one counts",
                before.value, before.source, setting.value, setting.source
            ));
        }
    }

    fn finish(mut self, environment: &[(String, String)]) -> Result<Config, Vec<Mistake>> {
        let mut settings = std::mem::take(&mut self.config.settings);
        for (key, setting) in &mut settings {
            match interpolate(&setting.value, environment) {
                Ok(value) => setting.value = value,
                Err(words) => self.mistake(Some(setting.source.clone()), format!("{key}: {words}")),
            }
        }
        settings.retain(|key, setting| match standing(key) {
            Standing::Known(known) => {
                if let Err(error) = check(Scope::Broker, key, &setting.value) {
                    self.mistake(Some(setting.source.clone()), error.to_string());
                }
                setting.value = known.normal(&setting.value);
                true
            }
            Standing::Ignored(why) => {
                self.config
                    .warnings
                    .push(format!("{key} has no effect: {why} ({})", setting.source));
                false
            }
            Standing::Refused(why) => {
                self.mistake(
                    Some(setting.source.clone()),
                    format!("{key} can't be used: {why}"),
                );
                false
            }
            Standing::Unknown(meant) => {
                let remedy = match meant {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => "take it out; `riverlog config explain` lists all keys".to_owned(),
                };
                self.mistake(
                    Some(setting.source.clone()),
                    format!("there is no key {key}; {remedy}"),
                );
                false
            }
        });
        self.config.values = settings
            .iter()
            .map(|(k, s)| (k.clone(), s.value.clone()))
            .collect();
        self.config.settings = settings;
        self.cluster();
        if let Err(mistakes) = Listeners::read(self.config.broker()) {
            for words in mistakes {
                // The words begin with the key.
                let key = words.split([' ', ':']).next().unwrap_or_default();
                let source = self.config.settings.get(key).map(|s| s.source.clone());
                self.mistake(source, words);
            }
        }
        if self.mistakes.is_empty() {
            Ok(self.config)
        } else {
            Err(self.mistakes)
        }
    }

    /// What can't be served yet is refused, not guessed.
    fn cluster(&mut self) {
        let source = |loading: &Loading, key: &str| {
            loading.config.settings.get(key).map(|s| s.source.clone())
        };
        let text = |key: &str| {
            self.config
                .broker()
                .text(key)
                .unwrap_or_default()
                .to_owned()
        };
        let entries = |list: &str| list.split(',').filter(|v| !v.trim().is_empty()).count();
        let roles = text("process.roles");
        let lone_role = matches!(roles.as_str(), "broker" | "controller");
        let (node, broker) = (
            self.config.values.get("node.id"),
            self.config.values.get("broker.id"),
        );
        let differ = matches!((node, broker), (Some(a), Some(b)) if a != b && b != "-1");
        let many_dirs = entries(&text("log.dirs")).max(entries(&text("log.dir"))) > 1;
        let authorizer = !text("authorizer.class.name").is_empty();
        let in_cluster = !self.config.seeds().is_empty();
        if lone_role && in_cluster {
            let from = source(self, "process.roles");
            self.mistake(from, format!("process.roles = {roles}: a node of a cluster is both; give broker,controller or take the key out"));
        }
        self.intervals();
        if differ {
            let from = source(self, "broker.id");
            self.mistake(from, "broker.id and node.id differ; give one of them");
        }
        if many_dirs {
            let from = source(self, "log.dirs").or(source(self, "log.dir"));
            self.mistake(
                from,
                "log.dirs names several folders, and this release uses one; name one",
            );
        }
        if authorizer {
            let from = source(self, "authorizer.class.name");
            self.mistake(from, "authorizer.class.name: there are no access rules yet, and they aren't dropped silently; take the key out");
        }
    }

    /// Times that only make sense together.
    fn intervals(&mut self) {
        let number = |key: &str| self.config.broker().number(key).unwrap_or_default();
        let mut wrong = Vec::new();
        for (short, times, long) in [
            (
                "broker.heartbeat.interval.ms",
                3,
                "broker.session.timeout.ms",
            ),
            ("replica.fetch.wait.max.ms", 1, "replica.lag.time.max.ms"),
        ] {
            let (a, b) = (number(short), number(long));
            if a.saturating_mul(times) <= b {
                continue;
            }
            let given = [long, short].into_iter();
            let source = given.filter_map(|key| self.config.settings.get(key)).next();
            let source = source.map(|setting| setting.source.clone());
            let words = match times {
                1 => format!(
                    "{short} = {a} is more than {long} = {b}; give a smaller one, or a larger {long}"
                ),
                _ => format!(
                    "{short} = {a} doesn't fit {times} times into {long} = {b}, so one lost message could end a session; give a smaller one, or a larger {long}"
                ),
            };
            wrong.push((source, words));
        }
        for (source, words) in wrong {
            self.mistake(source, words);
        }
    }
}

/// `NUM_PARTITIONS` is `num.partitions`; two underscores are one, three are a dash.
fn key_of(variable: &str) -> String {
    variable
        .to_ascii_lowercase()
        .replace("___", "-")
        .replace("__", "\u{0}")
        .replace('_', ".")
        .replace('\u{0}', "_")
}

/// Replaces `${env:NAME}` and `${file:PATH}` (the file's content without its last line end).
fn interpolate(value: &str, environment: &[(String, String)]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((inside, after)) = after.split_once('}') else {
            return Err("a ${ without its }".to_owned());
        };
        match inside.split_once(':') {
            Some(("env", name)) => match environment.iter().find(|(n, _)| n == name) {
                Some((_, value)) => out.push_str(value),
                None => return Err(format!("the environment variable {name} isn't set")),
            },
            Some(("file", path)) => match std::fs::read_to_string(path) {
                Ok(text) => out.push_str(text.trim_end_matches(['\n', '\r'])),
                Err(error) => return Err(format!("the file {path} can't be read: {error}")),
            },
            _ => {
                return Err(format!(
                    "${{{inside}}} is neither ${{env:NAME}} nor ${{file:PATH}}"
                ));
            }
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests;
