//! Keys, values and header values in JSON, exactly: null and "null" differ, bytes stay bytes, and numbers keep every digit.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// How JSON holds keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Embed {
    /// Each says itself what it is: text, `{"base64": …}`, `{"json": …}`, or null.
    #[default]
    Typed,
    /// The JSON is the value.
    Json,
    /// Text.
    Utf8,
    /// Bytes.
    Base64,
}

impl Embed {
    /// What `embed` in a query may be.
    pub(crate) const CHOICES: &[(&str, Embed)] = &[
        ("json", Embed::Json),
        ("utf8", Embed::Utf8),
        ("base64", Embed::Base64),
    ];
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Typed<'a> {
    #[serde(borrow)]
    Utf8(Cow<'a, str>),
    #[serde(borrow)]
    Base64(Cow<'a, str>),
    #[serde(borrow)]
    Json(&'a RawValue),
}

/// The bytes that a request means; `None` is null.
pub(crate) fn read<'a>(
    embed: Embed,
    raw: Option<&'a RawValue>,
) -> Result<Option<Cow<'a, [u8]>>, String> {
    let Some(raw) = raw.map(RawValue::get) else {
        return Ok(None);
    };
    match embed {
        Embed::Json => Ok(Some(Cow::Borrowed(raw.as_bytes()))),
        Embed::Utf8 => text(raw)
            .map(Some)
            .ok_or_else(|| "with embed=utf8 it must be text or null".to_owned()),
        Embed::Base64 => match serde_json::from_str::<Cow<'_, str>>(raw) {
            Ok(text) => base64(&text).map(Some),
            Err(_) => Err("with embed=base64 it must be text or null".to_owned()),
        },
        Embed::Typed if raw.starts_with('"') => Ok(text(raw)),
        Embed::Typed => match serde_json::from_str(raw) {
            Ok(Typed::Utf8(Cow::Borrowed(text))) => Ok(Some(Cow::Borrowed(text.as_bytes()))),
            Ok(Typed::Utf8(Cow::Owned(text))) => Ok(Some(Cow::Owned(text.into_bytes()))),
            Ok(Typed::Base64(text)) => base64(&text).map(Some),
            Ok(Typed::Json(raw)) => Ok(Some(Cow::Borrowed(raw.get().as_bytes()))),
            Err(_) => Err(
                "it must be null, text, {\"utf8\": text}, {\"base64\": text} or {\"json\": anything}; embed=json takes any JSON as it is"
                    .to_owned(),
            ),
        },
    }
}

fn text(raw: &str) -> Option<Cow<'_, [u8]>> {
    match serde_json::from_str::<Borrowable<'_>>(raw).ok()?.0 {
        Cow::Borrowed(text) => Some(Cow::Borrowed(text.as_bytes())),
        Cow::Owned(text) => Some(Cow::Owned(text.into_bytes())),
    }
}

#[derive(Deserialize)]
struct Borrowable<'a>(#[serde(borrow)] Cow<'a, str>);

fn base64(text: &str) -> Result<Cow<'static, [u8]>, String> {
    STANDARD
        .decode(text)
        .map(Cow::Owned)
        .map_err(|e| format!("its base64 can't be read: {e}"))
}

