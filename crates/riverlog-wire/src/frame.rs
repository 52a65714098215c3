//! Frames: a length, a header, a message. How requests and responses lie on a connection.
//!
//! ```text
//! request   length i32 | key i16, version i16, correlation id i32, client id nullable string [, tags] | body
//! response  length i32 | correlation id i32 [, tags] | body
//! ```
//!
//! The length counts what follows it. The tags are there in flexible versions only (KIP-482), and never in
//! the header of an ApiVersions response (KIP-511). The client id is a classic string in every version.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::messages::{AnyRequest, AnyResponse, ApiKey, Request, Response};
use crate::primitives::{DecodeError, EncodeError, Reader, Writer};

#[cfg(test)]
mod tests;

/// Largest frame that a broker takes unless told otherwise: Kafka's `socket.request.max.bytes`.
pub const DEFAULT_MAX_FRAME_BYTES: usize = 100 * 1024 * 1024;

/// Bytes of the length in front of a frame.
pub const LENGTH_BYTES: usize = 4;

/// Why the first four bytes are not the length of a frame. The connection can't go on after any of them.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// Length 0: not even a header.
    #[error("a frame of no bytes; every request has a header of at least 10 bytes")]
    Empty,
    /// A length below 0.
    #[error("a frame of {len} bytes; lengths are positive{}", hint(*speaks))]
    Negative {
        /// What was said.
        len: i32,
        /// What the bytes look like instead.
        speaks: Option<Speaks>,
    },
    /// A length above the limit.
    #[error(
        "a frame of {len} bytes, the most is {max} (socket.request.max.bytes){}",
        hint(*speaks)
    )]
    TooLarge {
        /// What was said.
        len: usize,
        /// The limit.
        max: usize,
        /// What the bytes look like instead.
        speaks: Option<Speaks>,
    },
}

/// Another protocol, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speaks {
    /// A request line, or the preface of HTTP/2.
    Http,
    /// A TLS handshake.
    Tls,
    /// An SSH banner.
    Ssh,
}

fn hint(speaks: Option<Speaks>) -> &'static str {
    match speaks {
        None => "",
        Some(Speaks::Http) => {
            "; the bytes are HTTP, so the client wants the HTTP listener's port, not this one"
        }
        Some(Speaks::Tls) => {
            "; the bytes are a TLS handshake: use a TLS listener's port, or set security.protocol=PLAINTEXT"
        }
        Some(Speaks::Ssh) => "; the bytes are SSH, so the client has the wrong port",
    }
}

impl Speaks {
    /// What begins with these four bytes, when it's not Kafka.
    pub fn guess(first: [u8; LENGTH_BYTES]) -> Option<Speaks> {
        match &first {
            b"GET " | b"POST" | b"PUT " | b"HEAD" | b"DELE" | b"OPTI" | b"PATC" | b"CONN"
            | b"TRAC" | b"PRI " => Some(Speaks::Http),
            [0x16, 0x03, ..] => Some(Speaks::Tls),
            b"SSH-" => Some(Speaks::Ssh),
            _ => None,
        }
    }
}

/// The length of a frame, within `1..=max_bytes`.
pub fn frame_length(prefix: [u8; LENGTH_BYTES], max_bytes: usize) -> Result<usize, FrameError> {
    let signed = i32::from_be_bytes(prefix);
    let speaks = Speaks::guess(prefix);
    match usize::try_from(signed) {
        Err(_) => Err(FrameError::Negative {
            len: signed,
            speaks,
        }),
        Ok(0) => Err(FrameError::Empty),
        Ok(len) if len > max_bytes => Err(FrameError::TooLarge {
            len,
            max: max_bytes,
            speaks,
        }),
        Ok(len) => Ok(len),
    }
}

/// Takes one frame, without its length, from the front of what has been received. `None`: it isn't whole yet.
///
/// Nothing is reserved: how much is received ahead is up to the caller.
pub fn split_frame(received: &mut BytesMut, max_bytes: usize) -> Result<Option<Bytes>, FrameError> {
    let Some(prefix) = received.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let len = frame_length(*prefix, max_bytes)?;
    if received.len() - LENGTH_BYTES < len {
        return Ok(None);
    }
    received.advance(LENGTH_BYTES);
    Ok(Some(received.split_to(len).freeze()))
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// As sent; [`ApiKey::from_i16`] tells whether it is one that brokers serve.
    pub api_key: i16,
    /// As sent; it may be one that nobody speaks.
    pub api_version: i16,
    /// Comes back in the response.
    pub correlation_id: i32,
    /// A name the client gave itself.
    pub client_id: Option<&'a str>,
}

