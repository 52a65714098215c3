//! A classic group comes from the consumer protocol, or goes over to it.

use std::sync::Arc;

use riverlog_mutants::{Mutant, active};
use riverlog_wire::ErrorCode;

use super::refused::fence;
use super::{CONSUMER, Classic, Context, Member, State};
use crate::groups::migrate::Moving;

impl Classic {
    /// Its members are consumers, which say in Kafka's own words what they read.
    pub(in crate::groups) fn is_of_consumers(&self) -> bool {
        self.protocol_type == CONSUMER
    }

    /// The chosen protocol; `None` until the first generation.
    pub(in crate::groups) fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// An empty group takes the place of one of another kind: what members of that one say is older than what comes.
    pub(in crate::groups) fn follows(&mut self, epoch: i32) {
        self.generation = self.generation.max(epoch);
    }

    /// All members, in order of id, with what the leader last gave them: it is what they may still work on.
    pub(in crate::groups) fn moving(&self) -> Vec<Moving> {
        let members = self.members.iter();
        members
            .map(|(id, m)| Moving {
                member: id.clone(),
                instance: m.instance.clone(),
                client_id: m.client_id.clone(),
                client_host: m.client_host.clone(),
                session_timeout: m.session_timeout,
                rebalance_timeout: m.rebalance_timeout,
                protocols: m.protocols.clone(),
                metadata: m.metadata(self.protocol.as_deref()),
                assignment: m.assignment.clone(),
            })
            .collect()
    }

    /// Tells those that wait for something to join again: the group they wait in is no more.
    pub(in crate::groups) fn dissolve(&self, cx: &mut Context<'_>) {
        for (id, member) in &self.members {
            let mut member = Member::clone(member);
            fence(id, &mut member, ErrorCode::REBALANCE_IN_PROGRESS, cx);
        }
    }

    /// The group of members that the consumer protocol has left, in its first rebalance. Its generations go on from the group's
    /// epoch, so that members which have come that far are told to join and keep what they have until then.
    pub(in crate::groups) fn taken_over(
        generation: i32,
        members: Vec<Moving>,
        cx: &mut Context<'_>,
    ) -> Classic {
        if members.is_empty() {
            return Classic::default();
        }
        let mut group = Classic {
            state: State::Stable {
                sync_by: cx.now.mono,
            },
            generation: match active(Mutant::DowngradeGenerationAnew) {
                true => 0,
                false => generation,
            },
            protocol_type: CONSUMER.to_owned(),
            since_ms: cx.now.wall_ms,
            ..Classic::default()
        };
        for moving in members {
            if let Some(instance) = &moving.instance {
                group
                    .instances
                    .insert(instance.clone(), moving.member.clone());
            }
            let member = Member {
                instance: moving.instance,
                client_id: moving.client_id,
                client_host: moving.client_host,
                session_timeout: moving.session_timeout,
                rebalance_timeout: moving.rebalance_timeout,
                protocols: moving.protocols,
                assignment: moving.assignment,
                session_until: cx.now.mono.saturating_add(moving.session_timeout),
                synced: true,
                ..Member::default()
            };
            group.members.insert(moving.member, Arc::new(member));
        }
        group.protocol = group.choose();
        cx.out.record(&group.record(cx.group));
        if !active(Mutant::DowngradeWithoutRebalance) {
            group.rebalance(cx);
        }
        group
    }
}
