//! The newest offset of each key, in bounded memory.

use std::hash::Hasher as _;

use riverlog_wire::Offset;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Bytes that a key takes.
pub(super) const SLOT: usize = size_of::<Slot>();

/// Slots that stay free, of ten: a search that meets none never ends.
const FREE: usize = 1;

/// From the keys' hashes to offsets. The hash has 128 bits and a seed that nobody outside knows, so that two keys with one
/// hash don't happen, also when someone wants them to.
#[derive(Debug)]
pub(super) struct OffsetMap {
    seed: u128,
    slots: Vec<Slot>,
    used: usize,
    most: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    hash: (u64, u64),
    /// Zero: free. So that memory which isn't used isn't touched either.
    offset_plus_1: i64,
}

impl OffsetMap {
    /// Room for `keys` keys, or for as many as `bytes` hold; at least for one.
    pub(super) fn new(bytes: usize, keys: u64, seed: u128) -> OffsetMap {
        let wanted = keys.saturating_add(1).saturating_mul(10) / (10 - FREE as u64);
        let slots = usize::try_from(wanted).unwrap_or(usize::MAX);
        let slots = slots.saturating_add(1).min(bytes / SLOT).max(2);
        OffsetMap {
            seed,
            slots: vec![Slot::default(); slots],
            used: 0,
            most: (slots - slots * FREE / 10).min(slots - 1),
        }
    }

    fn hash(&self, key: &[u8]) -> (u64, u64) {
        let seed = (self.seed as u64, (self.seed >> 64) as u64);
        let mut hasher = SipHasher24::new_with_keys(seed.0, seed.1);
        hasher.write(key);
        let hash = hasher.finish128();
        (hash.h1, hash.h2)
    }

    /// Where the key is, or would be put.
    fn place(&self, hash: (u64, u64)) -> usize {
        let len = self.slots.len();
        let mut at = ((u128::from(hash.0) * len as u128) >> 64) as usize;
        loop {
            match self.slots.get(at) {
                Some(slot) if slot.offset_plus_1 != 0 && slot.hash != hash => {
                    at = (at + 1) % len;
                }
                _ => return at,
            }
        }
    }

    /// The key's newest offset is `offset`. False: there is no room for another key.
    pub(super) fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let hash = self.hash(key);
        let at = self.place(hash);
        let Some(slot) = self.slots.get_mut(at) else {
            return false;
        };
        if slot.offset_plus_1 == 0 {
            if self.used >= self.most {
                return false;
            }
            self.used += 1;
        }
        *slot = Slot {
            hash,
            offset_plus_1: offset.0.saturating_add(1).max(slot.offset_plus_1),
        };
        true
    }

    /// The key's newest offset.
    pub(super) fn get(&self, key: &[u8]) -> Option<Offset> {
        let slot = self.slots.get(self.place(self.hash(key)))?;
        (slot.offset_plus_1 != 0).then(|| Offset(slot.offset_plus_1 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_the_newest_offset_of_as_many_keys_as_fit() {
        let mut map = OffsetMap::new(100 * SLOT, u64::MAX, 7);
        let mut put = 0_i64;
        for i in 0..1000_i64 {
            if !map.put(&i.to_be_bytes(), Offset(i)) {
                break;
            }
            put += 1;
        }
        assert_eq!(put, 90);
        assert_eq!(map.slots.len(), 100);
        for i in 0..put {
            assert_eq!(map.get(&i.to_be_bytes()), Some(Offset(i)));
            // One that is known needs no room.
            assert!(map.put(&i.to_be_bytes(), Offset(i + 1000)));
            assert_eq!(map.get(&i.to_be_bytes()), Some(Offset(i + 1000)));
        }
        assert_eq!(map.get(b"another"), None);
        assert!(!map.put(b"another", Offset(1)));
    }

    #[test]
    fn a_small_log_needs_a_small_map_and_any_budget_holds_a_key() {
        assert!(OffsetMap::new(1 << 30, 10, 7).slots.len() < 20);
        let mut map = OffsetMap::new(0, 10, 7);
        assert!(map.put(b"", Offset(0)));
        assert!(!map.put(b"a", Offset(1)));
        assert_eq!(map.get(b""), Some(Offset(0)));
        let mut few = OffsetMap::new(1 << 30, 3, 7);
        assert!((0..3_u8).all(|i| few.put(&[i], Offset(0))));
    }
}
