//! `Idempotency-Key`: exactly once for callers that keep no count.
//!
//! The key becomes a producer of its own, whose one batch the partition remembers as it remembers those of Kafka's producers: replicated,
//! through restarts, for an hour. The content becomes the batch's sequence, so that another content under the same
//! key is noticed.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId, Sequence};
use siphasher::sip::SipHasher13;

use super::{Options, Producer};
use crate::door::{Call, HttpDoor};
use crate::problem::Problem;

/// The longest key.
const LONGEST: usize = 255;
/// How the remembered hour is cut for counting.
const SLICE: Duration = Duration::from_secs(60);

/// A key, and what it was sent with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    hash: u64,
}

/// How many keys were taken, minute by minute: a partition remembers each for an hour, and memory is bounded.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Minute, and keys of that minute.
    slices: VecDeque<(u64, usize)>,
    sum: usize,
}

impl Taken {
    fn take(&mut self, now: Duration, most: usize) -> bool {
        let minute = now.as_secs() / SLICE.as_secs();
        let remembered =
            u64::try_from(ProducerId::KEYED_FOR_MS).unwrap_or(0) / 1000 / SLICE.as_secs();
        while let Some((_, keys)) = self
            .slices
            .pop_front_if(|(at, _)| *at + remembered < minute)
        {
            self.sum -= keys;
        }
        if self.sum >= most {
            return false;
        }
        match self.slices.back_mut() {
            Some((at, keys)) if *at == minute => *keys += 1,
            _ => self.slices.push_back((minute, 1)),
        }
        self.sum += 1;
        true
    }
}

impl Key {
    /// The key of a request, if it has one.
    pub(super) fn of(call: &Call) -> Result<Option<Key>, Problem> {
        let Some(key) = call.header("idempotency-key")? else {
            return Ok(None);
        };
        // The draft of the header writes it as a quoted string; most clients don't.
        let key = key.trim_matches('"');
        if key.is_empty() || key.len() > LONGEST {
            return Err(Problem::bad_request(format!(
                "the header Idempotency-Key must have 1 to {LONGEST} characters"
            )));
        }
        let mut hasher = hasher(&call.door);
        hasher.write(key.as_bytes());
        Ok(Some(Key {
            hash: hasher.finish(),
        }))
    }

    /// The partition of records without a key: always the same one.
    pub(super) fn partition(self, partitions: usize) -> i32 {
        let count = u64::try_from(partitions.max(1)).unwrap_or(1);
        i32::try_from((self.hash >> 8) % count).unwrap_or(0)
    }

    /// The producer that it stands for.
    pub(super) fn producer(self, door: &HttpDoor, content: u64) -> Result<Producer, Problem> {
        let most = door.settings.max_idempotency_keys;
        if !door.keys.lock().take(door.now().mono, most) {
            return Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many-idempotency-keys",
                "more idempotency keys than can be remembered",
                format!("{most} keys came within an hour, and each is remembered for an hour"),
            )
            .hint("use a producer id with a sequence (POST /v1/producers): one for all requests of a writer")
            .retry(60_000));
        }
        let id = ProducerId::KEYED.0 | (self.hash & (u64::MAX >> 3)).cast_signed();
        Ok(Producer {
            id: ProducerId(id),
            epoch: ProducerEpoch(0),
            sequence: Sequence(i32::try_from(content & 0x7fff_ffff).unwrap_or(0)),
            transactional_id: None,
        })
    }
}

/// What a request says, as a number: body, and the headers and options that make records of it.
pub(super) fn content(door: &HttpDoor, headers: &HeaderMap, options: &Options, body: &[u8]) -> u64 {
    let mut hasher = hasher(door);
    let mut add = |bytes: &[u8]| {
        hasher.write_usize(bytes.len());
        hasher.write(bytes);
    };
    for (name, value) in headers {
        if name.as_str().starts_with("riverlog-") || name == "content-type" {
            add(name.as_str().as_bytes());
            add(value.as_bytes());
        }
    }
    add(format!("{:?}", options.embed).as_bytes());
    add(body);
    hasher.finish()
}

/// Keyed with the cluster: what a key becomes is the same on each node and after each start, and elsewhere another.
fn hasher(door: &HttpDoor) -> SipHasher13 {
    let image = door.node.image();
    let mut cluster = SipHasher13::new();
    cluster.write(image.cluster_id.as_bytes());
    let key = cluster.finish();
    SipHasher13::new_with_keys(key, !key)
}

/// Another content under a key that was used.
pub(super) fn reused(problem: Problem) -> Problem {
    if !problem.is("out-of-order-sequence") {
        return problem;
    }
    Problem::unprocessable(
        "idempotency-key-reused",
        "this Idempotency-Key came with another content before; nothing was stored",
    )
    .hint(
        "draw a new key for each new request, and send the old one only with the very same request",
    )
    .of_kafka(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_over_an_hour() {
        let mut taken = Taken::default();
        let minute = |n: u64| Duration::from_secs(n * 60);
        for n in 0..10 {
            assert!(taken.take(minute(n), 10));
        }
        assert!(!taken.take(minute(30), 10));
        assert!(taken.take(minute(61), 10));
        assert!(!taken.take(minute(61), 10));
        assert!(taken.take(minute(200), 10));
        assert_eq!((taken.sum, taken.slices.len()), (1, 1));
    }
}
