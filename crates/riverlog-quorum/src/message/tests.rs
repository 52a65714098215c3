//! Messages as bytes, and bytes that aren't messages.

use std::collections::{BTreeMap, BTreeSet};

use riverlog_log::disk::Random;
use riverlog_wire::BrokerId;

use super::*;
use crate::raft::{Entry, Membership, Payload, Records, Term, vote};

fn bodies() -> Vec<Body> {
    let id = |term, index| LogId::new(Term::new(term), index);
    let member = Member {
        broker: BrokerId(2),
        address: "b:9092".to_owned(),
    };
    let disk = DiskId(22);
    let voters = vec![BTreeSet::from([disk]), BTreeSet::from([disk])];
    let members = Membership::new(voters, BTreeMap::from([(disk, member.clone())])).unwrap();
    let payloads = [
        Payload::Blank,
        Payload::Normal(Records(vec![Bytes::from_static(b"r"), Bytes::new()])),
        Payload::Membership(members),
    ];
    let entries = (7..).zip(payloads).map(|(index, payload)| Entry {
        log_id: id(4, index),
        payload,
    });
    let request = VoteRequest {
        vote: vote(4, disk, false),
        last_log_id: Some(id(3, 6)),
        leadership_transfer: true,
    };
    vec![
        Body::Vote(request.clone()),
        Body::PreVote(request),
        Body::Append(AppendRequest {
            vote: vote(4, disk, true),
            prev_log_id: Some(id(3, 6)),
            leader_commit: None,
            entries: entries.collect(),
        }),
        Body::Snapshot(Chunk {
            vote: vote(4, disk, true),
            last: Some(id(3, 6)),
            at: 5,
            bytes: Bytes::from_static(b"part"),
            is_end: true,
        }),
        Body::Join(member),
        Body::Voted(VoteResponse {
            vote: vote(5, disk, false),
            vote_granted: true,
            last_log_id: None,
        }),
        Body::Appended(AppendResponse::Success),
        Body::Appended(AppendResponse::PartialSuccess(Some(id(1, 2)))),
        Body::Appended(AppendResponse::Conflict),
        Body::Appended(AppendResponse::HigherVote(vote(9, disk, true))),
        Body::Took(vote(4, disk, true)),
        Body::Joined(Verdict::NotLeader(Some("n2:9092".to_owned()))),
        Body::Joined(Verdict::NotLeader(None)),
        Body::Joined(Verdict::NumberTaken),
    ]
}

fn message(body: Body) -> Message {
    Message {
        from: DiskId(1),
        to: DiskId(u64::MAX),
        number: 77,
        body,
    }
}

#[test]
fn all_messages_survive_their_bytes() {
    for body in bodies() {
        let one = message(body);
        let bytes = one.encode().unwrap();
        let again = Message::decode(&bytes).unwrap();
        assert_eq!(format!("{again:?}"), format!("{one:?}"));
    }
}

#[test]
fn a_recorded_message_of_version_1_is_still_read() {
    let hex = "010000000000000001ffffffffffffffff000000000000004d4300000000000000040000000000000016010\
               0";
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    let one = Message::decode(&bytes.into()).unwrap();
    let want = message(Body::Took(vote(4, DiskId(22), true)));
    assert_eq!(format!("{one:?}"), format!("{want:?}"));
}

#[test]
fn hostile_bytes_are_errors_and_never_panic() {
    let mut random = Random::new(3);
    for body in bodies() {
        let bytes = message(body).encode().unwrap();
        for cut in 0..bytes.len() {
            assert!(Message::decode(&bytes.slice(..cut)).is_err());
        }
        for _ in 0..2_000 {
            let mut bad = bytes.to_vec();
            for _ in 0..=random.below(3) {
                let at = random.below(bad.len() as u64) as usize;
                bad[at] = random.next_u64() as u8;
            }
            let _ = Message::decode(&bad.into());
        }
    }
}
