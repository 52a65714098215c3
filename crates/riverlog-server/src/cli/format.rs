//! kcat's format of records: `%t %p %o %k %K %s %S %h %T`, with `\n`, `\t` and `\xNN`; and records as JSON.

use riverlog_wire::batch::RecordView;
use serde_json::{Value, json};

use crate::failure::Failure;

/// A record with its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) record: &'a RecordView,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(Vec<u8>),
    Topic,
    Partition,
    Offset,
    Key,
    KeyLen,
    Value,
    ValueLen,
    Headers,
    Timestamp,
}

/// A format, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format(Vec<Token>);

impl Format {
    pub(crate) fn parse(text: &str) -> Result<Format, Failure> {
        let wrong = |what: String| {
            Failure::usage(format!("the format {text:?} can't be used"))
                .why(what)
                .hint("use %t topic, %p partition, %o offset, %k key, %K its length, %s value, %S its length, %h headers, %T time, %% and \\n \\t \\xNN")
        };
        let mut tokens = Vec::new();
        let mut literal = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let token = match c {
                '%' => match chars.next() {
                    Some('t') => Token::Topic,
                    Some('p') => Token::Partition,
                    Some('o') => Token::Offset,
                    Some('k') => Token::Key,
                    Some('K') => Token::KeyLen,
                    Some('s') => Token::Value,
                    Some('S') => Token::ValueLen,
                    Some('h') => Token::Headers,
                    Some('T') => Token::Timestamp,
                    Some('%') => {
                        literal.push(b'%');
                        continue;
                    }
                    Some(other) => return Err(wrong(format!("there is no %{other}"))),
                    None => return Err(wrong("a % at the end".to_owned())),
                },
                '\\' => {
                    match chars.next() {
                        Some('n') => literal.push(b'\n'),
                        Some('t') => literal.push(b'\t'),
                        Some('r') => literal.push(b'\r'),
                        Some('0') => literal.push(0),
                        Some('x') => {
                            let hex: String = chars.by_ref().take(2).collect();
                            let byte = u8::from_str_radix(&hex, 16)
                                .map_err(|_| wrong(format!("\\x{hex} isn't a byte")))?;
                            literal.push(byte);
                        }
                        Some(other) => literal.extend(other.encode_utf8(&mut [0; 4]).bytes()),
                        None => literal.push(b'\\'),
                    }
                    continue;
                }
                other => {
                    literal.extend(other.encode_utf8(&mut [0; 4]).bytes());
                    continue;
                }
            };
            if !literal.is_empty() {
                tokens.push(Token::Literal(std::mem::take(&mut literal)));
            }
            tokens.push(token);
        }
        if !literal.is_empty() {
            tokens.push(Token::Literal(literal));
        }
        Ok(Format(tokens))
    }

    /// Appends a record.
    pub(crate) fn write(&self, placed: &Placed<'_>, out: &mut Vec<u8>) {
        let record = placed.record;
        // kcat's length of what isn't there is −1.
        let len = |bytes: &Option<bytes::Bytes>| {
            bytes
                .as_ref()
                .map_or("-1".to_owned(), |b| b.len().to_string())
        };
        for token in &self.0 {
            match token {
                Token::Literal(bytes) => out.extend(bytes),
                Token::Topic => out.extend(placed.topic.as_bytes()),
                Token::Partition => out.extend(placed.partition.to_string().bytes()),
                Token::Offset => out.extend(record.offset.0.to_string().bytes()),
                Token::Key => out.extend(record.key.iter().flatten()),
                Token::KeyLen => out.extend(len(&record.key).bytes()),
                Token::Value => out.extend(record.value.iter().flatten()),
                Token::ValueLen => out.extend(len(&record.value).bytes()),
                Token::Timestamp => out.extend(record.timestamp.to_string().bytes()),
                Token::Headers => {
                    for (i, (name, value)) in record.headers.iter().enumerate() {
                        if i > 0 {
                            out.push(b',');
                        }
                        out.extend(&name);
                        out.push(b'=');
                        match value {
                            Some(value) => out.extend(&value),
                            None => out.extend(b"NULL"),
                        }
                    }
                }
            }
        }
    }
}

/// A record as JSON. Text stays text; other bytes become `{"base64": …}`.
pub(crate) fn to_json(placed: &Placed<'_>) -> Value {
    let record = placed.record;
    let headers: Vec<Value> = record
        .headers
        .iter()
        .map(|(name, value)| json!({ "name": String::from_utf8_lossy(&name), "value": bytes_json(value.as_deref()) }))
        .collect();
    json!({
        "topic": placed.topic,
        "partition": placed.partition,
        "offset": record.offset.0,
        "timestamp": record.timestamp,
        "key": bytes_json(record.key.as_deref()),
        "value": bytes_json(record.value.as_deref()),
        "headers": headers,
    })
}

fn bytes_json(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|b| (b, std::str::from_utf8(b))) {
        None => Value::Null,
        Some((_, Ok(text))) => json!(text),
        Some((bytes, Err(_))) => json!({ "base64": base64(bytes) }),
    }
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or_default());
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    out
}

/// Bytes for a terminal: control characters are shown, not done.
pub(crate) fn harmless(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.chars().any(|c| c.is_control() && c != '\t') {
        return text.into_owned();
    }
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\t' {
                c.escape_default().to_string()
            } else {
                c.to_string()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use riverlog_wire::batch::{BatchBuilder, Records};
    use riverlog_wire::compression::Compression;

    fn record() -> RecordView {
        let mut batch = BatchBuilder::new(Compression::None);
        batch.push(
            5,
            Some(b"k"),
            Some(b"v\xff"),
            &[(b"a", Some(b"1")), (b"b", None)],
        );
        let bytes = Bytes::from(batch.build());
        Records::shared(&bytes, 1 << 20)
            .unwrap()
            .into_iter()
            .next()
            .unwrap()
            .unwrap()
    }

    #[test]
    fn kcats_tokens() {
        let record = record();
        let placed = Placed {
            topic: "t",
            partition: 3,
            record: &record,
        };
        let format = Format::parse("%t[%p]@%o %K:%k %S:%s %h %T%%\\n\\x41\\t").unwrap();
        let mut out = Vec::new();
        format.write(&placed, &mut out);
        assert_eq!(out, b"t[3]@0 1:k 2:v\xff a=1,b=NULL 5%\nA\t");
        for wrong in ["%z", "%", "\\xzz"] {
            assert!(Format::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_base64() {
        let record = record();
        let json = to_json(&Placed {
            topic: "t",
            partition: 3,
            record: &record,
        });
        assert_eq!(json["value"]["base64"], "dv8=");
        assert_eq!(json["key"], "k");
        assert_eq!(json["headers"][1]["value"], Value::Null);
        assert_eq!(base64(b"abc"), "YWJj");
        assert_eq!(base64(b"a"), "YQ==");
        assert_eq!(harmless(b"a\x1b[2J\tb"), "a\\u{1b}[2J\tb");
    }
}
