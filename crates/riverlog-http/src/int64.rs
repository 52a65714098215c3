//! 64-bit numbers in JSON: numbers by default; text where a browser asks for it, whose own numbers end at 2^53.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A number, or its digits as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Int64(pub(crate) i64);

impl<'de> Deserialize<'de> for Int64 {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Int64, D::Error> {
        from.deserialize_any(Reads)
    }
}

impl PartialSchema for Int64 {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::Integer, Type::String]))
            .pattern(Some("^-?[0-9]+$"))
            .description(Some(
                "A whole number of 64 bits; its digits as text where int64=string asks for it",
            ))
            .into()
    }
}

impl ToSchema for Int64 {}

struct Reads;

impl Visitor<'_> for Reads {
    type Value = Int64;
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a whole number of 64 bits, or its digits as text")
    }
    fn visit_i64<E: Error>(self, v: i64) -> Result<Int64, E> {
        Ok(Int64(v))
    }
    fn visit_u64<E: Error>(self, v: u64) -> Result<Int64, E> {
        i64::try_from(v)
            .map(Int64)
            .map_err(|_| E::custom(format!("{v} is more than 64 bits can hold")))
    }
    fn visit_str<E: Error>(self, v: &str) -> Result<Int64, E> {
        v.parse()
            .map(Int64)
            .map_err(|_| E::custom(format!("{v:?} isn't a whole number of 64 bits")))
    }
}

/// How an answer writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Digits {
    #[default]
    Number,
    Text,
}

impl Digits {
    /// What `int64` in a query may be.
    pub(crate) const CHOICES: &[(&str, Digits)] =
        &[("number", Digits::Number), ("string", Digits::Text)];

    pub(crate) fn write(self, out: &mut Vec<u8>, number: i64) {
        let quote: &[u8] = match self {
            Digits::Number => b"",
            Digits::Text => b"\"",
        };
        out.extend_from_slice(quote);
        // Writing to memory can't fail.
        let _ = std::io::Write::write_fmt(out, format_args!("{number}"));
        out.extend_from_slice(quote);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_those_of_a_browser_stay_exact() {
        let number = 9_007_199_254_740_993;
        for text in ["9007199254740993", "\"9007199254740993\""] {
            assert_eq!(serde_json::from_str::<Int64>(text).unwrap(), Int64(number));
        }
        for text in ["1.5", "9223372036854775808", "\"x\"", "null", "1e3"] {
            assert!(serde_json::from_str::<Int64>(text).is_err(), "{text}");
        }
        let mut out = Vec::new();
        Digits::Text.write(&mut out, number);
        Digits::Number.write(&mut out, -1);
        assert_eq!(out, b"\"9007199254740993\"-1");
    }
}
