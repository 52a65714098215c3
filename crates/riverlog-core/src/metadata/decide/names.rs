//! Topic names: which are allowed, and which are too alike.

use std::collections::BTreeSet;

use riverlog_wire::ErrorCode;

use super::{Refusal, refuse};
use crate::metadata::{MetadataImage, Tenant};

/// Longest name: with `-` and a partition number it still fits in a file name.
const MAX_LEN: usize = 249;

/// Alike names are looked up by their spellings up to this many `.` and `_`, 2⁸ of them; beyond, all names are compared.
const MAX_SPELLED: usize = 8;

/// Kafka's rules: 1 to 249 of ASCII letters, digits, `.`, `_` and `-`, and not `.` or `..`.
pub(super) fn check(name: &str) -> Result<(), Refusal> {
    let bad = |what: String| {
        refuse(
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            format!("topic name {what}; use 1 to {MAX_LEN} of a-z A-Z 0-9 . _ -"),
        )
    };
    if name.is_empty() {
        return bad("is empty".to_owned());
    }
    if name == "." || name == ".." {
        return bad(format!("'{name}' is a folder's own name"));
    }
    if name.len() > MAX_LEN {
        return bad(format!("of {} bytes is too long", name.len()));
    }
    match name
        .chars()
        .find(|c| !matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-'))
    {
        Some(c) => bad(format!("'{}' has the character {c:?}", name.escape_debug())),
        None => Ok(()),
    }
}

/// A name that differs from `name` in `.` and `_` alone, of an existing topic or of one made earlier in the request: metrics
/// would show the two as one.
pub(super) fn collision(
    image: &MetadataImage,
    made: &BTreeSet<String>,
    name: &str,
) -> Option<String> {
    let places: Vec<usize> = name
        .bytes()
        .enumerate()
        .filter(|(_, b)| matches!(b, b'.' | b'_'))
        .map(|(at, _)| at)
        .collect();
    if places.is_empty() {
        return None;
    }
    if places.len() > MAX_SPELLED {
        let alike = |other: &str| other != name && unified(other).eq(unified(name));
        let existing = image
            .names
            .range((Tenant::DEFAULT, String::new())..)
            .take_while(|((tenant, _), _)| *tenant == Tenant::DEFAULT)
            .map(|((_, other), _)| other);
        return existing.chain(made).find(|other| alike(other)).cloned();
    }
    let mut spelling = name.as_bytes().to_vec();
    for bits in 0..1_u32 << places.len() {
        for (i, at) in places.iter().enumerate() {
            if let Some(b) = spelling.get_mut(*at) {
                *b = if bits >> i & 1 == 0 { b'.' } else { b'_' };
            }
        }
        let other = String::from_utf8_lossy(&spelling).into_owned();
        if other == name {
            continue;
        }
        if made.contains(&other) || image.topic(&other).is_some() {
            return Some(other);
        }
    }
    None
}

fn unified(name: &str) -> impl Iterator<Item = u8> + '_ {
    name.bytes().map(|b| if b == b'.' { b'_' } else { b })
}
