//! What a Kafka connection needs of the network: the system's TCP, or in tests a simulated one.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A port that takes connections.
pub(crate) trait Listener: Send + Sync {
    type Stream: Stream;
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;
}

/// A connection.
pub(crate) trait Stream: Send + 'static {
    type Read: ReadHalf;
    type Write: WriteHalf;
    /// Lets small writes go out at once.
    fn set_nodelay(&self) -> io::Result<()>;
    fn split(self) -> (Self::Read, Self::Write);
}

/// What comes in.
pub(crate) trait ReadHalf: AsyncRead + Unpin + Send + 'static {
    /// Waits until there is something, or the end: an idle connection holds no buffer meanwhile.
    fn readable(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

/// What goes out.
pub(crate) trait WriteHalf: AsyncWrite + Unpin + Send + 'static {
    /// The socket, for sendfile; `None`: what lies in files is read and written.
    fn socket(&self) -> Option<&TcpStream>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        TcpListener::accept(self).await
    }
}

impl Stream for TcpStream {
    type Read = OwnedReadHalf;
    type Write = OwnedWriteHalf;
    fn set_nodelay(&self) -> io::Result<()> {
        TcpStream::set_nodelay(self, true)
    }
    fn split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        self.into_split()
    }
}

impl ReadHalf for OwnedReadHalf {
    async fn readable(&mut self) -> io::Result<()> {
        OwnedReadHalf::readable(self).await
    }
}

impl WriteHalf for OwnedWriteHalf {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self.as_ref())
    }
}
