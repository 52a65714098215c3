//! One connection between two nodes, from the first byte on. Whoever dialled sends on it; the other side only reads.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::hello::{
    HELLO_BYTES, Hello, Key, MAGIC, NotHello, PROOF_BYTES, REQUESTS, Refusal, Seal, Side, may_speak,
};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Frames from whoever has dialled.
    Messages,
    /// HTTP/1.1 from whoever has dialled, and its answers.
    Requests,
}

impl Purpose {
    fn magic(self) -> [u8; 8] {
        match self {
            Purpose::Messages => MAGIC,
            Purpose::Requests => REQUESTS,
        }
    }
}

/// Why two nodes don't speak.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Hello(#[from] NotHello),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("it refused: {0}")]
    RefusedThere(Refusal),
    #[error("its answer isn't one of the peer protocol")]
    Strange,
    #[error("a frame was changed on its way, or is longer than {FRAME_BYTES} bytes")]
    Frame,
    #[error("it didn't say who it is in time")]
    Late,
}

impl WireError {
    /// Whether that is why, whoever of the two has said so.
    pub(crate) fn is(&self, why: Refusal) -> bool {
        match self {
            WireError::Refused(refusal) | WireError::RefusedThere(refusal) => *refusal == why,
            _ => false,
        }
    }
}

async fn in_time<T>(f: impl Future<Output = Result<T, WireError>>) -> Result<T, WireError> {
    match tokio::time::timeout(PATIENCE, f).await {
        Ok(result) => result,
        Err(_) => Err(WireError::Late),
    }
}

/// Sends on a connection that this node has opened.
pub(crate) struct Sender<W> {
    write: W,
    seal: Option<Seal>,
}

/// Says who this node is to whoever listens there; returns who that is.
pub(crate) async fn dial<R, W>(
    mut read: R,
    mut write: W,
    purpose: Purpose,
    me: &Hello,
    key: Option<&Key>,
) -> Result<(Hello, R, Sender<W>), WireError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (hello, seal) = in_time(async {
        let mine = me.encode();
        send_hello(&mut write, &purpose.magic(), &mine).await?;
        let code = read.read_u8().await?;
        if code != 0 {
            let refusal = Refusal::of(code).ok_or(WireError::Strange)?;
            return Err(WireError::RefusedThere(refusal));
        }
        let theirs = read_hello(&mut read).await?;
        let hello = Hello::decode(&theirs)?;
        may_speak(me, &hello)?;
        if let Some(key) = key {
            let proof = read_proof(&mut read).await?;
            if !key.is_proof(&proof, Side::Accepts, &mine, &theirs) {
                return Err(Refusal::Key.into());
            }
            let proof = key.proof(Side::Dials, &mine, &theirs);
            write.write_all(&proof).await?;
        }
        let seal = key.map(|key| key.session(&mine, &theirs));
        Ok((hello, seal))
    })
    .await?;
    Ok((hello, read, Sender { write, seal }))
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
        let mut head = Vec::with_capacity(5 + PROOF_BYTES + payload.len().min(READ_BYTES));
        head.extend(len.to_be_bytes());
        if let Some(seal) = &mut self.seal {
            head.extend(seal.seal(&[&kind, payload]));
        }
        head.extend(kind);
        // Small frames leave in one piece.
        if payload.len() <= READ_BYTES {
            head.extend(payload);
            return self.write.write_all(&head).await;
        }
        self.write.write_all(&head).await?;
        self.write.write_all(payload).await
    }
}

/// Reads from a connection that another node has opened.
pub(crate) struct Receiver<R> {
    read: R,
    received: BytesMut,
    seal: Option<Seal>,
}

