//! Becoming part of a quorum: beginning one with others, or being taken in. And staying a member that the others find: one that was moved says where
//! it is.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use riverlog_quorum::forming::{Decision, Introduction, decide};
use riverlog_quorum::{QuorumError, Status};

use super::Cluster;
use super::dial;

/// How often the seeds are asked who they are, until this node is a member.
const LOOK: Duration = Duration::from_millis(200);

/// How often it is looked at where the others know this node to be.
const KNOWN: Duration = Duration::from_secs(1);
/// How long nothing may be heard at the address that the others know, and nobody refuses there either, until another one is said: its name may not lead
/// here yet, or not from here.
const UNHEARD: Duration = Duration::from_secs(30);

/// Makes this node a member of a quorum, and keeps the others knowing where it is.
pub(super) async fn form(cluster: &Cluster) {
    join(cluster).await;
    stay_found(cluster).await;
}

/// Says to whoever leads where this node is, whenever the members know another address: what is passed on to it goes there.
async fn stay_found(cluster: &Cluster) {
    let mut places = Places::default();
    let mut said = None;
    loop {
        let status = cluster.status();
        let own = status.members.iter().find(|m| m.disk == cluster.disk_id);
        if let Some(known) = own.map(|m| &m.member.address)
            && *known != cluster.me().address
            && !places.lead_here(cluster, known).await
        {
            say_where(cluster, &status, known, &mut said).await;
        }
        tokio::time::sleep(KNOWN).await;
    }
}

/// What has been seen of addresses that the others know this node by.
#[derive(Default)]
struct Places {
    /// Where it has found itself: a node may be named in several ways.
    here: BTreeSet<String>,
    /// Where nothing is heard, and since when.
    unheard: Option<(String, Instant)>,
}

impl Places {
    /// Whether the address that the others know is one of this node, as far as can be told from here.
    async fn lead_here(&mut self, cluster: &Cluster, known: &str) -> bool {
        let before = self.unheard.take();
        if !self.here.contains(known) {
            // All of them, so that its own name among them is known afterwards.
            let seeds = ask_all(cluster).await.into_iter().flatten();
            let own = seeds.filter(|one| one.disk == cluster.disk_id);
            self.here.extend(own.map(|one| one.member.address));
        }
        if self.here.contains(known) {
            return true;
        }
        // That is what the seeds call it.
        if cluster.own_seed.get().is_some() {
            return false;
        }
        match dial::connect(cluster, known).await {
            Ok((hello, _, _)) if hello.who.disk == cluster.disk_id => {
                self.here.insert(known.to_owned());
                true
            }
            Ok(_) => false,
            Err(error) if error.is_nobody() => false,
            Err(_) => {
                let since = before.filter(|(address, _)| address == known);
                let since = since.map_or_else(Instant::now, |(_, since)| since);
                self.unheard = Some((known.to_owned(), since));
                since.elapsed() < UNHEARD
            }
        }
    }
}

/// Asks the leader to take this node's address over. What comes to nothing is tried again at the next look.
async fn say_where(cluster: &Cluster, status: &Status, known: &str, said: &mut Option<String>) {
    let me = cluster.me();
    let mut voters = status.members.iter().filter(|m| m.voter);
    let leads = voters.find(|m| Some(m.member.broker) == status.leader);
    let (Some(leader), Some(quorum)) = (leads, cluster.quorum.get()) else {
        return;
    };
    // The seeds have been asked meanwhile: one of them may have been this node, known by that name.
    if me.address.is_empty() || me.address == known {
        return;
    }
    let words = format!(
        "the others know this node at {known}; telling them that it is at {}",
        me.address
    );
    if said.as_ref() != Some(&words) {
        tracing::info!("{words}");
        *said = Some(words);
    }
    let asked = quorum.join(leader.disk, leader.member.broker, me);
    if let Err(error) = asked.await {
        tracing::debug!("{}: {error}", leader.member.address);
    }
}

/// Returns once this node is a member of a quorum.
async fn join(cluster: &Cluster) {
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
