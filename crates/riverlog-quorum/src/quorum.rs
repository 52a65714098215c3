//! A voter at work: what comes in from the host and from other nodes, and what the library makes of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::ClientWriteError;
use openraft::impls::ProgressResponder;
use openraft::type_config::TypeConfigExt;
use openraft::{AsyncRuntime, Config, Instant, SnapshotPolicy};
use parking_lot::Mutex;
use riverlog_log::Disk;
use riverlog_node::quorum::{MetadataSnapshot, Proposal, QuorumEvent};
use riverlog_wire::BrokerId;
use tokio::sync::{mpsc, oneshot};

use crate::error::QuorumError;
use crate::leadership::Leadership;
use crate::machine::Machine;
use crate::members::{self, Wanted};
use crate::message::{Body, Message, Verdict};
use crate::network::{Carrier, Clients, Desk, Incoming, Took};
use crate::raft::{DiskId, Member, Membership, Records, Rt, Term, Types};
use crate::step::{Step, Steps};
use crate::store::{State, Store, Writes};
use crate::succession;

pub(crate) type Raft = openraft::Raft<Types, Machine>;

/// Commands that may wait.
const COMMANDS: usize = 10_000;
/// Questions of other nodes that are being answered.
const ANSWERING: usize = 1_024;
/// How often members are looked at, while this node leads.
const MEMBERS: Duration = Duration::from_millis(250);

/// How long a majority may be silent until the leader is taken for none.
const LOST: Duration = Duration::from_secs(2);

/// Values of a quorum.
#[derive(Clone, Debug)]
pub struct QuorumSettings {
    /// How often a leader says that it is there, in milliseconds.
    pub heartbeat_ms: u64,
    /// How long a voter waits for that until it asks for votes; drawn between the two, in milliseconds.
    pub election_ms: (u64, u64),
    /// Entries after which a snapshot is made.
    pub snapshot_after: u64,
    /// Entries in a snapshot that are kept for those who are a little behind.
    pub keep: u64,
    /// Addresses of nodes that become voters when they join. Others become observers.
    pub voters: BTreeSet<String>,
    /// Where randomness begins.
    pub seed: u64,
}

impl Default for QuorumSettings {
    fn default() -> Self {
        QuorumSettings {
            heartbeat_ms: 150,
            election_ms: (600, 1_200),
            snapshot_after: 5_000,
            keep: 1_000,
            voters: BTreeSet::new(),
            seed: 0,
        }
    }
}

/// A member, as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its disk.
    pub disk: DiskId,
    /// Its node, and where that is.
    pub member: Member,
    /// Whether it votes; an observer doesn't.
    pub voter: bool,
}

/// What a voter knows of its quorum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The term.
    pub term: u64,
    /// The node that leads, as far as this one knows; a leader that a majority doesn't answer any more leads nobody.
    pub leader: Option<BrokerId>,
    /// The last entry that was handed to the node.
    pub applied: u64,
    /// All members, in order of their disks. Empty: it isn't part of a quorum yet.
    pub members: Vec<MemberStatus>,
}

/// A voter's files, before it takes part.
pub struct Opened {
    store: Store,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened")
            .field("disk", &self.disk_id())
            .finish_non_exhaustive()
    }
}

/// A handle on a running voter. Calls return at once, from any thread.
#[derive(Clone)]
pub struct Quorum {
    disk: DiskId,
    commands: mpsc::Sender<Command>,
    status: Arc<Mutex<Status>>,
}

impl std::fmt::Debug for Quorum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quorum")
            .field("disk", &self.disk)
            .finish_non_exhaustive()
    }
}

type Answer = oneshot::Sender<Result<(), QuorumError>>;

enum Command {
    Message(BrokerId, Bytes),
    Propose(Vec<Proposal>),
    Begin(Vec<(DiskId, Member)>, Answer),
    Join(DiskId, BrokerId, Member, Answer),
    Change(Wanted, Answer),
    Gone(BrokerId),
    Stop(oneshot::Sender<()>),
}

