//! The quorum seam: metadata that a majority of nodes agrees on.
//!
//! A node alone commits to a metadata log of its own ([`Quorum::Own`]) and needs nothing of this. In a cluster
//! ([`Quorum::Shared`]) somebody beside the node (a Raft library, a model of one) elects a leader among the voters and agrees on
//! a log of entries; the node sees of it
//!
//! - in, by [`Node::on_quorum`]: who leads, the entries that were committed, a snapshot in place of entries that are gone;
//! - out, by [`Node::take_proposals`]: what the controller (the node at which the quorum is led) wants to be committed.
//!
//! An entry holds the records of one decision, as `docs/format/metadata.md` has them, and nothing else that an image depends
//! on. The position of an image is the number of records applied, so it is the same on all nodes.
//!
//! What the node rests on, and the quorum must keep:
//!
//! 1. Events come one after the other, from one thread at a time. Entries come in the order of their index; one that comes again
//!    is passed over.
//! 2. Once a node was told that it leads in a term, everything that was committed in earlier terms has been handed to it:
//!    the event comes when an entry of that term is committed and what is before it has been applied, not at the election.
//! 3. A proposal is committed in its term, or never. Its leader has one in flight, so that the first entry of that term
//!    with records in it is the proposal.
//! 4. An entry is handed in once it can't be lost: a majority of the voters has synced it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use riverlog_core::Now;
use riverlog_core::metadata::{MetadataImage, MetadataRecord};
use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::{BrokerId, ErrorCode, Offset};

use crate::controller::records_of;
use crate::node::Node;
use crate::notice::Notice;

/// Who agrees on a node's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Quorum {
    /// The node alone: what its own metadata log has synced is committed. It is always the controller.
    #[default]
    Own,
    /// A quorum beside the node, see [`crate::quorum`]. The node's own metadata log stays as it is and isn't read.
    Shared,
}

/// Records that the controller wants to be committed as one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Counts the proposals of this life of the node; what [`QuorumEvent::Refused`] speaks of.
    pub number: u64,
    /// The term in which it was decided. In another term it must not be committed: it was decided against another image.
    pub term: u64,
    /// Metadata records as stored; never empty.
    pub records: Vec<Bytes>,
}

/// All metadata at one place of the quorum's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataSnapshot {
    /// The entry up to which (inclusive) it holds everything; 0 before the first.
    pub index: u64,
    /// Records that were applied until then: the position of the image.
    pub position: Offset,
    /// Metadata records that make the image, as stored, in an order in which they can be applied.
    pub records: Vec<Bytes>,
}

/// What a quorum tells its node.
#[derive(Clone, Debug)]
pub enum QuorumEvent {
    /// Who leads from now on, as far as this node knows; `None` while nobody does, or nobody is known. Terms never go back.
    Leader {
        /// The quorum's term.
        term: u64,
        /// The node at which it is led: the controller.
        leader: Option<BrokerId>,
    },
    /// An entry is committed.
    Committed {
        /// Its place in the quorum's log, from 1. Entries without records (a leader's first, a change of voters) need not
        /// be handed in.
        index: u64,
        /// The term in which it was proposed.
        term: u64,
        /// Its records, as stored.
        records: Vec<Bytes>,
    },
    /// A proposal will not be committed (too many wait, the term is another one): it is answered, and may be decided anew.
    Refused {
        /// [`Proposal::number`].
        number: u64,
    },
    /// This node leads the quorum, and a majority of the voters, itself included, has confirmed that. Told again and again, more often than
    /// sessions end: what the controller says of a node's session counts from the last time.
    Majority {
        /// How long ago what they have answered was sent.
        silent: Duration,
    },
    /// Everything up to an index at once: at the start, and where the entries before it are gone. One that isn't ahead of
    /// what was applied is passed over.
    Snapshot(MetadataSnapshot),
}

