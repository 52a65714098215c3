//! What the node has to be told, in order.

use riverlog_core::Now;
use riverlog_node::Node;
use riverlog_node::quorum::{MetadataSnapshot, QuorumEvent};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Something for the node. Steps are taken one after the other, on a thread that may wait for a disk.
#[derive(Debug)]
pub enum Step {
    /// For [`Node::on_quorum`].
    Event(QuorumEvent),
    /// A majority has confirmed that this node leads: what they have answered was sent then.
    Answered(Instant),
    /// The node's metadata as it is after the steps before this one: a snapshot is made of it.
    Snapshot(SnapshotWanted),
    /// The quorum has ended on this node and nothing follows; why.
    Ended(crate::QuorumError),
}

/// Who waits for a snapshot.
#[derive(Debug)]
pub struct SnapshotWanted(oneshot::Sender<MetadataSnapshot>);

impl SnapshotWanted {
    /// Hands the metadata in.
    pub fn answer(self, snapshot: MetadataSnapshot) {
        // The quorum is stopping: nobody wants it any more.
        let _ = self.0.send(snapshot);
    }
}

impl Step {
    /// Tells the node. `Err` with the reason when the quorum has ended.
    pub fn take(self, node: &Node, now: Now) -> Result<(), crate::QuorumError> {
        match self {
            Step::Event(event) => node.on_quorum(event, now),
            Step::Answered(at) => {
                let silent = at.elapsed();
                node.on_quorum(QuorumEvent::Majority { silent }, now);
            }
            Step::Snapshot(wanted) => wanted.answer(node.metadata_snapshot()),
            Step::Ended(error) => return Err(error),
        }
        Ok(())
    }
}

/// The sending end: whoever receives may be gone at a stop.
#[derive(Clone, Debug)]
pub(crate) struct Steps(pub(crate) mpsc::UnboundedSender<Step>);

impl Steps {
    pub(crate) fn event(&self, event: QuorumEvent) {
        let _ = self.0.send(Step::Event(event));
    }

    pub(crate) fn answered(&self, at: Instant) {
        let _ = self.0.send(Step::Answered(at));
    }

    pub(crate) fn ended(&self, error: crate::QuorumError) {
        let _ = self.0.send(Step::Ended(error));
    }

    pub(crate) fn snapshot(&self) -> oneshot::Receiver<MetadataSnapshot> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.0.send(Step::Snapshot(SnapshotWanted(sender)));
        receiver
    }
}
