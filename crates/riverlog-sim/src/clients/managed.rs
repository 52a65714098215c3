//! A transactional producer of the node's own coordinator: it initialises, adds partitions (version 1) or lets them be added
//! (version 2), commits offsets, ends, asks again what wasn't answered, dies in the middle, comes back as a newer instance, and is
//! fenced by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverlog_core::groups::{CommittedOffset, GroupAnswer, GroupCommand, InTransaction};
use riverlog_core::transactions::{TransactionAnswer, TransactionCommand, TransactionVersion};
use riverlog_mutants::{Mark, sometimes};
use riverlog_node::{AppendCommand, Node};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{
    ErrorCode, Generation, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence,
};

use super::transactor::{offset_place, partition_of};
use crate::model::Violation;
use crate::transactions::{MANAGED, PARTITIONS, Txn, value_of};
use crate::world::{Core, Outcome};

/// Transactions that are ended once all faults are healed.
const ENOUGH: u64 = 3;

/// A partition, or that of the group's offsets.
type Target = Option<i32>;

/// What is under way; `mine`: no newer instance was known when it was sent.
#[derive(Clone, Debug)]
struct Asked {
    what: What,
    mine: bool,
}

#[derive(Clone, Debug)]
enum What {
    Init,
    Add(Target),
    Send(i32),
    Offset,
    End(bool),
    /// A frame of an earlier transaction of this instance.
    Late,
    /// The group's offset, once the transaction before is known to be complete.
    Look(Option<i64>),
}

/// What the instance was given by its coordinator.
#[derive(Clone, Copy, Debug)]
struct Producer {
    id: ProducerId,
    epoch: ProducerEpoch,
    /// Counts the instances of its transactional id.
    term: u64,
}

#[derive(Debug)]
pub(crate) struct Managed {
    /// Among all producers of transactions.
    number: usize,
    /// Which transactional id it has; another instance may have the same.
    shares: usize,
    /// Once all faults are healed it never comes back, whatever it has open.
    deserts: bool,
    version: TransactionVersion,
    timeout_ms: i32,
    pub(crate) waits: bool,
    pub(crate) progress: u64,
    gone: bool,
    producer: Option<Producer>,
    /// Goes on as this producer after an error (KIP-360).
    resumes: Option<Producer>,
    /// A transaction has begun, and has not ended.
    open: bool,
    txn: i64,
    /// When the transaction began.
    began: Duration,
    sequences: BTreeMap<i32, i32>,
    sends: Vec<i32>,
    offset: bool,
    /// What the coordinator was told to be part of the transaction, by a client of version 1.
    added: BTreeSet<Target>,
    ending: Option<bool>,
    count: u64,
    /// What would have been the next batch of an earlier transaction, with its partition and the number of that.
    late: Option<(i64, i32, Vec<u8>)>,
    /// The coordinator has taken something of this transaction: all earlier ones are complete.
    begun: bool,
    asked: Option<Asked>,
}

impl Managed {
    /// `paired`: two instances share each transactional id.
    pub(crate) fn new(at: usize, paired: bool) -> Managed {
        Managed {
            number: MANAGED + at,
            shares: if paired { at / 2 } else { at },
            deserts: !at.is_multiple_of(2),
            version: match at % 3 {
                0 => TransactionVersion::ONE,
                _ => TransactionVersion::TWO,
            },
            timeout_ms: [60_000, 1_000, 10_000][at % 3],
            waits: false,
            progress: 0,
            gone: false,
            producer: None,
            resumes: None,
            open: false,
            txn: 0,
            began: Duration::ZERO,
            sequences: BTreeMap::new(),
            sends: Vec::new(),
            offset: false,
            added: BTreeSet::new(),
            ending: None,
            count: 0,
            late: None,
            begun: false,
            asked: None,
        }
    }

    pub(crate) fn heal(&mut self) {
        self.progress = 0;
        self.gone = self.deserts;
    }

    /// Everything that was begun has ended, or is for others to end.
    pub(crate) fn is_done(&self) -> bool {
        self.gone || (self.progress >= ENOUGH && !self.open)
    }

    fn now(&self) -> Txn {
        (self.number, self.txn)
    }

    fn id(&self) -> String {
        format!("managed-{}", self.shares)
    }

    fn two(&self) -> bool {
        self.version.bumps_epoch()
    }

    fn asks(&mut self, core: &Core, what: What) {
        let term = self.producer.or(self.resumes).map(|p| p.term);
        let mine = term.is_some_and(|term| core.transactions.is_owner(self.shares, term));
        self.waits = true;
        self.asked = Some(Asked { what, mine });
    }

