//! Frames: pieces of a file that are written as a whole, and known to be whole when they are read.

/// Bytes before the payload.
pub(crate) const HEADER: usize = 20;

/// Payload behind its header; `None` if it is longer than a frame can be.
pub(crate) fn frame(number: u64, payload: &[u8]) -> Option<Vec<u8>> {
    let len = u32::try_from(payload.len()).ok()?;
    let mut out = Vec::with_capacity(HEADER + payload.len());
    out.extend(len.to_be_bytes());
    out.extend(number.to_be_bytes());
    out.extend(crc(payload).to_be_bytes());
    out.extend(crc(&out).to_be_bytes());
    out.extend(payload);
    Some(out)
}

/// What lies at a place of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// A whole frame.
    Whole { number: u64, payload: &'a [u8] },
    /// Nothing more.
    End,
    /// Not a whole frame.
    Torn,
}

/// Reads the frame with which `bytes` begin.
pub(crate) fn read(bytes: &[u8]) -> Found<'_> {
    if bytes.is_empty() {
        return Found::End;
    }
    let Some((len, number, payload_crc)) = header(bytes) else {
        return Found::Torn;
    };
    match bytes.get(HEADER..).and_then(|rest| rest.get(..len)) {
        Some(payload) if crc(payload) == payload_crc => Found::Whole { number, payload },
        _ => Found::Torn,
    }
}

/// Whether the header of a frame behind number `last` lies anywhere in `bytes`.
pub(crate) fn any_after(bytes: &[u8], last: u64) -> bool {
    let mut at = bytes;
    while at.len() >= HEADER {
        if header(at).is_some_and(|(_, number, _)| number > last) {
            return true;
        }
        at = at.get(1..).unwrap_or_default();
    }
    false
}

fn header(bytes: &[u8]) -> Option<(usize, u64, u32)> {
    let (head, rest) = bytes.split_at_checked(HEADER - 4)?;
    let header_crc = u32::from_be_bytes(*rest.first_chunk()?);
    if crc(head) != header_crc {
        return None;
    }
    let (len, rest) = head.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let payload_crc = rest.first_chunk()?;
    Some((
        usize::try_from(u32::from_be_bytes(*len)).ok()?,
        u64::from_be_bytes(*number),
        u32::from_be_bytes(*payload_crc),
    ))
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_or_torn() {
        let whole = frame(3, b"payload").unwrap();
        assert_eq!(
            read(&whole),
            Found::Whole {
                number: 3,
                payload: b"payload"
            }
        );
        assert_eq!(read(&[]), Found::End);
        for cut in 1..whole.len() {
            assert_eq!(read(&whole[..cut]), Found::Torn, "{cut}");
        }
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 0x10;
            assert_eq!(read(&bad), Found::Torn, "{at}");
        }
    }

    #[test]
    fn a_later_frame_is_found_behind_damage() {
        let mut bytes = vec![0; 33];
        bytes.extend(frame(8, b"x").unwrap());
        assert!(any_after(&bytes, 7));
        assert!(!any_after(&bytes, 8));
        assert!(!any_after(&[0; 64], 0));
    }
}
