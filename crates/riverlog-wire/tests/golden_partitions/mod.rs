//! 10,000 random keys, and where Kafka's own Java client puts each: made by `MakePartitions.java` (kafka-clients 4.4.0). Tests of the doors
//! include this file too.

/// A key with its partition of 12 and of 1,000.
pub(crate) struct Placed {
    pub(crate) key: &'static [u8],
    pub(crate) of_12: i32,
    pub(crate) of_1000: i32,
}

/// All of them.
pub(crate) fn placed() -> Vec<Placed> {
    let mut bytes: &[u8] = include_bytes!("partitions.bin");
    let mut placed = Vec::new();
    while let Some((len, rest)) = bytes.split_first() {
        let (key, rest) = rest.split_at(usize::from(*len));
        let ([of_12, high, low], rest) = rest.split_first_chunk().expect("two partitions");
        placed.push(Placed {
            key,
            of_12: i32::from(*of_12),
            of_1000: i32::from(u16::from_be_bytes([*high, *low])),
        });
        bytes = rest;
    }
    assert_eq!(placed.len(), 10_000);
    placed
}
