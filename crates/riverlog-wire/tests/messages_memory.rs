//! How much memory a message may take when it is read: a small multiple of its bytes, whatever counts it announces.

mod golden_messages;

use std::alloc::System;

use bytes::Bytes;
use golden_messages::{Shape, Vector, vectors};
use riverlog_wire::messages::FetchRequest;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::fetch_view::FetchRequestView;
use riverlog_wire::primitives::{Reader, Writer};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes allocated in total while `work` ran, freed ones included: no less than the peak.
fn allocated<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let region = Region::new(ALLOCATOR);
    let done = work();
    let change = region.change();
    (change.bytes_allocated, done)
}

fn vector(of: &Vector, bytes: Vec<u8>) -> Vector {
    Vector {
        bytes: Bytes::from(bytes),
        ..of.clone()
    }
}

/// One test, since the counters are those of the whole process.
#[test]
fn memory_is_bounded_by_the_bytes_that_came() {
    counts_that_lie();
    counts_that_are_true();
    a_fetch_of_1000_partitions_in_place();
}

/// 2³¹−1 as a plain count, 2³²−1 and 2³¹−1 as compact ones, over every byte of every filled vector: so on every
/// array and string, at the top and within.
fn counts_that_lie() {
    for v in vectors().iter().filter(|v| v.shape == Shape::Filled) {
        let bombs: &[&[u8]] = if v.key.is_flexible(v.version) {
            &[
                &[0xff, 0xff, 0xff, 0xff, 0x0f],
                &[0x80, 0x80, 0x80, 0x80, 0x08],
            ]
        } else {
            &[&[0x7f, 0xff, 0xff, 0xff]]
        };
        for at in 0..v.bytes.len() {
            for bomb in bombs {
                let mut bytes = v.bytes[..at].to_vec();
                bytes.extend_from_slice(bomb);
                bytes.extend_from_slice(v.bytes.get(at + bomb.len()..).unwrap_or_default());
                let bombed = vector(v, bytes);
                let (taken, _) =
                    allocated(|| bombed.decode(&mut Reader::shared(&bombed.bytes)).is_ok());
                let limit = WORST_RATIO * bombed.bytes.len();
                assert!(taken <= limit, "{v}, byte {at}: {taken} of {limit}");
            }
        }
    }
}

/// The most memory for a byte received that any message may take.
const WORST_RATIO: usize = 40;

/// Counts as large as the bytes allow, and bytes that are the smallest elements: the dearest sound input.
fn counts_that_are_true() {
    let mut worst = (0, String::new());
    for v in vectors().iter().filter(|v| v.shape == Shape::Filled) {
        // Elements of 1, 2, 3, 6 and 16 bytes each that fill what follows.
        for (count, filler) in [12_000, 6_000, 4_000, 2_000, 750]
            .into_iter()
            .flat_map(|count| [(count, 0), (count, 1)])
        {
            for at in 0..v.bytes.len() {
                let mut bytes = v.bytes[..at].to_vec();
                let mut w = Writer::new(&mut bytes);
                if v.key.is_flexible(v.version) {
                    w.compact_array_len(count);
                } else {
                    w.array_len(count);
                }
                w.finish().unwrap();
                bytes.resize(bytes.len() + 12_000, filler);
                let big = vector(v, bytes);
                let (taken, _) = allocated(|| big.decode(&mut Reader::shared(&big.bytes)).is_ok());
                let ratio = taken / big.bytes.len();
                if ratio > worst.0 {
                    worst = (
                        ratio,
                        format!("{v}, byte {at}, {count} elements, filler {filler}"),
                    );
                }
            }
        }
    }
    println!(
        "worst: {} bytes of memory for a byte received: {}",
        worst.0, worst.1
    );
    assert!(worst.0 <= WORST_RATIO, "{}: {}", worst.0, worst.1);
}

fn a_fetch_of_1000_partitions_in_place() {
    let request = FetchRequest {
        topics: (0..10)
            .map(|topic| FetchTopic {
                topic: format!("orders-{topic}"),
                partitions: (0..100)
                    .map(|partition| FetchPartition {
                        partition,
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    request.encode(&mut w, 12);
    w.finish().unwrap();

    let (taken, seen) = allocated(|| {
        let view = FetchRequestView::decode(&mut Reader::new(&out), 12).unwrap();
        view.topics().map(|t| t.partitions().count()).sum::<usize>()
    });
    assert_eq!((taken, seen), (0, 1000));
}
