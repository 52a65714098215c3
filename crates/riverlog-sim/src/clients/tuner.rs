//! Changes settings of topics while others use them. A setting that was answered is there at once and after every crash.

use riverlog_core::metadata::{AdminAnswer, AdminCommand, ConfigChange, ConfigResource};
use riverlog_mutants::{Mark, sometimes};
use riverlog_wire::ErrorCode;

use crate::model::Violation;
use crate::world::{Core, Outcome};

/// What is changed: nothing that decides which records may go.
const KEYS: [(&str, &[&str]); 4] = [
    ("index.interval.bytes", &["0", "100", "4096"]),
    ("max.message.bytes", &["20000", "1048588"]),
    ("message.timestamp.type", &["CreateTime", "LogAppendTime"]),
    ("retention.ms", &["-1", "864000000"]),
];

/// A setting of a topic: its name, and the value, `None` for the default.
type Setting = (String, &'static str, Option<&'static str>);

#[derive(Debug, Default)]
pub(crate) struct Tuner {
    pub(crate) waits: bool,
    pub(crate) progress: u64,
    /// Answered with success, and not changed since.
    known: Vec<Setting>,
    asked: Option<Setting>,
}

impl Tuner {
    pub(crate) fn step(&mut self, core: &mut Core, me: usize) -> Result<(), Violation> {
        let Some((node, _)) = core.node() else {
            return Ok(());
        };
        for (topic, key, value) in &self.known {
            let image = node.image();
            let found = image.topic(topic).and_then(|t| t.configs.get(*key));
            if found.map(String::as_str) != *value {
                let what = format!("{topic} {key}: {value:?} was answered, {found:?} is there");
                return Err(Violation::new("a setting that was answered is kept", what));
            }
            core.model.checked += 1;
        }
        // Not as often as others work; and in the end it has done enough some time.
        let enough = core.healing && self.progress >= 3;
        if self.asked.is_none() && (enough || !core.random.chance(1, 5)) {
            return Ok(());
        }
        let setting = self.asked.clone().unwrap_or_else(|| {
            let topic = core.random.below(core.swarm.topics.len() as u64) as usize;
            let (key, values) = KEYS[core.random.below(KEYS.len() as u64) as usize];
            let drawn = core.random.below(values.len() as u64 + 1) as usize;
            let name = core.swarm.topics[topic].name.clone();
            (name, key, values.get(drawn).copied())
        });
        let (topic, key, value) = setting.clone();
        self.known.retain(|(t, k, _)| (t, *k) != (&topic, key));
        core.note(format_args!("{topic}: {key} becomes {value:?}"));
        let change = match value {
            Some(value) => ConfigChange::Set(key.to_owned(), Some(value.to_owned())),
            None => ConfigChange::Delete(key.to_owned()),
        };
        let command = AdminCommand::AlterConfigs {
            resources: vec![(ConfigResource::Topic(topic), vec![change])],
            replace: false,
            validate_only: false,
        };
        self.waits = true;
        self.asked = Some(setting);
        core.ask(me, Outcome::Admin, move |node, now, reply| {
            node.admin(command, now, reply);
        });
        Ok(())
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        let done = match &outcome {
            Outcome::Admin(Ok(AdminAnswer::Results(results))) => {
                results.iter().all(|r| r.error == ErrorCode::NONE)
            }
            _ => false,
        };
        if !done {
            // The same is asked for until it is answered: what was sent may still arrive.
            core.back_off = true;
            return Ok(());
        }
        sometimes(Mark::SettingChanged);
        self.progress += 1;
        self.known.extend(self.asked.take());
        Ok(())
    }
}
