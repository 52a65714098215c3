//! Stories: small scripts, and what a shard answers, writes and asks for.
//!
//! A line is a step. `a: init pay` is said by client `a`, whose producer id and epoch the story remembers. Answers are printed as
//! they come (`…`: not yet; `=`: to a command before), records with `+`, tombstones with `-`, markers to write with `!`.

mod bytes;
mod random;
mod stories;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use expect_test::Expect;
use riverlog_wire::{ErrorCode, Offset, ProducerEpoch, ProducerId};

use super::*;
use crate::Now;

/// A shard with its log.
pub(super) struct World {
    pub(super) shard: TransactionShard,
    pub(super) log: Vec<StoredRecord>,
    pub(super) now: Now,
    pub(super) cluster: TransactionVersion,
    /// Commands that have no answer yet.
    open: BTreeSet<Token>,
    fresh: i64,
    tokens: u64,
    out: String,
}

/// What a step gave.
pub(super) struct Step {
    pub(super) answer: Option<TransactionAnswer>,
    pub(super) effects: Vec<WriteMarkers>,
}

impl World {
    pub(super) fn new(cluster: TransactionVersion) -> World {
        let now = Now {
            mono: Duration::from_secs(1),
            wall_ms: 1_000_000,
        };
        let mut shard = TransactionShard::new(TransactionSettings::default());
        shard.loaded(now);
        World {
            shard,
            log: Vec::new(),
            now,
            cluster,
            open: BTreeSet::new(),
            fresh: 1_000,
            tokens: 0,
            out: String::new(),
        }
    }

    pub(super) fn tell(&mut self, mut command: TransactionCommand) -> Step {
        self.tokens += 1;
        let token = Token(self.tokens);
        let decided = self
            .shard
            .decide(command.clone(), token, self.cluster, self.now);
        self.open.insert(token);
        let mut step = self.perform(decided, Some(token));
        if step.answer == Some(TransactionAnswer::NeedsProducerId) {
            command.set_fresh(ProducerId(self.fresh));
            self.fresh += 1;
            let decided = self.shard.decide(command, token, self.cluster, self.now);
            self.open.insert(token);
            step = self.perform(decided, Some(token));
        }
        let mut more = self.timers();
        step.effects.append(&mut more);
        step
    }

    /// What is due now.
    pub(super) fn timers(&mut self) -> Vec<WriteMarkers> {
        let mut effects = Vec::new();
        while self
            .shard
            .next_deadline()
            .is_some_and(|at| at <= self.now.mono)
        {
            let decided = self.shard.decide_timers(self.cluster, self.now);
            assert!(!decided.is_empty(), "a deadline for nothing");
            effects.extend(self.perform(decided, None).effects);
        }
        effects
    }

    pub(super) fn pass(&mut self, time: Duration) -> Vec<WriteMarkers> {
        let until = self.now.mono + time;
        let mut effects = Vec::new();
        while let Some(at) = self.shard.next_deadline().filter(|at| *at <= until) {
            let at = at.max(self.now.mono);
            self.now.wall_ms += (at - self.now.mono).as_millis() as i64;
            self.now.mono = at;
            effects.extend(self.timers());
        }
        self.now.wall_ms += (until - self.now.mono).as_millis() as i64;
        self.now.mono = until;
        effects
    }

    /// A new life of the shard, from its log.
    pub(super) fn reload(&mut self) -> Vec<WriteMarkers> {
        // Whoever waits is sent to look for the coordinator again.
        self.open.clear();
        let before: Vec<_> = self.shard.list(&TransactionFilter::all(), self.now);
        self.shard = TransactionShard::new(TransactionSettings::default());
        for (at, record) in (0..).zip(&self.log) {
            let value = record.value.as_deref();
            self.shard.apply(&record.key, value, Offset(at), self.now);
        }
        self.shard.loaded(self.now);
        assert_eq!(self.shard.list(&TransactionFilter::all(), self.now), before);
        self.timers()
    }

    fn perform(&mut self, decision: Decision, token: Option<Token>) -> Step {
        for soft in decision.soft {
            self.shard.soft(soft, self.now);
        }
        for record in decision.records {
            let at = Offset(self.log.len() as i64);
            let decoded = records::decode(&record.key, record.value.as_deref());
            match decoded.unwrap().unwrap() {
                (id, None) => writeln!(self.out, "    - {id}").unwrap(),
                (id, Some(v)) => {
                    let places = places(&v.partitions);
                    let (state, epoch) = (v.state.name(), v.epoch);
                    let who = v.producer_id;
                    writeln!(self.out, "    + {id} {state} {who}/{epoch}{places}").unwrap();
                }
            }
            self.shard
                .apply(&record.key, record.value.as_deref(), at, self.now);
            self.log.push(record);
        }
        let mut step = Step {
            answer: None,
            effects: Vec::new(),
        };
        for answer in decision.answers {
            assert!(
                self.open.remove(&answer.token),
                "an answer that nobody waits for"
            );
            assert!(answer.after.0 <= self.log.len() as i64);
            if Some(answer.token) == token {
                step.answer = Some(answer.body);
            } else if let TransactionAnswer::Error(error) = answer.body {
                writeln!(self.out, "    = {}", error.name()).unwrap();
            }
        }
        for effect in decision.effects {
            assert!(effect.after.0 <= self.log.len() as i64);
            let m = &effect.body;
            let what = if m.commit { "commit" } else { "abort" };
            let (id, who, epoch) = (&m.id, m.producer_id, m.epoch);
            let places = places(&m.partitions);
            writeln!(self.out, "    ! {what} {id} {who}/{epoch}{places}").unwrap();
            step.effects.push(effect.body);
        }
        step
    }
}

