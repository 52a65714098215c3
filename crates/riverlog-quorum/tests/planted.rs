//! Planted faults of the quorum: short lives are played until one notices. By itself in a process, since a fault is planted in all of it.

#[path = "cluster/common.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod common;
#[path = "cluster/life.rs"]
mod life;

use std::panic::catch_unwind;

use riverlog_mutants::{Mutant, Stage, plant};

/// Lives within which each is noticed.
const SEEDS: u64 = 200;

#[test]
#[ignore = "takes a while; `cargo xtask mutants --cluster` runs it"]
fn planted_faults_are_noticed() {
    // What a planted fault breaks isn't news.
    std::panic::set_hook(Box::new(|_| {}));
    let of_quorum = Mutant::ALL.iter().filter(|m| m.stage() == Stage::Quorum);
    let mut missed = Vec::new();
    for mutant in of_quorum {
        plant(Some(*mutant));
        let noticed = (0..SEEDS).find(|seed| catch_unwind(|| life::run(*seed)).is_err());
        match noticed {
            Some(seed) => println!(
                "| {} | {} | the promises of the seam | {seed} | |",
                mutant.name(),
                mutant.doc().trim()
            ),
            None => missed.push(mutant.name()),
        }
    }
    plant(None);
    assert_eq!(missed, [""; 0], "nobody noticed");
}
