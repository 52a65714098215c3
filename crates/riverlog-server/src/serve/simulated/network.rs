//! turmoil's connections as those of the server, and bytes that come and go in pieces.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use riverlog_log::disk::Random;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use turmoil::net::{TcpListener, TcpStream};

use crate::serve::stream;

/// How bytes are cut.
pub(super) struct Pieces {
    most: usize,
    random: Mutex<Random>,
}

impl Pieces {
    /// Pieces of one byte up to `most`.
    pub(super) fn new(seed: u64, most: usize) -> Pieces {
        Pieces {
            most,
            random: Mutex::new(Random::new(seed)),
        }
    }

    pub(super) fn cut<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let most = 1 + self.random.lock().below(self.most as u64) as usize;
        &bytes[..bytes.len().min(most)]
    }
}

/// A port of the simulated network.
pub(super) struct Port {
    listener: TcpListener,
    pieces: Arc<Pieces>,
}

impl Port {
    pub(super) async fn bind(port: u16, pieces: Arc<Pieces>) -> io::Result<Port> {
        let listener = TcpListener::bind(("0.0.0.0", port)).await?;
        Ok(Port { listener, pieces })
    }
}

impl stream::Listener for Port {
    type Stream = Wire;
    async fn accept(&self) -> io::Result<(Wire, SocketAddr)> {
        let (stream, address) = self.listener.accept().await?;
        let pieces = Arc::clone(&self.pieces);
        Ok((Wire { stream, pieces }, address))
    }
}

/// A connection of it.
pub(super) struct Wire {
    pub(super) stream: TcpStream,
    pub(super) pieces: Arc<Pieces>,
}

impl stream::Stream for Wire {
    type Read = Incoming;
    type Write = Outgoing;
    fn set_nodelay(&self) -> io::Result<()> {
        self.stream.set_nodelay(true)
    }
    fn split(self) -> (Incoming, Outgoing) {
        let (read, write) = self.stream.into_split();
        let outgoing = Outgoing {
            write,
            pieces: self.pieces,
        };
        (Incoming(read), outgoing)
    }
}

pub(super) struct Incoming(OwnedReadHalf);

impl AsyncRead for Incoming {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl stream::ReadHalf for Incoming {
    async fn readable(&mut self) -> io::Result<()> {
        self.0.peek(&mut [0]).await.map(drop)
    }
}

pub(super) struct Outgoing {
    write: OwnedWriteHalf,
    pieces: Arc<Pieces>,
}

impl AsyncWrite for Outgoing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let piece = self.pieces.cut(bytes);
        Pin::new(&mut self.write).poll_write(cx, piece)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}

impl stream::WriteHalf for Outgoing {
    fn socket(&self) -> Option<&tokio::net::TcpStream> {
        None
    }
}