impl Quorum {
    /// Opens the folder `quorum` of a data folder, and makes it when it isn't there.
    ///
    /// - `broker`: whose folder it is.
    /// - Errors: a folder that is in use, damaged, or of a later release.
    pub fn open(
        disk: Arc<dyn Disk>,
        broker: BrokerId,
        writes: Writes,
    ) -> Result<Opened, QuorumError> {
        let store = Store::open(disk, broker, writes)?;
        Ok(Opened { store })
    }

    /// The disk of this voter.
    pub fn disk_id(&self) -> DiskId {
        self.disk
    }

    /// What is known now.
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// Another node's quorum says something. Bytes that aren't a message are dropped.
    pub fn on_message(&self, from: BrokerId, bytes: Bytes) {
        // A full queue loses it, as a network would.
        let _ = self.commands.try_send(Command::Message(from, bytes));
    }

    /// The controller wants entries to be committed: what [`riverlog_node::Node::take_proposals`] gave.
    pub fn propose(&self, proposals: Vec<Proposal>) {
        if !proposals.is_empty() {
            // At a stop nobody is left to decide anything.
            let _ = self.commands.try_send(Command::Propose(proposals));
        }
    }

    /// Begins a new cluster of empty disks: all of them vote. One node does that, once; see [`crate::forming`].
    pub async fn begin(&self, members: Vec<(DiskId, Member)>) -> Result<(), QuorumError> {
        self.call(|answer| Command::Begin(members, answer)).await
    }

    /// Asks a node to take this disk in as a member, which it does if it leads. A member that is elsewhere than before says so in the same way, and
    /// votes as before.
    ///
    /// - `disk`, `broker`: whom to ask; this node itself where it leads.
    /// - `me`: what the others shall know of this node.
    pub async fn join(
        &self,
        disk: DiskId,
        broker: BrokerId,
        me: Member,
    ) -> Result<(), QuorumError> {
        self.call(|answer| Command::Join(disk, broker, me, answer))
            .await
    }

    /// Makes an observer a voter. Only the leader can, and only one that answers and has caught up: the others would wait for it.
    pub async fn add_voter(&self, disk: DiskId) -> Result<(), QuorumError> {
        self.call(|answer| Command::Change(Wanted::Promote(disk), answer))
            .await
    }

    /// Takes a member out, voter or observer. Only the leader can, and not itself: let another lead first. A majority of the voters that are
    /// left must have answered lately.
    pub async fn remove(&self, disk: DiskId) -> Result<(), QuorumError> {
        self.call(|answer| Command::Change(Wanted::Remove(disk), answer))
            .await
    }

    /// The process of that node has ended, as far as its host's system can be believed: where it led, another voter may lead at once.
    pub fn gone(&self, broker: BrokerId) {
        // A full queue loses it: then silence tells.
        let _ = self.commands.try_send(Command::Gone(broker));
    }

    /// Stops taking part; returns when nothing is written any more.
    pub async fn stop(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.commands.send(Command::Stop(sender)).await.is_ok() {
            let _ = receiver.await;
        }
    }

    async fn call(&self, make: impl FnOnce(Answer) -> Command) -> Result<(), QuorumError> {
        let gone = || QuorumError::Stopped("it was stopped".to_owned());
        let (sender, receiver) = oneshot::channel();
        let sent = self.commands.send(make(sender)).await;
        sent.map_err(|_| gone())?;
        receiver.await.map_err(|_| gone())?
    }
}

impl Opened {
    /// The disk of this voter: drawn when the folder was made.
    pub fn disk_id(&self) -> DiskId {
        self.store.disk_id()
    }

    /// Whose folder it is.
    pub fn broker(&self) -> BrokerId {
        self.store.broker()
    }

    /// Whether it was never part of a quorum: it has neither voted nor heard of an entry.
    pub fn is_blank(&self) -> bool {
        self.store.is_blank()
    }

