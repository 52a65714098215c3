//! Nodes whose processes have ended: their host's system says so long before their silence does, see
//! [`riverlog_core::metadata::Departures`].

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::metadata::{Departures, Way};
use riverlog_wire::BrokerId;

use crate::controller::AdminReply;
use crate::node::Node;
use crate::quorum::Quorum;

#[derive(Default)]
pub(crate) struct Departed {
    state: Mutex<Departures>,
    /// Hearing of some node makes a difference: most messages are spared the lock.
    doubts: AtomicBool,
}

impl Departed {
    fn note<T>(&self, what: impl FnOnce(&mut Departures) -> T) -> T {
        let mut state = self.state.lock();
        let said = what(&mut state);
        self.doubts.store(state.has_doubts(), Ordering::Relaxed);
        said
    }
}

impl Node {
    /// What the host has seen of its way to another node. `true`: from now on that one counts as gone, and the host should tell the
    /// quorum beside this node, which need not wait until it has been silent for long enough. Where this node is the controller, it
    /// fences it at once; and as soon as it is, where it becomes that. Does nothing with [`Quorum::Own`].
    pub fn on_way(&self, to: BrokerId, way: Way, now: Now) -> bool {
        self.saw(now);
        if self.settings.quorum == Quorum::Own || self.is_closing() {
            return false;
        }
        let image = self.image.load();
        let gone = self.departed.note(|d| d.seen(to, way, &image, now.mono));
        if gone && self.is_controller() {
            self.fence_the_gone(now);
        }
        gone
    }

    /// Something came from another node: a message for [`Node::on_peer`], which tells this itself, or one of the quorum.
    pub fn on_heard(&self, from: BrokerId) {
        if self.departed.doubts.load(Ordering::Relaxed) {
            self.departed.note(|d| d.heard(from));
        }
    }

    pub(crate) fn fence_the_gone(&self, now: Now) {
        let gone = self.departed.state.lock().to_fence(&self.image.load());
        for command in gone {
            self.submit(command, AdminReply::Nobody, now);
        }
    }
}
