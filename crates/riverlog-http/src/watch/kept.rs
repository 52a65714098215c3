//! What was seen, as bytes for a file: docs/format/history.md. The values of the coarse step and the changes of groups are kept through
//! a restart; those of the last hour at ten seconds are not.

use std::collections::VecDeque;

use crc_fast::{CrcAlgorithm, checksum};
use riverlog_wire::TopicId;

use super::rings::{COARSE_OF, Ring, STEP};
use super::{DAY, EVENTS, Event, Known, MONTH, MOST, SERIES};

const MAGIC: &[u8; 4] = b"RLHI";
const VERSION: u16 = 1;
/// No file is larger, and what is larger is none of ours.
pub(crate) const LARGEST: usize = 8 << 20;
/// Bytes that changes of groups may take in it; what is more is left out.
const EVENT_BYTES: usize = 2 << 20;
/// Bytes of an entry besides its name and value, and of the sum at the end.
const HEADER: usize = 7 + 4;

const SERIES_OF_NODE: u8 = 1;
const RATE_OF_TOPIC: u8 = 2;
const LAG_OF_GROUP: u8 = 3;
const CHANGES_OF_GROUP: u8 = 4;

impl Known {
    /// All that is kept.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.at.to_be_bytes());
        out.extend_from_slice(&self.look.to_be_bytes());
        for (name, ring) in &self.node {
            entry(&mut out, SERIES_OF_NODE, name.as_bytes(), &ring.encode());
        }
        for (topic, ring) in &self.rates {
            entry(&mut out, RATE_OF_TOPIC, &topic.0, &ring.encode());
        }
        // A group's name may have 32 kB: then not all fit.
        let fits = |out: &Vec<u8>, name: &str, value: &[u8], most: usize| {
            out.len() + name.len() + value.len() + HEADER <= most
        };
        for (group, ring) in &self.lags {
            let ring = ring.encode();
            if fits(&out, group, &ring, LARGEST - EVENT_BYTES) {
                entry(&mut out, LAG_OF_GROUP, group.as_bytes(), &ring);
            }
        }
        let most = LARGEST.min(out.len() + EVENT_BYTES);
        for (group, events) in &self.events {
            // Text and numbers always have a JSON form.
            let json = serde_json::to_vec(events).unwrap_or_default();
            if fits(&out, group, &json, most) {
                entry(&mut out, CHANGES_OF_GROUP, group.as_bytes(), &json);
            }
        }
        let crc = crc(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out
    }

    /// What an earlier run kept, as it is at `now` (ms since the epoch): the looks between were missed. `None` when these aren't such
    /// bytes, or are damaged or too old to say anything.
    pub(super) fn decode(bytes: &[u8], now: i64) -> Option<Known> {
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        if bytes.len() > LARGEST || crc(body) != u32::from_be_bytes(*sum) {
            return None;
        }
        let mut from = Bytes(body);
        if from.take(4)? != MAGIC || from.u16()? != VERSION || from.u16()? != 0 {
            return None;
        }
        let (at, look) = (from.u64()?.cast_signed(), from.u64()?);
        let step = STEP.as_millis() as u64;
        // A clock that went back has missed nothing.
        let missed = u64::try_from(now.saturating_sub(at)).unwrap_or(0) / step;
        if missed > MONTH as u64 * COARSE_OF {
            return None;
        }
        let mut known = Known {
            look: look.checked_add(missed)?,
            at: now,
            ..Known::default()
        };
        while !from.0.is_empty() {
            let kind = from.take(1)?.first().copied()?;
            let name = from.u16()?;
            let name = from.take(usize::from(name))?;
            let len = usize::try_from(from.u32()?).ok()?;
            let value = from.take(len)?;
            let text = || std::str::from_utf8(name).ok().map(str::to_owned);
            match kind {
                SERIES_OF_NODE => {
                    // A series that an earlier release had and this one hasn't is let go.
                    if let Some(name) = SERIES.iter().find(|s| s.as_bytes() == name) {
                        known.node.insert(name, Ring::decode(value, MONTH, look)?);
                    }
                }
                RATE_OF_TOPIC if known.rates.len() < MOST => {
                    let topic = TopicId(name.try_into().ok()?);
                    known.rates.insert(topic, Ring::decode(value, DAY, look)?);
                }
                LAG_OF_GROUP if known.lags.len() < MOST => {
                    known.lags.insert(text()?, Ring::decode(value, DAY, look)?);
                }
                CHANGES_OF_GROUP if known.events.len() < MOST => {
                    let mut events: VecDeque<Event> = serde_json::from_slice(value).ok()?;
                    events.truncate(EVENTS);
                    known.events.insert(text()?, events);
                }
                _ => {}
            }
        }
        Some(known)
    }
}

/// A kind, a name and a value with their lengths. A name is an id, one of ours, or a group's, which Kafka's protocol bounds.
fn entry(out: &mut Vec<u8>, kind: u8, name: &[u8], value: &[u8]) {
    let (Ok(name_len), Ok(len)) = (u16::try_from(name.len()), u32::try_from(value.len())) else {
        return;
    };
    out.push(kind);
    out.extend_from_slice(&name_len.to_be_bytes());
    out.extend_from_slice(name);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
}

