//! Bodies: limits before anything is parsed, memory taken as bytes arrive, and answers in the form that was asked for.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use riverlog_wire::BrokerId;
use riverlog_wire::compression::{Compression, compress, decompress};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use crate::door::{Answer, Call, HttpDoor};
use crate::problem::Problem;

/// Answers smaller than this aren't worth compressing.
const WORTH_COMPRESSING: usize = 1024;

/// A whole body, and the memory that it counts for.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    _memory: OwnedSemaphorePermit,
}

impl HttpDoor {
    pub(crate) fn hold(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Problem> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.held
            .clone()
            .try_acquire_many_owned(permits)
            .map_err(|_| {
                Problem::busy("the bodies of other requests take all the memory that is meant for them; try again in a moment")
            })
    }

    /// The next piece of a body; `None` at its end.
    pub(crate) async fn next_piece(&self, body: &mut Body) -> Result<Option<Bytes>, Problem> {
        loop {
            let frame = tokio::time::timeout(self.settings.body_timeout, body.frame()).await;
            let Ok(frame) = frame else {
                let seconds = self.settings.body_timeout.as_secs();
                return Err(Problem::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "body-stalled",
                    "the body stopped coming",
                    format!("nothing of the body came for {seconds} s"),
                ));
            };
            match frame {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    return Err(Problem::bad_request(format!("the body broke off: {error}")));
                }
            }
        }
    }
}

impl Call {
    /// The whole body, decompressed.
    pub(crate) async fn whole(&mut self) -> Result<Held, Problem> {
        let limit = self.door.settings.max_body_bytes;
        let told = |what: &str, n: usize| {
            Problem::too_large(format!("the body {what} {n} bytes; {limit} is the limit"))
        };
        let announced = self
            .headers
            .get(header::CONTENT_LENGTH)
            .and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
        if let Some(announced) = announced.filter(|n| *n > limit) {
            return Err(told("has", announced));
        }
        let codec = content_encoding(&self.headers)?;
        // One for all: a body may come in pieces of a byte.
        let mut memory = self.door.hold(0)?;
        let mut first: Option<Bytes> = None;
        let mut more = BytesMut::new();
        let mut len = 0;
        while let Some(piece) = self.door.next_piece(&mut self.body).await? {
            len += piece.len();
            if len > limit {
                return Err(told("has more than", limit));
            }
            memory.merge(self.door.hold(piece.len())?);
            match &first {
                None => first = Some(piece),
                Some(begin) => {
                    if more.is_empty() {
                        more.extend_from_slice(begin);
                    }
                    more.extend_from_slice(&piece);
                }
            }
        }
        let mut bytes = match more.is_empty() {
            true => first.unwrap_or_default(),
            false => more.freeze(),
        };
        if let Some(codec) = codec {
            let room = self.door.hold(limit)?;
            let mut opened = Vec::new();
            decompress(codec, &bytes, limit, &mut opened).map_err(|e| {
                Problem::bad_request(format!("the body can't be decompressed: {e}"))
            })?;
            drop(room);
            memory.merge(self.door.hold(opened.len())?);
            bytes = opened.into();
        }
        Ok(Held {
            bytes,
            _memory: memory,
        })
    }

