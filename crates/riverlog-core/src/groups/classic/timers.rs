//! What time brings to a classic group.

use std::sync::Arc;
use std::time::Duration;

use super::{Classic, Context, Gathering, State};

impl Classic {
    /// When time brings something. Nobody is removed before `held_until`.
    pub(in crate::groups) fn next_deadline(&self, held_until: Duration) -> Option<Duration> {
        let removal = self
            .members
            .values()
            .filter_map(|m| m.expires())
            .chain(self.pending.values().copied())
            .chain(self.sync_deadline())
            .min();
        let phase = match self.state {
            State::Preparing {
                deadline,
                gathering: Some(_),
            } => Some(deadline),
            State::Preparing {
                deadline,
                gathering: None,
            } => Some(deadline.max(held_until)),
            _ => None,
        };
        let removal = removal.map(|at| at.max(held_until));
        removal.into_iter().chain(phase).min()
    }

    fn sync_deadline(&self) -> Option<Duration> {
        match self.state {
            State::Completing { sync_by } | State::Stable { sync_by } => {
                let missing = self.members.values().any(|m| !m.synced);
                missing.then_some(sync_by)
            }
            _ => None,
        }
    }

    /// Something is due: does it.
    pub(in crate::groups) fn timers(&mut self, held_until: Duration, cx: &mut Context<'_>) {
        let now = cx.now.mono;
        if now >= held_until {
            let pending = self.pending.len();
            self.pending.retain(|_, until| *until > now);
            let late = self.sync_deadline().is_some_and(|at| at <= now);
            let gone: Vec<Arc<str>> = self
                .members
                .iter()
                .filter(|(_, m)| m.expires().is_some_and(|at| at <= now) || (late && !m.synced))
                .map(|(id, _)| id.clone())
                .collect();
            for id in &gone {
                self.remove(id, cx);
            }
            if !gone.is_empty() {
                self.go_on(cx);
            } else if self.pending.len() < pending {
                self.complete_if_all_joined(cx);
            }
        }
        match &mut self.state {
            State::Preparing {
                deadline,
                gathering,
            } if *deadline <= now => match gathering {
                Some(Gathering { remaining, joined }) if *joined && !remaining.is_zero() => {
                    let more = cx.settings.initial_rebalance_delay.min(*remaining);
                    *deadline += more;
                    *remaining -= more;
                    *joined = false;
                }
                Some(_) => self.complete_join(cx),
                None if now >= held_until => self.complete_join(cx),
                None => {}
            },
            _ => {}
        }
    }
}