fn crc(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Takes bytes from the front.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.array()?))
    }
    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.array()?))
    }
    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.array()?))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::seen::{SeenGroup, SeenTopic};
    use super::*;

    /// Ten minutes of a topic and a group.
    fn known() -> Known {
        let mut known = Known::default();
        for n in 0..60 {
            let topic = SeenTopic {
                written: n * 1_000,
                ..SeenTopic::default()
            };
            let group = SeenGroup {
                state: "Stable",
                generation: 3,
                members: vec!["m".to_owned()],
                lags: [("t".to_owned(), n)].into(),
                ..SeenGroup::default()
            };
            let counters = [("bytes_in_total", n as f64 * 500.0)].into();
            known.add(
                n * 10_000,
                counters,
                [(TopicId([7; 16]), topic)].into(),
                Some([("g".to_owned(), group)].into()),
            );
        }
        known
    }

    #[test]
    fn the_past_survives_a_restart_with_a_gap_where_nobody_looked() {
        let before = known();
        let bytes = before.encode();
        // Twenty minutes later.
        let mut after = Known::decode(&bytes, before.at + 1_200_000).unwrap();
        assert_eq!(after.look, 60 + 120);
        let rate = |known: &Known, count| known.rates[&TopicId([7; 16])].coarse(known.look, count);
        assert_eq!(rate(&before, 2), [Some(100.0), Some(100.0)]);
        let gap = [Some(100.0), Some(100.0), None, None, None, None];
        assert_eq!(rate(&after, 6), gap);
        assert_eq!(after.node["bytes_in"].coarse(after.look, 6)[1], Some(50.0));
        assert_eq!(after.events, before.events);
        // The first look sees what all the log holds: that wasn't written in the last seconds.
        let topic = SeenTopic {
            written: 1_000_000,
            ..SeenTopic::default()
        };
        let group = SeenGroup {
            state: "Stable",
            generation: 3,
            members: vec!["m".to_owned()],
            ..SeenGroup::default()
        };
        let groups = [("g".to_owned(), group)];
        after.add(
            before.at + 1_210_000,
            BTreeMap::new(),
            [(TopicId([7; 16]), topic)].into(),
            Some(groups.clone().into()),
        );
        assert_eq!(after.node["records_in"].fine(after.look, 1), [None]);
        // And a group that is as it was has not changed.
        assert_eq!(after.events, before.events);
        let [(name, mut group)] = groups;
        group.generation = 4;
        let mut other = Known::decode(&bytes, before.at).unwrap();
        other.add(
            0,
            BTreeMap::new(),
            BTreeMap::new(),
            Some([(name, group)].into()),
        );
        assert_eq!(other.events["g"].len(), before.events["g"].len() + 1);
    }

    #[test]
    fn bytes_that_are_not_what_was_kept_are_nothing() {
        let known = known();
        let bytes = known.encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Known::decode(&damaged, known.at).is_none(), "{at}");
            assert!(Known::decode(&bytes[..at], known.at).is_none(), "{at}");
        }
        // Sound sums over nonsense.
        for at in 0..bytes.len() - 4 {
            let mut odd = bytes[..at].to_vec();
            odd.extend_from_slice(&crc(&odd).to_be_bytes());
            Known::decode(&odd, known.at);
            let mut odd = bytes[..bytes.len() - 4].to_vec();
            odd[at] = 0xff;
            odd.extend_from_slice(&crc(&odd).to_be_bytes());
            Known::decode(&odd, known.at);
        }
        // Older than anything that is shown; and from a clock that was ahead.
        let month = MONTH as i64 * 300_000;
        assert!(Known::decode(&bytes, known.at + month + 20_000).is_none());
        assert_eq!(Known::decode(&bytes, 0).unwrap().look, known.look);
    }

    #[test]
    fn the_largest_past_fits_into_its_bound() {
        let mut known = Known {
            look: MONTH as u64 * COARSE_OF,
            ..Known::default()
        };
        let full = |keeps: usize| {
            let mut ring = Ring::new(keeps);
            ring.put(1, Some(1.0));
            ring.put(keeps as u64 * COARSE_OF, Some(1.0));
            ring
        };
        for name in SERIES {
            known.node.insert(name, full(MONTH));
        }
        for n in 0..MOST {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(n as u64).to_be_bytes());
            known.rates.insert(TopicId(id), full(DAY));
            let name = format!("{n:0>1000}");
            known.lags.insert(name.clone(), full(DAY));
            let event = Event {
                at: 1,
                state: "Stable".into(),
                generation: 1,
                members: 9,
                joined: vec!["m".repeat(60); 9],
                left: Vec::new(),
            };
            known.events.insert(name, vec![event; EVENTS].into());
        }
        let bytes = known.encode();
        assert!(bytes.len() < LARGEST, "{}", bytes.len());
        assert_eq!(Known::decode(&bytes, 0).unwrap().rates.len(), MOST);
    }
}
