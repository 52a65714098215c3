//! A member of a classic group: joins, syncs, as its leader deals out partitions, commits, leaves, dies without a word and
//! comes back; once all faults are healed one of them doesn't.

use std::time::Duration;

use bytes::Bytes;
use riverlog_core::groups::{
    CommittedOffset, GroupAnswer, GroupCommand, Join, JoinAnswer, Sync, TopicPartition,
};
use riverlog_mutants::{Mark, sometimes};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset, TopicId};

use crate::classic::{GROUP, PARTITIONS};
use crate::model::{Place, Violation};
use crate::world::{Core, Outcome};

#[derive(Clone, Debug)]
enum Asked {
    Join,
    Sync,
    Positions,
    Heartbeat,
    /// With the number that the model gave it.
    Commit(i32, u64),
    /// With a generation that is over.
    Stale(i32),
    Leave,
}

#[derive(Debug)]
pub(crate) struct Classic {
    number: usize,
    /// The first member is a static one (KIP-345).
    instance: Option<String>,
    pub(crate) waits: bool,
    progress: u64,
    member: String,
    /// The generation that it has joined.
    generation: Option<i32>,
    /// From the leader: whose assignment is to be dealt out.
    members: Vec<String>,
    /// What it was given; `None` before the sync.
    held: Option<Vec<i32>>,
    /// It knows where the group is in what it holds.
    knows: bool,
    /// Never comes back, and says nothing.
    gone: bool,
    asked: Option<Asked>,
}

impl Classic {
    pub(crate) fn new(number: usize) -> Classic {
        Classic {
            number,
            instance: (number == 0).then(|| "static".to_owned()),
            waits: false,
            progress: 0,
            member: String::new(),
            generation: None,
            members: Vec::new(),
            held: None,
            knows: false,
            gone: false,
            asked: None,
        }
    }

    /// From now on there are no faults; but one member is gone for good. Nobody tells the coordinator, and the others must get what
    /// it held.
    pub(crate) fn heal(&mut self, core: &mut Core) {
        self.progress = 0;
        self.gone = self.number == 1;
        if self.gone {
            core.note(format_args!("classic {} is gone for good", self.number));
            core.classic.given_up(self.number);
        }
    }

    pub(crate) fn has_progressed(&self) -> bool {
        self.gone || self.progress >= 3
    }

    pub(crate) fn step(&mut self, core: &mut Core, me: usize) {
        if self.gone {
            core.back_off = true;
            return;
        }
        let Some(generation) = self.generation else {
            return self.join(core, me);
        };
        let Some(held) = self.held.clone() else {
            return self.sync(core, me, generation);
        };
        if !self.knows {
            return self.positions(core, me, &held);
        }
        if !core.healing && core.random.chance(1, 40) {
            if core.random.chance(1, 2) {
                core.note(format_args!("classic {} dies", self.number));
                self.member.clear();
                return self.begin_anew(core);
            }
            return self.leave(core, me);
        }
        if !held.is_empty() && core.random.chance(1, 3) {
            let partition = held[core.random.below(held.len() as u64) as usize];
            return self.commit(core, me, generation, partition);
        }
        if generation > 1 && core.random.chance(1, 10) {
            let partition = core.random.below(PARTITIONS as u64) as i32;
            return self.commit_stale(core, me, generation - 1, partition);
        }
        let command = GroupCommand::Heartbeat {
            group: GROUP.to_owned(),
            generation: Generation(generation),
            member: self.member.clone(),
            instance: self.instance.clone(),
        };
        self.send(core, me, Asked::Heartbeat, command);
    }

    fn send(&mut self, core: &mut Core, me: usize, asked: Asked, command: GroupCommand) {
        self.waits = true;
        self.asked = Some(asked);
        core.ask(me, Outcome::Group, move |node, now, reply| {
            node.group(command, now, reply);
        });
    }

    /// It holds nothing any more, and joins again.
    fn begin_anew(&mut self, core: &mut Core) {
        core.classic.given_up(self.number);
        self.generation = None;
        self.members.clear();
        self.held = None;
        self.knows = false;
    }

    fn join(&mut self, core: &mut Core, me: usize) {
        let random =
            (u128::from(core.random.next_u64()) << 64) | u128::from(core.random.next_u64());
        let join = Join {
            group: GROUP.to_owned(),
            member: self.member.clone(),
            instance: self.instance.clone(),
            client_id: format!("classic-{}", self.number),
            client_host: "/127.0.0.1".to_owned(),
            session_timeout: Duration::from_secs(6),
            rebalance_timeout: Duration::from_secs(5),
            protocol_type: "consumer".to_owned(),
            protocols: vec![("range".to_owned(), Bytes::from_static(b"all"))],
            require_known_member: true,
            can_skip_assignment: false,
            random,
        };
        self.send(core, me, Asked::Join, GroupCommand::Join(join));
    }

    fn sync(&mut self, core: &mut Core, me: usize, generation: i32) {
        let mut assignments: Vec<(String, Vec<u8>)> = Vec::new();
        for member in &self.members {
            assignments.push((member.clone(), Vec::new()));
        }
        for partition in 0..PARTITIONS {
            let count = assignments.len().max(1);
            if let Some((_, given)) = assignments.get_mut(partition as usize % count) {
                given.push(partition as u8);
            }
        }
        let sync = Sync {
            group: GROUP.to_owned(),
            generation: Generation(generation),
            member: self.member.clone(),
            instance: self.instance.clone(),
            protocol_type: None,
            protocol_name: None,
            assignments: assignments
                .into_iter()
                .map(|(member, given)| (member, Bytes::from(given)))
                .collect(),
        };
        self.send(core, me, Asked::Sync, GroupCommand::Sync(sync));
    }

