//! A transactional producer that is its own coordinator: it remembers what it has decided, and has markers written until they
//! are answered. So the partitions' side of transactions is played with all faults, and no coordinator's can hide one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use riverlog_checker::What;
use riverlog_core::groups::{
    CommittedOffset, GroupAnswer, GroupCommand, InTransaction, TopicPartition,
};
use riverlog_core::metadata::TopicRef;
use riverlog_node::{AppendCommand, Marker, PartitionRef};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{
    ErrorCode, Generation, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TopicId,
};

use crate::history::transactional;
use crate::model::Violation;
use crate::transactions::{PARTITIONS, TOPIC, Txn, value_of};
use crate::world::{Core, Outcome};

/// Transactions that are ended once all faults are healed.
const ENOUGH: u64 = 3;

/// Where a transaction has written to; `None` is the group's partition.
type Target = Option<i32>;

/// What is under way.
#[derive(Clone, Debug)]
enum Asked {
    Id,
    Send {
        partition: i32,
        count: u64,
    },
    Offset,
    End(Target),
    /// Something of the transaction before, which must not be taken any more.
    Late,
    LateMarker,
}

#[derive(Debug)]
pub(crate) struct Transactor {
    number: usize,
    pub(crate) waits: bool,
    pub(crate) progress: u64,
    id: Option<ProducerId>,
    epoch: i16,
    txn: i64,
    sequences: BTreeMap<i32, i32>,
    /// What the transaction has still to do: partitions to send to, and whether to commit an offset.
    sends: Vec<i32>,
    offset: bool,
    /// Where it has written to, or has tried to.
    targets: BTreeSet<Target>,
    /// The decision, and where its marker is missing.
    ending: Option<(bool, BTreeSet<Target>)>,
    count: u64,
    /// The last value that the history knows of.
    told: Option<u64>,
    /// A batch of the transaction before, with its partition.
    late: Option<(i32, Vec<u8>)>,
    asked: Option<Asked>,
}

impl Transactor {
    pub(crate) fn new(number: usize) -> Transactor {
        Transactor {
            number,
            waits: false,
            progress: 0,
            id: None,
            epoch: 0,
            txn: 0,
            sequences: BTreeMap::new(),
            sends: Vec::new(),
            offset: false,
            targets: BTreeSet::new(),
            ending: None,
            count: 0,
            told: None,
            late: None,
            asked: None,
        }
    }