fn places(partitions: &BTreeSet<Place>) -> String {
    let place = |(topic, partition): &Place| format!(" {topic}-{partition}");
    partitions.iter().map(place).collect()
}

/// Plays a story.
pub(super) fn story(cluster: TransactionVersion, script: &str, expected: Expect) {
    let mut world = World::new(cluster);
    let mut clients: BTreeMap<String, (ProducerId, ProducerEpoch)> = BTreeMap::new();
    let mut markers: BTreeMap<String, WriteMarkers> = BTreeMap::new();
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        writeln!(world.out, "{line}").unwrap();
        let (client, words) = line.split_once(": ").unwrap_or(("", line));
        let words: Vec<&str> = words.split(' ').collect();
        let id = words.get(1).unwrap_or(&"").to_string();
        let who = clients.get(client).copied();
        let (producer_id, epoch) = who.unwrap_or((ProducerId::NONE, ProducerEpoch::NONE));
        let two = words[0].ends_with('2');
        let version = match two {
            true => TransactionVersion::TWO,
            false => TransactionVersion::ONE,
        };
        let partitions = words.iter().skip(2).map(|w| ((*w).to_owned(), 0)).collect();
        let effects = match words[0] {
            "wait" => world.pass(Duration::from_millis(id.parse().unwrap())),
            "reload" => world.reload(),
            "jump" => {
                world.now.wall_ms += id.parse::<i64>().unwrap();
                Vec::new()
            }
            "hold" => {
                world.shard.hold(world.now.mono + Duration::from_secs(100));
                Vec::new()
            }
            "is" => {
                // The client holds what it is told to.
                let number = |at: usize| words[at].parse::<i64>().unwrap();
                let holds = (ProducerId(number(1)), ProducerEpoch(number(2) as i16));
                clients.insert(client.to_owned(), holds);
                Vec::new()
            }
            word => {
                let command = match word.trim_end_matches('2') {
                    "init" => TransactionCommand::Init {
                        id: id.clone(),
                        timeout_ms: words.get(2).map_or(60_000, |w| w.parse().unwrap()),
                        resume: None,
                        fresh: None,
                    },
                    "resume" => TransactionCommand::Init {
                        id: id.clone(),
                        timeout_ms: 60_000,
                        resume: who,
                        fresh: None,
                    },
                    "add" => TransactionCommand::Add {
                        id: id.clone(),
                        producer_id,
                        epoch,
                        partitions,
                        version,
                    },
                    "verify" => TransactionCommand::Verify {
                        id: id.clone(),
                        producer_id,
                        epoch,
                        partitions,
                    },
                    "commit" | "abort" | "quietly-commit" => TransactionCommand::End {
                        id: id.clone(),
                        producer_id,
                        epoch,
                        commit: !word.starts_with("abort"),
                        version,
                        fresh: None,
                    },
                    "written" => {
                        let asked = markers[&id].clone();
                        let failed: Vec<Place> = partitions;
                        let done = asked.partitions.into_iter();
                        TransactionCommand::MarkersWritten {
                            id: id.clone(),
                            prepared_at: asked.prepared_at,
                            done: done.filter(|p| !failed.contains(p)).collect(),
                        }
                    }
                    other => panic!("{other}"),
                };
                let step = world.tell(command);
                match step.answer {
                    None => writeln!(world.out, "  …").unwrap(),
                    Some(TransactionAnswer::Producer {
                        error,
                        producer_id,
                        epoch,
                    }) => {
                        if error != ErrorCode::NONE {
                            writeln!(world.out, "  {}", error.name()).unwrap();
                        } else {
                            writeln!(world.out, "  {producer_id}/{epoch}").unwrap();
                            // A lost answer is one that the client never saw.
                            if !word.starts_with("quietly") {
                                clients.insert(client.to_owned(), (producer_id, epoch));
                            }
                        }
                    }
                    Some(TransactionAnswer::Error(error)) => {
                        writeln!(world.out, "  {}", error.name()).unwrap();
                    }
                    Some(TransactionAnswer::Partitions(each)) => {
                        let each: Vec<_> = each.iter().map(|e| e.name()).collect();
                        writeln!(world.out, "  {}", each.join(" ")).unwrap();
                    }
                    Some(TransactionAnswer::NeedsProducerId) => panic!("it was given one"),
                }
                step.effects
            }
        };
        for effect in effects {
            markers.insert(effect.id.clone(), effect);
        }
    }
    expected.assert_eq(&world.out);
}