    fn positions(&mut self, core: &mut Core, me: usize, held: &[i32]) {
        if held.is_empty() {
            self.knows = true;
            return;
        }
        let asked = held.iter().map(|p| target(*p)).collect();
        self.waits = true;
        self.asked = Some(Asked::Positions);
        core.ask(me, Outcome::Committed, move |node, now, reply| {
            node.committed(GROUP, Some(asked), None, now, reply);
        });
    }

    fn commit(&mut self, core: &mut Core, me: usize, generation: i32, partition: i32) {
        let offset = Offset(core.classic.next());
        let number = core.model.commit_sent(GROUP, place(partition), offset);
        let command = self.commit_of(generation, partition, offset);
        self.send(core, me, Asked::Commit(partition, number), command);
    }

    fn commit_stale(&mut self, core: &mut Core, me: usize, generation: i32, partition: i32) {
        let command = self.commit_of(generation, partition, Offset(1_000_000_000));
        self.send(core, me, Asked::Stale(partition), command);
    }

    fn commit_of(&self, generation: i32, partition: i32, offset: Offset) -> GroupCommand {
        let committed = CommittedOffset {
            offset,
            leader_epoch: LeaderEpoch::NONE,
            metadata: String::new(),
            commit_timestamp: -1,
            expire_timestamp: None,
        };
        GroupCommand::Commit {
            group: GROUP.to_owned(),
            generation: Generation(generation),
            member: self.member.clone(),
            instance: self.instance.clone(),
            offsets: vec![(target(partition), committed)],
            version: 9,
        }
    }

    fn leave(&mut self, core: &mut Core, me: usize) {
        let command = GroupCommand::Leave {
            group: GROUP.to_owned(),
            members: vec![(self.member.clone(), self.instance.clone(), None)],
        };
        self.send(core, me, Asked::Leave, command);
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        let Some(asked) = self.asked.take() else {
            return Ok(());
        };
        match (asked, outcome) {
            (Asked::Join, Outcome::Group(GroupAnswer::Join(answer))) => {
                self.joined(core, answer);
            }
            (
                Asked::Sync,
                Outcome::Group(GroupAnswer::Sync {
                    error, assignment, ..
                }),
            ) => {
                let Some(generation) = self.generation.filter(|_| error == ErrorCode::NONE) else {
                    self.refused(core, error);
                    return Ok(());
                };
                let given: Vec<i32> = assignment.iter().map(|p| i32::from(*p)).collect();
                core.note(format_args!(
                    "classic {}: {given:?} in {generation}",
                    self.number
                ));
                core.model.checked += 1;
                core.classic.given(self.number, generation, given.clone())?;
                self.held = Some(given);
                if self.gone {
                    // The answer was on its way.
                    core.classic.given_up(self.number);
                }
            }
            (Asked::Positions, Outcome::Committed(Ok(found))) => {
                for (partition, committed) in found {
                    let committed = committed.map(|c| c.offset);
                    let place = place(partition.partition);
                    core.model.commit_read(GROUP, place, committed)?;
                }
                self.knows = true;
            }
            (Asked::Heartbeat, Outcome::Group(GroupAnswer::Error(error))) => {
                match (error, self.generation) {
                    (ErrorCode::NONE, Some(generation)) => {
                        self.progress += u64::from(core.classic.is_whole(generation));
                    }
                    _ => self.refused(core, error),
                }
            }
            (
                Asked::Commit(partition, number),
                Outcome::Group(GroupAnswer::Partitions(error, each)),
            ) => {
                let error = each.first().copied().unwrap_or(error);
                let stored = error == ErrorCode::NONE;
                let at = place(partition);
                core.model.commit_answered(GROUP, at, number, stored);
                if !stored {
                    self.refused(core, error);
                }
            }
            (Asked::Commit(partition, number), _) => {
                let at = place(partition);
                core.model.commit_answered(GROUP, at, number, false);
            }
            (Asked::Stale(partition), Outcome::Group(GroupAnswer::Partitions(error, each)))
                if error == ErrorCode::NONE && each.iter().all(|e| *e == ErrorCode::NONE) =>
            {
                let what = format!(
                    "classic {}: {partition} with a generation before {:?}",
                    self.number, self.generation
                );
                return Err(Violation::new("a stale member is refused", what));
            }
            (Asked::Leave, Outcome::Group(GroupAnswer::Leave(..))) => {
                self.member.clear();
                self.begin_anew(core);
            }
            _ => {}
        }
        Ok(())
    }

    fn joined(&mut self, core: &mut Core, answer: JoinAnswer) {
        if answer.error == ErrorCode::MEMBER_ID_REQUIRED {
            self.member = answer.member;
            return;
        }
        if answer.error != ErrorCode::NONE {
            return self.refused(core, answer.error);
        }
        self.begin_anew(core);
        self.member = answer.member;
        self.generation = Some(answer.generation.0);
        self.members = answer.members.into_iter().map(|(id, ..)| id).collect();
    }

    fn refused(&mut self, core: &mut Core, error: ErrorCode) {
        core.back_off = true;
        match error {
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_INSTANCE_ID => {
                sometimes(Mark::ClassicMemberExpired);
                self.member.clear();
                self.begin_anew(core);
            }
            ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::ILLEGAL_GENERATION => {
                self.begin_anew(core);
            }
            _ => {}
        }
    }
}

/// Where the model keeps the group's commits: none of its topics is as far.
fn place(partition: i32) -> Place {
    (usize::MAX, partition)
}

fn target(partition: i32) -> TopicPartition {
    TopicPartition {
        topic: GROUP.to_owned(),
        id: TopicId::ZERO,
        partition,
    }
}