    /// Everything that was begun has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.progress >= ENOUGH && self.is_idle()
    }

    fn is_idle(&self) -> bool {
        self.targets.is_empty() && self.ending.is_none() && self.sends.is_empty() && !self.offset
    }

    fn now(&self) -> Txn {
        (self.number, self.txn)
    }

    /// Raises its epoch with each transaction, as transaction version 2 does.
    fn raises(&self) -> bool {
        !self.number.is_multiple_of(3)
    }

    fn name(&self) -> String {
        format!("t{}", self.number)
    }

    /// What the history has to know of it first.
    pub(crate) fn open(&self, core: &mut Core) {
        let open = What::Open {
            idempotent: true,
            retries: true,
            group: None,
            read_committed: false,
        };
        core.history.note(core.clock, &self.name(), open);
    }

    /// The transaction's name in the history.
    fn txn_name(&self) -> String {
        format!("{}-{}", self.name(), self.txn)
    }

    pub(crate) fn step(&mut self, core: &mut Core, me: usize) {
        let Some(id) = self.id else {
            if let Some((node, now)) = core.operate() {
                self.asks(Asked::Id);
                node.init_producer(now, core.reply(me, Outcome::Producer));
            }
            return;
        };
        if self.is_idle() {
            if core.healing && self.progress >= ENOUGH {
                return;
            }
            self.begin(core);
        }
        if self.raises() && self.epoch > 0 && core.random.chance(1, 12) {
            return self.send_late(core, me, id);
        }
        if let Some((commit, missing)) = &self.ending {
            let target = missing.first().copied();
            return self.end(core, me, id, *commit, target.flatten());
        }
        if let Some(partition) = self.sends.last().copied() {
            return self.send(core, me, id, partition);
        }
        if self.offset {
            return self.commit_offset(core, me, id);
        }
        let commit = core.random.chance(2, 3);
        core.note(format_args!(
            "transactor {}: {} commits {commit}",
            self.number, self.txn
        ));
        core.transactions.decide(self.now(), commit);
        let ending = What::Ending {
            txn: self.txn_name(),
            commit,
        };
        core.history.note(core.clock, &self.name(), ending);
        self.ending = Some((commit, self.targets.clone()));
    }

    fn asks(&mut self, what: Asked) {
        self.waits = true;
        self.asked = Some(what);
    }

    fn begin(&mut self, core: &mut Core) {
        self.txn += 1;
        let sends = 1 + core.random.below(5);
        self.sends = (0..sends)
            .map(|_| core.random.below(PARTITIONS as u64) as i32)
            .collect();
        self.offset = core.random.chance(1, 2);
        core.transactions.begin(self.now());
    }

    fn batch(
        &self,
        id: ProducerId,
        epoch: i16,
        sequence: i32,
        value: &str,
        now_ms: i64,
    ) -> Vec<u8> {
        BatchBuilder::new(Compression::None)
            .producer(id, ProducerEpoch(epoch), Sequence(sequence))
            .transactional()
            .push(now_ms, Some(b"key"), Some(value.as_bytes()), &[])
            .build()
    }

    fn send(&mut self, core: &mut Core, me: usize, id: ProducerId, partition: i32) {
        let Some(to) = partition_of(core, partition) else {
            return;
        };
        self.targets.insert(Some(partition));
        let value = value_of(self.now(), self.count);
        let sequence = self.sequences.get(&partition).copied().unwrap_or(0);
        let batch = self.batch(id, self.epoch, sequence, &value, core.now().wall_ms);
        let count = self.count;
        core.note(format_args!(
            "transactor {}: {value} to {partition}",
            self.number
        ));
        let Some((node, now)) = core.operate() else {
            return;
        };
        let Ok(open) = node.open_transaction(&to, id, ProducerEpoch(self.epoch)) else {
            return;
        };
        if self.told != Some(count) {
            self.told = Some(count);
            let send = What::Send {
                place: transactional(partition),
                value: value.clone(),
                txn: Some(self.txn_name()),
            };
            core.history.note(core.clock, &self.name(), send);
        }
        self.asks(Asked::Send { partition, count });
        let reply = core.reply(me, Outcome::Append);
        match open.open {
            true => node.append(&to, command(batch), now, reply),
            false => node.append_transactional(&to, command(batch), open.seen, now, reply),
        }
    }

    /// A frame of an earlier transaction that the network had kept, or its marker once more.
    fn send_late(&mut self, core: &mut Core, me: usize, id: ProducerId) {
        if core.random.chance(1, 2) {
            let partition = core.random.below(PARTITIONS as u64) as i32;
            let (Some(to), Some((node, now))) = (partition_of(core, partition), core.operate())
            else {
                return;
            };
            let open = node.open_transaction(&to, id, ProducerEpoch(self.epoch));
            if !open.is_ok_and(|open| open.open) {
                return;
            }
            self.asks(Asked::LateMarker);
            let marker = self.marker(id, self.epoch, true);
            return node.write_marker(&to, marker, now, core.reply(me, Outcome::Marker));
        }
        let Some((partition, batch)) = self.late.clone().filter(|_| !self.is_current_late()) else {
            return;
        };
        let (Some(to), Some((node, now))) = (partition_of(core, partition), core.operate()) else {
            return;
        };
        // As if the coordinator had said yes a moment ago.
        let Ok(open) = node.open_transaction(&to, id, ProducerEpoch(self.epoch)) else {
            return;
        };
        self.asks(Asked::Late);
        let reply = core.reply(me, Outcome::Append);
        node.append_transactional(&to, command(batch), open.seen, now, reply);
    }

    fn commit_offset(&mut self, core: &mut Core, me: usize, id: ProducerId) {
        self.targets.insert(None);
        let group = group_of(self.number);
        let Some((node, now)) = core.operate() else {
            return;
        };
        let seen = node.group_partition(&group, now);
        let epoch = ProducerEpoch(self.epoch);
        let Ok(open) = seen.and_then(|to| node.open_transaction(&to, id, epoch)) else {
            return;
        };
        let committed = CommittedOffset {
            offset: Offset(self.txn),
            leader_epoch: LeaderEpoch::NONE,
            metadata: String::new(),
            commit_timestamp: 0,
            expire_timestamp: None,
        };
        let command = GroupCommand::TxnCommit {
            group,
            generation: Generation(-1),
            member: String::new(),
            instance: None,
            offsets: vec![(offset_place(), committed)],
            version: 5,
            transaction: InTransaction {
                producer_id: id,
                producer_epoch: epoch,
                verified: open.seen,
            },
        };
        self.asks(Asked::Offset);
        node.group(command, now, core.reply(me, Outcome::Group));
    }

    fn marker(&self, id: ProducerId, epoch: i16, committed: bool) -> Marker {
        Marker {
            producer_id: id,
            producer_epoch: ProducerEpoch(epoch),
            coordinator_epoch: 0,
            transaction_version: if self.raises() { 2 } else { 1 },
            committed,
        }
    }

    fn end(&mut self, core: &mut Core, me: usize, id: ProducerId, commit: bool, target: Target) {
        let epoch = self.epoch + i16::from(self.raises());
        let Some((node, now)) = core.operate() else {
            return;
        };
        let to = match target {
            Some(partition) => partition_of(core, partition),
            None => node.group_partition(&group_of(self.number), now).ok(),
        };
        if let Some(to) = to {
            self.asks(Asked::End(target));
            let marker = self.marker(id, epoch, commit);
            node.write_marker(&to, marker, now, core.reply(me, Outcome::Marker));
        }
    }

    /// All markers are there.
    fn ended(&mut self, core: &mut Core, commit: bool) {
        core.note(format_args!(
            "transactor {}: {} has ended",
            self.number, self.txn
        ));
        core.transactions.ended(self.now(), commit);
        let ended = What::Ended {
            txn: self.txn_name(),
            committed: Some(commit),
        };
        core.history.note(core.clock, &self.name(), ended);
        self.progress += 1;
        self.targets.clear();
        self.ending = None;
        if self.raises() {
            self.epoch += 1;
            self.sequences.clear();
        }
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        let Some(asked) = self.asked.take() else {
            return Ok(());
        };
        match (asked, outcome) {
            (Asked::Id, Outcome::Producer(Ok((id, _)))) => self.id = Some(id),
            (Asked::Send { partition, count }, Outcome::Append(Ok(answer))) => {
                self.sends.pop();
                self.count += 1;
                let sequence = self.sequences.entry(partition).or_insert(0);
                let value = value_of((self.number, self.txn), count);
                *sequence += 1;
                let ack = What::Ack {
                    place: transactional(partition),
                    value: value.clone(),
                    offset: answer.base_offset.0,
                };
                core.history.note(core.clock, &self.name(), ack);
                core.transactions.sent(self.now(), partition, value);
                // One that the network will have kept for long: to a log that had forgotten this epoch it would look like a
                // beginning.
                if let Some(id) = self.id {
                    let batch = self.batch(id, self.epoch, 0, "late", 0);
                    self.late = Some((partition, batch));
                }
            }
            (Asked::Send { .. }, Outcome::Append(Err(failure))) => {
                let never = [
                    ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
                    ErrorCode::INVALID_PRODUCER_EPOCH,
                    ErrorCode::INVALID_TXN_STATE,
                    ErrorCode::INVALID_RECORD,
                ];
                if never.contains(&failure.error) {
                    return Err(refused(format!("transactor {}: {failure:?}", self.number)));
                }
            }
            (Asked::Late, Outcome::Append(Ok(answer))) => {
                return Err(Violation::new(
                    "no frame of an old transaction lands in a new one",
                    format!("transactor {}: at {}", self.number, answer.base_offset),
                ));
            }
            (Asked::LateMarker, Outcome::Marker(Ok(()))) => {
                return Err(Violation::new(
                    "no marker of an old transaction ends a new one",
                    format!("transactor {} in {}", self.number, self.txn),
                ));
            }
            (Asked::Offset, Outcome::Group(GroupAnswer::Partitions(error, each))) => {
                match each.first().copied().unwrap_or(error) {
                    ErrorCode::NONE => {
                        self.offset = false;
                        core.transactions.offset_sent(self.now());
                    }
                    error if error.retriable() => {}
                    error => {
                        let what = format!("transactor {}: {}", self.number, error.name());
                        return Err(refused(what));
                    }
                }
            }
            (Asked::End(target), Outcome::Marker(Ok(()))) => {
                if let Some((commit, missing)) = &mut self.ending {
                    missing.remove(&target);
                    if missing.is_empty() {
                        let commit = *commit;
                        self.ended(core, commit);
                    }
                }
            }
            (Asked::End(_), Outcome::Marker(Err(error)))
                if [
                    ErrorCode::INVALID_PRODUCER_EPOCH,
                    ErrorCode::TRANSACTION_COORDINATOR_FENCED,
                ]
                .contains(&error) =>
            {
                let what = format!("transactor {}: marker {}", self.number, error.name());
                return Err(refused(what));
            }
            _ => {}
        }
        Ok(())
    }

    /// The batch that is kept is one of the transaction that goes on.
    fn is_current_late(&self) -> bool {
        let epoch = self.late.as_ref().and_then(|(_, batch)| {
            let header = riverlog_wire::batch::BatchHeader::parse(batch).ok()?;
            Some(header.producer_epoch)
        });
        epoch == Some(ProducerEpoch(self.epoch))
    }
}

fn refused(what: String) -> Violation {
    Violation::new("an honest transaction is never refused", what)
}

fn command(batch: Vec<u8>) -> AppendCommand {
    AppendCommand {
        batch,
        acks: -1,
        timeout: Duration::from_secs(5),
    }
}

pub(crate) fn group_of(number: usize) -> String {
    format!("of-transactor-{number}")
}

/// What the groups of transactors commit on.
pub(crate) fn offset_place() -> TopicPartition {
    TopicPartition {
        topic: TOPIC.to_owned(),
        id: TopicId::ZERO,
        partition: 0,
    }
}

pub(crate) fn partition_of(core: &Core, partition: i32) -> Option<PartitionRef> {
    let (node, _) = core.node()?;
    let topic = TopicRef::Name(TOPIC.to_owned());
    node.partition(&topic, partition).ok()
}