/// Writes `"NAME":` and a key or value. What doesn't fit the form that was asked for comes as null with `"NAME_base64"` beside it.
pub(crate) fn write(out: &mut Vec<u8>, embed: Embed, name: &str, bytes: Option<&[u8]>) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    let Some(bytes) = bytes else {
        out.extend_from_slice(b"null");
        return;
    };
    let text = std::str::from_utf8(bytes);
    match (embed, text) {
        (Embed::Base64, _) => write_base64(out, bytes),
        (Embed::Typed | Embed::Utf8, Ok(text)) => write_text(out, text),
        (Embed::Typed, Err(_)) => {
            out.extend_from_slice(b"{\"base64\":");
            write_base64(out, bytes);
            out.push(b'}');
        }
        (Embed::Json, Ok(text)) if is_embeddable(text) => {
            // In JSON a line's end stands between tokens only, and lines are what streams are cut into.
            let start = out.len();
            out.extend_from_slice(text.as_bytes());
            for byte in out.iter_mut().skip(start) {
                if matches!(byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
        }
        (Embed::Json | Embed::Utf8, _) => {
            out.extend_from_slice(b"null,\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"_base64\":");
            write_base64(out, bytes);
        }
    }
}

/// JSON, and not the word that would look like no value at all.
fn is_embeddable(text: &str) -> bool {
    text.trim() != "null" && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Writes text as a JSON string.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing to memory can't fail.
    let _ = serde_json::to_writer(out, text);
}

fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let start = out.len();
    let room = bytes.len().div_ceil(3) * 4;
    out.resize(start + room, 0);
    // There is room for all of it.
    let written = out
        .get_mut(start..)
        .and_then(|room| STANDARD.encode_slice(bytes, room).ok());
    out.truncate(start + written.unwrap_or(0));
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(embed: Embed, bytes: Option<&[u8]>) -> String {
        let mut out = Vec::new();
        write(&mut out, embed, "v", bytes);
        String::from_utf8(out).unwrap()
    }

    fn read_text(embed: Embed, json: &str) -> Result<Option<Vec<u8>>, String> {
        let raw: Option<&RawValue> = serde_json::from_str(json).unwrap();
        read(embed, raw).map(|v| v.map(Cow::into_owned))
    }

    #[test]
    fn null_and_the_word_null_differ_in_every_form() {
        for embed in [Embed::Typed, Embed::Json, Embed::Utf8, Embed::Base64] {
            assert_eq!(read_text(embed, "null"), Ok(None));
            assert_eq!(round(embed, None), "\"v\":null");
            assert_ne!(round(embed, Some(b"null")), "\"v\":null");
        }
        assert_eq!(
            read_text(Embed::Typed, "{\"json\":null}"),
            Ok(Some(b"null".to_vec()))
        );
        assert_eq!(
            read_text(Embed::Typed, "\"null\""),
            Ok(Some(b"null".to_vec()))
        );
        assert_eq!(
            round(Embed::Json, Some(b" null")),
            "\"v\":null,\"v_base64\":\"IG51bGw=\""
        );
    }

    #[test]
    fn what_was_written_is_read_as_the_same_bytes() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [
            &b""[..],
            b"hello",
            "\u{1f600} \"quoted\" \\ \u{0}\n".as_bytes(),
            &all,
            b"{\"n\":9007199254740993.10}",
        ] {
            for embed in [Embed::Typed, Embed::Base64] {
                let json = round(embed, Some(bytes));
                let json = json.strip_prefix("\"v\":").unwrap();
                assert_eq!(read_text(embed, json), Ok(Some(bytes.to_vec())), "{json}");
            }
        }
    }

    #[test]
    fn embedded_json_keeps_every_digit() {
        let text = "{\"n\": 123456789012345678901234567890.10,\n \"a\":[1e400]}";
        assert_eq!(
            read_text(Embed::Json, text),
            Ok(Some(text.as_bytes().to_vec()))
        );
        assert_eq!(
            round(Embed::Json, Some(text.as_bytes())),
            format!("\"v\":{}", text.replace('\n', " "))
        );
        assert_eq!(
            round(Embed::Json, Some(b"not json")),
            "\"v\":null,\"v_base64\":\"bm90IGpzb24=\""
        );
    }

    #[test]
    fn what_says_nothing_of_itself_is_refused() {
        for json in [
            "1",
            "true",
            "[]",
            "{}",
            "{\"a\":1}",
            "{\"utf8\":1}",
            "{\"base64\":\"*\"}",
        ] {
            assert!(read_text(Embed::Typed, json).is_err(), "{json}");
        }
        assert!(read_text(Embed::Utf8, "{}").is_err());
        assert!(read_text(Embed::Base64, "\"?\"").is_err());
    }
}