impl<'a> RequestHeader<'a> {
    /// Reads a header and leaves `r` at the body. Unknown keys are read as version 1, so that the caller can say
    /// who sent them; versions that an API doesn't have are read like the nearest that it has.
    pub fn decode(r: &mut Reader<'a>) -> Result<RequestHeader<'a>, DecodeError> {
        let header = RequestHeader {
            api_key: r.i16()?,
            api_version: r.i16()?,
            correlation_id: r.i32()?,
            client_id: r.nullable_string()?,
        };
        if header.is_flexible() {
            r.skip_tagged_fields()?;
        }
        Ok(header)
    }

    /// Writes it in the version that its key and version ask for.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.i16(self.api_key);
        w.i16(self.api_version);
        w.i32(self.correlation_id);
        w.nullable_string(self.client_id);
        if self.is_flexible() {
            w.empty_tagged_fields();
        }
    }

    fn is_flexible(&self) -> bool {
        ApiKey::from_i16(self.api_key).is_some_and(|key| key.is_flexible(self.api_version))
    }
}

/// The header of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    /// That of the request.
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// Reads the header of a response to `key` in `version`, and leaves `r` at the body.
    pub fn decode(
        r: &mut Reader<'_>,
        key: ApiKey,
        version: i16,
    ) -> Result<ResponseHeader, DecodeError> {
        let header = ResponseHeader {
            correlation_id: r.i32()?,
        };
        if key.response_header_version(version) > 0 {
            r.skip_tagged_fields()?;
        }
        Ok(header)
    }

    /// Writes the header of a response to `key` in `version`.
    pub fn encode(&self, w: &mut Writer<'_>, key: ApiKey, version: i16) {
        w.i32(self.correlation_id);
        if key.response_header_version(version) > 0 {
            w.empty_tagged_fields();
        }
    }
}

/// Appends a frame: the length, then what `write` writes. On an error `out` is as it was.
pub fn encode_frame(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Writer<'_>),
) -> Result<(), EncodeError> {
    let mut w = Writer::new(out);
    w.i32(0);
    write(&mut w);
    let len = w.position() - LENGTH_BYTES;
    match i32::try_from(len) {
        Ok(len) => w.set_i32(0, len),
        Err(_) => w.fail(EncodeError::TooLong {
            what: "frame",
            len,
            max: i32::MAX as usize,
        }),
    }
    w.finish().map(|_| ())
}

/// Appends a request as a frame with its header.
pub fn encode_request<R: Request>(
    out: &mut Vec<u8>,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
    request: &R,
) -> Result<(), EncodeError> {
    encode_frame(out, |w| {
        request_header(R::KEY, version, correlation_id, client_id).encode(w);
        request.encode(w, version);
    })
}

/// As [`encode_request`], for a request whose kind is known at run time only.
pub fn encode_any_request(
    out: &mut Vec<u8>,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
    request: &AnyRequest,
) -> Result<(), EncodeError> {
    encode_frame(out, |w| {
        request_header(request.key(), version, correlation_id, client_id).encode(w);
        request.encode(w, version);
    })
}

fn request_header(
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> RequestHeader<'_> {
    RequestHeader {
        api_key: key.number(),
        api_version: version,
        correlation_id,
        client_id,
    }
}

/// Appends a response as a frame with its header.
pub fn encode_response<R: Response>(
    out: &mut Vec<u8>,
    version: i16,
    correlation_id: i32,
    response: &R,
) -> Result<(), EncodeError> {
    encode_frame(out, |w| {
        ResponseHeader { correlation_id }.encode(w, R::KEY, version);
        response.encode(w, version);
    })
}

/// As [`encode_response`], for a response whose kind is known at run time only.
pub fn encode_any_response(
    out: &mut Vec<u8>,
    version: i16,
    correlation_id: i32,
    response: &AnyResponse,
) -> Result<(), EncodeError> {
    encode_frame(out, |w| {
        ResponseHeader { correlation_id }.encode(w, response.key(), version);
        response.encode(w, version);
    })
}