/// What the controller's lock guards of a shared quorum.
#[derive(Default)]
pub(crate) struct Seat {
    pub(crate) term: u64,
    pub(crate) leader: Option<BrokerId>,
    /// When a majority was asked that has answered, on the monotonic clock.
    answered: Option<Duration>,
    /// The last entry that was applied.
    index: u64,
    number: u64,
    out: VecDeque<Proposal>,
    /// A record could not be read: nothing is applied any more.
    unreadable: bool,
}

impl Seat {
    /// For how long no majority has answered.
    pub(crate) fn silent(&self, now: Duration) -> Duration {
        self.answered
            .map_or(Duration::MAX, |at| now.saturating_sub(at))
    }

    /// Hands a decision out; returns its number.
    pub(crate) fn propose(&mut self, records: &[MetadataRecord]) -> u64 {
        self.number += 1;
        self.out.push_back(Proposal {
            number: self.number,
            term: self.term,
            records: records.iter().map(MetadataRecord::encode).collect(),
        });
        self.number
    }
}

impl Node {
    /// What the controller wants to be committed, in order. Empty with [`Quorum::Own`], and where the quorum isn't led.
    /// [`crate::Host::proposals_ready`] says when there is something.
    pub fn take_proposals(&self) -> Vec<Proposal> {
        let mut state = self.controller.state.lock();
        state.seat.out.drain(..).collect()
    }

    /// The quorum tells of itself. Does nothing with [`Quorum::Own`]. May open and close logs on the calling thread.
    pub fn on_quorum(&self, event: QuorumEvent, now: Now) {
        self.saw(now);
        if self.settings.quorum == Quorum::Own || self.is_closing() {
            return;
        }
        match event {
            QuorumEvent::Leader { term, leader } => self.quorum_led(term, leader, now),
            QuorumEvent::Committed {
                index,
                term,
                records,
            } => self.quorum_committed(index, term, &records, now),
            QuorumEvent::Refused { number } => self.quorum_refused(number, now),
            QuorumEvent::Majority { silent } => {
                let mut state = self.controller.state.lock();
                state.seat.answered = now.mono.checked_sub(silent).max(state.seat.answered);
            }
            QuorumEvent::Snapshot(snapshot) => self.quorum_snapshot(&snapshot, now),
        }
    }

    /// All metadata as this node has applied it: what a quorum's snapshot is made of, and what a cluster begins with that
    /// grows out of a node alone (then the index is 0). Not to be called beside [`Node::on_quorum`], but before or after it.
    pub fn metadata_snapshot(&self) -> MetadataSnapshot {
        let index = self.controller.state.lock().seat.index;
        let image = self.image();
        MetadataSnapshot {
            index,
            position: image.position,
            records: records_of(&image)
                .iter()
                .map(MetadataRecord::encode)
                .collect(),
        }
    }

    /// The node that decides on metadata, as far as this one knows.
    pub fn controller_id(&self) -> Option<BrokerId> {
        match self.settings.quorum {
            Quorum::Own => Some(self.settings.broker),
            Quorum::Shared => self.controller.state.lock().seat.leader,
        }
    }

    /// Whether this node decides on metadata.
    pub fn is_controller(&self) -> bool {
        self.controller_id() == Some(self.settings.broker)
    }

    fn quorum_led(&self, term: u64, leader: Option<BrokerId>, now: Now) {
        let me = self.settings.broker;
        let mut dropped = Vec::new();
        let another;
        {
            let mut state = self.controller.state.lock();
            if term < state.seat.term || (term, leader) == (state.seat.term, state.seat.leader) {
                return;
            }
            let goes_on = leader == Some(me) && term == state.seat.term;
            another = leader.is_some() && leader != state.seat.leader;
            (state.seat.term, state.seat.leader) = (term, leader);
            if !goes_on {
                // What is in flight may be committed yet or not; whoever asked has to look.
                state.seat.out.clear();
                if !active(Mutant::DecisionOutlivesTerm) {
                    dropped = state.drop_everything();
                }
            }
        }
        if !dropped.is_empty() {
            sometimes(Mark::DecisionsDropped);
        }
        for reply in dropped {
            self.answer_admin(reply, Err(ErrorCode::NOT_CONTROLLER), now);
        }
        if another {
            self.forwards_are_lost(now);
        }
        if leader == Some(me) {
            self.controller.state.lock().sessions.begin();
            self.remove_strays(&self.image());
            self.fence_the_gone(now);
            // Those that waited for a controller need not wait longer.
            self.propose(now);
        }
    }

