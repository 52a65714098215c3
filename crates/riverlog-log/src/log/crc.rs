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
    /// Goes on from a value that [`Crc::value`] gave.
    pub(super) fn resume(value: u32) -> Crc {
        Crc(!value)
    }
}

/// The CRC-32C of all of `bytes`.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

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