    /// Makes this node the only voter of a new quorum whose log begins with the metadata that it has had alone.
    pub async fn found(&self, metadata: MetadataSnapshot, me: Member) -> Result<(), QuorumError> {
        let id = self.disk_id();
        let members = Membership::new(
            vec![BTreeSet::from([id])],
            [(id, me)]
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>(),
        )
        .map_err(|error| QuorumError::Change(error.to_string()))?;
        self.store.found(State::new(metadata), members).await
    }

    /// Takes part from now on. Runs on the tokio runtime that it is called on.
    ///
    /// - `steps`: gets what the node has to be told; whoever receives them takes them in order.
    pub async fn start(
        self,
        settings: QuorumSettings,
        carrier: Arc<dyn Carrier>,
        steps: mpsc::UnboundedSender<Step>,
    ) -> Result<Quorum, QuorumError> {
        let seed = settings.seed;
        Rt::scope(seed, run(self.store, settings, carrier, Steps(steps))).await
    }
}

fn config(settings: &QuorumSettings) -> Result<Arc<Config>, QuorumError> {
    let config = Config {
        cluster_name: "riverlog".to_owned(),
        heartbeat_interval: settings.heartbeat_ms,
        election_timeout_min: settings.election_ms.0,
        election_timeout_max: settings.election_ms.1,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(settings.snapshot_after),
        max_in_snapshot_log_to_keep: settings.keep,
        purge_batch_size: 1,
        replication_lag_threshold: settings.snapshot_after.saturating_add(settings.keep),
        max_payload_entries: 256,
        enable_pre_vote: Some(true),
        // What was committed may be known better by others: a leader that was away asks first.
        enable_leader_restore: Some(false),
        ..Config::default()
    };
    let config = config
        .validate()
        .map_err(|error| QuorumError::Stopped(error.to_string()))?;
    Ok(Arc::new(config))
}

fn stopped(error: impl std::fmt::Display) -> QuorumError {
    QuorumError::Stopped(error.to_string())
}

async fn run(
    store: Store,
    settings: QuorumSettings,
    carrier: Arc<dyn Carrier>,
    steps: Steps,
) -> Result<Quorum, QuorumError> {
    let (me, broker) = (store.disk_id(), store.broker());
    let leadership = Leadership::new(broker, steps.clone());
    let machine = Machine::new(store.clone(), steps.clone(), leadership.clone());
    let desk = Arc::new(Desk::new(me, carrier));
    let clients = Clients(Arc::clone(&desk));
    let raft = Raft::new(me, config(&settings)?, clients, store, machine)
        .await
        .map_err(stopped)?;
    let (sender, commands) = mpsc::channel(COMMANDS);
    let quorum = Quorum {
        disk: me,
        commands: sender,
        status: Arc::default(),
    };
    let voter = Voter {
        me,
        raft,
        desk,
        steps,
        leadership,
        voters: settings.voters,
        status: Arc::clone(&quorum.status),
        incoming: Arc::default(),
        answering: Arc::default(),
    };
    voter.look();
    drop(Rt::spawn(voter.work(commands)));
    Ok(quorum)
}

/// What the tasks of a running voter share.
#[derive(Clone)]
struct Voter {
    me: DiskId,
    raft: Raft,
    desk: Arc<Desk>,
    steps: Steps,
    leadership: Leadership,
    voters: BTreeSet<String>,
    status: Arc<Mutex<Status>>,
    incoming: Arc<Mutex<Incoming>>,
    answering: Arc<AtomicUsize>,
}

