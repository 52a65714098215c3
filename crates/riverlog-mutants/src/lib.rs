//! What the simulator plants in the other crates: faults that it must notice, and marks on rare paths that it must reach.
//!
//! A fault is a mistake that someone could make, behind a switch that only the simulator has; one that no simulation notices
//! is a hole in the simulation. So is a mark that no simulation hits.
//!
//! Without the feature `planted`, [`active`] is `false` at compile time, [`sometimes`] does nothing, and nothing of this is left
//! in the binary.

mod marks;

#[cfg(feature = "planted")]
use std::sync::atomic::{AtomicU8, Ordering};

#[cfg(feature = "planted")]
pub use marks::take_counts;
pub use marks::{Mark, sometimes};

/// What must be played for a planted fault to be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// One node.
    Node,
    /// Several nodes with copies.
    Cluster,
    /// The quorum that agrees on metadata, by itself.
    Quorum,
}

macro_rules! mutants {
    ($($stage:ident { $($(#[doc = $doc:literal])* $name:ident = $text:literal,)* })*) => {
        /// A planted fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($($(#[doc = $doc])* $name,)*)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$($(Mutant::$name),*),*];
            /// Where it can be noticed.
            pub fn stage(self) -> Stage {
                match self { $($(Mutant::$name => Stage::$stage,)*)* }
            }
            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self { $($(Mutant::$name => $text,)*)* }
            }
            /// What it does, in words.
            pub fn doc(self) -> &'static str {
                match self { $($(Mutant::$name => concat!($($doc),*),)*)* }
            }
        }
    };
}

mutants! {
    Node {
        /// A publish is answered when it is written, not when it is synced.
        AckBeforeSync = "ack-before-sync",
        /// The folder of a new segment is never synced.
        FolderNotSynced = "folder-not-synced",
        /// Four batches of a producer are remembered, not five.
        WindowOfFour = "window-of-four",
        /// The write-ahead log is used again before the segments are synced.
        WalReusedTooEarly = "wal-reused-too-early",
        /// A torn group of the write-ahead log is taken for a whole one.
        TornGroupAccepted = "torn-group-accepted",
        /// An index is believed without a look at the batch that it points to.
        IndexTrusted = "index-trusted",
        /// Recovery begins after what was written, not after what was synced.
        CheckpointAhead = "checkpoint-ahead",
        /// After a restart nothing is known of producers.
        ProducersForgotten = "producers-forgotten",
        /// A commit is answered before it is stored.
        CommitAnsweredEarly = "commit-answered-early",
        /// Readers see one record more than is acknowledged.
        WatermarkTooFar = "watermark-too-far",
        /// A failed sync counts as done.
        SyncFailureIgnored = "sync-failure-ignored",
        /// A moved log start offset is forgotten by a restart.
        StartOffsetForgotten = "start-offset-forgotten",
        /// A stale member may commit.
        StaleCommitAccepted = "stale-commit-accepted",
        /// Reading that begins with the first offset of a segment goes on with the segment after it.
        BatchSkippedAtRoll = "batch-skipped-at-roll",
        /// A log that can't be opened at the start counts as one of a deleted topic.
        BrokenLogDeleted = "broken-log-deleted",
        /// What a process wrote whose sync failed is synced again, not written again.
        TailNotWrittenAgain = "tail-not-written-again",
        /// A batch that is taken back stays known of its producer.
        UndoForgotten = "undo-forgotten",
        /// A batch that is taken back stays in the write-ahead log.
        TakenBackNotLogged = "taken-back-not-logged",
        /// A small file is renamed into place before it is synced.
        ReplacedNotSynced = "replaced-not-synced",
        /// The last append below the high watermark isn't answered.
        AnswerOneShort = "answer-one-short",
        /// Retention by count takes one record too many.
        RetentionOneTooMany = "retention-one-too-many",
        /// Files go before the start that lets them go is durable.
        FilesBeforeStart = "files-before-start",
        /// Segments go without a snapshot of what they said of producers.
        HeadWithoutSnapshot = "head-without-snapshot",
        /// Blocks are not compared with their checksums.
        DamageServed = "damage-served",
        /// A disk that was full is never looked at again.
        FullForEver = "full-for-ever",
        /// The mark of a clean stop stays when something is changed.
        CleanMarkKept = "clean-mark-kept",
        /// A coordinator that takes over takes it that members know what they hold.
        MembersNotTold = "members-not-told",
        /// A batch that is stored already is stored again.
        DuplicateStored = "duplicate-stored",
        /// Readers of committed records see what is open.
        OpenTransactionStable = "open-transaction-stable",
        /// After a restart nothing is known of what was aborted.
        AbortedForgotten = "aborted-forgotten",
        /// A marker is answered before it is durable.
        MarkerNotSynced = "marker-not-synced",
        /// Offsets of a transaction count before it is committed.
        PendingOffsetsCount = "pending-offsets-count",
        /// A batch of an epoch that a marker has ended is taken.
        LateFrameAccepted = "late-frame-accepted",
        /// The end of a transaction that is asked for again is refused.
        EndNotRepeatable = "end-not-repeatable",
        /// The end of a transaction is answered before the decision is durable.
        DecisionAnsweredEarly = "decision-answered-early",
        /// A transaction is complete when one marker is missing.
        LastMarkerForgotten = "last-marker-forgotten",
        /// A coordinator that takes over doesn't go on with markers.
        MarkersNotResumed = "markers-not-resumed",
        /// A transaction that nobody ends stays open.
        TimeOutForgotten = "time-out-forgotten",
        /// A new instance of a transactional id gets the epoch of the old one.
        InstanceNotFenced = "instance-not-fenced",
        /// A producer with an old epoch may add partitions.
        FencedMayAdd = "fenced-may-add",
        /// A partition takes the first batch of a transaction without asking the coordinator.
        CoordinatorNotAsked = "coordinator-not-asked",
        /// A partition that is added takes the place of those before.
        PartitionsReplaced = "partitions-replaced",
        /// Offsets of a transaction count when it is aborted, too.
        AbortedOffsetsCount = "aborted-offsets-count",
        /// The end of a transaction of version 2 leaves the epoch as it is.
        EpochNotBumped = "epoch-not-bumped",
        /// Compaction removes the newest record of a key with the older ones.
        NewestCleanedAway = "newest-cleaned-away",
        /// A tombstone goes with what it deletes.
        TombstoneGoneAtOnce = "tombstone-gone-at-once",
        /// Segments are compacted however new they are.
        CompactionLagIgnored = "compaction-lag-ignored",
        /// A cleaned segment has no more batch that says where it ends.
        SegmentEndNotKept = "segment-end-not-kept",
        /// A cleaned segment takes its place before it is synced.
        CleanedNotSynced = "cleaned-not-synced",
        /// After a crash, segments stay beside the cleaned one that replaces them.
        ReplacedSegmentsStay = "replaced-segments-stay",
        /// A partition that is being compacted when the disk is full is never compacted again.
        FullDiskSetsAside = "full-disk-sets-aside",
        /// A member with a generation that is over may commit.
        StaleGenerationAccepted = "stale-generation-accepted",
        /// Everyone is given what the leader has dealt out to itself.
        LeadersAssignment = "leaders-assignment",
        /// A rebalance leaves the generation as it is.
        GenerationKept = "generation-kept",
        /// A member that is gone is never expired.
        DeadMemberKept = "dead-member-kept",
        /// A partition is given to its next member while the last one has it still.
        PartitionGivenTwice = "partition-given-twice",
        /// A member that doesn't say what it holds counts as having given back what it was told to.
        SilenceGivesBack = "silence-gives-back",
        /// What a member has given back is never free.
        GivenBackNotFree = "given-back-not-free",
        /// A heartbeat of an epoch that is over is taken.
        StaleHeartbeatAccepted = "stale-heartbeat-accepted",
        /// A member whose epoch is over is told what the group has committed.
        StaleFetchAccepted = "stale-fetch-accepted",
        /// Nobody is given what a member had that was expired.
        ExpiryWithoutTarget = "expiry-without-target",
        /// A silent member of the consumer protocol is never expired.
        SilentMemberKept = "silent-member-kept",
        /// A member of a share group is told that its word holds before it is kept.
        ShareAnsweredEarly = "share-answered-early",
        /// Updates of what is kept of a share group move its start, and say nothing of single records.
        ShareRecordsForgotten = "share-records-forgotten",
        /// Records of which a share group's leader had said nothing count as done with for the next one.
        ShareGapsArchived = "share-gaps-archived",
        /// It isn't kept how often a share group has tried a record.
        ShareCountForgotten = "share-count-forgotten",
        /// A share group tries a record as often as it is given back.
        ShareLimitIgnored = "share-limit-ignored",
        /// What a member of a share group has acquired is its for ever.
        ShareLockForEver = "share-lock-for-ever",
        /// Any member of a share group may acknowledge what any other has.
        ShareStrangerHeard = "share-stranger-heard",
        /// A share group gives out the next record of a key while one is out.
        ShareKeyLockIgnored = "share-key-lock-ignored",
        /// A new leader takes it that no two records in flight have the same key.
        ShareKeysNotReadAgain = "share-keys-not-read-again",
        /// It isn't kept until when a record is to rest.
        ShareRestForgotten = "share-rest-forgotten",
        /// A streams group gives an active task to its next member while the last one runs it still.
        StreamsTaskGivenTwice = "streams-task-given-twice",
        /// A streams group gives a task to a process of which another thread keeps a copy of its state.
        StreamsProcessTwice = "streams-process-twice",
        /// A standby task of a streams group may stand where the active one runs.
        StreamsStandbyBesideActive = "streams-standby-beside-active",
        /// A member of a streams group that doesn't say what it has counts as having given back what it was told to.
        StreamsSilenceGivesBack = "streams-silence-gives-back",
        /// Nobody is given the tasks of a member of a streams group that was expired.
        StreamsExpiryUnnoticed = "streams-expiry-unnoticed",
        /// A heartbeat of a streams group of an epoch that is over is taken.
        StreamsStaleAccepted = "streams-stale-accepted",
        /// A group that goes over to the consumer protocol forgets what its members hold.
        UpgradeForgetsHeld = "upgrade-forgets-held",
        /// A group that goes over to the consumer protocol begins with epoch 1.
        UpgradeEpochAnew = "upgrade-epoch-anew",
        /// Members of the classic protocol in a group of the other one aren't told when there is something to give back or to get.
        ClassicNotCalled = "classic-not-called",
        /// A group that goes back to the classic protocol leaves everyone with what they have.
        DowngradeWithoutRebalance = "downgrade-without-rebalance",
        /// A group that goes back to the classic protocol begins with generation 1.
        DowngradeGenerationAnew = "downgrade-generation-anew",
    }
    Cluster {
        /// A coordinator or leader tells what is final for a producer though others may have gone beyond it.
        DoubtsForgotten = "doubts-forgotten",
        /// A leader takes the min ISR that was decided with an in-sync set over after that.
        MinIsrLate = "min-isr-late",
        /// What a follower says counts as said when it comes, however long it was under way.
        StampUnread = "stamp-unread",
        /// Metadata leaves a node out as soon as it is fenced.
        FencedNotListed = "fenced-not-listed",
        /// A leader forgets what it has just refused, and takes what its producer has sent behind it for out of order.
        RefusalsForgotten = "refusals-forgotten",
        /// What a follower said in an earlier life counts for the in-sync set.
        EarlierLifeInSync = "earlier-life-in-sync",
        /// A follower takes the leader's high watermark over before it has cut what the leader doesn't have.
        WatermarkBeforeCut = "watermark-before-cut",
        /// A follower takes what its leader has cleaned away for a gap that nobody fills.
        HoleNotFilled = "hole-not-filled",
        /// A follower never cuts.
        DivergenceIgnored = "divergence-ignored",
        /// A leader takes the word of followers of another leadership.
        FollowerEpochUnchecked = "follower-epoch-unchecked",
        /// What a follower has written counts as synced.
        WrittenTakenForSynced = "written-taken-for-synced",
        /// A follower that is asked for doesn't count for the high watermark until it is in the in-sync set.
        JoiningNotCounted = "joining-not-counted",
        /// A follower may be in sync that has what is known to be acknowledged, not what may be.
        EpochStartIgnored = "epoch-start-ignored",
        /// The high watermark moves on with fewer than min ISR in sync.
        MinIsrIgnored = "min-isr-ignored",
        /// Who was eligible once stays so.
        EligibleForEver = "eligible-for-ever",
        /// A node with an empty disk is taken for the one that it was.
        DiskNotNoticed = "disk-not-noticed",
        /// A leader changes the in-sync set of a partition that has changed since.
        PartitionEpochUnchecked = "partition-epoch-unchecked",
        /// A node leads what an image of before its start says.
        OldImageLeads = "old-image-leads",
        /// A node that starts gives up what an old image doesn't have on it.
        OldImageTakesAway = "old-image-takes-away",
        /// Logs that metadata hasn't named yet are taken for leftovers.
        StraysRemovedEarly = "strays-removed-early",
        /// A leader takes a follower's word before it has looked whether their logs agree.
        WordBeforeLook = "word-before-look",
        /// The controller takes an in-sync set from who leads no more.
        StaleIsrAccepted = "stale-isr-accepted",
        /// The controller takes nodes into an in-sync set that have registered anew since.
        StrangeLifeInSync = "strange-life-in-sync",
        /// A reassignment ends when the first of the new replicas is in sync.
        MovedTooSoon = "moved-too-soon",
        /// A replica that goes leaves the leader epoch as it is.
        ReplicaLeavesEpoch = "replica-leaves-epoch",
        /// A leader compares where logs end, and not in which epoch.
        CutByOffset = "cut-by-offset",
        /// A new leader goes on in the epoch of the one before.
        LeaderEpochKept = "leader-epoch-kept",
        /// Another in-sync set leaves the epoch of the partition as it is.
        PartitionEpochKept = "partition-epoch-kept",
        /// Whoever is up may be elected, in sync or not.
        AnyoneElected = "anyone-elected",
        /// Nodes that nobody has heard of may be elected.
        FencedElected = "fenced-elected",
        /// A node that starts leads on what it led, in the same epoch.
        RestartKeepsEpoch = "restart-keeps-epoch",
        /// A leader that neither the controller nor followers hear goes on telling where its log ends.
        NeverAside = "never-aside",
        /// A node whose disk is full or slow goes on leading.
        AilingLeads = "ailing-leads",
        /// What a node doesn't answer is never asked by way of another one.
        QuestionsNotRound = "questions-not-round",
        /// What came by way of another node is answered directly alone.
        AnswersNotRound = "answers-not-round",
        /// Nodes that nobody hears of are never fenced.
        SilentNeverFenced = "silent-never-fenced",
        /// Who loses a leadership acknowledges what waits.
        MovedPromised = "moved-promised",
        /// What all in sync have is acknowledged, however few they are.
        FewPromised = "few-promised",
        /// Followers that have not spoken in this epoch hold nothing back.
        SilentNotCounted = "silent-not-counted",
        /// What a leader has not synced itself is acknowledged when the others have.
        OwnNotCounted = "own-not-counted",
        /// Who lags counts no more as soon as the controller is asked.
        LeftAtOnce = "left-at-once",
        /// Who lags stays in sync.
        LaggardStays = "laggard-stays",
        /// A change of an in-sync set that was refused is not asked for again.
        AskedForEver = "asked-for-ever",
        /// A change of another partition of the topic ends the wait for an in-sync set that was asked for.
        AskForgotten = "ask-forgotten",
        /// A follower takes its leader's high watermark for its own, also beyond its end.
        WatermarkPastEnd = "watermark-past-end",
        /// A new leader begins with a high watermark of 0.
        WatermarkForgotten = "watermark-forgotten",
        /// A new leader takes all that it has for acknowledged.
        EndTakenForWatermark = "end-taken-for-watermark",
        /// A follower that ends before its leader begins waits.
        NotBegunAnew = "not-begun-anew",
        /// An entry that comes again is applied again.
        EntryAppliedTwice = "entry-applied-twice",
        /// What was decided in a lost term is answered by the next entry.
        DecisionOutlivesTerm = "decision-outlives-term",
        /// A cut leaves producers with what was cut.
        ProducersSurviveCut = "producers-survive-cut",
        /// A cut leaves the epochs of what was cut.
        EpochsSurviveCut = "epochs-survive-cut",
        /// A cut is not in the write-ahead log.
        CutNotLogged = "cut-not-logged",
    }
    Quorum {
        /// A vote counts before it is stored.
        VoteNotStored = "vote-not-stored",
        /// Entries count before they are synced.
        EntriesNotSynced = "entries-not-synced",
        /// A node hears that it leads before it has what was committed before.
        LeadsTooEarly = "leads-too-early",
    }
}

#[cfg(feature = "planted")]
static PLANTED: AtomicU8 = AtomicU8::new(u8::MAX);

/// Chooses the fault of this process; `None` for none.
#[cfg(feature = "planted")]
pub fn plant(mutant: Option<Mutant>) {
    PLANTED.store(mutant.map_or(u8::MAX, |m| m as u8), Ordering::Relaxed);
}

/// Whether this fault is planted.
#[cfg(feature = "planted")]
#[inline]
pub fn active(mutant: Mutant) -> bool {
    PLANTED.load(Ordering::Relaxed) == mutant as u8
}

/// Whether this fault is planted: never, in this build.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub fn active(_: Mutant) -> bool {
    false
}
