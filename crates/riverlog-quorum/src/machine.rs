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
