//! A classic group becomes one of the consumer protocol, and the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::Offset;
use riverlog_wire::consumer_protocol::{
    Assignment, Subscription, decode_assignment, decode_subscription, encode_assignment,
    has_user_data,
};

use super::{Consumer, Current, Draft, Member, Part, State};
use crate::groups::classic::{Classic, Context};
use crate::groups::effects::SoftChange;
use crate::groups::migrate::Moving;
use crate::groups::records::{ConsumerGroupValue, ConsumerMemberValue, Record, TargetEpochValue};
use crate::groups::{GroupSettings, Topics};

/// Assignors whose members understand an assignment by the broker: what some clients add to theirs is a copy of it.
const PLAIN_ASSIGNORS: [&str; 4] = ["range", "roundrobin", "sticky", "cooperative-sticky"];

/// A member of a classic group, and what its metadata say.
struct Read {
    moving: Moving,
    subscription: Subscription,
    assigned: BTreeSet<Part>,
    /// Said to be owned, but assigned to nobody: it has been told to give it back, and may not have done so yet.
    revoking: BTreeSet<Part>,
}

/// The group that a classic one becomes, with the records for it; all that wait for something are told to join again. Else why
/// it can't, in words.
///
/// Members stay where they are: what the leader last gave them is both what they have and their target, until the group has a
/// new one.
pub(in crate::groups) fn upgraded(
    classic: &Classic,
    topics: &dyn Topics,
    cx: &mut Context<'_>,
) -> Result<Consumer, &'static str> {
    if !cx.settings.migration.upgrades() {
        return Err(
            "the group has members of the classic protocol, and group.consumer.migration.policy keeps it there; let them leave first",
        );
    }
    if !classic.is_of_consumers() {
        return Err("the group is not one of consumers; choose another name");
    }
    let plain = classic
        .protocol()
        .is_none_or(|name| PLAIN_ASSIGNORS.contains(&name));
    let mut members = Vec::new();
    for moving in classic.moving() {
        members.push(read(moving, plain, topics)?);
    }
    own_once(&mut members);

    classic.dissolve(cx);
    cx.out.soft(SoftChange::Classic {
        group: cx.group.into(),
        state: Box::default(),
    });
    let group = cx.group.to_owned();
    let mut draft = Draft::new(cx.group, &Consumer::default(), cx.now, cx.settings, cx.out);
    draft.record(Record::Group {
        group: group.clone(),
        value: None,
    });
    let epoch = match active(Mutant::UpgradeEpochAnew) {
        true => 1,
        false => classic.generation(),
    };
    sometimes(Mark::GroupUpgraded);
    for member in &members {
        let value = as_stored(&member.moving, &member.subscription);
        draft.set_member(&member.moving.member, Some(value));
    }
    draft.record(Record::ConsumerGroup {
        group: group.clone(),
        value: Some(ConsumerGroupValue {
            epoch,
            ..ConsumerGroupValue::default()
        }),
    });
    for member in &members {
        draft.set_target(&member.moving.member, Some(&member.assigned));
    }
    draft.record(Record::TargetEpoch {
        group,
        value: Some(TargetEpochValue {
            epoch,
            timestamp: cx.now.wall_ms.max(0),
        }),
    });
    for member in members {
        let held = |parts: BTreeSet<Part>| parts.into_iter().map(|p| (p, epoch)).collect();
        let current = Current {
            epoch,
            previous_epoch: epoch,
            state: match member.revoking.is_empty() {
                true => State::Stable,
                false => State::Revoking,
            },
            assigned: held(member.assigned),
            revoking: held(member.revoking),
        };
        draft.set_current(&member.moving.member, Some(&current));
    }
    Ok(draft.state)
}

fn read(moving: Moving, plain: bool, topics: &dyn Topics) -> Result<Read, &'static str> {
    const MALFORMED: &str = "metadata of the group's members can't be read as Kafka's consumer protocol; let them leave first";
    // A member that came since the last generation may not speak the protocol that was chosen for it.
    let metadata = match moving.protocols.first() {
        Some((_, first)) if moving.metadata.is_empty() => first,
        _ => &moving.metadata,
    };
    let subscription = decode_subscription(metadata).map_err(|_| MALFORMED)?;
    let assignment = decode_assignment(&moving.assignment).map_err(|_| MALFORMED)?;
    if !plain && has_user_data(&moving.assignment).map_err(|_| MALFORMED)? {
        return Err(
            "the group's own assignor tells its members more than partitions, which would be lost; change to range, roundrobin, sticky or cooperative-sticky first",
        );
    }
    Ok(Read {
        assigned: match active(Mutant::UpgradeForgetsHeld) {
            true => BTreeSet::new(),
            false => parts(&assignment, topics),
        },
        revoking: parts(&subscription.owned, topics),
        subscription,
        moving,
    })
}

