//! Measurements of several brokers.

use std::fs;
use std::path::Path;

use super::cap::Cap;
use super::list::Target;
use super::{Measures, parse, put};
use crate::Result;
use crate::broker::{self, Broker, Kind, Spec};
use crate::nets::Nets;
use crate::place::Scratch;
use crate::proc;
use crate::run::program;

/// A program that is given the addresses of several brokers.
pub(super) struct Cluster {
    pub(super) target: Target,
    pub(super) nodes: usize,
    /// The share of a core that each may use.
    pub(super) core: Option<f64>,
    /// Each on a network of its own.
    pub(super) apart: bool,
}

impl Cluster {
    /// One run: its measures, and the brokers' CPU and memory.
    pub(super) fn once(&self, kind: Kind, scratch: &Scratch, binary: &Path) -> Result<Measures> {
        let dir = scratch.path().join(format!("{kind}-cluster"));
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        // Dropped after the brokers.
        let nets = match self.apart {
            true => Some(Nets::new(self.nodes)?),
            false => None,
        };
        let on = nets.as_ref().map_or(&[][..], |nets| &nets.all);
        let brokers = Spec::start_cluster(kind, &dir, self.nodes, &[], on)?;
        let links = nets.as_ref().map(|nets| nets.links(&brokers));
        let each = brokers.iter().map(|b| (b, proc::cpu_seconds(b.pid())));
        let before: Vec<_> = each.collect();
        let caps: Vec<Cap> = match self.core {
            None => Vec::new(),
            Some(core) => brokers
                .iter()
                .map(|b| Cap::new(b.pid(), core))
                .collect::<Result<_>>()?,
        };
        let addresses: Vec<String> = brokers.iter().map(Broker::bootstrap).collect();
        let said = program(binary)
            .env("BROKER_PIDS", broker::pids(&brokers))
            .env("BROKER_LINKS", links.unwrap_or_default())
            .args(self.target.args)
            .arg(addresses.join(","))
            .limit(600)
            .output();
        let mut measures = parse(&said?)?;
        // Of those that live.
        let (mut cpu, mut most) = (0.0, 0);
        for (broker, before) in before {
            if let (Ok(before), Ok(now), Ok((_, peak))) = (
                before,
                proc::cpu_seconds(broker.pid()),
                proc::resident_kib(broker.pid()),
            ) {
                cpu += now - before;
                most += peak;
            }
        }
        put(&mut measures, "brokers' CPU", cpu, "s");
        put(
            &mut measures,
            "brokers' memory, most",
            most as f64 / 1024.0,
            "MiB",
        );
        drop(caps);
        Ok(measures)
    }
}
