//! Transactional producers whose coordinator and partitions are on different nodes, and one who reads what they have committed.
//!
//! They look for coordinator and leaders by any node's metadata, old ones too; the leaders ask the coordinator, and that has markers
//! written by the leaders.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use riverlog_core::metadata::{NewTopic, TopicRef};
use riverlog_core::transactions::{TransactionAnswer, TransactionCommand, TransactionVersion};
use riverlog_node::{AppendAnswer, AppendCommand, AppendFailure, Isolation, NodeSettings, Reply};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, Offset, ProducerEpoch, ProducerId, Sequence, TopicId};

use super::groups::{Heard, Place};
use super::world::World;
use crate::model::Violation;
use crate::transactions::{PARTITIONS, TOPIC, Transactions, Txn, committed_of, value_of};
use crate::world::fetch_one;

/// The topic that keeps transactional ids.
pub(super) const STATE: &str = "__transaction_state";

/// The identity of the topic that transactions write to.
const ID: TopicId = TopicId(*b"transactions-txn");

/// Transactions of each producer that end once all is healed, or one node is missing.
const ENOUGH: u64 = 3;

/// How long a transaction may take, and for how long nobody can have aborted it.
const TIMEOUT_MS: i32 = 60_000;
const SAFE: Duration = Duration::from_secs(45);

/// What a seed draws.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransactPlan {
    pub(super) producers: usize,
    /// Of `__transaction_state`.
    pub(super) partitions: i32,
}

impl TransactPlan {
    pub(super) fn set(self, settings: &mut NodeSettings) {
        settings.transactions_partitions = self.partitions;
    }
}