/// Leaves each partition with one member: the one that it is assigned to, else the one that says of the latest generation that
/// it had it.
fn own_once(members: &mut [Read]) {
    let mut taken: BTreeSet<Part> = BTreeSet::new();
    for member in members.iter_mut() {
        member.assigned.retain(|part| taken.insert(*part));
    }
    let mut latest: Vec<&mut Read> = members.iter_mut().collect();
    latest.sort_by_key(|m| std::cmp::Reverse(m.subscription.generation));
    for member in latest {
        member.revoking.retain(|part| taken.insert(*part));
    }
}

/// Partitions of topics that exist.
pub(super) fn parts(named: &Assignment, topics: &dyn Topics) -> BTreeSet<Part> {
    let known = named.iter().filter_map(|(name, partitions)| {
        let (id, count) = topics.by_name(name)?;
        let there = partitions.iter().filter(move |p| (0..count).contains(*p));
        Some(there.map(move |p| (id, *p)))
    });
    known.flatten().collect()
}

/// The other way round; topics that are gone have no name.
pub(super) fn named<'a>(
    parts: impl IntoIterator<Item = &'a Part>,
    topics: &dyn Topics,
) -> Assignment {
    let mut named = Assignment::new();
    for (id, partition) in parts {
        if let Some(name) = topics.name_of(*id) {
            named.entry(name.to_owned()).or_default().push(*partition);
        }
    }
    named
}

/// What is kept of a member of the classic protocol.
pub(super) fn as_stored(moving: &Moving, subscription: &Subscription) -> ConsumerMemberValue {
    let millis = |d: Duration| i32::try_from(d.as_millis()).unwrap_or(i32::MAX);
    let sorted: BTreeSet<&String> = subscription.topics.iter().collect();
    ConsumerMemberValue {
        instance: moving.instance.as_deref().map(str::to_owned),
        rack: subscription.rack.clone(),
        client_id: moving.client_id.clone(),
        client_host: moving.client_host.clone(),
        topics: sorted.into_iter().cloned().collect(),
        pattern: None,
        rebalance_timeout_ms: millis(moving.rebalance_timeout),
        assignor: None,
        classic: Some((millis(moving.session_timeout), moving.protocols.clone())),
    }
}

impl Consumer {
    /// Whether members of the classic protocol are all there is, but for one member, and the group may go back to it.
    pub(super) fn may_become_classic(
        &self,
        without: Option<&str>,
        settings: &GroupSettings,
    ) -> bool {
        let mut rest = self
            .members
            .iter()
            .filter(|(id, _)| without.is_none_or(|w| w != &***id));
        settings.migration.downgrades()
            && self.members.len() <= settings.max_size
            && rest.all(|(_, m)| m.is_classic())
    }

    /// Its members of the classic protocol. Their assignments are what they hold, and not their targets: they may work on it
    /// until they have joined again.
    fn moving(&self, topics: &dyn Topics) -> Vec<Moving> {
        let members = self.members.iter();
        members
            .filter_map(|(id, member)| member.moving(id, topics))
            .collect()
    }
}

impl Member {
    fn moving(&self, id: &Arc<str>, topics: &dyn Topics) -> Option<Moving> {
        let value = self.value.as_ref()?;
        let (session_ms, protocols) = value.classic.as_ref()?;
        Some(Moving {
            member: id.clone(),
            instance: value.instance.as_deref().map(Arc::from),
            client_id: value.client_id.clone(),
            client_host: value.client_host.clone(),
            session_timeout: Duration::from_millis(u64::try_from(*session_ms).unwrap_or(0)),
            rebalance_timeout: self.rebalance_timeout(),
            protocols: protocols.clone(),
            metadata: protocols
                .first()
                .map(|(_, m)| m.clone())
                .unwrap_or_default(),
            assignment: encode_assignment(&named(self.current.owned(), topics)),
        })
    }
}

impl Draft<'_> {
    /// The group becomes a classic one, in which `then` goes on.
    pub(super) fn become_classic(
        mut self,
        topics: &dyn Topics,
        then: impl FnOnce(&mut Classic, &mut Context<'_>),
    ) {
        let moving = self.state.moving(topics);
        if !moving.is_empty() {
            sometimes(Mark::GroupDowngraded);
        }
        let ids: BTreeMap<Arc<str>, Arc<Member>> = self.state.members.clone();
        for id in ids.keys() {
            self.remove(id);
        }
        Consumer::delete(self.group, self.out);
        let mut cx = Context {
            group: self.group,
            settings: self.settings,
            now: self.now,
            // Whatever is answered waits for the records of this decision.
            changed_at: Offset::ZERO,
            out: self.out,
        };
        let mut classic = Classic::taken_over(self.state.value.epoch, moving, &mut cx);
        then(&mut classic, &mut cx);
        cx.out.soft(SoftChange::Classic {
            group: self.group.into(),
            state: Box::new(classic),
        });
    }
}
