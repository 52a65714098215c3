//! Networks for brokers that are to be cut off, held by `riverlog-nets` (of the crate `riverlog-chaos`); for root.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::Child;

use crate::Result;
use crate::broker::Broker;
use crate::place;
use crate::run::{cargo, program};

/// Where one broker is.
pub(crate) struct Net {
    pub(crate) address: IpAddr,
    /// What joins it to all others and to clients.
    link: String,
    /// What a program in it is started with.
    pub(crate) under: Vec<String>,
}

/// Networks that are there until this is dropped.
pub(crate) struct Nets {
    pub(crate) all: Vec<Net>,
    holder: Child,
}

impl Nets {
    pub(crate) fn new(nodes: usize) -> Result<Nets> {
        cargo()
            .args(["build", "--quiet", "--locked", "--bin", "riverlog-nets"])
            .args(["--package", "riverlog-chaos"])
            .limit(900)
            .output()?;
        let mut holder = program(place::target().join("debug/riverlog-nets"))
            .args(["--nodes", &nodes.to_string()])
            .spawn_piped()?;
        let said = holder.stdout.take().ok_or("no output of riverlog-nets")?;
        let mut nets = Nets {
            all: Vec::new(),
            holder,
        };
        for line in BufReader::new(said).lines().take(nodes) {
            let line = line?;
            let mut words = line.split(' ').map(str::to_owned);
            let (address, link) = (words.next(), words.next());
            let (Some(Ok(address)), Some(link)) = (address.map(|a| a.parse()), link) else {
                return Err(line.into());
            };
            nets.all.push(Net {
                address,
                link,
                under: words.collect(),
            });
        }
        match nets.all.len() == nodes {
            true => Ok(nets),
            false => Err("riverlog-nets made too few networks".into()),
        }
    }

    /// `LINK@PORT,…`, as the program that cuts brokers off takes it.
    pub(crate) fn links(&self, brokers: &[Broker]) -> String {
        let each = self.all.iter().zip(brokers);
        let each = each.map(|(net, broker)| format!("{}@{}", net.link, broker.port()));
        each.collect::<Vec<_>>().join(",")
    }
}

impl Drop for Nets {
    fn drop(&mut self) {
        // The end of its input tells it to remove them.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}
