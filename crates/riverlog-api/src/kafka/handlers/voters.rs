//! Changes of who votes, as AddRaftVoter and RemoveRaftVoter ask for them.

use riverlog_wire::{BrokerId, ErrorCode};

use crate::kafka::context::Context;
use crate::kafka::door::VoterChange;

/// What is answered.
pub(super) type Outcome = (ErrorCode, Option<String>);

/// Who is meant: a node, and its disk in the last eight bytes of a directory's id, as DescribeQuorum gives it.
pub(super) struct Asked {
    pub(super) cluster_id: Option<String>,
    pub(super) voter: i32,
    pub(super) directory: [u8; 16],
}

/// Makes a change, and answers once the quorum has agreed on it.
pub(super) fn change(
    context: &Context<'_>,
    asked: &Asked,
    make: impl FnOnce(BrokerId, u64) -> VoterChange,
    answer: impl FnOnce(Outcome) + Send + 'static,
) {
    let door = context.door;
    let Some(voters) = &door.settings.voters else {
        let words =
            "this node agrees with itself only; start it with --seeds to make it one of several";
        return answer((ErrorCode::INVALID_REQUEST, Some(words.to_owned())));
    };
    let ours = door.node.image().cluster_id.clone();
    if asked.cluster_id.as_ref().is_some_and(|id| *id != ours) {
        let words = format!("this is cluster {ours}");
        return answer((ErrorCode::INCONSISTENT_CLUSTER_ID, Some(words)));
    }
    let [0, 0, 0, 0, 0, 0, 0, 0, disk @ ..] = asked.directory else {
        let words = "no node has that directory; DescribeQuorum lists all";
        return answer((ErrorCode::VOTER_NOT_FOUND, Some(words.to_owned())));
    };
    let change = make(BrokerId(asked.voter), u64::from_be_bytes(disk));
    (voters.change)(
        change,
        Box::new(move |result| {
            answer(match result {
                Ok(()) => (ErrorCode::NONE, None),
                Err((error, words)) => (error, Some(words)),
            });
        }),
    );
}
