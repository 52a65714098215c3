//! A cluster of voters on one thread, with a clock that jumps, a network that can be cut, and disks that lose what wasn't synced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use riverlog_log::Disk;
use riverlog_log::disk::{CrashDisk, Random};
use riverlog_node::quorum::{MetadataSnapshot, Proposal, QuorumEvent};
use riverlog_quorum::{Carrier, DiskId, Member, Quorum, QuorumSettings, Step, Writes};
use riverlog_wire::{BrokerId, Offset};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Runs a story on a runtime with one thread and a clock that jumps.
pub(crate) fn story<F: Future<Output = ()>>(f: F) {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(f);
}

/// What everybody agreed on, and what they did.
#[derive(Default)]
pub(crate) struct Truth {
    /// Records at an index, from whoever was first told.
    pub(crate) committed: BTreeMap<u64, (u64, Vec<Bytes>)>,
    /// Who was told that it leads a term.
    pub(crate) leaders: BTreeMap<u64, i32>,
    /// What happened, in order.
    pub(crate) trace: Vec<String>,
    /// Proposals whose proposer saw them committed.
    pub(crate) acknowledged: BTreeSet<Bytes>,
}

pub(crate) struct Network {
    random: Mutex<Random>,
    nodes: Mutex<BTreeMap<i32, Quorum>>,
    cut: Mutex<BTreeSet<(i32, i32)>>,
    /// Of a hundred messages, how many are lost.
    pub(crate) loss: Mutex<u64>,
    pub(crate) delay_ms: Mutex<u64>,
}

struct Wire {
    from: i32,
    network: Arc<Network>,
    dead: Arc<AtomicBool>,
}

impl Carrier for Wire {
    fn carry(&self, to: BrokerId, bytes: Bytes) -> bool {
        // None has a connection to itself.
        if self.dead.load(Ordering::Relaxed) || to.0 == self.from {
            return false;
        }
        let (lost, delay) = {
            let mut random = self.network.random.lock();
            let lost = random.below(100) < *self.network.loss.lock();
            (lost, 1 + random.below(*self.network.delay_ms.lock()))
        };
        let (from, to, network) = (self.from, to.0, Arc::clone(&self.network));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            // A way that is cut swallows what it is given: nobody is told.
            let cut = network.cut.lock().contains(&(from, to));
            let target = network.nodes.lock().get(&to).cloned();
            if let Some(target) = target.filter(|_| !cut && !lost) {
                target.on_message(BrokerId(from), bytes);
            }
        });
        true
    }
}

/// What a node knows, and what its controller has in flight.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) records: Vec<Bytes>,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) leader: Option<i32>,
    pub(crate) in_flight: Option<(u64, Bytes)>,
    pub(crate) refused: u64,
    pub(crate) snapshots: u64,
    number: u64,
    pub(crate) ended: bool,
}

pub(crate) struct Peer {
    pub(crate) id: i32,
    pub(crate) disk: CrashDisk,
    pub(crate) quorum: Quorum,
    pub(crate) known: Arc<Mutex<Known>>,
    dead: Arc<AtomicBool>,
}

pub(crate) struct Cluster {
    pub(crate) network: Arc<Network>,
    pub(crate) truth: Arc<Mutex<Truth>>,
    pub(crate) peers: BTreeMap<i32, Peer>,
    pub(crate) settings: QuorumSettings,
    random: Random,
    seed: u64,
    /// What hears the nodes' steps: an assertion in it ends it, and nobody would notice.
    followers: Vec<JoinHandle<()>>,
}

pub(crate) fn member(id: i32) -> Member {
    Member {
        broker: BrokerId(id),
        address: format!("n{id}:9092"),
    }
}

impl Cluster {
    /// Nodes without a quorum.
    pub(crate) fn empty(seed: u64) -> Cluster {
        let network = Network {
            random: Mutex::new(Random::new(seed ^ 1)),
            nodes: Mutex::default(),
            cut: Mutex::default(),
            loss: Mutex::new(0),
            delay_ms: Mutex::new(5),
        };
        Cluster {
            network: Arc::new(network),
            truth: Arc::default(),
            peers: BTreeMap::new(),
            settings: QuorumSettings::default(),
            random: Random::new(seed),
            seed,
            followers: Vec::new(),
        }
    }

    /// Nodes 1 to `voters`, which have begun a cluster together.
    pub(crate) async fn formed(seed: u64, voters: i32) -> Cluster {
        Cluster::formed_with(seed, voters, QuorumSettings::default()).await
    }

