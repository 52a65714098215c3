//! A bound port: accepting, within bounds, and serving each connection.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use riverlog_api::kafka::Peer;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::connection::{self, Ended, Shared};
use super::limits::Seat;
use super::log::Repeats;
use super::stream::{Listener, Stream};
use crate::client::place;
use crate::failure::{Exit, Failure};

/// How long accepting pauses when the system has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a connection is silent before the system asks whether the other side is still there. Its machine may have lost its power, and a
/// node's connection has no idle time after which it ends.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

/// Binds a port. What stands in the way is said with what to do.
pub(crate) fn bind(
    host: &str,
    port: u16,
    backlog: i32,
    flag: &str,
) -> Result<(std::net::TcpListener, SocketAddr), Failure> {
    let place = place(host, port);
    let fail = |error: io::Error| {
        let failure = Failure::new(
            Exit::Conflict,
            format!("{place} can't be opened for listening"),
        );
        match error.kind() {
            io::ErrorKind::AddrInUse => failure
                .why("another process listens on this port")
                .hint(format!("stop it, or choose another port with {flag}")),
            io::ErrorKind::PermissionDenied => {
                Failure::new(Exit::Auth, format!("{place} can't be opened for listening"))
                    .why("this user may not open this port")
                    .hint(format!("choose a port above 1023 with {flag}"))
            }
            io::ErrorKind::AddrNotAvailable => {
                Failure::usage(format!("{place} can't be opened for listening"))
                    .why("this machine has no such address")
                    .hint(format!("give an address of this machine with {flag}"))
            }
            _ => failure.why(error.to_string()),
        }
    };
    let address = (host, port)
        .to_socket_addrs()
        .map_err(|error| {
            Failure::usage(format!("{place} can't be opened for listening"))
                .why(format!("the name {host} doesn't resolve ({error})"))
                .hint(format!("give an address of this machine with {flag}"))
        })?
        .next()
        .ok_or_else(|| fail(io::ErrorKind::AddrNotAvailable.into()))?;
    let open = || {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        // What is accepted has it too.
        socket.set_tcp_keepalive(&KEEPALIVE)?;
        socket.bind(&address.into())?;
        socket.listen(backlog)?;
        let listener: std::net::TcpListener = socket.into();
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    open().map_err(fail)
}

/// Accepts connections until the server stops.
pub(crate) async fn accept(listener: impl Listener, shared: Arc<Shared>, repeats: Arc<Repeats>) {
    let mut stop = shared.stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = connection::stopped(&mut stop) => return,
        };
        match accepted {
            Ok((stream, address)) => match shared.limits.admit(address.ip()) {
                Ok(seat) => {
                    tokio::spawn(serve(
                        Arc::clone(&shared),
                        Arc::clone(&repeats),
                        stream,
                        address,
                        seat,
                    ));
                }
                Err(bound) => {
                    let seat = shared.cluster.as_ref();
                    match seat.and_then(|_| shared.limits.admit_beyond()) {
                        Some(seat) => {
                            let (shared, repeats) = (Arc::clone(&shared), Arc::clone(&repeats));
                            tokio::spawn(async move {
                                if !is_node(&shared, stream, address).await {
                                    refused(&repeats, bound, address);
                                }
                                drop(seat);
                            });
                        }
                        None => refused(&repeats, bound, address),
                    }
                }
            },
            // Most often no descriptor is left. What waits in the backlog goes on waiting.
            Err(error) => {
                if let Some(before) = repeats.say("accept", Instant::now()) {
                    tracing::warn!(
                        before,
                        "a connection can't be accepted: {error}; raise the limit of open files"
                    );
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Serves another node; `false` when it is anybody else.
async fn is_node(shared: &Shared, stream: impl Stream, address: SocketAddr) -> bool {
    stream.set_nodelay().is_ok() && connection::serve_node(shared, stream, address).await
}

fn refused(repeats: &Repeats, bound: &'static str, address: SocketAddr) {
    if let Some(before) = repeats.say(bound, Instant::now()) {
        tracing::warn!(peer = %address, held_back = held(before), "a connection is refused: {bound} is reached");
    }
}

async fn serve(
    shared: Arc<Shared>,
    repeats: Arc<Repeats>,
    stream: impl Stream,
    address: SocketAddr,
    seat: Seat,
) {
    if stream.set_nodelay().is_err() {
        // It is gone already.
        return;
    }
    match connection::serve(shared, stream, Peer { address }).await {
        Ended::ByClient | Ended::Stopping | Ended::Node(_) | Ended::Network(_) => {}
        Ended::Idle => tracing::debug!(peer = %address, "an idle connection is closed"),
        Ended::Refused(close) => {
            if let Some(before) = repeats.say("refused", Instant::now()) {
                tracing::info!(peer = %address, held_back = held(before), "a connection is closed: {close}");
            }
        }
        Ended::Foreign(words, _) => {
            if let Some(before) = repeats.say("foreign", Instant::now()) {
                tracing::info!(peer = %address, held_back = held(before), "a connection is closed: {words}");
            }
        }
    }
    drop(seat);
}

/// How many lines of a kind were held back before this one, if any.
fn held(before: u32) -> Option<u32> {
    (before > 0).then_some(before)
}
