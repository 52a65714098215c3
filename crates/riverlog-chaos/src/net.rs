//! Nodes on networks of their own: a namespace each, joined by a bridge, on which the clients are too.
//!
//! A direction between two nodes is cut by giving one a wrong hardware address of the other: what it sends is lost on the bridge,
//! and nobody is told.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crate::system::{has, is_root, run};
use crate::{Failure, Result};

/// Nobody has it.
const NOWHERE: &str = "02:00:00:00:00:fe";

/// The networks of a run. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Net {
    /// The process that has made it: part of all names.
    pid: u32,
    nodes: usize,
}

/// What it needs; an error that names it.
pub(crate) fn needs() -> Result<()> {
    if !is_root() {
        return Err(Failure::Lacks(
            "needs root, to make network namespaces: run it as root".into(),
        ));
    }
    for program in ["ip", "nsenter"] {
        if !has(program) {
            return Err(Failure::Lacks(format!(
                "needs {program} (packages iproute2 and util-linux)"
            )));
        }
    }
    Ok(())
}

fn ip(words: &str) -> Result<()> {
    let words: Vec<&str> = words.split(' ').collect();
    run("ip", &words).map(drop)
}

impl Net {
    pub(crate) fn new(nodes: usize) -> Result<Net> {
        needs()?;
        sweep();
        let net = Net {
            pid: std::process::id(),
            nodes,
        };
        let lacks = |failure| match failure {
            Failure::Broken(why) | Failure::Lacks(why) => {
                Failure::Lacks(format!("needs network namespaces and bridges: {why}"))
            }
        };
        net.build().map_err(lacks)?;
        Ok(net)
    }

    fn build(&self) -> Result<()> {
        let bridge = self.bridge();
        ip(&format!("link add {bridge} type bridge"))?;
        ip(&format!("addr add {}/24 dev {bridge}", self.address(254)))?;
        ip(&format!("link set {bridge} up"))?;
        for node in 1..=self.nodes {
            let (space, outside) = (self.space(node), self.link(node));
            let (own, hard) = (self.address(node), hardware(node));
            ip(&format!("netns add {space}"))?;
            ip(&format!(
                "link add {outside} type veth peer name eth0 address {hard} netns {space}"
            ))?;
            ip(&format!("link set {outside} master {bridge} up"))?;
            ip(&format!("-n {space} addr add {own}/24 dev eth0"))?;
            ip(&format!("-n {space} link set lo up"))?;
            ip(&format!("-n {space} link set eth0 up"))?;
        }
        (1..=self.nodes).try_for_each(|node| self.heal(node))
    }

    fn bridge(&self) -> String {
        format!("rb{}", self.pid)
    }

    /// By which a node is joined to all others and to the clients.
    pub(crate) fn link(&self, node: usize) -> String {
        format!("rv{}x{node}", self.pid)
    }

    fn space(&self, node: usize) -> String {
        format!("riverlog-{}-{node}", self.pid)
    }

    /// The address of a node; 254 is that of the clients.
    pub(crate) fn address(&self, node: usize) -> IpAddr {
        let subnet = u8::try_from(self.pid % 250).unwrap_or(0);
        let node = u8::try_from(node).unwrap_or(0);
        IpAddr::V4(Ipv4Addr::new(10, 77, subnet, node))
    }

    /// What a program of that node is started with.
    pub(crate) fn under(&self, node: usize) -> Vec<String> {
        // Not `ip netns exec`: that gives it mounts of its own as well, which would hold the other nodes' disks.
        let space = format!("--net=/run/netns/{}", self.space(node));
        vec!["nsenter".to_owned(), space]
    }

    /// Nothing from one node to another arrives.
    pub(crate) fn cut(&self, from: usize, to: usize) -> Result<()> {
        self.neighbour(from, to, NOWHERE)
    }

    /// All that a node says arrives again.
    pub(crate) fn heal(&self, from: usize) -> Result<()> {
        (1..=self.nodes)
            .filter(|to| *to != from)
            .try_for_each(|to| self.neighbour(from, to, &hardware(to)))
    }

    pub(crate) fn heal_all(&self) -> Result<()> {
        (1..=self.nodes).try_for_each(|node| self.heal(node))
    }

    fn neighbour(&self, from: usize, to: usize, hard: &str) -> Result<()> {
        let (space, to) = (self.space(from), self.address(to));
        ip(&format!(
            "-n {space} neigh replace {to} lladdr {hard} dev eth0 nud permanent"
        ))
    }
}

fn hardware(node: usize) -> String {
    format!("02:00:00:00:01:{node:02x}")
}

impl Drop for Net {
    fn drop(&mut self) {
        remove(self.pid, self.nodes);
    }
}

/// Those of a process; what isn't there is no trouble.
fn remove(pid: u32, nodes: usize) {
    for node in 1..=nodes {
        let _ = ip(&format!("netns delete riverlog-{pid}-{node}"));
    }
    let _ = ip(&format!("link delete rb{pid}"));
}

/// Removes what runs left that were killed: names hold the process that made them.
fn sweep() {
    let Ok(entries) = fs::read_dir("/run/netns") else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let words = name.to_str().and_then(|n| n.strip_prefix("riverlog-"));
        let pid = words.and_then(|words| words.split('-').next()?.parse::<u32>().ok());
        if let Some(pid) = pid.filter(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(pid, 9);
        }
    }
}
