//! CRC-32C that can be stopped and gone on with: four bytes of state instead of a digest.

use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest};

/// A running CRC-32C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crc(u32);

impl Default for Crc {
    fn default() -> Self {
        Crc(u32::MAX)
    }
}

impl Crc {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        let mut digest = Digest::new_with_init_state(Crc32Iscsi, u64::from(self.0));
        digest.update(bytes);
        self.0 = digest.get_state() as u32;
    }
    pub(super) fn value(self) -> u32 {
        !self.0
    }
    /// Undoes [`Crc::update`].
    pub(super) fn take_back(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().rev() {
            self.0 = one_byte_back(self.0) ^ u32::from(*byte);
        }
    }
    /// The four bytes that lead from here to `after`.
    pub(super) fn bytes_to(self, after: Crc) -> [u8; 4] {
        let before = (0..4).fold(after.0, |state, _| one_byte_back(state));
        (before ^ self.0).to_le_bytes()
    }
    /// Goes on from a value that [`Crc::value`] gave.
    pub(super) fn resume(value: u32) -> Crc {
        Crc(!value)
    }
}

/// CRC-32C's polynomial, the lowest power last.
pub(super) const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The state before a zero byte.
fn one_byte_back(mut state: u32) -> u32 {
    for _ in 0..8 {
        // The polynomial's highest bit is set: it tells whether the last step has added it.
        state = match state >> 31 {
            0 => state << 1,
            _ => (state ^ POLYNOMIAL) << 1 | 1,
        };
    }
    state
}

/// The CRC-32C of all of `bytes`.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crc_can_be_taken_back() {
        let bytes: Vec<u8> = (0..1_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        for at in [0, 1, 500, 999, 1_000] {
            let (mut before, mut crc) = (Crc::default(), Crc::default());
            before.update(&bytes[..at]);
            crc.update(&bytes);
            crc.take_back(&bytes[at..]);
            assert_eq!(crc, before);
        }
        let (mut before, mut after) = (Crc::default(), Crc::default());
        before.update(&bytes[..10]);
        after.update(&bytes[..14]);
        assert_eq!(before.bytes_to(after), bytes[10..14]);
    }

    #[test]
    fn a_crc_in_pieces_is_the_crc_of_the_whole() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        for at in [0, 1, 16, 255, 999, 1000] {
            let mut crc = Crc::default();
            crc.update(&bytes[..at]);
            let mut crc = Crc::resume(crc.value());
            crc.update(&bytes[at..]);
            assert_eq!(crc.value(), crc32c(&bytes));
        }
    }
}