    /// A body of JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        Ok(self.json_and_body().await?.0)
    }

    /// A body of JSON, and its bytes.
    pub(crate) async fn json_and_body<T: DeserializeOwned>(
        &mut self,
    ) -> Result<(T, Held), Problem> {
        match self.content_type() {
            Some("application/json") => {}
            other => return Err(wants_json(other)),
        }
        let held = self.whole().await?;
        let read = serde_json::from_slice(&held.bytes).map_err(|e| of_json(&e))?;
        Ok((read, held))
    }

    /// Passes the call on, whose body of JSON has said whom it is for.
    pub(crate) async fn pass_on_json(
        self,
        to: BrokerId,
        owner: impl Fn() -> Option<BrokerId>,
        path: &str,
        body: Held,
    ) -> Answer {
        let mut request = Request::new(Body::from(body.bytes.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = path
            .parse()
            .map_err(|_| Problem::bad_request(format!("{path:?} isn't a path")))?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        for name in [header::ACCEPT, header::ACCEPT_ENCODING] {
            if let Some(value) = self.headers.get(&name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        self.door.pass_on(to, owner, request).await
    }

    /// The body's type without its parameters; `None` when none is given.
    pub(crate) fn content_type(&self) -> Option<&str> {
        let value = self.headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        Some(value.split(';').next().unwrap_or_default().trim())
    }

    /// A header as text; an error when it holds other bytes.
    pub(crate) fn header(&self, name: &str) -> Result<Option<&str>, Problem> {
        match self.headers.get(name).map(HeaderValue::to_str) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(Problem::bad_request(format!(
                "the header {name} holds bytes that aren't printable ASCII"
            ))),
        }
    }

    /// A header that holds a number.
    pub(crate) fn number_header<T: std::str::FromStr>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.header(name)? else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            Problem::bad_request(format!(
                "the header {name} is {text:?}; give a whole number"
            ))
        })
    }

    /// Answers JSON bytes, compressed when that was asked for.
    pub(crate) fn answer(&self, status: StatusCode, mut json: Vec<u8>) -> Response<Body> {
        json.push(b'\n');
        let codec = accepted_codec(&self.headers).filter(|_| json.len() >= WORTH_COMPRESSING);
        let mut encoding = None;
        if let Some((codec, name)) = codec {
            let mut small = Vec::new();
            if compress(codec, &json, &mut small).is_ok() {
                json = small;
                encoding = Some(name);
            }
        }
        let mut response = Response::new(Body::from(json));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if let Some(name) = encoding {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(name));
        }
        response
    }

    /// Answers anything that has a JSON form.
    pub(crate) fn answer_json(&self, status: StatusCode, body: &impl Serialize) -> Response<Body> {
        // What is answered has text for keys, and no number that JSON lacks.
        self.answer(status, serde_json::to_vec(body).unwrap_or_default())
    }
}

/// 204.
pub(crate) fn nothing() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

pub(crate) fn wants_json(got: Option<&str>) -> Problem {
    let got = got.map_or_else(
        || "none is given".to_owned(),
        |got| format!("it is {got:?}"),
    );
    Problem::unsupported_type(format!(
        "the header Content-Type must be application/json; {got}"
    ))
}

/// What is wrong with a body of JSON: 400 when it isn't JSON, 422 when it says the wrong things.
pub(crate) fn of_json(error: &serde_json::Error) -> Problem {
    let detail = format!("the body can't be read as JSON of this call: {error}");
    match error.classify() {
        serde_json::error::Category::Data => Problem::unprocessable("bad-fields", detail),
        _ => Problem::bad_request(detail),
    }
}

fn content_encoding(headers: &HeaderMap) -> Result<Option<Compression>, Problem> {
    let value = headers.get(header::CONTENT_ENCODING);
    match value.map(HeaderValue::to_str) {
        None | Some(Ok("identity")) => Ok(None),
        Some(Ok("gzip")) => Ok(Some(Compression::Gzip)),
        Some(Ok("zstd")) => Ok(Some(Compression::Zstd)),
        Some(other) => Err(Problem::unsupported_type(format!(
            "the header Content-Encoding is {:?}; gzip and zstd are served",
            other.unwrap_or_default()
        ))),
    }
}

/// The first codec of ours that the client takes.
fn accepted_codec(headers: &HeaderMap) -> Option<(Compression, &'static str)> {
    let value = headers.get(header::ACCEPT_ENCODING)?.to_str().ok()?;
    let takes = |wanted: &str| {
        value.split(',').any(|part| {
            let mut words = part.split(';').map(str::trim);
            words.next() == Some(wanted)
                && !words.any(|q| {
                    q.strip_prefix("q=")
                        .is_some_and(|q| q.parse() == Ok(0.0_f32))
                })
        })
    };
    if takes("zstd") {
        return Some((Compression::Zstd, "zstd"));
    }
    takes("gzip").then_some((Compression::Gzip, "gzip"))
}

/// Whether an Accept header takes a type: by name, by its kind (`text/*`), or as anything.
pub(crate) fn accepts(accept: &str, wanted: &str) -> bool {
    let kind = wanted.split('/').next().unwrap_or_default();
    accept.split(',').any(|part| {
        let part = part.split(';').next().unwrap_or_default().trim();
        part == wanted || part == "*/*" || part.strip_suffix("/*") == Some(kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_codec_with_weight_zero_is_not_taken() {
        let codec = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            accepted_codec(&headers).map(|(_, name)| name)
        };
        assert_eq!(codec("gzip, deflate, br, zstd"), Some("zstd"));
        assert_eq!(codec("zstd;q=0, gzip;q=0.5"), Some("gzip"));
        assert_eq!(codec("br"), None);
    }

    #[test]
    fn types_are_taken_by_name_and_kind() {
        assert!(accepts("text/html, */*;q=0.1", "application/json"));
        assert!(accepts("text/*", "text/event-stream"));
        assert!(!accepts("text/html", "application/json"));
    }
}