    pub(crate) async fn formed_with(seed: u64, voters: i32, settings: QuorumSettings) -> Cluster {
        let mut cluster = Cluster::empty(seed);
        cluster.settings = settings;
        for id in 1..=voters {
            cluster
                .start(id, CrashDisk::new(seed * 100 + id as u64))
                .await;
        }
        let members = cluster.peers.values();
        let members: Vec<(DiskId, Member)> = members
            .map(|p| (p.quorum.disk_id(), member(p.id)))
            .collect();
        cluster.peers[&1]
            .quorum
            .begin(members)
            .await
            .expect("it begins");
        cluster
    }

    pub(crate) async fn start(&mut self, id: i32, disk: CrashDisk) {
        let seam = Arc::new(disk.clone()) as Arc<dyn Disk>;
        let opened = Quorum::open(seam, BrokerId(id), Writes::Inline).expect("the folder opens");
        self.start_opened(id, disk, opened).await;
    }

    pub(crate) async fn start_opened(
        &mut self,
        id: i32,
        disk: CrashDisk,
        opened: riverlog_quorum::Opened,
    ) {
        let dead = Arc::new(AtomicBool::new(false));
        let wire = Wire {
            from: id,
            network: Arc::clone(&self.network),
            dead: Arc::clone(&dead),
        };
        let (sender, steps) = mpsc::unbounded_channel();
        let settings = QuorumSettings {
            seed: self.random.next_u64(),
            ..self.settings.clone()
        };
        let quorum = opened
            .start(settings, Arc::new(wire), sender)
            .await
            .expect("the quorum starts");
        let known = Arc::<Mutex<Known>>::default();
        let follower = follow(
            id,
            steps,
            Arc::clone(&known),
            Arc::clone(&self.truth),
            Arc::clone(&dead),
        );
        self.followers.push(tokio::spawn(follower));
        self.network.nodes.lock().insert(id, quorum.clone());
        self.peers.insert(
            id,
            Peer {
                id,
                disk,
                quorum,
                known,
                dead,
            },
        );
    }

    /// The process is gone at once; what its disk hadn't synced is lost with `power`.
    pub(crate) fn kill(&mut self, id: i32, power: bool) -> CrashDisk {
        let peer = self.peers.remove(&id).expect("it runs");
        peer.dead.store(true, Ordering::Relaxed);
        self.network.nodes.lock().remove(&id);
        let left = match power {
            true => peer.disk.crash(self.random.next_u64()),
            false => peer.disk.kill(),
        };
        peer.disk.power_off();
        let quorum = peer.quorum;
        tokio::spawn(async move { quorum.stop().await });
        left
    }

    pub(crate) async fn restart(&mut self, id: i32, power: bool) {
        let disk = self.kill(id, power);
        self.start(id, disk).await;
    }

    /// Cuts the ways between two groups, both ways.
    pub(crate) fn cut(&self, some: &[i32], others: &[i32]) {
        for a in some {
            for b in others {
                self.network.cut.lock().extend([(*a, *b), (*b, *a)]);
            }
        }
    }

    pub(crate) fn cut_one_way(&self, from: i32, to: i32) {
        self.network.cut.lock().insert((from, to));
    }

    pub(crate) fn heal(&self) {
        self.network.cut.lock().clear();
        *self.network.loss.lock() = 0;
    }

    /// Every step of every node has been as it must be.
    pub(crate) async fn held(&mut self) {
        for follower in self.followers.extract_if(.., |f| f.is_finished()) {
            follower.await.expect("a step breaks a promise");
        }
    }

