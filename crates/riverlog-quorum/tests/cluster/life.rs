//! A short life of a cluster with random faults; what holds at every step is checked while it runs (`common::follow`).

use crate::common::{Cluster, story};
use riverlog_log::disk::Random;
use riverlog_quorum::QuorumSettings;

/// One life: faults for a while, then healing, then everybody must agree and go on.
async fn life(seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let voters = if random.chance(1, 2) { 3 } else { 5 };
    let settings = QuorumSettings {
        snapshot_after: 5 + random.below(30),
        keep: random.below(5),
        ..QuorumSettings::default()
    };
    let mut cluster = Cluster::formed_with(seed, voters, settings).await;
    *cluster.network.delay_ms.lock() = 1 + random.below(60);
    let ids: Vec<i32> = (1..=voters).collect();
    let mut down = Vec::new();
    for turn in 0..30 {
        let one = ids[random.below(ids.len() as u64) as usize];
        let other = ids[random.below(ids.len() as u64) as usize];
        match random.below(12) {
            0 if !down.iter().any(|(id, _)| *id == one) => {
                let power = random.chance(1, 2);
                let disk = cluster.kill(one, power);
                if !power {
                    for peer in cluster.peers.values() {
                        peer.quorum.gone(riverlog_wire::BrokerId(one));
                    }
                }
                down.push((one, disk));
            }
            1 | 2 => {
                if let Some((id, disk)) = down.pop() {
                    cluster.start(id, disk).await;
                }
            }
            3 => {
                let some: Vec<i32> = ids
                    .iter()
                    .copied()
                    .filter(|_| random.chance(1, 2))
                    .collect();
                let rest: Vec<i32> = ids
                    .iter()
                    .copied()
                    .filter(|id| !some.contains(id))
                    .collect();
                cluster.cut(&some, &rest);
            }
            4 => cluster.cut_one_way(one, other),
            5 => *cluster.network.loss.lock() = random.below(40),
            6 => cluster.heal(),
            // All lose their power at once.
            7 if random.chance(1, 4) => {
                let up: Vec<i32> = cluster.peers.keys().copied().collect();
                for id in up {
                    let disk = cluster.kill(id, true);
                    down.push((id, disk));
                }
            }
            // Some take a node for gone that may be up.
            8 => {
                for peer in cluster.peers.values() {
                    if random.chance(2, 3) {
                        peer.quorum.gone(riverlog_wire::BrokerId(one));
                    }
                }
            }
            _ => {}
        }
        for n in 0..3 {
            let at: Vec<i32> = cluster.peers.keys().copied().collect();
            for id in at {
                cluster.propose(id, &format!("{turn}-{n}-{id}"));
            }
            cluster.pass(random.below(700)).await;
        }
    }
    cluster.heal();
    for (id, disk) in down {
        cluster.start(id, disk).await;
    }
    cluster.commit("healed").await;
    cluster.agree().await;
    cluster.held().await;
    let truth = cluster.truth.lock();
    truth.trace.clone()
}

pub(crate) fn run(seed: u64) -> Vec<String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    story(async move {
        sender.send(life(seed).await).expect("somebody waits");
    });
    receiver.recv().expect("it has lived")
}