    fn quorum_committed(&self, index: u64, term: u64, records: &[Bytes], now: Now) {
        {
            let mut state = self.controller.state.lock();
            let again = index <= state.seat.index && !active(Mutant::EntryAppliedTwice);
            if again || state.seat.unreadable {
                return;
            }
            state.applying = true;
            state.seat.index = index;
        }
        let mut proposal = None;
        if let Some(decoded) = self.decode_records(records)
            && !decoded.is_empty()
        {
            let mut image = MetadataImage::clone(&self.image.load());
            for record in &decoded {
                let position = image.position + 1;
                image.apply(record, position);
            }
            self.metrics
                .metadata_commits
                .fetch_add(1, Ordering::Relaxed);
            self.apply_metadata(Arc::new(image), &decoded, now);
            let mut state = self.controller.state.lock();
            let decided_here =
                (state.seat.term, state.seat.leader) == (term, Some(self.settings.broker));
            if decided_here || active(Mutant::DecisionOutlivesTerm) {
                proposal = state.proposal.take();
            }
        }
        self.controller.state.lock().applying = false;
        for (reply, answer) in proposal.map(|p| p.answers).unwrap_or_default() {
            self.answer_admin(reply, Ok(answer), now);
        }
        self.answer_forwards(now);
        self.propose(now);
    }

    fn quorum_refused(&self, number: u64, now: Now) {
        let refused = {
            let mut state = self.controller.state.lock();
            state.seat.out.retain(|p| p.number != number);
            state.proposal.take_if(|p| p.number == number)
        };
        if refused.is_some() {
            sometimes(Mark::ProposalRefused);
        }
        for (reply, _) in refused.map(|p| p.answers).unwrap_or_default() {
            self.answer_admin(reply, Err(ErrorCode::REQUEST_TIMED_OUT), now);
        }
        self.propose(now);
    }

    fn quorum_snapshot(&self, snapshot: &MetadataSnapshot, now: Now) {
        {
            let mut state = self.controller.state.lock();
            let behind = snapshot.index < state.seat.index
                || (snapshot.index == state.seat.index && snapshot.index > 0);
            if behind || state.seat.unreadable {
                return;
            }
            state.applying = true;
            state.seat.index = snapshot.index;
        }
        if let Some(mut decoded) = self.decode_records(&snapshot.records) {
            let mut image = MetadataImage::default();
            for record in &decoded {
                image.apply(record, Offset::ZERO);
            }
            image.position = snapshot.position;
            sometimes(Mark::ImageFromSnapshot);
            // What the snapshot doesn't speak of any more was deleted meanwhile.
            let before = self.image();
            let gone = before.topics.keys();
            let gone = gone.filter(|id| !image.topics.contains_key(id));
            decoded.extend(gone.map(|id| MetadataRecord::TopicRemoved(*id)));
            // Nor of what was configured once.
            self.apply_metadata_anew(Arc::new(image), &decoded, now);
        }
        self.controller.state.lock().applying = false;
        self.answer_forwards(now);
        self.propose(now);
    }

    /// `None`, for good, when one can't be read: a gap in metadata would show clients topics that don't exist, or hide ones that do.
    fn decode_records(&self, records: &[Bytes]) -> Option<Vec<MetadataRecord>> {
        let mut decoded = Vec::with_capacity(records.len());
        for bytes in records {
            match MetadataRecord::decode(bytes) {
                Ok(record) => decoded.extend(record),
                Err(error) => {
                    self.controller.state.lock().seat.unreadable = true;
                    self.host.notice(Notice::MetadataUnreadable {
                        reason: error.reason,
                    });
                    return None;
                }
            }
        }
        Some(decoded)
    }
}
