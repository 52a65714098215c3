//! Marks on rare paths. A run of many seeds in which one is never hit doesn't test what it seems to.

#[cfg(feature = "planted")]
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Stage;

macro_rules! marks {
    ($($stage:ident { $($(#[doc = $doc:literal])* $name:ident,)* })*) => {
        /// A rare path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mark {
            $($($(#[doc = $doc])* $name,)*)*
        }

        impl Mark {
            /// All of them.
            pub const ALL: &[Mark] = &[$($(Mark::$name),*),*];
            /// What must be played to get there.
            pub fn stage(self) -> Stage {
                match self { $($(Mark::$name => Stage::$stage,)*)* }
            }
            /// What happened, in words.
            pub fn doc(self) -> &'static str {
                match self { $($(Mark::$name => concat!($($doc),*),)*)* }
            }
        }
    };
}

marks! {
    Node {
        /// A segment was rolled.
        SegmentRolled,
        /// A file of the write-ahead log was used again.
        WalLapped,
        /// Recovery cut a torn tail.
        TornTailCut,
        /// The last group of the write-ahead log had its head, and not its entries.
        TornGroupRefused,
        /// Recovery did an entry of the write-ahead log again.
        EntryDoneAgain,
        /// A batch was recognised as a duplicate.
        DuplicateRecognised,
        /// A full disk was noticed, and appends were refused.
        FullDiskRefused,
        /// There was room again.
        FullDiskRecovered,
        /// After a failed sync nothing was promised any more.
        SyncFailureFenced,
        /// An index was made again.
        IndexRebuilt,
        /// Retention or a deletion took whole segments.
        SegmentsRetired,
        /// A log could not be opened.
        LogNotOpened,
        /// It was opened later in the same life.
        LogOpenedLater,
        /// A rebalance moved a partition from one member to another.
        PartitionMoved,
        /// A stale member was refused.
        StaleCommitRefused,
        /// A member left its group.
        MemberLeft,
        /// A member that was heard of no more was left out of its group.
        MemberExpired,
        /// A setting was changed under load.
        SettingChanged,
        /// A node was stopped cleanly.
        StoppedCleanly,
        /// A node stood still.
        Frozen,
        /// A wall clock jumped.
        ClockJumped,
        /// A request was lost.
        RequestLost,
        /// An answer was lost.
        AnswerLost,
        /// A request came twice.
        RequestRepeated,
        /// A topic was deleted.
        TopicDeleted,
        /// An append to a full bounded topic waited.
        BoundedWaited,
        /// A file was replaced by an older copy of itself.
        OlderCopy,
        /// A disk was replaced by an empty one.
        DiskReplaced,
        /// A node refused to start with what was damaged.
        DamageRefused,
        /// A damaged range was refused to a reader.
        DamageSkipped,
        /// A cleaned segment took the place of others.
        SegmentsCleaned,
        /// A crash came between a cleaned segment and the end of those that it replaces.
        ReplacedAfterCrash,
        /// A segment that nobody wrote to was closed so that it could be cleaned.
        IdleSegmentClosed,
        /// A deleted key has left nothing, not even its tombstone.
        TombstoneGone,
        /// A transaction ran out of time.
        TransactionRanOut,
        /// A transactional producer found itself fenced.
        ProducerFenced,
        /// An end of a transaction that had been decided was asked for again.
        EndRepeated,
        /// A member of a classic group found that it had been expired or replaced.
        ClassicMemberExpired,
        /// What a member of the consumer protocol sent with an epoch that was over was refused.
        StaleEpochRefused,
        /// A classic group with members went over to the consumer protocol.
        GroupUpgraded,
        /// A group with members went back to the classic protocol.
        GroupDowngraded,
    }
    Cluster {
        /// A leader was followed by a replica that was in sync.
        LeaderReplaced,
        /// A replica was elected that was only eligible.
        EligibleElected,
        /// Nobody was left who could lead a partition.
        NobodyLeads,
        /// A node was fenced that nobody had heard of.
        NodeFenced,
        /// A node that was fenced a moment ago was listed.
        FencedListed,
        /// One that was fenced for a session wasn't.
        FencedLeftOut,
        /// A node was taken for gone, as its process had ended.
        NodeGone,
        /// A node that was taken for gone was heard of later.
        GoneAndAlive,
        /// A node that didn't answer was asked by way of another one.
        AskedRound,
        /// A node was answered by way of another one.
        AnsweredRound,
        /// Another node took over what one with an ailing disk led.
        Relieved,
        /// A node that nobody heard left what it led to others.
        SteppedAside,
        /// A node registered with another disk than before.
        DiskForgot,
        /// A leader asked for a follower that lags to be left out.
        LeftOut,
        /// A leader asked for a follower that has caught up to be taken in.
        TakenIn,
        /// An in-sync set of a leader that leads no more was refused.
        StaleIsrRefused,
        /// An in-sync set that was decided against an older one was refused.
        OutdatedIsrRefused,
        /// An in-sync set with a node that had registered anew or was fenced was refused.
        StrangeLifeRefused,
        /// A change of an in-sync set came to the controller again, long after it had been asked for.
        InSyncEchoed,
        /// A batch was taken behind another one before its producer had heard of that one.
        SentBehind,
        /// A batch was refused that came behind another one before its producer had heard of that one.
        RefusedBehind,
        /// A leader did not listen to a follower that spoke in another life.
        EarlierLifeUnheard,
        /// A leader refused a follower of another leadership.
        OtherEpochRefused,
        /// A follower cut what its leader does not have.
        TailOfFollowerCut,
        /// A follower began anew where its leader begins.
        FollowerBegunAnew,
        /// A follower filled a hole that compaction has left at its leader.
        HoleFilled,
        /// A follower got an answer that it did not wait for.
        LateAnswerIgnored,
        /// An append waited when another node began to lead.
        AppendMoved,
        /// An append was stored by all in sync, who were too few.
        FewInSync,
        /// A controller lost its leadership with decisions under way.
        DecisionsDropped,
        /// The quorum refused a proposal.
        ProposalRefused,
        /// Metadata came as a snapshot.
        ImageFromSnapshot,
        /// A message was lost.
        MessageLost,
        /// A message came twice.
        MessageTwice,
        /// A message came late, after newer ones.
        MessageLate,
        /// Nothing came through in one direction, and all in the other.
        CutOneWay,
        /// A node was cut off.
        CutBothWays,
        /// The process of a node died.
        NodeKilled,
        /// A node lost its power.
        NodePowerless,
        /// All nodes lost their power at once.
        AllPowerless,
        /// A node stood still for longer than its session.
        NodeFrozen,
        /// A node gave its leaderships away and stopped.
        NodeStopped,
        /// The disk of a node refused to sync.
        SyncsFailed,
        /// The wall clock of a node jumped.
        WallsApart,
        /// A node came back with an empty disk.
        DiskEmptied,
        /// The others went on without a node.
        WentOnWithout,
        /// All new replicas of a partition were in sync, and the old ones left.
        Reassigned,
        /// A reassignment was taken back.
        ReassignmentCancelled,
        /// A copy that had been here was to be here again before its files were gone.
        CopyCameBack,
        /// What catches up waited until what had passed was paid for.
        CatchUpWaited,
        /// Another node coordinates a group.
        CoordinatorReplaced,
        /// Another node coordinates a group of which a member was on its way to what it was told to have.
        CoordinatorReplacedMeanwhile,
        /// A member of a share group said something to a leader that is not the one that it was given the record by.
        SaidToAnotherLeader,
        /// A member of a share group was given a record by a leader that is one no more.
        AcquiredFromFormerLeader,
    }
}

#[cfg(feature = "planted")]
static COUNTS: [AtomicU64; Mark::ALL.len()] = [const { AtomicU64::new(0) }; Mark::ALL.len()];

/// Counts that this happened.
#[cfg(feature = "planted")]
#[inline]
pub fn sometimes(mark: Mark) {
    if let Some(count) = COUNTS.get(mark as usize) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts that this happened: not in this build.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub fn sometimes(_: Mark) {}

/// How often each has happened since the last call, in the order of [`Mark::ALL`].
#[cfg(feature = "planted")]
pub fn take_counts() -> Vec<(Mark, u64)> {
    let counts = Mark::ALL.iter().zip(&COUNTS);
    counts
        .map(|(mark, count)| (*mark, count.swap(0, Ordering::Relaxed)))
        .collect()
}