/// Hears who has connected and what for, and says who this is. `received`: the first bytes, which begin as a node's do as far as they go.
///
/// - `me`: `None` when this node isn't part of a cluster; then the other one is told so.
/// - `is_double`: whether this node knows another one of that number.
pub(crate) async fn accept<R, W>(
    read: R,
    mut write: W,
    received: BytesMut,
    me: Option<&Hello>,
    key: Option<&Key>,
    is_double: impl Fn(&Hello) -> bool,
) -> Result<(Hello, Purpose, W, Receiver<R>), WireError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut receiver = Receiver {
        read,
        received,
        seal: None,
    };
    let (hello, purpose) = in_time(async {
        let magic = receiver.take(MAGIC.len()).await?;
        let purposes = [Purpose::Messages, Purpose::Requests];
        let purpose = purposes.into_iter().find(|p| magic == p.magic().as_slice());
        let purpose = purpose.ok_or(WireError::Strange)?;
        let theirs = receiver.take_hello().await?;
        let decided = match (Hello::decode(&theirs), me) {
            (_, None) => Err(Refusal::Alone),
            (Err(NotHello::Version(_)), _) => Err(Refusal::Version),
            (Err(error), _) => return Err(error.into()),
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
                return Err(refusal.into());
            }
        };
        let mine = me.encode();
        send_hello(&mut write, &[0], &mine).await?;
        if let Some(key) = key {
            let proof = key.proof(Side::Accepts, &theirs, &mine);
            write.write_all(&proof).await?;
            let proof = receiver.take(PROOF_BYTES).await?;
            if !key.is_proof(&proof, Side::Dials, &theirs, &mine) {
                return Err(Refusal::Key.into());
            }
        }
        receiver.seal = key.map(|key| key.session(&theirs, &mine));
        Ok((hello, purpose))
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
        let code = match self.seal {
            Some(_) => self.take(PROOF_BYTES).await?,
            None => Bytes::new(),
        };
        let mut frame = self.take(len).await?;
        if let Some(seal) = &mut self.seal
            && !seal.is_sealed(&[&frame], &code)
        {
            return Err(WireError::Frame);
        }
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
    hello: &[u8],
) -> Result<(), WireError> {
    let len = u16::try_from(hello.len()).map_err(|_| WireError::Strange)?;
    let mut out = before.to_vec();
    out.extend(len.to_be_bytes());
    out.extend(hello);
    Ok(write.write_all(&out).await?)
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

async fn read_proof<R: AsyncRead + Unpin>(read: &mut R) -> Result<[u8; PROOF_BYTES], WireError> {
    let mut proof = [0; PROOF_BYTES];
    read.read_exact(&mut proof).await?;
    Ok(proof)
}

#[cfg(test)]
mod tests {
    use super::*;
    use riverlog_quorum::forming::Introduction;
    use riverlog_quorum::{DiskId, Member};
    use riverlog_wire::BrokerId;

    fn hello(broker: i32, has_key: bool) -> Hello {
        Hello {
            who: Introduction {
                member: Member {
                    broker: BrokerId(broker),
                    address: String::new(),
                },
                disk: DiskId(broker as u64),
                formed: false,
            },
            cluster_id: None,
            broker_epoch: -1,
            has_key,
            nonce: broker as u128,
        }
    }

    fn key(byte: u8) -> Option<Key> {
        Key::new(&[byte; 32])
    }

    /// Node 1 dials node 2; both outcomes.
    async fn meet(
        one: Option<Key>,
        two: Option<Key>,
        frames: &[&[u8]],
    ) -> (Result<(), WireError>, Result<Vec<Bytes>, WireError>) {
        let (near, far) = tokio::io::duplex(1 << 10);
        let dials = async {
            let (read, write) = tokio::io::split(near);
            let me = hello(1, one.is_some());
            let purpose = Purpose::Messages;
            let (_, _read, mut sender) = dial(read, write, purpose, &me, one.as_ref()).await?;
            for frame in frames {
                sender.send(Kind::Node, frame).await?;
            }
            Ok(())
        };
        let accepts = async {
            let (read, write) = tokio::io::split(far);
            let me = hello(2, two.is_some());
            let begun = BytesMut::new();
            let (other, purpose, _write, mut receiver) =
                accept(read, write, begun, Some(&me), two.as_ref(), |_| false).await?;
            assert_eq!(purpose, Purpose::Messages);
            assert_eq!(other.who.member.broker, BrokerId(1));
            let mut got = Vec::new();
            while let Ok((kind, frame)) = receiver.next().await {
                assert_eq!(kind, Kind::Node);
                got.push(frame);
            }
            Ok(got)
        };
        tokio::join!(dials, accepts)
    }

    #[tokio::test]
    async fn frames_arrive_with_and_without_a_key() {
        let long = vec![7; 200_000];
        for with in [None, key(1)] {
            let frames: [&[u8]; 3] = [b"one", b"", &long];
            let (sent, got) = meet(with.clone(), with, &frames).await;
            sent.unwrap();
            assert_eq!(got.unwrap(), frames);
        }
    }

    #[tokio::test]
    async fn another_key_or_none_is_refused_on_both_sides() {
        for (one, two) in [(key(1), key(2)), (key(1), None), (None, key(1))] {
            let (sent, got) = meet(one, two, &[b"secret"]).await;
            assert!(sent.is_err());
            assert!(got.is_err());
        }
    }

    #[tokio::test]
    async fn what_a_frame_announces_is_not_reserved() {
        let bytes: Vec<u8> = [&u32::MAX.to_be_bytes()[..], b"x"].concat();
        let mut receiver = Receiver {
            read: bytes.as_slice(),
            received: BytesMut::new(),
            seal: None,
        };
        assert!(matches!(receiver.next().await, Err(WireError::Frame)));
        let bytes: Vec<u8> = [&(60_000_000_u32).to_be_bytes()[..], &[2; 10]].concat();
        let mut receiver = Receiver {
            read: bytes.as_slice(),
            received: BytesMut::new(),
            seal: None,
        };
        assert!(matches!(receiver.next().await, Err(WireError::Io(_))));
        assert!(receiver.received.capacity() < 1 << 20);
    }
}