pub(super) fn topic() -> NewTopic {
    NewTopic {
        name: TOPIC.to_owned(),
        partitions: PARTITIONS,
        replication_factor: 3,
        id: ID,
        ..NewTopic::default()
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum Asked {
    #[default]
    Nothing,
    Init,
    Send(i32),
    End(bool),
}

#[derive(Debug)]
pub(super) struct Transactor {
    number: usize,
    producer: Option<(ProducerId, ProducerEpoch)>,
    txn: i64,
    /// Partitions that it still writes to in this transaction; `None`: there is none.
    open: Option<Vec<i32>>,
    sequences: BTreeMap<i32, i32>,
    count: u64,
    /// What it has decided on.
    ending: Option<bool>,
    asked: Asked,
    progress: u64,
    /// When its transaction began.
    began: Duration,
    /// Something that it has asked since it was last told an epoch wasn't answered, and may be done yet.
    is_unsure: bool,
    /// An Init wasn't answered, and may be done at any time.
    is_haunted: bool,
    /// It begins no more than [`ENOUGH`].
    is_healed: bool,
}

impl Transactor {
    pub(super) fn new(number: usize) -> Transactor {
        Transactor {
            number,
            producer: None,
            txn: 0,
            open: None,
            sequences: BTreeMap::new(),
            count: 0,
            ending: None,
            asked: Asked::Nothing,
            progress: 0,
            began: Duration::ZERO,
            is_unsure: false,
            is_haunted: false,
            is_healed: false,
        }
    }

    pub(super) fn heal(&mut self) {
        self.progress = 0;
        self.is_healed = true;
    }

    pub(super) fn has_progressed(&self) -> bool {
        self.progress >= ENOUGH && self.open.is_none()
    }

    fn now(&self) -> Txn {
        (self.number, self.txn)
    }

    fn id(&self) -> String {
        format!("pays-{}", self.number)
    }

    /// Forgets all that it had: its next instance has what is open aborted.
    fn begin_anew(&mut self) {
        self.producer = None;
        self.open = None;
        self.ending = None;
        self.sequences.clear();
    }
}

/// Reads committed records, and nothing else.
#[derive(Debug, Default)]
pub(super) struct StableReader {
    next: [Offset; PARTITIONS as usize],
    partition: i32,
    found: [Vec<String>; PARTITIONS as usize],
    /// The leadership that it has asked, if that was the newest then.
    asked: Option<Place>,
    /// Which partitions were read to their ends since the last transaction ended, with nothing open in them. Each counts by itself: one may be
    /// asked for in vain again and again while the others are read.
    quiet: [bool; PARTITIONS as usize],
}

impl StableReader {
    pub(super) fn heal(&mut self) {
        self.quiet = Default::default();
    }

    pub(super) fn has_progressed(&self) -> bool {
        self.quiet.iter().all(|is_quiet| *is_quiet)
    }

    /// All that it has read is right, once nothing is under way and it has come to the ends.
    pub(super) fn check(&self, all: &Transactions) -> Result<(), Violation> {
        for (partition, found) in (0..).zip(&self.found) {
            all.read_whole(partition, found)?;
        }
        let found: BTreeSet<String> = self.found.iter().flatten().cloned().collect();
        all.all_or_nothing(&found, &BTreeMap::new())
    }
}

impl World {
    pub(super) fn transactor_step(&mut self, me: usize) {
        let (dies, commits) = (
            self.groups.random.chance(1, 60),
            self.groups.random.chance(3, 4),
        );
        let first = self.groups.random.below(PARTITIONS as u64) as i32;
        let several = 1 + self.groups.random.below(PARTITIONS as u64) as i32;
        let clock = self.clock;
        let Some(transactor) = self.groups.transactor(me) else {
            return;
        };
        let (number, id) = (transactor.number, transactor.id());
        if dies && !transactor.is_healed {
            transactor.begin_anew();
        }
        let Some(producer) = transactor.producer else {
            let command = TransactionCommand::Init {
                id,
                timeout_ms: TIMEOUT_MS,
                resume: None,
                fresh: None,
            };
            return self.transactor_asks(me, Asked::Init, command);
        };
        if transactor.open.is_none() {
            if transactor.is_healed && transactor.progress >= ENOUGH {
                return self.member_thinks(me, true);
            }
            transactor.txn += 1;
            transactor.began = clock;
            let each = (first..first + several).map(|n| n % PARTITIONS);
            transactor.open = Some(each.collect());
            let txn = transactor.now();
            self.groups.transactions.begin(txn);
            return self.member_thinks(me, false);
        }
        if let Some(partition) = transactor.open.as_ref().and_then(|left| left.last()) {
            let partition = *partition;
            return self.transactor_sends(me, producer, partition);
        }
        let commit = *transactor.ending.get_or_insert(commits);
        let txn = transactor.now();
        self.note(format_args!("{number}: {txn:?} commits {commit}"));
        self.groups.transactions.decide(txn, commit);
        if self.is_overtaken(&id) {
            return self.member_thinks(me, true);
        }
        let command = TransactionCommand::End {
            id,
            producer_id: producer.0,
            epoch: producer.1,
            commit,
            version: TransactionVersion::TWO,
            fresh: None,
        };
        self.transactor_asks(me, Asked::End(commit), command);
    }

    /// Tells the coordinator something.
    fn transactor_asks(&mut self, me: usize, asked: Asked, command: TransactionCommand) {
        // As the metadata of some node has it, which may be old.
        let any = self.groups.random.below(self.machines.len() as u64) as usize;
        let (any, past) = self.looks_by(me, any);
        let found = self.node(any).filter(|_| self.is_up(any));
        let at = found.and_then(|(node, now)| node.transaction_coordinator(command.id(), now));
        let at = at.map(|broker| broker.0 as usize - 1);
        let at = at.filter(|at| Some(*at) != past);
        let (number, found) = self.member_asks(me, at);
        let Some((node, now)) = found else { return };
        if let Some(transactor) = self.groups.transactor(me) {
            transactor.asked = asked;
        }
        let inbox = self.member_inbox();
        let reply = Reply::new(move |answer| {
            inbox
                .lock()
                .push((me, number, Heard::Transaction(Box::new(answer))));
        });
        node.transaction(command, now, reply);
    }

    fn transactor_sends(
        &mut self,
        me: usize,
        producer: (ProducerId, ProducerEpoch),
        partition: i32,
    ) {
        let at = self.leader_as_known(ID, partition);
        let (number, found) = self.member_asks(me, at);
        let Some((node, now)) = found else { return };
        let Some(transactor) = self.groups.transactor(me) else {
            return;
        };
        transactor.asked = Asked::Send(partition);
        let value = value_of(transactor.now(), transactor.count);
        let sequence = transactor.sequences.get(&partition).copied().unwrap_or(0);
        let mut batch = BatchBuilder::new(Compression::None);
        batch.producer(producer.0, producer.1, Sequence(sequence));
        batch.transactional();
        batch.push(now.wall_ms, None, Some(value.as_bytes()), &[]);
        let id = transactor.id();
        let inbox = self.member_inbox();
        let reply = Reply::new(move |answer: Result<AppendAnswer, AppendFailure>| {
            let error = answer.err().map(|failure| failure.error);
            inbox.lock().push((me, number, Heard::Sent(error)));
        });
        let command = AppendCommand {
            batch: batch.build(),
            acks: -1,
            timeout: Duration::from_secs(3),
        };
        match node.partition(&TopicRef::Name(TOPIC.to_owned()), partition) {
            Ok(to) => node.append_in_transaction(&to, &id, true, command, now, reply),
            Err(error) => reply.send(Err(AppendFailure {
                error,
                message: String::new(),
                records: Vec::new(),
                retry_after: None,
            })),
        }
    }

    /// Whether it waits a while before it goes on.
    pub(super) fn transactor_hears(&mut self, me: usize, heard: Heard) -> Result<bool, Violation> {
        let clock = self.clock;
        let Some(transactor) = self.groups.transactor(me) else {
            return Ok(true);
        };
        let number = transactor.number;
        let txn = transactor.now();
        let asked = std::mem::take(&mut transactor.asked);
        let error = match (asked, heard) {
            (_, Heard::Transaction(answer)) => match (asked, *answer) {
                (
                    Asked::Init,
                    TransactionAnswer::Producer {
                        error: ErrorCode::NONE,
                        producer_id,
                        epoch,
                    },
                ) => {
                    transactor.begin_anew();
                    transactor.is_unsure = false;
                    transactor.producer = Some((producer_id, epoch));
                    return Ok(false);
                }
                (
                    Asked::End(commit),
                    TransactionAnswer::Producer {
                        error: ErrorCode::NONE,
                        producer_id,
                        epoch,
                    },
                ) => {
                    // Where the epoch stays, sequences go on.
                    let sequences = std::mem::take(&mut transactor.sequences);
                    let is_same = transactor.producer == Some((producer_id, epoch));
                    transactor.begin_anew();
                    if is_same {
                        transactor.sequences = sequences;
                    }
                    transactor.producer = Some((producer_id, epoch));
                    // What comes late is of an epoch that is over.
                    transactor.is_unsure &= is_same;
                    transactor.progress += 1;
                    self.groups.transactions.ended(txn, commit);
                    self.gets_ahead(me);
                    self.note(format_args!("{number}: {txn:?} has ended"));
                    return Ok(false);
                }
                (
                    _,
                    TransactionAnswer::Producer { error, .. } | TransactionAnswer::Error(error),
                ) => error,
                _ => return Ok(true),
            },
            (Asked::Send(partition), Heard::Sent(None)) => {
                let value = value_of(txn, transactor.count);
                transactor.count += 1;
                *transactor.sequences.entry(partition).or_insert(0) += 1;
                if let Some(left) = &mut transactor.open {
                    left.pop();
                }
                self.groups.transactions.sent(txn, partition, value);
                return Ok(false);
            }
            (_, Heard::Sent(Some(error))) => error,
            // Nobody was there to be asked.
            _ if matches!(asked, Asked::Nothing) => return Ok(true),
            // It wasn't answered.
            _ => {
                transactor.is_unsure = true;
                transactor.is_haunted |= matches!(asked, Asked::Init);
                return Ok(true);
            }
        };
        let name = error.name();
        if !error.retriable() {
            // As a client does that is fenced, or whose transaction ran out.
            let is_honest = !transactor.is_unsure && !transactor.is_haunted;
            if is_honest && clock.saturating_sub(transactor.began) < SAFE {
                let what = format!("{number}: {name} in {txn:?} to {asked:?}");
                return Err(Violation::new(
                    "an honest transaction is never refused for good",
                    what,
                ));
            }
            transactor.begin_anew();
        }
        self.note(format_args!("{number}: {name} in {txn:?} to {asked:?}"));
        Ok(true)
    }

    pub(super) fn stable_step(&mut self, me: usize) {
        let Some(reader) = self.groups.stable(me) else {
            return;
        };
        reader.partition = (reader.partition + 1) % PARTITIONS;
        let partition = reader.partition;
        let from = reader.next[partition as usize];
        let at = self.leader_as_known(ID, partition);
        let (number, found) = self.member_asks(me, at);
        let topic = TopicRef::Name(TOPIC.to_owned());
        let newest = self.led_now(&topic, partition);
        if let Some(reader) = self.groups.stable(me) {
            reader.asked = newest.filter(|place| Some(place.at) == at);
        }
        let Some((node, now)) = found else { return };
        let wait = Duration::from_millis(20);
        let mut command = fetch_one(topic, partition, from, 10_000, wait);
        command.isolation = Isolation::ReadCommitted;
        let inbox = self.member_inbox();
        let reply = Reply::new(move |answer| {
            inbox
                .lock()
                .push((me, number, Heard::Fetched(Box::new(answer))));
        });
        node.fetch(command, now, reply);
    }

    /// Whether it waits a while before it goes on.
    pub(super) fn stable_hears(&mut self, me: usize, heard: Heard) -> Result<bool, Violation> {
        let Heard::Fetched(answer) = heard else {
            return Ok(true);
        };
        let part = answer.partitions.into_iter().next();
        let Some(part) = part.filter(|part| part.error == ErrorCode::NONE) else {
            return Ok(true);
        };
        let is_idle = self.groups.transactors_are_done();
        let Some(reader) = self.groups.stable(me) else {
            return Ok(true);
        };
        let (asked, partition) = (reader.asked.take(), reader.partition);
        // One that is superseded and doesn't know it yet tells where the partition ended.
        let newest = self.led_now(&TopicRef::Name(TOPIC.to_owned()), partition);
        let (stable, end) = (part.last_stable_offset, part.high_watermark);
        let asked = asked.filter(|place| Some(*place) == newest);
        let is_sure = asked.is_some_and(|place| self.is_whole_log(place, partition, end));
        let Some(reader) = self.groups.stable(me) else {
            return Ok(true);
        };
        let at = partition as usize;
        let (values, next) = committed_of(part, reader.next[at])?;
        let is_quiet = values.is_empty() && stable == end && next >= end;
        reader.quiet[at] = is_quiet && is_idle && is_sure;
        let from = std::mem::replace(&mut reader.next[at], next);
        let values: Vec<String> = values.into_iter().map(|(_, value)| value).collect();
        reader.found[at].extend(values.iter().cloned());
        if next > from {
            self.note(format_args!(
                "committed in {at} from {from} to {next} of {stable}/{end}: {values:?}"
            ));
        }
        for value in values {
            self.model.checked += 1;
            self.groups.transactions.seen(&value)?;
        }
        Ok(is_quiet)
    }

    /// Whether all that a leader has is before this offset. One that has only just taken over may hold more that was acknowledged, and not know
    /// so yet.
    fn is_whole_log(&self, leader: Place, partition: i32, end: Offset) -> bool {
        let node = self.machines[leader.at].node.as_ref();
        let copy = node.and_then(|node| node.describe_copy(ID, partition));
        copy.is_some_and(|copy| copy.leads && copy.partition.log_end_offset <= end)
    }

    /// Two nodes that transactions need to talk to each other, and that both talk with the controller.
    pub(super) fn across_transactions(&mut self) -> Option<(usize, usize)> {
        let controller = self.quorum.leader?;
        let state = TopicRef::Name(STATE.to_owned());
        let topic = TopicRef::Name(TOPIC.to_owned());
        let coordinators = (0..PARTITIONS).filter_map(|n| self.led_now(&state, n));
        let leaders = (0..PARTITIONS).filter_map(|n| self.led_now(&topic, n));
        let leaders: Vec<usize> = leaders.map(|place| place.at).collect();
        let pairs = coordinators.flat_map(|c| leaders.iter().map(move |l| (c.at, *l)));
        let may = |(one, other): &(usize, usize)| {
            one != other && *one != controller && *other != controller
        };
        let pairs: Vec<(usize, usize)> = pairs.filter(may).collect();
        match pairs.len() {
            0 => None,
            n => Some(pairs[self.groups.random.below(n as u64) as usize]),
        }
    }
}
