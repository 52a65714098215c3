//! HTTP connections: accepting within a bound of their own, and no patience for headers that don't come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::connection::stopped;
use super::limits::{Limits, Seat};
use super::log::Repeats;

/// How long the headers of a request may take, and a connection may be kept without one.
const HEADERS: Duration = Duration::from_secs(60);
/// Bytes of one request's headers, and of its body that are taken ahead.
const BUFFER: usize = 64 << 10;
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
    drop(seat);
}
