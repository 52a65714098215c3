use bytes::Bytes;
use proptest::prelude::*;
use riverlog_core::metadata::{AdminAnswer, AdminCommand, AdminResult, BrokerImage, NewTopic};
use riverlog_wire::{BrokerId, ErrorCode, TopicId};

use super::{Message, MessageError};

fn broker() -> BrokerImage {
    BrokerImage {
        id: BrokerId(3),
        epoch: 0,
        listeners: vec![("PLAINTEXT".to_owned(), "h".to_owned(), 9092)],
        rack: Some("r".to_owned()),
        fenced: false,
    }
}

fn all() -> Vec<Message> {
    let forward = |command| Message::Forward { number: 7, command };
    let answer = |answer| Message::Forwarded { number: 7, answer };
    let topic = NewTopic {
        name: "t".to_owned(),
        partitions: 2,
        replication_factor: -1,
        assignments: vec![(0, vec![BrokerId(1), BrokerId(2)])],
        configs: vec![
            ("k".to_owned(), None),
            ("l".to_owned(), Some(String::new())),
        ],
        id: TopicId(*b"0123456789abcdef"),
        internal: true,
    };
    vec![
        forward(AdminCommand::Register {
            broker: broker(),
            cluster_id: "c".to_owned(),
        }),
        forward(AdminCommand::AllocateProducerIds { count: 1_000 }),
        forward(AdminCommand::CreateTopics {
            topics: vec![topic],
            validate_only: true,
        }),
        answer(Err(ErrorCode::NOT_CONTROLLER)),
        answer(Ok(AdminAnswer::Registered { epoch: 9 })),
        answer(Ok(AdminAnswer::ProducerIds { first: 1, count: 2 })),
        answer(Ok(AdminAnswer::Results(vec![AdminResult {
            error: ErrorCode::TOPIC_ALREADY_EXISTS,
            message: Some("there".to_owned()),
            topic: None,
        }]))),
    ]
}

#[test]
fn what_is_said_is_understood() {
    for message in all() {
        let bytes = message.encode().expect("it can be said");
        let understood = Message::decode(&bytes).expect("it can be read");
        assert_eq!(format!("{understood:?}"), format!("{message:?}"));
        for end in 0..bytes.len() {
            assert!(Message::decode(&bytes.slice(..end)).is_err(), "{end}");
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert_eq!(
            Message::decode(&longer.into()).unwrap_err(),
            MessageError::TooLong(1)
        );
    }
}

#[test]
fn a_newer_version_is_told_apart() {
    let newer = Message::decode(&Bytes::from_static(&[2, 1, 0]));
    assert_eq!(newer.unwrap_err(), MessageError::Version(2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_without_harm(
        which in 0..20_usize,
        flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..6),
        noise in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let messages = all();
        let mut bytes = match messages.get(which) {
            Some(message) => message.encode().unwrap().to_vec(),
            None => [vec![1], noise].concat(),
        };
        for (at, value) in flips {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        let _understood_or_not = Message::decode(&bytes.into());
    }
}