    pub(crate) fn step(&mut self, core: &mut Core, me: usize) {
        if self.gone {
            return;
        }
        let Some(producer) = self.producer else {
            return self.init(core, me);
        };
        if !core.healing && core.random.chance(1, 60) {
            core.note(format_args!("managed {} dies", self.number));
            return self.begin_anew();
        }
        if !self.open {
            if core.healing && self.progress >= ENOUGH {
                return;
            }
            if core.random.chance(1, 15) {
                // As a client does after an error: what it has is given up for a newer epoch.
                self.resumes = Some(producer);
                self.producer = None;
                return;
            }
            self.begin(core);
        }
        if self.begun && core.random.chance(1, 6) {
            if let Some(late) = self.late.clone().filter(|(txn, ..)| *txn < self.txn) {
                return self.send_late(core, me, late);
            }
            return self.look(core, me);
        }
        if let Some(commit) = self.ending {
            return self.end(core, me, producer, commit);
        }
        if let Some(partition) = self.sends.last().copied() {
            if !self.two() && !self.added.contains(&Some(partition)) {
                return self.add(core, me, producer, Some(partition));
            }
            return self.send(core, me, producer, partition);
        }
        if self.offset {
            if !self.two() && !self.added.contains(&None) {
                return self.add(core, me, producer, None);
            }
            return self.commit_offset(core, me, producer);
        }
        let commit = core.random.chance(2, 3);
        core.note(format_args!(
            "managed {}: {} commits {commit}",
            self.number, self.txn
        ));
        core.transactions.decide(self.now(), commit);
        self.ending = Some(commit);
    }

    /// Forgets all that it had: what is open is for its successor, or for time, to end.
    fn begin_anew(&mut self) {
        self.producer = None;
        self.resumes = None;
        self.open = false;
        self.sequences.clear();
        self.sends.clear();
        self.offset = false;
        self.added.clear();
        self.ending = None;
        self.begun = false;
    }

    fn init(&mut self, core: &mut Core, me: usize) {
        if core.healing {
            self.timeout_ms = 30_000;
        }
        let command = TransactionCommand::Init {
            id: self.id(),
            timeout_ms: self.timeout_ms,
            resume: self.resumes.map(|p| (p.id, p.epoch)),
            fresh: None,
        };
        self.asks(core, What::Init);
        core.ask(me, Outcome::Transaction, move |node, now, reply| {
            node.transaction(command, now, reply);
        });
    }

    fn begin(&mut self, core: &mut Core) {
        self.txn += 1;
        self.open = true;
        self.begun = false;
        self.began = core.clock;
        let sends = 1 + core.random.below(4);
        self.sends = (0..sends)
            .map(|_| core.random.below(PARTITIONS as u64) as i32)
            .collect();
        self.offset = core.random.chance(1, 2);
        self.added.clear();
        core.transactions.begin(self.now());
    }

    fn add(&mut self, core: &mut Core, me: usize, producer: Producer, target: Target) {
        let Some((node, now)) = core.node() else {
            return;
        };
        let place = match target {
            Some(partition) => (crate::transactions::TOPIC.to_owned(), partition),
            None => match node.group_partition(&group_of(self.number), now) {
                Ok(partition) => ("__consumer_offsets".to_owned(), partition.index()),
                Err(_) => return,
            },
        };
        let command = TransactionCommand::Add {
            id: self.id(),
            producer_id: producer.id,
            epoch: producer.epoch,
            partitions: vec![place],
            version: self.version,
        };
        self.asks(core, What::Add(target));
        core.ask(me, Outcome::Transaction, move |node, now, reply| {
            node.transaction(command, now, reply);
        });
    }

    fn batch(&self, core: &Core, producer: Producer, partition: i32, value: &str) -> Vec<u8> {
        let sequence = self.sequences.get(&partition).copied().unwrap_or(0);
        BatchBuilder::new(Compression::None)
            .producer(producer.id, producer.epoch, Sequence(sequence))
            .transactional()
            .push(
                core.now().wall_ms,
                Some(b"key"),
                Some(value.as_bytes()),
                &[],
            )
            .build()
    }

    fn send(&mut self, core: &mut Core, me: usize, producer: Producer, partition: i32) {
        let value = value_of(self.now(), self.count);
        let batch = self.batch(core, producer, partition, &value);
        core.note(format_args!(
            "managed {}: {value} to {partition} as {}/{}",
            self.number, producer.id.0, producer.epoch.0
        ));
        self.append(core, me, partition, batch, What::Send(partition));
    }

