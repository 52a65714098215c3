//! One connection between two nodes, from the first byte on. Whoever dialled sends on it; the other side only reads.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustls::{AlertDescription, CertificateError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::hello::{BULK, HELLO_BYTES, Hello, MAGIC, NotHello, REQUESTS, Refusal, may_speak};

/// The largest frame: more than any message of a node or a quorum.
const FRAME_BYTES: usize = 64 << 20;
/// How much room is made for a frame at once, whatever it announces.
const READ_BYTES: usize = 64 << 10;
/// How long two nodes may take to say who they are.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// For the other side's quorum.
    Quorum,
    /// For the other side's node.
    Node,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Frames from whoever has dialled.
    Messages,
    /// The same, of records with which copies catch up: sent and taken by [threads that give way](super::bulk).
    Bulk,
    /// HTTP/1.1 from whoever has dialled, and its answers.
    Requests,
}

impl Purpose {
    fn magic(self) -> [u8; 8] {
        match self {
            Purpose::Messages => MAGIC,
            Purpose::Bulk => BULK,
            Purpose::Requests => REQUESTS,
        }
    }
}

/// Why two nodes don't speak.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error(transparent)]
    Io(io::Error),
    #[error(
        "it speaks TLS, but not as a node of this cluster does: {0}; a node needs the same --cluster-key and release, a client of Kafka security.protocol=PLAINTEXT"
    )]
    Tls(rustls::Error),
    #[error(
        "it doesn't take TLS, which --cluster-key asks for: it was started without --cluster-key, or without --seeds; give all nodes the same key"
    )]
    NoTls,
    #[error(transparent)]
    Hello(#[from] NotHello),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("it refused: {0}")]
    RefusedThere(Refusal),
    #[error("its answer isn't one of the peer protocol")]
    Strange,
    #[error("a frame is empty, or longer than {FRAME_BYTES} bytes")]
    Frame,
    #[error("it didn't say who it is in time")]
    Late,
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> WireError {
        let of_tls = error
            .get_ref()
            .and_then(|e| e.downcast_ref::<rustls::Error>());
        match of_tls {
            None => WireError::Io(error),
            // Another key was shown here, or this node's isn't taken there.
            Some(rustls::Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            )) => Refusal::Key.into(),
            Some(rustls::Error::AlertReceived(AlertDescription::AccessDenied)) => {
                WireError::RefusedThere(Refusal::Key)
            }
            // What a port says that knows no TLS, see `tls::refuse`.
            Some(rustls::Error::AlertReceived(AlertDescription::HandshakeFailure)) => {
                WireError::NoTls
            }
            Some(other) => WireError::Tls(other.clone()),
        }
    }
}

impl WireError {
    /// Whether that is why, whoever of the two has said so.
    pub(crate) fn is(&self, why: Refusal) -> bool {
        match self {
            WireError::Refused(refusal) | WireError::RefusedThere(refusal) => *refusal == why,
            _ => false,
        }
    }

    /// Whether the system there says that nobody listens at that port.
    pub(super) fn is_nobody(&self) -> bool {
        matches!(self, WireError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }
}

/// What two nodes say to each other first, within the time that they have for it.
pub(super) async fn in_time<T, E: Into<WireError>>(
    f: impl Future<Output = Result<T, E>>,
) -> Result<T, WireError> {
    match tokio::time::timeout(PATIENCE, f).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(WireError::Late),
    }
}

/// Sends on a connection that this node has opened.
pub(crate) struct Sender<W> {
    write: W,
}

/// Says who this node is to whoever listens there; returns who that is.
pub(crate) async fn dial<R, W>(
    mut read: R,
    mut write: W,
    purpose: Purpose,
    me: &Hello,
) -> Result<(Hello, R, Sender<W>), WireError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let hello = in_time(async {
        send_hello(&mut write, &purpose.magic(), me).await?;
        let code = read.read_u8().await?;
        if code != 0 {
            let refusal = Refusal::of(code).ok_or(WireError::Strange)?;
            return Err(WireError::RefusedThere(refusal));
        }
        let theirs = read_hello(&mut read).await?;
        let hello = Hello::decode(&theirs)?;
        may_speak(me, &hello)?;
        Ok::<_, WireError>(hello)
    })
    .await?;
    Ok((hello, read, Sender { write }))
}

impl<W> Sender<W> {
    /// What it has sent on.
    pub(crate) fn into_inner(self) -> W {
        self.write
    }
}

impl<W: AsyncWrite + Unpin> Sender<W> {
    /// One frame; nothing is held back in this process afterwards.
    pub(crate) async fn send(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let kind = [match kind {
            Kind::Quorum => 1,
            Kind::Node => 2,
        }];
        let body = payload.len() + 1;
        let len = u32::try_from(body)
            .ok()
            .filter(|len| *len as usize <= FRAME_BYTES)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mut head = Vec::with_capacity(5 + payload.len().min(READ_BYTES));
        head.extend(len.to_be_bytes());
        head.extend(kind);
        // Small frames leave in one piece.
        if payload.len() <= READ_BYTES {
            head.extend(payload);
            self.write.write_all(&head).await?;
        } else {
            self.write.write_all(&head).await?;
            self.write.write_all(payload).await?;
        }
        // TLS may hold back what the socket didn't take at once.
        self.write.flush().await
    }
}

