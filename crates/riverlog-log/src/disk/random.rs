//! Numbers from a seed, for played disks and the simulator; and the one draw from the system.

use std::io::{self, Read};

/// A small generator of numbers from a seed (SplitMix64): the same seed gives the same numbers on every machine.
/// For tests and simulation, not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Every seed is as good as any other, zero too.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number in `0..bound`; zero when the bound is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product is as even as the 64 bits are.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
    /// True in `times` of `of` draws.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }
    /// Fills a buffer.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let bits = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }
    /// A generator of its own, so that the draws of one part don't shift those of another.
    pub fn fork(&mut self) -> Random {
        Random::new(self.next_u64())
    }
}

/// 128 bits from the system's generator.
pub(super) fn from_system() -> io::Result<u128> {
    let mut bits = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bits)?;
    Ok(u128::from_be_bytes(bits))
}
