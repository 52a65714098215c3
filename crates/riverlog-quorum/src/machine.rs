//! The library's state machine is the node: entries are handed to it, and snapshots made of its metadata.

use std::io;

use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use riverlog_node::quorum::QuorumEvent;
use tokio::sync::oneshot;

use crate::leadership::Leadership;
use crate::raft::{
    LogId, Payload, Records, Snapshot, SnapshotMeta, StoredMembership, Types, io_error,
};
use crate::step::Steps;
use crate::store::{State, Store};

pub(crate) struct Machine {
    store: Store,
    steps: Steps,
    leadership: Leadership,
    applied: Option<LogId>,
    members: StoredMembership,
}

impl Machine {
    pub(crate) fn new(store: Store, steps: Steps, leadership: Leadership) -> Machine {
        Machine {
            store,
            steps,
            leadership,
            applied: None,
            members: StoredMembership::default(),
        }
    }

    fn handed(&mut self, upto: LogId) {
        self.applied = Some(upto);
        self.leadership.handed(upto.leader_id.term);
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = State;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.applied, self.members.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + Send,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let id = entry.log_id;
            match entry.payload {
                Payload::Blank => {}
                Payload::Normal(Records(records)) => self.steps.event(QuorumEvent::Committed {
                    index: id.index,
                    term: id.leader_id.term,
                    records,
                }),
                Payload::Membership(members) => {
                    self.members = StoredMembership::new(Some(id), members);
                }
            }
            self.handed(id);
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder {
            store: self.store.clone(),
            meta: SnapshotMeta {
                last_log_id: self.applied,
                last_membership: self.members.clone(),
            },
            // Asked for here, where it comes after what was applied and before what will be.
            metadata: Some(self.steps.snapshot()),
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, state: State) -> io::Result<()> {
        let stored = self.store.snapshot();
        if stored.is_none_or(|(held, _)| held != *meta) {
            self.store
                .save_snapshot(meta.clone(), state.clone())
                .await?;
        }
        self.members = meta.last_membership.clone();
        if let Some(upto) = meta.last_log_id {
            self.steps
                .event(QuorumEvent::Snapshot(state.at(upto.index)));
            self.handed(upto);
        }
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let snapshot = self.store.snapshot();
        Ok(snapshot.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}

pub(crate) struct Builder {
    store: Store,
    meta: SnapshotMeta,
    metadata: Option<oneshot::Receiver<riverlog_node::quorum::MetadataSnapshot>>,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = State;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let wanted = self.metadata.take();
        let wanted = wanted.ok_or_else(|| io_error("a snapshot is made once"))?;
        let metadata = wanted
            .await
            .map_err(|_| io_error("the node is stopping, and gives no metadata"))?;
        let snapshot = State::new(metadata);
        self.store
            .save_snapshot(self.meta.clone(), snapshot.clone())
            .await?;
        Ok(Snapshot {
            meta: self.meta.clone(),
            snapshot,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures_util::FutureExt;
    use openraft::storage::RaftLogStorage;
    use riverlog_log::disk::CrashDisk;
    use riverlog_node::quorum::MetadataSnapshot;
    use riverlog_wire::{BrokerId, Offset};

    use super::*;
    use crate::raft::Term;
    use crate::step::Step;
    use crate::store::Writes;

    fn id(index: u64) -> LogId {
        LogId::new(Term::new(1), index)
    }

    fn metadata(index: u64) -> MetadataSnapshot {
        MetadataSnapshot {
            index,
            position: Offset(index as i64),
            records: vec![Bytes::from_static(b"r"); index as usize],
        }
    }

    /// The builder waits for the node, which takes steps one after the other, on a disk that may be slow: meanwhile the leader may have
    /// sent a snapshot.
    async fn answered_late(writes: Writes) {
        let disk = CrashDisk::new(1);
        let store = Store::open(Arc::new(disk.clone()), BrokerId(1), writes).unwrap();
        let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
        let steps = Steps(sender);
        let leadership = Leadership::new(BrokerId(1), steps.clone());
        let mut machine = Machine::new(store.clone(), steps, leadership);
        machine.handed(id(5));
        let mut builder = machine.get_snapshot_builder().await;
        let mut building = Box::pin(builder.build_snapshot());
        assert!(building.as_mut().now_or_never().is_none());

        let newer = SnapshotMeta {
            last_log_id: Some(id(9)),
            last_membership: StoredMembership::default(),
        };
        let state = State::new(metadata(9));
        machine.install_snapshot(&newer, state).await.unwrap();
        store.clone().purge(id(9)).await.unwrap();

        while let Ok(step) = told.try_recv() {
            if let Step::Snapshot(wanted) = step {
                wanted.answer(metadata(5));
            }
        }
        building.await.unwrap();
        let held = |store: &Store| {
            let (meta, state) = store.snapshot().unwrap();
            (meta.last_log_id, state.position)
        };
        assert_eq!(held(&store), (Some(id(9)), Offset(9)));
        for left in [disk.kill(), disk.crash(1)] {
            let store = Store::open(Arc::new(left), BrokerId(1), Writes::Inline).unwrap();
            assert_eq!(held(&store), (Some(id(9)), Offset(9)));
        }
    }

    #[test]
    fn a_snapshot_that_is_made_late_takes_the_place_of_no_newer_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        for writes in [Writes::Inline, Writes::Thread] {
            runtime.block_on(answered_late(writes));
        }
    }
}