impl Voter {
    async fn work(self, mut commands: mpsc::Receiver<Command>) {
        let mut metrics = self.raft.metrics();
        let mut members = tokio::time::interval(MEMBERS);
        members.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut stop = None;
        loop {
            tokio::select! {
                biased;
                changed = metrics.changed() => {
                    self.look();
                    if changed.is_err() || metrics.borrow_watched().running_state.is_err() {
                        break;
                    }
                }
                command = commands.recv() => match command {
                    None => break,
                    Some(Command::Stop(answer)) => {
                        stop = Some(answer);
                        break;
                    }
                    Some(command) => self.take(command),
                },
                _ = members.tick() => {
                    self.look();
                    if self.raft.is_leader() {
                        let voter = self.clone();
                        drop(Rt::spawn(async move { voter.tend().await }));
                    }
                }
            }
        }
        let state = metrics.borrow_watched().running_state.clone();
        if let (None, Err(why)) = (&stop, state) {
            self.steps.ended(stopped(why));
        }
        // A library that has already stopped can't be stopped again.
        let _ = self.raft.shutdown().await;
        if let Some(answer) = stop {
            let _ = answer.send(());
        }
    }

    /// What the library says of itself now.
    fn look(&self) {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.membership();
        let leader = metrics.current_leader;
        let leader = leader.and_then(|disk| members.get_node(&disk).map(|member| member.broker));
        self.leadership.seen(metrics.current_term, leader);
        let voters: BTreeSet<DiskId> = members.voter_ids().collect();
        let (term, mut leader) = self.leadership.told();
        // It goes on where it was left, and can't agree on anything meanwhile.
        let looked = tokio::time::Instant::now();
        let acked = metrics.last_quorum_acked.map(|at| at.into_inner());
        let silent = acked.map(|at| Types::now().saturating_duration_since(at));
        let leads = metrics.current_leader == Some(self.me) && voters.len() > 1;
        if leads && silent.is_none_or(|silent| silent > LOST) {
            leader = None;
        }
        let alone = metrics.current_leader == Some(self.me) && voters.len() == 1;
        let confirmed = match alone {
            true => Some(Duration::ZERO),
            false => silent.filter(|_| leads),
        };
        let at = confirmed.and_then(|silent| looked.checked_sub(silent));
        if let Some(at) = at {
            self.leadership.answered(at);
        }
        *self.status.lock() = Status {
            term,
            leader,
            applied: metrics.last_applied.map_or(0, |applied| applied.index),
            members: members
                .nodes()
                .map(|(disk, member)| MemberStatus {
                    disk: *disk,
                    member: member.clone(),
                    voter: voters.contains(disk),
                })
                .collect(),
        };
    }

    fn take(&self, command: Command) {
        let voter = self.clone();
        match command {
            Command::Message(from, bytes) => self.message(from, &bytes),
            Command::Propose(proposals) => drop(Rt::spawn(async move {
                for proposal in proposals {
                    voter.propose(proposal).await;
                }
            })),
            Command::Begin(members, answer) => drop(Rt::spawn(async move {
                let members: std::collections::BTreeMap<_, _> = members.into_iter().collect();
                let begun = voter.raft.initialize(members).await;
                let _ = answer.send(begun.map_err(|error| QuorumError::Change(error.to_string())));
            })),
            Command::Join(disk, broker, me, answer) => drop(Rt::spawn(async move {
                let _ = answer.send(voter.ask_to_join(disk, broker, me).await);
            })),
            Command::Change(wanted, answer) => drop(Rt::spawn(async move {
                let _ = answer.send(members::change(&voter.raft, voter.me, wanted).await);
            })),
            Command::Gone(broker) => drop(Rt::spawn(async move {
                succession::succeed(&voter.raft, voter.me, broker).await;
            })),
            Command::Stop(_) => {}
        }
    }

    async fn propose(&self, proposal: Proposal) {
        let (number, term) = (proposal.number, proposal.term);
        let (responder, written) = ProgressResponder::complete_only();
        let write = self
            .raft
            .write(Records(proposal.records))
            .with_leader(Term::new(term))
            .responder(responder);
        if write.await.is_err() {
            // The library has stopped, which the node hears of.
            return;
        }
        // Only what was never appended is refused: of the rest the next leader decides, and the node hears of that one.
        if let Ok(Err(ClientWriteError::ForwardToLeader(_))) = written.await {
            self.steps.event(QuorumEvent::Refused { number });
        }
    }