/// Reads from a connection that another node has opened.
pub(crate) struct Receiver<R> {
    read: R,
    received: BytesMut,
}

/// Hears who has connected and what for, and says who this is. `received`: the first bytes, which begin as a node's do as far as they go.
///
/// - `me`: `None` when this node isn't part of a cluster; then the other one is told so.
/// - `in_tls`: whether the connection is within TLS, by which the other one has proved that it has the cluster key.
/// - `is_double`: whether this node knows another one of that number.
pub(crate) async fn accept<R, W>(
    read: R,
    mut write: W,
    received: BytesMut,
    me: Option<&Hello>,
    in_tls: bool,
    is_double: impl Fn(&Hello) -> bool,
) -> Result<(Hello, Purpose, W, Receiver<R>), WireError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut receiver = Receiver { read, received };
    let (hello, purpose) = in_time(async {
        let magic = receiver.take(MAGIC.len()).await?;
        let purposes = [Purpose::Messages, Purpose::Bulk, Purpose::Requests];
        let purpose = purposes.into_iter().find(|p| magic == p.magic().as_slice());
        let purpose = purpose.ok_or(WireError::Strange)?;
        let theirs = receiver.take_hello().await?;
        let decided = match (Hello::decode(&theirs), me) {
            (_, None) => Err(Refusal::Alone),
            (Err(NotHello::Version(_)), _) => Err(Refusal::Version),
            (Err(error), _) => return Err(error.into()),
            // Whatever it says of a key: it has shown none.
            (Ok(_), Some(me)) if me.has_key != in_tls => Err(Refusal::Key),
            (Ok(hello), Some(me)) => match may_speak(me, &hello) {
                Ok(()) if is_double(&hello) => Err(Refusal::SameNumber),
                Ok(()) => Ok((hello, me)),
                Err(refusal) => Err(refusal),
            },
        };
        let (hello, me) = match decided {
            Ok(both) => both,
            Err(refusal) => {
                write.write_all(&[refusal.code()]).await?;
                write.flush().await?;
                return Err(refusal.into());
            }
        };
        send_hello(&mut write, &[0], me).await?;
        Ok::<_, WireError>((hello, purpose))
    })
    .await?;
    Ok((hello, purpose, write, receiver))
}

impl<R> Receiver<R> {
    /// What it has read from, and what of it wasn't taken yet.
    pub(crate) fn into_inner(self) -> (R, BytesMut) {
        (self.read, self.received)
    }
}

impl<R: AsyncRead + Unpin> Receiver<R> {
    /// The next frame; an error when the connection ends.
    pub(crate) async fn next(&mut self) -> Result<(Kind, Bytes), WireError> {
        let len = self.take(4).await?;
        let len = len.first_chunk().map_or(0, |len| u32::from_be_bytes(*len));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len == 0 || len > FRAME_BYTES {
            return Err(WireError::Frame);
        }
        let mut frame = self.take(len).await?;
        let kind = frame.split_to(1);
        match kind.first() {
            Some(1) => Ok((Kind::Quorum, frame)),
            Some(2) => Ok((Kind::Node, frame)),
            _ => Err(WireError::Strange),
        }
    }

    async fn take_hello(&mut self) -> Result<Bytes, WireError> {
        let len = self.take(2).await?;
        let len = len.first_chunk().map_or(0, |len| u16::from_be_bytes(*len));
        match usize::from(len) {
            len if len <= HELLO_BYTES => self.take(len).await,
            _ => Err(WireError::Strange),
        }
    }

    /// So many bytes. Room is made as they arrive.
    async fn take(&mut self, len: usize) -> Result<Bytes, WireError> {
        while self.received.len() < len {
            let missing = len - self.received.len();
            self.received.reserve(missing.min(READ_BYTES));
            if self.read.read_buf(&mut self.received).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(self.received.split_to(len).freeze())
    }
}

async fn send_hello<W: AsyncWrite + Unpin>(
    write: &mut W,
    before: &[u8],
    hello: &Hello,
) -> Result<(), WireError> {
    let hello = hello.encode();
    let len = u16::try_from(hello.len()).map_err(|_| WireError::Strange)?;
    let mut out = before.to_vec();
    out.extend(len.to_be_bytes());
    out.extend(hello);
    write.write_all(&out).await?;
    Ok(write.flush().await?)
}

async fn read_hello<R: AsyncRead + Unpin>(read: &mut R) -> Result<Vec<u8>, WireError> {
    let len = usize::from(read.read_u16().await?);
    if len > HELLO_BYTES {
        return Err(WireError::Strange);
    }
    let mut hello = vec![0; len];
    read.read_exact(&mut hello).await?;
    Ok(hello)
}

#[cfg(test)]
mod tests;
