//! HTTP connections: accepting within the same bounds as Kafka's, and no patience for headers that don't come.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// HTTP connections, counted.
#[derive(Debug, Default)]
pub(crate) struct Web {
    open: AtomicUsize,
}

impl Web {
    /// Connections now.
    pub(crate) fn connected(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

/// Accepts connections until the server stops.
pub(crate) async fn accept(
    listener: TcpListener,
    routes: Router,
    limits: Arc<Limits>,
    web: Arc<Web>,
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
                    let (routes, web, stop) = (routes.clone(), Arc::clone(&web), stop.clone());
                    tokio::spawn(serve(stream, routes, web, stop, seat));
                }
                Err(bound) => {
                    if repeats.say(bound, Instant::now()).is_some() {
                        tracing::warn!(peer = %address, "an HTTP connection is refused: {bound} is reached");
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

async fn serve(
    stream: TcpStream,
    routes: Router,
    web: Arc<Web>,
    mut stop: watch::Receiver<bool>,
    seat: Seat,
) {
    web.open.fetch_add(1, Ordering::Relaxed);
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
    web.open.fetch_sub(1, Ordering::Relaxed);
    drop(seat);
}
