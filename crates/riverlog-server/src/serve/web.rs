//! HTTP connections: accepting within a bound of their own, and no patience for headers that don't come. HTTP/1.1, and HTTP/2 for clients that
//! begin with it (prior knowledge), as there is no TLS in which it could be agreed on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::connection::stopped;
use super::limits::{Limits, Seat};
use super::log::Repeats;

/// How long the headers of a request may take, and a connection may be kept without one.
pub(super) const HEADERS: Duration = Duration::from_secs(60);
/// Bytes of one request's headers, and of its body that are taken ahead.
pub(super) const BUFFER: usize = 64 << 10;
/// Requests of one HTTP/2 connection that may be under way at once, and bytes of their bodies that are taken ahead, together.
const STREAMS: u32 = 100;
const AHEAD: u32 = 1 << 20;
/// How often the other side of a quiet HTTP/2 connection is asked for a sign of life, and how long it may take.
const SIGN: Duration = Duration::from_secs(30);
/// How HTTP/2 begins. No method of HTTP/1.1 does.
const PREFACE: &[u8] = b"PRI ";
/// Between two looks at a connection that has sent less than that.
const GLANCE: Duration = Duration::from_millis(50);
/// How long what is under way may take at a stop. Streams without an end are cut off then.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long accepting pauses when the system has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until the server stops.
pub(crate) async fn accept(
    listener: TcpListener,
    routes: Router,
    limits: Arc<Limits>,
    mut stop: watch::Receiver<bool>,
    repeats: Arc<Repeats>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => return,
        };
        match accepted {
            Ok((stream, address)) => match limits.admit(address.ip()) {
                Ok(seat) => {
                    tokio::spawn(serve(stream, routes.clone(), stop.clone(), seat));
                }
                Err(bound) => {
                    if repeats.say(bound, Instant::now()).is_some() {
                        tracing::warn!(peer = %address, "an HTTP connection is refused: there are as many as there may be");
                    }
                }
            },
            Err(error) => {
                if repeats.say("accept", Instant::now()).is_some() {
                    tracing::warn!(
                        "an HTTP connection can't be accepted: {error}; raise the limit of open files"
                    );
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, routes: Router, mut stop: watch::Receiver<bool>, seat: Seat) {
    if stream.set_nodelay(true).is_ok() {
        let begins = tokio::time::timeout(HEADERS, begins_with_preface(&stream));
        let begins = tokio::select! {
            begins = begins => begins,
            () = stopped(&mut stop) => return,
        };
        match begins {
            Ok(Ok(true)) => second(stream, routes, stop).await,
            Ok(Ok(false)) => first(stream, routes, stop).await,
            // It broke, or never said anything.
            Ok(Err(_)) | Err(_) => {}
        }
    }
    drop(seat);
}

/// Whether HTTP/2 is spoken; nothing is taken from the stream.
async fn begins_with_preface(stream: &TcpStream) -> std::io::Result<bool> {
    let mut bytes = [0; PREFACE.len()];
    loop {
        let seen = stream.peek(&mut bytes).await?;
        let begin = bytes.get(..seen).unwrap_or_default();
        if seen == 0 || !PREFACE.starts_with(begin) {
            return Ok(false);
        }
        if seen == PREFACE.len() {
            return Ok(true);
        }
        // What has come is there at once each time: the rest takes a moment.
        tokio::time::sleep(GLANCE).await;
    }
}

/// HTTP/1.1.
pub(super) async fn first(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    routes: Router,
    mut stop: watch::Receiver<bool>,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    // What a client did wrong has been answered as far as it could be; a connection that broke tells nothing more.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(LAST_WORDS, connection).await;
        }
    }
}

/// HTTP/2.
async fn second(stream: TcpStream, routes: Router, mut stop: watch::Receiver<bool>) {
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(BUFFER as u32)
        .initial_stream_window_size(AHEAD)
        .initial_connection_window_size(AHEAD)
        .max_send_buf_size(AHEAD as usize)
        .keep_alive_interval(SIGN)
        .keep_alive_timeout(SIGN)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(LAST_WORDS, connection).await;
        }
    }
}