    pub(crate) async fn pass(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// The node that was told that it leads, if its own view is the newest.
    pub(crate) fn leader(&self) -> Option<i32> {
        let newest = self.peers.values().max_by_key(|p| p.known.lock().term)?;
        let term = newest.known.lock().term;
        let leads = |p: &&Peer| {
            let known = p.known.lock();
            known.term == term && known.leader == Some(p.id)
        };
        self.peers.values().find(leads).map(|p| p.id)
    }

    pub(crate) async fn some_leader(&self) -> i32 {
        for _ in 0..600 {
            if let Some(leader) = self.leader() {
                return leader;
            }
            self.pass(50).await;
        }
        panic!("nobody leads for 30 s (seed {})", self.seed);
    }

    /// Proposes at a node, which must take itself for the leader and have nothing in flight.
    pub(crate) fn propose(&self, at: i32, what: &str) -> bool {
        let peer = &self.peers[&at];
        let mut known = peer.known.lock();
        if known.leader != Some(at) || known.in_flight.is_some() {
            return false;
        }
        known.number += 1;
        let record = Bytes::copy_from_slice(what.as_bytes());
        known.in_flight = Some((known.number, record.clone()));
        peer.quorum.propose(vec![Proposal {
            number: known.number,
            term: known.term,
            records: vec![record],
        }]);
        true
    }

    /// Proposes at whoever leads until it was acknowledged.
    pub(crate) async fn commit(&self, what: &str) {
        for _ in 0..600 {
            let acknowledged = self.truth.lock().acknowledged.contains(what.as_bytes());
            if acknowledged {
                return;
            }
            if let Some(leader) = self.leader() {
                self.propose(leader, what);
            }
            self.pass(50).await;
        }
        panic!("{what} isn't committed within 30 s (seed {})", self.seed);
    }

    /// Waits until all nodes know the same, and everything that was acknowledged.
    pub(crate) async fn agree(&self) {
        for _ in 0..600 {
            let all: Vec<Vec<Bytes>> = self
                .peers
                .values()
                .map(|p| p.known.lock().records.clone())
                .collect();
            let whole = self
                .truth
                .lock()
                .acknowledged
                .iter()
                .all(|one| all.iter().all(|known| known.contains(one)));
            if whole && all.windows(2).all(|pair| pair[0] == pair[1]) {
                return;
            }
            self.pass(50).await;
        }
        panic!("the nodes don't agree within 30 s (seed {})", self.seed);
    }
}

/// Plays the node: takes steps in order, and holds them against what others were told.
async fn follow(
    id: i32,
    mut steps: mpsc::UnboundedReceiver<Step>,
    known: Arc<Mutex<Known>>,
    truth: Arc<Mutex<Truth>>,
    dead: Arc<AtomicBool>,
) {
    while let Some(step) = steps.recv().await {
        if dead.load(Ordering::Relaxed) {
            return;
        }
        let mut known = known.lock();
        let mut truth = truth.lock();
        match step {
            Step::Snapshot(wanted) => wanted.answer(MetadataSnapshot {
                index: known.index,
                position: Offset(known.records.len() as i64),
                records: known.records.clone(),
            }),
            Step::Ended(_) => known.ended = true,
            // What a node makes of its own session; nothing that others must agree with.
            Step::Answered(_) | Step::Event(QuorumEvent::Majority { .. }) => {}
            Step::Event(QuorumEvent::Refused { number }) => {
                known.refused += 1;
                known.in_flight.take_if(|(n, _)| *n == number);
            }
            Step::Event(QuorumEvent::Leader { term, leader }) => {
                assert!(term >= known.term, "terms go back at node {id}");
                if leader == Some(BrokerId(id)) {
                    let before = truth.leaders.insert(term, id);
                    assert!(before.is_none_or(|b| b == id), "two leaders of term {term}");
                    for (index, (of, _)) in &truth.committed {
                        let missing = *of < term && *index > known.index;
                        assert!(
                            !missing,
                            "node {id} leads term {term} without entry {index}"
                        );
                    }
                }
                if (term, leader.map(|l| l.0)) != (known.term, known.leader) {
                    known.in_flight = None;
                }
                (known.term, known.leader) = (term, leader.map(|l| l.0));
                truth.trace.push(format!("{id} leader {term} {leader:?}"));
            }
            Step::Event(QuorumEvent::Snapshot(snapshot)) => {
                if snapshot.index > known.index {
                    known.index = snapshot.index;
                    known.records = snapshot.records;
                    assert_eq!(known.records.len() as i64, snapshot.position.0);
                    known.snapshots += 1;
                    truth
                        .trace
                        .push(format!("{id} snapshot {}", snapshot.index));
                }
            }
            Step::Event(QuorumEvent::Committed {
                index,
                term,
                records,
            }) => {
                if index <= known.index {
                    continue;
                }
                known.index = index;
                known.records.extend(records.iter().cloned());
                truth.trace.push(format!("{id} committed {index} {term}"));
                let here = (term, records);
                let first = truth
                    .committed
                    .entry(index)
                    .or_insert_with(|| here.clone())
                    .clone();
                assert_eq!(first, here, "two entries at {index}");
                if (known.term, known.leader) == (term, Some(id))
                    && let Some((_, record)) = known.in_flight.take()
                {
                    assert_eq!(
                        here.1,
                        std::slice::from_ref(&record),
                        "another entry than the proposed one"
                    );
                    truth.acknowledged.insert(record);
                }
            }
        }
    }
}
