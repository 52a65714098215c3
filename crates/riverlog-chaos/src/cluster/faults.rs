//! The faults (RC-01 to RC-14), one after the other on any of the nodes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{ClusterDrill, NODES, Trio};
use crate::drills::slow_disk::{CONTROL, Throttle};
use crate::server::Server;
use crate::{Failure, Result, broken};

pub(crate) const ALL: &[ClusterDrill] = &[
    drill("cluster-kill", kill),
    drill("cluster-freeze", freeze),
    drill("cluster-one-way", one_way),
    drill("cluster-bridge", bridge),
    drill("cluster-minority", minority),
    drill("cluster-dead-disk", dead_disk),
    drill("cluster-slow-disk", slow_disk),
    drill("cluster-full-disk", full_disk),
    drill("cluster-power", power),
    drill("cluster-mixed", mixed),
];

const fn drill(name: &'static str, run: fn(&mut Trio) -> Result<()>) -> ClusterDrill {
    ClusterDrill {
        name,
        rounds: 2,
        run,
    }
}

/// Plays a fault in each round, and waits until nothing of it is left: the next one may meet any node.
fn rounds(trio: &mut Trio, fault: fn(&mut Trio, u32) -> Result<String>) -> Result<()> {
    let mut told = Vec::new();
    for round in 0..trio.rounds {
        trio.random.pause_ms(200, 1_000);
        let what = fault(trio, round)?;
        if let Err(Failure::Broken(why)) = trio.progress() {
            return broken(format!("after round {round} ({what}): {why}"));
        }
        trio.in_sync()?;
        told.push(what);
    }
    let rounds = told.len();
    let last = told.last().cloned().unwrap_or_default();
    trio.notes
        .push(format!("{rounds} rounds, the last one {last}"));
    Ok(())
}

/// The others go on while something is wrong.
fn others_go_on(trio: &mut Trio, what: &str) -> Result<()> {
    trio.progress().map_err(|failure| match failure {
        Failure::Broken(why) => {
            Failure::Broken(format!("{what}, and the others don't go on: {why}"))
        }
        lacks => lacks,
    })
}

fn kill(trio: &mut Trio) -> Result<()> {
    rounds(trio, kill_one)
}

/// RC-01, and now and then RC-02: all of them.
fn kill_one(trio: &mut Trio, round: u32) -> Result<String> {
    if trio.random.below(4) == 0 {
        trio.fault(&format!("all nodes killed {round}"));
        for node in 1..=NODES {
            trio.kill(node)?;
        }
        for node in 1..=NODES {
            trio.spawn(node)?;
        }
        for node in 1..=NODES {
            trio.answers(node)?;
        }
        return Ok("all nodes killed".to_owned());
    }
    let node = trio.any();
    let what = format!("node {node} killed");
    trio.fault(&format!("{what} {round}"));
    trio.kill(node)?;
    others_go_on(trio, &what)?;
    trio.start(node)?;
    Ok(what)
}

fn freeze(trio: &mut Trio) -> Result<()> {
    rounds(trio, freeze_one)
}

/// A process that stands still and doesn't know it when it goes on.
fn freeze_one(trio: &mut Trio, round: u32) -> Result<String> {
    let node = trio.any();
    let what = format!("node {node} frozen");
    trio.fault(&format!("{what} {round}"));
    trio.server(node)?.freeze()?;
    let others = others_go_on(trio, &what);
    trio.random.pause_ms(0, 3_000);
    trio.server(node)?.thaw();
    others?;
    Ok(what)
}

fn one_way(trio: &mut Trio) -> Result<()> {
    rounds(trio, one_way_cut)
}

/// RC-13: one hears the other, and not the reverse.
fn one_way_cut(trio: &mut Trio, round: u32) -> Result<String> {
    let (from, to) = trio.two();
    let what = format!("nothing from node {from} to node {to}");
    trio.fault(&format!("{what} {round}"));
    trio.net.cut(from, to)?;
    trio.random.pause_ms(1_000, 5_000);
    let others = others_go_on(trio, &what);
    trio.net.heal_all()?;
    others?;
    Ok(what)
}

fn bridge(trio: &mut Trio) -> Result<()> {
    rounds(trio, bridge_cut)
}

/// RC-13: two nodes have only the third in common.
fn bridge_cut(trio: &mut Trio, round: u32) -> Result<String> {
    let (a, b) = trio.two();
    let what = format!("nothing between nodes {a} and {b}");
    trio.fault(&format!("{what} {round}"));
    trio.net.cut(a, b)?;
    trio.net.cut(b, a)?;
    trio.random.pause_ms(1_000, 5_000);
    let others = others_go_on(trio, &what);
    trio.net.heal_all()?;
    others?;
    Ok(what)
}

fn minority(trio: &mut Trio) -> Result<()> {
    rounds(trio, minority_cut)
}