    fn send_late(&mut self, core: &mut Core, me: usize, late: (i64, i32, Vec<u8>)) {
        let (txn, partition, batch) = late;
        core.note(format_args!(
            "managed {}: a late frame of {txn} to {partition}",
            self.number
        ));
        self.append(core, me, partition, batch, What::Late);
    }

    fn append(&mut self, core: &mut Core, me: usize, partition: i32, batch: Vec<u8>, what: What) {
        let Some(to) = partition_of(core, partition) else {
            return;
        };
        let repeats = matches!(what, What::Send(_));
        self.asks(core, what);
        let (id, adds) = (self.id(), self.two());
        let send = move |node: &Arc<Node>, now, reply| {
            let command = AppendCommand {
                batch,
                acks: -1,
                timeout: Duration::from_secs(5),
            };
            node.append_in_transaction(&to, &id, adds, command, now, reply);
        };
        core.ask(me, Outcome::Append, send.clone());
        if repeats {
            core.repeat(send);
        }
    }

    fn commit_offset(&mut self, core: &mut Core, me: usize, producer: Producer) {
        let committed = CommittedOffset {
            offset: Offset(self.txn),
            leader_epoch: LeaderEpoch::NONE,
            metadata: String::new(),
            commit_timestamp: 0,
            expire_timestamp: None,
        };
        let command = GroupCommand::TxnCommit {
            group: group_of(self.number),
            generation: Generation(-1),
            member: String::new(),
            instance: None,
            offsets: vec![(offset_place(), committed)],
            version: 5,
            transaction: InTransaction {
                producer_id: producer.id,
                producer_epoch: producer.epoch,
                verified: Offset::ZERO,
            },
        };
        core.transactions.offset_asked(self.now());
        self.asks(core, What::Offset);
        let (id, adds) = (self.id(), self.two());
        core.ask(me, Outcome::Group, move |node, now, reply| {
            node.commit_in_transaction(&id, adds, command, now, reply);
        });
    }

    fn end(&mut self, core: &mut Core, me: usize, producer: Producer, commit: bool) {
        let command = TransactionCommand::End {
            id: self.id(),
            producer_id: producer.id,
            epoch: producer.epoch,
            commit,
            version: self.version,
            fresh: None,
        };
        self.asks(core, What::End(commit));
        let send =
            move |node: &Arc<Node>, now, reply| node.transaction(command.clone(), now, reply);
        core.ask(me, Outcome::Transaction, send.clone());
        if self.two() {
            core.repeat(send);
        }
    }

    /// What the group has, now that everything before this transaction is complete.
    fn look(&mut self, core: &mut Core, me: usize) {
        let at_least = core.transactions.last_offset(self.number);
        self.asks(core, What::Look(at_least));
        let group = group_of(self.number);
        core.ask(me, Outcome::Committed, move |node, now, reply| {
            node.committed(&group, Some(vec![offset_place()]), None, now, reply);
        });
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        let Some(Asked { what, mine }) = self.asked.take() else {
            return Ok(());
        };
        match (what, outcome) {
            (What::Init, Outcome::Transaction(answer)) => self.initialised(core, mine, answer),
            (What::Add(target), Outcome::Transaction(TransactionAnswer::Error(error))) => {
                if error == ErrorCode::NONE {
                    self.owned(mine, "a partition was added")?;
                    self.added.insert(target);
                    self.begun = true;
                    return Ok(());
                }
                self.refused(core, error)
            }
            (What::Send(partition), Outcome::Append(Ok(_))) => {
                self.owned(mine, "a batch was taken")?;
                let value = value_of(self.now(), self.count);
                core.transactions.sent(self.now(), partition, value);
                self.sends.pop();
                self.count += 1;
                *self.sequences.entry(partition).or_insert(0) += 1;
                self.begun = true;
                if let Some(producer) = self.producer.filter(|_| self.two()) {
                    let batch = self.batch(core, producer, partition, "late");
                    let newer = self.late.as_ref().is_none_or(|(txn, ..)| *txn < self.txn);
                    if newer || core.random.chance(1, 2) {
                        self.late = Some((self.txn, partition, batch));
                    }
                }
                Ok(())
            }
            (What::Send(_), Outcome::Append(Err(failure))) => self.refused(core, failure.error),
            (What::Late, Outcome::Append(Ok(answer))) => Err(Violation::new(
                "no frame of an old transaction lands in a new one",
                format!("managed {}: at {}", self.number, answer.base_offset),
            )),
            (What::Late, Outcome::Append(Err(_))) => {
                self.late = None;
                Ok(())
            }
            (What::Offset, Outcome::Group(GroupAnswer::Partitions(error, each))) => {
                match each.first().copied().unwrap_or(error) {
                    ErrorCode::NONE => {
                        self.owned(mine, "an offset was taken")?;
                        self.offset = false;
                        self.begun = true;
                        core.transactions.offset_sent(self.now());
                        Ok(())
                    }
                    error => self.refused(core, error),
                }
            }
            (What::End(commit), Outcome::Transaction(answer)) => {
                self.ended(core, mine, commit, answer)
            }
            (What::Look(at_least), Outcome::Committed(Ok(found))) => {
                let found = found.into_iter().next().and_then(|(_, found)| found);
                let seen = found.map(|c| c.offset.0);
                core.transactions.offset_seen(self.number, at_least, seen)
            }
            (_, Outcome::Lost) => Ok(()),
            (_, _) => {
                core.back_off = true;
                Ok(())
            }
        }
    }

