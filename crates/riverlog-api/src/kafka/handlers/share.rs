//! What requests of share groups have in common.

use riverlog_core::share::{Acknowledge, Acknowledgement};
use riverlog_wire::{ErrorCode, Offset};

use crate::kafka::door::KafkaDoor;
use crate::kafka::share_sessions::Member;

/// What a member says of one partition, or why it can't be meant.
pub(super) type Said = Result<Vec<Acknowledgement>, ErrorCode>;

/// INVALID_GROUP_ID and INVALID_REQUEST for those that have no name.
pub(super) fn member_of(
    group: Option<String>,
    member: Option<String>,
) -> Result<Member, ErrorCode> {
    let named = |name: Option<String>| name.filter(|name| !name.is_empty());
    let group = named(group).ok_or(ErrorCode::INVALID_GROUP_ID)?;
    let member = named(member).ok_or(ErrorCode::INVALID_REQUEST)?;
    Ok((group, member))
}

/// From a request: first and last offset with types. `may_renew`: the request says that it renews, and the group may.
pub(super) fn acknowledgements<'a>(
    batches: impl Iterator<Item = (i64, i64, &'a [i8])>,
    may_renew: bool,
) -> Said {
    batches
        .map(|(first, last, types)| {
            let types = types.iter().map(|number| {
                let kind = Acknowledge::from_number(*number);
                let kind = kind.filter(|kind| may_renew || *kind != Acknowledge::Renew);
                kind.ok_or(ErrorCode::INVALID_REQUEST)
            });
            Ok(Acknowledgement {
                first: Offset(first),
                last: Offset(last),
                types: types.collect::<Result<_, _>>()?,
            })
        })
        .collect()
}

/// How long a member of the group has acquired records, in ms.
pub(super) fn lock_timeout(door: &KafkaDoor, group: &str) -> i32 {
    let millis = door.node.share_lock_duration(group).as_millis();
    i32::try_from(millis).unwrap_or(i32::MAX)
}
