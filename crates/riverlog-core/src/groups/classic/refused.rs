//! Joins and syncs that come to nothing.

use bytes::Bytes;
use riverlog_wire::ErrorCode;

use super::{Context, Member};
use crate::groups::{GroupAnswer, Join, JoinAnswer};

/// The answer to a join that came to nothing.
pub(in crate::groups) fn refused_join(join: &Join, error: ErrorCode) -> JoinAnswer {
    JoinAnswer {
        error,
        generation: (-1).into(),
        protocol_type: None,
        protocol_name: None,
        leader: String::new(),
        skip_assignment: false,
        member: join.member.clone(),
        members: Vec::new(),
    }
}

/// The answer to a sync that came to nothing.
pub(in crate::groups) fn refused_sync(error: ErrorCode) -> GroupAnswer {
    GroupAnswer::Sync {
        error,
        protocol_type: None,
        protocol_name: None,
        assignment: Bytes::new(),
    }
}

/// Answers what is parked for a member that is removed or replaced.
pub(super) fn fence(id: &str, member: &mut Member, error: ErrorCode, cx: &mut Context<'_>) {
    if let Some(token) = member.join.take() {
        let mut answer = refused_join(&Join::default(), error);
        id.clone_into(&mut answer.member);
        cx.answer(token, GroupAnswer::Join(answer));
    }
    if let Some(token) = member.sync.take() {
        cx.answer(token, refused_sync(error));
    }
}
