//! The fuzz targets without a fuzzer: what is kept in `fuzz/seeds`, and changes of it drawn from a number.
//!
//! `RIVERLOG_FUZZ_SEED` is that number, and `RIVERLOG_FUZZ_SECONDS` how long all targets together may take; without them it is the
//! same few hundred changes each time. `cargo xtask fuzz` runs the targets guided by coverage.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use riverlog_log::disk::Random;

#[path = "../../../fuzz/src/lib.rs"]
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "some of it is for fuzz/examples"
)]
mod targets;

type Target = fn(&[u8]);

const TARGETS: &[(&str, Target)] = &[
    ("batch", targets::batch),
    ("records", targets::records),
    ("compression", targets::compression),
    ("requests", targets::requests),
    ("responses", targets::responses),
    ("index", targets::index),
    ("timeindex", targets::timeindex),
    ("epochs", targets::epochs),
    ("snapshot", targets::snapshot),
    ("check", targets::check),
    ("metadata", targets::metadata),
    ("offsets", targets::offsets),
    ("folder", targets::folder),
];

/// Changes for each target when no time is given.
const CHANGES: u64 = 300;
/// The longest input.
const MOST_BYTES: usize = 8 << 10;

/// A number of the environment.
fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_target_takes_its_seeds_and_changes_of_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let seed = given("RIVERLOG_FUZZ_SEED").unwrap_or(1);
    let each =
        given("RIVERLOG_FUZZ_SECONDS").map(|s| Duration::from_secs(s) / TARGETS.len() as u32);
    for (name, target) in TARGETS {
        let seeds = kept(&folder.join(name));
        for input in &seeds {
            play(name, *target, input);
        }
        let (mut random, begun) = (Random::new(seed), Instant::now());
        let mut played = 0;
        while each.map_or(played < CHANGES, |each| begun.elapsed() < each) {
            play(name, *target, &changed(&seeds, &mut random));
            played += 1;
        }
        println!(
            "fuzz: {name}: {} seeds, {played} changes of them (from {seed})",
            seeds.len()
        );
    }
}

/// The inputs of a folder, in an order that doesn't change; none for targets without.
fn kept(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// A finding is kept as a file that the fuzzer's programs take.
fn play(name: &str, target: Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.finding"));
        std::fs::write(&path, input).unwrap();
        eprintln!(
            "the target {name} fails with the input in {}",
            path.display()
        );
        resume_unwind(panic);
    }
}

/// An input with a few changes.
fn changed(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = match seeds.len() {
        0 => {
            let mut bytes = vec![0; random.below(300) as usize];
            random.fill(&mut bytes);
            bytes
        }
        n => seeds[random.below(n as u64) as usize].clone(),
    };
    for _ in 0..1 + random.below(6) {
        change(&mut bytes, seeds, random);
        bytes.truncate(MOST_BYTES);
    }
    bytes
}

/// Numbers that are at an edge of something.
const EDGES: [i32; 12] = [
    0,
    1,
    -1,
    2,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    i32::MAX,
    i32::MIN,
];

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let mut below = |n: usize| random.below(n as u64) as usize;
    let len = bytes.len();
    if len == 0 {
        bytes.push(below(256) as u8);
        return;
    }
    let at = below(len);
    match below(8) {
        0 => bytes[at] ^= 1 << below(8),
        1 => bytes[at] = below(256) as u8,
        2 => {
            let edge = EDGES[below(EDGES.len())].to_be_bytes();
            let width = [1, 2, 4][below(3)];
            for (byte, edge) in bytes[at..].iter_mut().zip(&edge[4 - width..]) {
                *byte = *edge;
            }
        }
        3 => drop(bytes.drain(at..(at + 1 + below(16)).min(len))),
        4 => bytes.truncate(at),
        5 => bytes.insert(at, below(256) as u8),
        6 => {
            let part = bytes[at..(at + 1 + below(64)).min(len)].to_vec();
            let to = below(len);
            bytes.splice(to..to, part);
        }
        _ => {
            let other = match seeds.len() {
                0 => return,
                n => &seeds[below(n)],
            };
            let from = below(other.len().max(1)).min(other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}