    async fn tend(&self) {
        let metrics = self.raft.metrics().borrow_watched().clone();
        if let Some(wanted) = members::due(&metrics, self.me, &self.voters) {
            // What can't be done now is due again at the next look.
            if let Err(why) = members::change(&self.raft, self.me, wanted.clone()).await {
                tracing::debug!(?wanted, "the members stay as they are: {why}");
            }
        }
    }

    async fn ask_to_join(
        &self,
        disk: DiskId,
        broker: BrokerId,
        me: Member,
    ) -> Result<(), QuorumError> {
        if disk == self.me {
            return members::change(&self.raft, self.me, Wanted::Observe(disk, me)).await;
        }
        let patience = Duration::from_secs(5);
        let answer = self.desk.ask(disk, broker, Body::Join(me), patience).await;
        match answer {
            Ok(Body::Joined(Verdict::Done)) => Ok(()),
            Ok(Body::Joined(Verdict::NotLeader(Some(at)))) => Err(QuorumError::LedAt(at)),
            Ok(Body::Joined(Verdict::NotLeader(None))) => Err(QuorumError::NotLeader),
            Ok(Body::Joined(Verdict::NumberTaken)) => Err(QuorumError::NumberTaken),
            Ok(_) => Err(QuorumError::Change("the leader refused".to_owned())),
            Err(_) => Err(QuorumError::TimedOut),
        }
    }

    fn message(&self, from: BrokerId, bytes: &Bytes) {
        let Ok(message) = Message::decode(bytes) else {
            return;
        };
        if message.to != self.me {
            return;
        }
        if message.body.is_answer() {
            return self.desk.answered(message.number, message.body);
        }
        if self.answering.fetch_add(1, Ordering::Relaxed) >= ANSWERING {
            self.answering.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let voter = self.clone();
        drop(Rt::spawn(async move {
            if let Some(answer) = voter.answer(from, message.from, message.body).await {
                voter.desk.send(message.from, from, message.number, answer);
            }
            voter.answering.fetch_sub(1, Ordering::Relaxed);
        }));
    }

    /// Where the member is that leads, as far as this one knows, and if it is another one.
    fn leader_address(&self) -> Option<String> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let leader = metrics.current_leader.filter(|disk| *disk != self.me)?;
        let members = metrics.membership_config.membership();
        members
            .get_node(&leader)
            .map(|member| member.address.clone())
    }

    /// `None`: the question gets no answer, and is asked again.
    async fn answer(&self, broker: BrokerId, from: DiskId, question: Body) -> Option<Body> {
        Some(match question {
            Body::Vote(request) => Body::Voted(self.raft.vote(request).await.ok()?),
            Body::PreVote(request) => Body::Voted(self.raft.pre_vote(request).await.ok()?),
            Body::Append(request) => Body::Appended(self.raft.append_entries(request).await.ok()?),
            Body::Snapshot(chunk) => {
                let vote = chunk.vote;
                let took = self.incoming.lock().take(chunk);
                match took {
                    Took::More => Body::Took(vote),
                    Took::Bad => return None,
                    Took::Whole(snapshot) => {
                        let installed = self.raft.install_full_snapshot(vote, snapshot).await;
                        Body::Took(installed.ok()?.vote)
                    }
                }
            }
            // A node speaks for itself only.
            Body::Join(member) if member.broker == broker => {
                let wanted = Wanted::Observe(from, member);
                Body::Joined(match members::change(&self.raft, self.me, wanted).await {
                    Ok(()) => Verdict::Done,
                    Err(QuorumError::NotLeader) => Verdict::NotLeader(self.leader_address()),
                    Err(QuorumError::NumberTaken) => Verdict::NumberTaken,
                    Err(_) => Verdict::Refused,
                })
            }
            _ => return None,
        })
    }
}