/// RC-14: a node is alone, goes on for itself, and loses its power before it is found again. Clients reach it all the while, and get on.
fn minority_cut(trio: &mut Trio, round: u32) -> Result<String> {
    let node = trio.any();
    let what = format!("node {node} alone and without power");
    trio.fault(&format!("{what} {round}"));
    for other in (1..=NODES).filter(|other| *other != node) {
        trio.net.cut(node, other)?;
        trio.net.cut(other, node)?;
    }
    trio.random.pause_ms(1_000, 5_000);
    let beside = others_go_on(trio, &format!("{what} yet to go"));
    trio.power_cut(&[node])?;
    let without = others_go_on(trio, &what);
    trio.net.heal_all()?;
    trio.start(node)?;
    beside.and(without)?;
    Ok(what)
}

fn power(trio: &mut Trio) -> Result<()> {
    rounds(trio, power_of_all)
}

/// RC-03: all at once.
fn power_of_all(trio: &mut Trio, round: u32) -> Result<String> {
    let what = "the power of all nodes gone";
    trio.fault(&format!("{what} {round}"));
    let all: Vec<usize> = (1..=NODES).collect();
    trio.power_cut(&all)?;
    for node in &all {
        trio.spawn(*node)?;
    }
    for node in &all {
        trio.answers(*node)?;
    }
    Ok(what.to_owned())
}

fn dead_disk(trio: &mut Trio) -> Result<()> {
    rounds(trio, dead_disk_of_one)
}

/// RC-06: every call on a node's disk fails from now on.
fn dead_disk_of_one(trio: &mut Trio, round: u32) -> Result<String> {
    let node = trio.any();
    let what = format!("node {node} without a disk");
    trio.fault(&format!("{what} {round}"));
    trio.node(node)?.disk.shut_down()?;
    let others = others_go_on(trio, &what);
    let ended = trio.server(node)?.ended().is_some();
    trio.kill(node)?;
    let disk = &trio.node(node)?.disk;
    disk.unmount()?;
    disk.mount()?;
    trio.start(node)?;
    others?;
    let how = if ended {
        "which ended"
    } else {
        "which lived on"
    };
    Ok(format!("{what}, {how}"))
}

fn slow_disk(trio: &mut Trio) -> Result<()> {
    if !Path::new(CONTROL).exists() {
        return Err(Failure::Lacks(format!(
            "needs the blkio controller of version 1 control groups at {CONTROL}"
        )));
    }
    rounds(trio, slow_disk_of_one)
}

/// RC-10: a node's disk takes little, and never fails.
fn slow_disk_of_one(trio: &mut Trio, round: u32) -> Result<String> {
    let node = trio.any();
    let what = format!("node {node} with a slow disk");
    trio.fault(&format!("{what} {round}"));
    let slow = Throttle::new(&trio.node(node)?.disk.device()?)?;
    std::thread::sleep(Duration::from_secs(3));
    let others = others_go_on(trio, &what);
    drop(slow);
    others?;
    if trio.server(node)?.ended().is_some() {
        return broken(format!("node {node} ended because its disk was slow"));
    }
    Ok(what)
}

fn full_disk(trio: &mut Trio) -> Result<()> {
    rounds(trio, full_disk_of_one)
}

/// Bytes that a full disk has left for the clients to fill.
const LEFT: u64 = 2 << 20;

/// RC-09: a node's disk is full; it takes no more and serves on, and others lead what it led.
fn full_disk_of_one(trio: &mut Trio, round: u32) -> Result<String> {
    let node = trio.any();
    let what = format!("node {node} with a full disk");
    trio.fault(&format!("{what} {round}"));
    let ballast = trio.node(node)?.disk.mount.join("ballast");
    let file = fs::File::create(&ballast)?;
    let free = rustix::fs::statvfs(&trio.node(node)?.disk.mount)?;
    let free = free.f_bavail * free.f_frsize;
    let most = free.saturating_sub(LEFT);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, most)?;
    trio.random.pause_ms(1_000, 4_000);
    let others = others_go_on(trio, &what);
    drop(file);
    fs::remove_file(&ballast)?;
    others?;
    if trio.server(node)?.ended().is_some() {
        return broken(format!("node {node} ended because its disk was full"));
    }
    Ok(what)
}

/// Any of them after the other.
fn mixed(trio: &mut Trio) -> Result<()> {
    rounds(trio, |trio, round| {
        let all: [fn(&mut Trio, u32) -> Result<String>; 8] = [
            kill_one,
            freeze_one,
            one_way_cut,
            bridge_cut,
            minority_cut,
            power_of_all,
            dead_disk_of_one,
            full_disk_of_one,
        ];
        let which = trio.random.below(all.len() as u64) as usize;
        match all.get(which) {
            Some(fault) => fault(trio, round),
            None => kill_one(trio, round),
        }
    })
}

impl Server {
    /// It goes on where it was stopped.
    fn thaw(&self) {
        crate::system::signal(self.pid(), rustix::process::Signal::CONT);
    }
}
