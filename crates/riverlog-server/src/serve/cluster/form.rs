//! Becoming part of a quorum: beginning one with others, or being taken in.

use std::time::Duration;

use riverlog_quorum::QuorumError;
use riverlog_quorum::forming::{Decision, Introduction, decide};

use super::Cluster;
use super::dial;

/// How often the seeds are asked who they are, until this node is a member.
const LOOK: Duration = Duration::from_millis(200);

/// Returns once this node is a member of a quorum.
pub(super) async fn form(cluster: &Cluster) {
    let mut said = None;
    loop {
        let is_member = |m: &riverlog_quorum::MemberStatus| m.disk == cluster.disk_id;
        if cluster.status().members.iter().any(is_member) {
            tracing::info!(disk = %cluster.disk_id, "part of the metadata quorum");
            return;
        }
        let seeds = ask_all(cluster).await;
        let me = cluster.introduction();
        let mut decision = decide(&me, &seeds);
        let led_at = cluster.led_at.lock().clone();
        if let (Decision::Join(members), Some(place)) = (&mut decision, led_at) {
            let known = members.iter().any(|m| m.member.address == place);
            match dial::connect(cluster, &place).await {
                Ok((hello, _, _)) if !known => members.insert(0, hello.who),
                _ => {}
            }
        }
        let Some(quorum) = cluster.quorum.get() else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let words = match &decision {
            Decision::Wait => {
                let seen = seeds.iter().flatten().count();
                format!("waiting for the seeds: {seen} of {} are there", seeds.len())
            }
            Decision::Begin(members) => format!("beginning a cluster of {}", members.len()),
            Decision::Join(_) => "asking to be taken in by a cluster".to_owned(),
            Decision::SameNumber(a, b) => format!(
                "{} and {} both have node.id={}; give each node its own",
                a.member.address, b.member.address, a.member.broker.0
            ),
        };
        if said.as_ref() != Some(&words) {
            match decision {
                Decision::SameNumber(..) => tracing::warn!("{words}"),
                _ => tracing::info!("{words}"),
            }
            said = Some(words);
        }
        match decision {
            Decision::Begin(members) => {
                if let Err(error) = quorum.begin(members).await {
                    tracing::info!("the cluster isn't begun: {error}");
                }
            }
            Decision::Join(members) => {
                for one in members {
                    let at = (one.disk, one.member.broker);
                    match quorum.join(at.0, at.1, cluster.me()).await {
                        Ok(()) => break,
                        // It needn't be one of the seeds.
                        Err(QuorumError::LedAt(place)) => *cluster.led_at.lock() = Some(place),
                        Err(error) => tracing::debug!("{}: {error}", one.member.address),
                    }
                }
            }
            Decision::Wait | Decision::SameNumber(..) => {}
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Who answers at each seed now.
async fn ask_all(cluster: &Cluster) -> Vec<Option<Introduction>> {
    let mut all = Vec::new();
    for seed in &cluster.together.seeds {
        let answer = dial::connect(cluster, seed).await.ok();
        all.push(answer.map(|(hello, _, _)| {
            if hello.who.disk == cluster.disk_id {
                let _ = cluster.own_seed.set(seed.clone());
            }
            // All shall know it by the same name.
            let mut who = hello.who;
            who.member.address.clone_from(seed);
            who
        }));
    }
    all
}
