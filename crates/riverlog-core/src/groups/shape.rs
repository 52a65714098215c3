//! What a command is answered that can't be carried out.

use std::time::Duration;

use riverlog_wire::ErrorCode;

use super::classic::{refused_join, refused_sync};
use super::{ConsumerHeartbeatAnswer, GroupAnswer, GroupCommand, Join, StreamsHeartbeatAnswer};

/// Which answer a command gets, kept for when it can't be carried out: by the rules, or by a host that doesn't get as far as them.
#[derive(Clone, Debug)]
pub struct AnswerShape(Shape);

/// With the member that asks, or for how many there is an error each.
#[derive(Clone, Debug)]
enum Shape {
    Join(String),
    Sync,
    Error,
    Leave(usize),
    ConsumerHeartbeat(String),
    StreamsHeartbeat(String),
    Partitions(usize),
}

impl AnswerShape {
    /// Of the answer to a command.
    pub fn of(command: &GroupCommand) -> AnswerShape {
        AnswerShape(match command {
            GroupCommand::Join(join) => Shape::Join(join.member.clone()),
            GroupCommand::Sync(_) => Shape::Sync,
            GroupCommand::Heartbeat { .. }
            | GroupCommand::DeleteGroup { .. }
            | GroupCommand::DescribeTopology { .. }
            | GroupCommand::ShareTopics { .. } => Shape::Error,
            GroupCommand::Leave { members, .. } => Shape::Leave(members.len()),
            GroupCommand::ConsumerHeartbeat(h) => Shape::ConsumerHeartbeat(h.member.clone()),
            GroupCommand::ShareHeartbeat(h) => Shape::ConsumerHeartbeat(h.member.clone()),
            GroupCommand::StreamsHeartbeat(h) => Shape::StreamsHeartbeat(h.member.clone()),
            GroupCommand::Commit { offsets, .. } | GroupCommand::TxnCommit { offsets, .. } => {
                Shape::Partitions(offsets.len())
            }
            GroupCommand::DeleteOffsets { partitions, .. } => Shape::Partitions(partitions.len()),
        })
    }

    /// An answer that says nothing but this, in `words` where there is room for them.
    pub fn refuse(self, error: ErrorCode, words: Option<&str>) -> GroupAnswer {
        let words = words.map(str::to_owned);
        match self.0 {
            Shape::Join(member) => {
                let join = Join {
                    member,
                    ..Join::default()
                };
                GroupAnswer::Join(refused_join(&join, error))
            }
            Shape::Sync => refused_sync(error),
            Shape::Error => GroupAnswer::Error(error),
            Shape::Leave(count) => GroupAnswer::Leave(error, vec![error; count]),
            Shape::ConsumerHeartbeat(member) => {
                GroupAnswer::ConsumerHeartbeat(ConsumerHeartbeatAnswer {
                    error,
                    message: words,
                    member,
                    member_epoch: 0,
                    heartbeat_interval: Duration::ZERO,
                    assignment: None,
                })
            }
            Shape::StreamsHeartbeat(member) => {
                let answer = StreamsHeartbeatAnswer::refused(error, words, member);
                GroupAnswer::StreamsHeartbeat(Box::new(answer))
            }
            Shape::Partitions(count) => GroupAnswer::Partitions(error, vec![error; count]),
        }
    }
}
