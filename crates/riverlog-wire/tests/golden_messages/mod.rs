//! The golden vectors, and messages of either direction as one type.

#![allow(dead_code)] // each test file uses its own part

use std::fmt;
use std::io::Read;

use bytes::Bytes;
use riverlog_wire::messages::{AnyRequest, AnyResponse, ApiKey};
use riverlog_wire::primitives::{DecodeError, EncodeError, Reader, Writer};

/// What a vector's message was filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Nothing.
    Defaults,
    /// All that the version has.
    Filled,
    /// As filled, null where allowed.
    Nulls,
}

/// One message as the Java client writes it.
#[derive(Clone, Debug)]
pub(crate) struct Vector {
    pub(crate) key: ApiKey,
    pub(crate) version: i16,
    pub(crate) response: bool,
    pub(crate) shape: Shape,
    pub(crate) bytes: Bytes,
}

impl Vector {
    pub(crate) fn decode(&self, r: &mut Reader<'_>) -> Result<Message, DecodeError> {
        if self.response {
            AnyResponse::decode(self.key, self.version, r).map(Message::Response)
        } else {
            AnyRequest::decode(self.key, self.version, r).map(Message::Request)
        }
    }

    pub(crate) fn default_message(&self) -> Message {
        if self.response {
            Message::Response(AnyResponse::default_of(self.key))
        } else {
            Message::Request(AnyRequest::default_of(self.key))
        }
    }
}

impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.response { "response" } else { "request" };
        write!(f, "{} {kind} v{} {:?}", self.key, self.version, self.shape)
    }
}

/// A request or a response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    Request(AnyRequest),
    Response(AnyResponse),
}

impl Message {
    pub(crate) fn encode(&self, version: i16) -> Result<Bytes, EncodeError> {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        match self {
            Message::Request(m) => m.encode(&mut w, version),
            Message::Response(m) => m.encode(&mut w, version),
        }
        w.finish()?;
        Ok(out.into())
    }
}

/// All of them.
pub(crate) fn vectors() -> Vec<Vector> {
    let packed = include_bytes!("messages.bin.gz");
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_end(&mut plain)
        .expect("the vectors are a gzip file");
    let plain = Bytes::from(plain);
    let mut r = Reader::shared(&plain);
    let mut vectors = Vec::new();
    while r.remaining() > 0 {
        vectors.push(vector(&mut r).expect("the vectors are whole"));
    }
    vectors
}

fn vector(r: &mut Reader<'_>) -> Result<Vector, DecodeError> {
    let key = r.i16()?;
    Ok(Vector {
        key: ApiKey::from_i16(key).expect("vectors are of APIs that we know"),
        version: r.i16()?,
        response: r.bool()?,
        shape: match r.u8()? {
            0 => Shape::Defaults,
            1 => Shape::Filled,
            _ => Shape::Nulls,
        },
        bytes: r.shared_bytes()?,
    })
}