    fn initialised(
        &mut self,
        core: &mut Core,
        mine: bool,
        answer: TransactionAnswer,
    ) -> Result<(), Violation> {
        let TransactionAnswer::Producer {
            error,
            producer_id,
            epoch,
        } = answer
        else {
            return Ok(());
        };
        core.note(format_args!(
            "managed {}: {} {}/{}",
            self.number,
            error.name(),
            producer_id.0,
            epoch.0
        ));
        if error == ErrorCode::NONE {
            if self.resumes.is_some() {
                self.owned(mine, "it went on")?;
            }
            self.begin_anew();
            let term = core.transactions.owns(self.shares);
            self.producer = Some(Producer {
                id: producer_id,
                epoch,
                term,
            });
            return Ok(());
        }
        core.back_off = true;
        if error == ErrorCode::PRODUCER_FENCED {
            if self.resumes.is_none() {
                return Err(dishonest(format!(
                    "managed {}: a new instance is fenced",
                    self.number
                )));
            }
            self.resumes = None;
            return Ok(());
        }
        match error.retriable() {
            true => Ok(()),
            false => Err(dishonest(format!(
                "managed {}: init {}",
                self.number,
                error.name()
            ))),
        }
    }

    fn ended(
        &mut self,
        core: &mut Core,
        mine: bool,
        commit: bool,
        answer: TransactionAnswer,
    ) -> Result<(), Violation> {
        let TransactionAnswer::Producer {
            error,
            producer_id,
            epoch,
        } = answer
        else {
            return Ok(());
        };
        if error != ErrorCode::NONE {
            return self.refused(core, error);
        }
        self.owned(mine, "a transaction was ended")?;
        core.note(format_args!(
            "managed {}: {} has ended",
            self.number, self.txn
        ));
        core.transactions.ended(self.now(), commit);
        self.progress += 1;
        self.open = false;
        self.ending = None;
        if self.two()
            && let Some(producer) = &mut self.producer
            && (producer.id, producer.epoch) != (producer_id, epoch)
        {
            (producer.id, producer.epoch) = (producer_id, epoch);
            self.sequences.clear();
        }
        Ok(())
    }

    /// An answer that only the newest instance may be given.
    fn owned(&self, mine: bool, what: &str) -> Result<(), Violation> {
        match mine {
            true => Ok(()),
            false => Err(Violation::new(
                "a producer that was fenced stays so",
                format!("managed {}, transaction {}: {what}", self.number, self.txn),
            )),
        }
    }

    fn refused(&mut self, core: &mut Core, error: ErrorCode) -> Result<(), Violation> {
        core.back_off = true;
        if error.retriable() {
            return Ok(());
        }
        core.note(format_args!(
            "managed {}: {} in {}",
            self.number,
            error.name(),
            self.txn
        ));
        let age = core.clock.saturating_sub(self.began);
        let out_of_time = 2 * age >= Duration::from_millis(self.timeout_ms as u64);
        let swarm = &core.swarm;
        let may_be = swarm.is_paired() || out_of_time || swarm.freeze > 0;
        if !may_be {
            return Err(dishonest(format!(
                "managed {}, transaction {}: {}",
                self.number,
                self.txn,
                error.name()
            )));
        }
        sometimes(Mark::ProducerFenced);
        let resumes = self.producer;
        self.begin_anew();
        // An old instance that doesn't know yet goes on as if it were the newest.
        self.resumes = resumes.filter(|_| core.random.chance(1, 3));
        Ok(())
    }
}

fn dishonest(what: String) -> Violation {
    Violation::new("an honest transaction is never refused", what)
}

/// The group that a producer commits offsets of.
pub(crate) fn group_of(number: usize) -> String {
    format!("of-managed-{number}")
}

/// The transactional producers of a run.
pub(crate) fn numbers(count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(|at| MANAGED + at)
}
