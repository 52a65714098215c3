use super::super::tls::{Tls, refuse};
use super::*;
use riverlog_quorum::forming::Introduction;
use riverlog_quorum::{DiskId, Member};
use riverlog_wire::BrokerId;
use tokio::io::DuplexStream;

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
    }
}

/// A file of keys, one for each letter.
fn key(letters: &str) -> Option<Tls> {
    let lines: Vec<String> = letters.chars().map(|c| c.to_string().repeat(32)).collect();
    Some(Tls::new(lines.join("\n").as_bytes()).unwrap())
}

type Heard = Result<Vec<Bytes>, WireError>;

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    me: Hello,
    frames: &[&[u8]],
) -> Result<(), WireError> {
    let (read, write) = tokio::io::split(stream);
    let (_, _read, mut sender) = dial(read, write, Purpose::Messages, &me).await?;
    for frame in frames {
        sender.send(Kind::Node, frame).await?;
    }
    Ok(())
}

async fn listen(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    begun: BytesMut,
    me: Hello,
    in_tls: bool,
) -> Heard {
    let (read, write) = tokio::io::split(stream);
    let (other, purpose, _write, mut receiver) =
        accept(read, write, begun, Some(&me), in_tls, |_| false).await?;
    assert_eq!(purpose, Purpose::Messages);
    assert_eq!(other.who.member.broker, BrokerId(1));
    let mut got = Vec::new();
    while let Ok((kind, frame)) = receiver.next().await {
        assert_eq!(kind, Kind::Node);
        got.push(frame);
    }
    Ok(got)
}

/// The side that is dialled, as a node does it: by the first byte.
async fn answer(mut far: DuplexStream, two: Option<Tls>) -> Heard {
    let mut begun = BytesMut::new();
    far.read_buf(&mut begun).await?;
    let in_tls = begun.first() == Some(&0x16);
    let me = hello(2, two.is_some());
    match two {
        Some(tls) if in_tls => {
            let (read, write) = tokio::io::split(far);
            let far = super::super::Joined {
                received: begun,
                read,
                write,
            };
            let far = in_time(tls.accept(far)).await?;
            listen(far, BytesMut::new(), me, true).await
        }
        _ if in_tls => {
            let (read, write) = tokio::io::split(far);
            refuse(read, write).await;
            Err(WireError::NoTls)
        }
        _ => listen(far, begun, me, false).await,
    }
}

/// Node 1 dials node 2; both outcomes.
async fn meet(
    one: Option<Tls>,
    two: Option<Tls>,
    frames: &[&[u8]],
) -> (Result<(), WireError>, Heard) {
    let (near, far) = tokio::io::duplex(1 << 10);
    let dials = async {
        let me = hello(1, one.is_some());
        match one {
            None => speak(near, me, frames).await,
            Some(tls) => speak(in_time(tls.dial(near)).await?, me, frames).await,
        }
    };
    tokio::join!(dials, answer(far, two))
}

#[tokio::test]
async fn frames_arrive_with_and_without_a_key() {
    let long = vec![7; 200_000];
    for with in [None, key("a")] {
        let frames: [&[u8]; 3] = [b"one", b"", &long];
        let (sent, got) = meet(with.clone(), with, &frames).await;
        sent.unwrap();
        assert_eq!(got.unwrap(), frames);
    }
}

#[tokio::test]
async fn a_connection_begins_with_what_it_is_for() {
    for purpose in [Purpose::Messages, Purpose::Bulk, Purpose::Requests] {
        let (near, far) = tokio::io::duplex(1 << 10);
        let ((near_read, near_write), (far_read, far_write)) =
            (tokio::io::split(near), tokio::io::split(far));
        let (one, two) = (hello(1, false), hello(2, false));
        let dials = dial(near_read, near_write, purpose, &one);
        let begun = BytesMut::new();
        let accepts = accept(far_read, far_write, begun, Some(&two), false, |_| false);
        let (dialled, accepted) = tokio::join!(dials, accepts);
        assert!(dialled.is_ok(), "{purpose:?}");
        assert_eq!(accepted.map(|(_, told, ..)| told).ok(), Some(purpose));
    }
}

#[tokio::test]
async fn another_key_or_none_is_refused_on_both_sides_and_both_say_why() {
    for (one, two) in [
        (key("a"), key("b")),
        (key("a"), None),
        (None, key("a")),
        // Each must take the other's first key.
        (key("ab"), key("b")),
        (key("b"), key("ab")),
    ] {
        let which = format!("{one:?} {two:?}");
        let (sent, got) = meet(one, two, &[b"secret"]).await;
        for ended in [sent.unwrap_err(), got.unwrap_err()] {
            let said = ended.to_string();
            assert!(said.contains("--cluster-key"), "{which}: {said}");
        }
    }
}

#[tokio::test]
async fn keys_change_in_three_steps_and_nodes_speak_at_each() {
    let steps = ["a", "ab", "ba", "b"];
    for pair in steps.windows(2) {
        for (one, two) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
            let (sent, got) = meet(key(pair[one]), key(pair[two]), &[b"one"]).await;
            sent.unwrap();
            assert_eq!(got.unwrap(), [b"one".as_slice()]);
        }
    }
}

#[tokio::test]
async fn who_says_in_the_clear_that_it_has_the_key_is_refused() {
    let (near, far) = tokio::io::duplex(1 << 10);
    let (sent, got) = tokio::join!(
        speak(near, hello(1, true), &[b"one"]),
        answer(far, key("a"))
    );
    assert!(sent.unwrap_err().is(Refusal::Key));
    assert!(got.unwrap_err().is(Refusal::Key));
}

#[tokio::test]
async fn what_a_frame_announces_is_not_reserved() {
    let bytes: Vec<u8> = [&u32::MAX.to_be_bytes()[..], b"x"].concat();
    let mut receiver = Receiver {
        read: bytes.as_slice(),
        received: BytesMut::new(),
    };
    assert!(matches!(receiver.next().await, Err(WireError::Frame)));
    let bytes: Vec<u8> = [&(60_000_000_u32).to_be_bytes()[..], &[2; 10]].concat();
    let mut receiver = Receiver {
        read: bytes.as_slice(),
        received: BytesMut::new(),
    };
    assert!(matches!(receiver.next().await, Err(WireError::Io(_))));
    assert!(receiver.received.capacity() < 1 << 20);
}
