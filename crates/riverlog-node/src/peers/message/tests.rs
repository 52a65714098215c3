use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use riverlog_core::metadata::{
    AdminAnswer, AdminCommand, AdminResult, BrokerImage, ConfigChange, ConfigResource, IsrChange,
    NewTopic, Reassignment, Roundabout, TopicRef,
};
use riverlog_core::replica::FollowerAnswer;
use riverlog_core::share::{
    DeliveryState, ShareCommand, ShareKey, ShareState, ShareSummary, StateBatch, StateUpdate,
};
use riverlog_core::transactions::{TransactionAnswer, TransactionCommand, TransactionVersion};
use riverlog_log::{LogKey, Marker};
use riverlog_wire::{
    BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId,
};

use crate::groups::least::LeastAsk;
use crate::replication::{PeerAsk, PeerPart, Stamp};
use crate::share::{ShareQuestion, ShareSaid};

use super::{Message, MessageError};

fn broker() -> BrokerImage {
    BrokerImage {
        id: BrokerId(3),
        epoch: 0,
        listeners: vec![("PLAINTEXT".to_owned(), "h".to_owned(), 9092)],
        rack: Some("r".to_owned()),
        fenced: true,
        stopping: false,
        ailing: false,
        incarnation: 1 << 100,
        disk: 9,
    }
}

fn key() -> LogKey {
    LogKey {
        topic: TopicId(*b"0123456789abcdef"),
        partition: PartitionIndex(3),
    }
}

fn stamp() -> Stamp {
    Stamp {
        broker_epoch: 12,
        at: Duration::from_nanos(1_234_567_890_123),
    }
}

fn ask() -> PeerAsk {
    PeerAsk {
        key: key(),
        epoch: LeaderEpoch(4),
        from: Offset(100),
        last_epoch: LeaderEpoch(-1),
        written: Offset(99),
        synced: Offset(98),
        log_start: Offset(7),
    }
}

fn part(answer: Result<FollowerAnswer, ErrorCode>) -> PeerPart {
    PeerPart {
        key: key(),
        answer,
        records: Bytes::new(),
    }
}

fn share_key() -> ShareKey {
    ShareKey {
        group: "g".to_owned(),
        topic: key().topic,
        partition: 3,
    }
}

fn state_batches() -> Vec<StateBatch> {
    let resting = StateBatch {
        first: Offset(5),
        last: Offset(7),
        state: DeliveryState::Available,
        delivery_count: 2,
        not_before: 12,
        rest: 3,
    };
    let free = StateBatch {
        first: Offset(8),
        last: Offset(8),
        not_before: 0,
        rest: 0,
        ..resting
    };
    vec![resting, free]
}

fn share(question: ShareQuestion) -> Message {
    Message::ShareAsk {
        number: 4,
        broker_epoch: 5,
        epoch: LeaderEpoch(6),
        question,
    }
}

fn said(answer: Result<ShareSaid, ErrorCode>) -> Message {
    Message::ShareSaid { number: 4, answer }
}

fn all() -> Vec<Message> {
    let forward = |command| Message::Forward { number: 7, command };
    let answer = |answer| Message::Forwarded {
        number: 7,
        answer,
        position: Offset(12),
    };
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
        forward(AdminCommand::Heartbeat {
            broker: BrokerId(2),
            epoch: 5,
            position: Offset(6),
            stopping: true,
            ailing: true,
        }),
        forward(AdminCommand::AlterPartitions {
            broker: BrokerId(2),
            epoch: 5,
            changes: vec![IsrChange {
                topic: TopicId(*b"0123456789abcdef"),
                index: 1,
                leader_epoch: LeaderEpoch(2),
                partition_epoch: 3,
                isr: vec![(BrokerId(2), 5), (BrokerId(3), 8)],
            }],
        }),
        forward(AdminCommand::CreateTopics {
            topics: vec![NewTopic {
                name: "u".to_owned(),
                ..NewTopic::default()
            }],
            validate_only: false,
        }),
        forward(AdminCommand::DeleteTopics {
            topics: vec![
                TopicRef::Name("t".to_owned()),
                TopicRef::Id(TopicId(*b"0123456789abcdef")),
            ],
        }),
        forward(AdminCommand::CreatePartitions {
            topics: vec![
                ("t".to_owned(), 5, None),
                (
                    "u".to_owned(),
                    6,
                    Some(vec![vec![BrokerId(1), BrokerId(2)]]),
                ),
            ],
            validate_only: false,
        }),
        forward(AdminCommand::AlterConfigs {
            resources: vec![
                (
                    ConfigResource::Topic("t".to_owned()),
                    vec![
                        ConfigChange::Set("a".to_owned(), Some("1".to_owned())),
                        ConfigChange::Delete("b".to_owned()),
                        ConfigChange::Append("c".to_owned(), Some("x".to_owned())),
                        ConfigChange::Subtract("d".to_owned(), None),
                    ],
                ),
                (ConfigResource::Broker(String::new()), Vec::new()),
                (ConfigResource::Group("g".to_owned()), Vec::new()),
                (ConfigResource::Other(8, "l".to_owned()), Vec::new()),
            ],
            replace: true,
            validate_only: false,
        }),
        forward(AdminCommand::UpdateFeatures {
            features: vec![("f".to_owned(), 3)],
            validate_only: true,
        }),
        forward(AdminCommand::Unregister {
            broker: BrokerId(3),
        }),
        forward(AdminCommand::Reassign {
            partitions: vec![
                Reassignment {
                    topic: "t".to_owned(),
                    index: 3,
                    replicas: Some(vec![BrokerId(4), BrokerId(1)]),
                },
                Reassignment {
                    topic: "u".to_owned(),
                    index: 0,
                    replicas: None,
                },
            ],
            factor_may_change: true,
        }),
        forward(AdminCommand::ElectLeaders {
            partitions: vec![("t".to_owned(), 2)],
            unclean: true,
        }),
        share(ShareQuestion::Tell(ShareCommand::Initialize {
            key: share_key(),
            state_epoch: None,
            start: Offset(-1),
        })),
        share(ShareQuestion::Tell(ShareCommand::Read {
            key: share_key(),
            leader_epoch: LeaderEpoch(3),
        })),
        share(ShareQuestion::Tell(ShareCommand::Write {
            key: share_key(),
            state_epoch: 1,
            leader_epoch: LeaderEpoch(3),
            update: StateUpdate {
                start: Offset(5),
                complete: 2,
                batches: state_batches(),
            },
        })),
        share(ShareQuestion::Tell(ShareCommand::Delete {
            key: share_key(),
        })),
        share(ShareQuestion::Summary(share_key())),
        share(ShareQuestion::End(share_key())),
        share(ShareQuestion::Forget(share_key())),
        share(ShareQuestion::Bury(
            share_key(),
            Bytes::from_static(b"dead letters"),
        )),
        said(Err(ErrorCode::NOT_COORDINATOR)),
        said(Ok(ShareSaid::Done)),
        said(Ok(ShareSaid::State(ShareState {
            state_epoch: 1,
            leader_epoch: LeaderEpoch(2),
            start: Offset(3),
            batches: state_batches(),
        }))),
        said(Ok(ShareSaid::Summary(Some(ShareSummary {
            state_epoch: 1,
            leader_epoch: LeaderEpoch(2),
            start: Offset(3),
            complete: 4,
        })))),
        said(Ok(ShareSaid::Summary(None))),
        said(Ok(ShareSaid::End(Offset(9)))),
        Message::Ask {
            number: 1,
            broker_epoch: 2,
            asks: vec![ask()],
            catches_up: None,
            stamp: None,
        },
        Message::Ask {
            number: 2,
            broker_epoch: 2,
            asks: vec![ask()],
            catches_up: Some(70_000),
            stamp: Some(stamp()),
        },
        Message::Report {
            broker_epoch: 2,
            asks: vec![ask(), ask()],
            stamp: Some(stamp()),
        },
        Message::Records {
            number: 1,
            parts: vec![
                part(Err(ErrorCode::FENCED_LEADER_EPOCH)),
                part(Ok(FollowerAnswer::Diverging {
                    epoch: LeaderEpoch(3),
                    end: Offset(4),
                })),
                part(Ok(FollowerAnswer::OutOfRange {
                    log_start: Offset(3),
                    log_end: Offset(4),
                })),
                PeerPart {
                    records: Bytes::from_static(b"whole batches"),
                    ..part(Ok(FollowerAnswer::Matches {
                        high_watermark: Offset(3),
                        log_start: Offset(0),
                    }))
                },
            ],
            stamp: Some(stamp()),
        },
        answer(Ok(AdminAnswer::Heartbeat {
            fenced: true,
            may_stop: false,
            position: Offset(77),
            silent: Duration::from_millis(250),
        })),
        answer(Err(ErrorCode::NOT_CONTROLLER)),
        answer(Ok(AdminAnswer::Registered { epoch: 9 })),
        answer(Ok(AdminAnswer::ProducerIds { first: 1, count: 2 })),
        answer(Ok(AdminAnswer::Results(vec![AdminResult {
            error: ErrorCode::TOPIC_ALREADY_EXISTS,
            message: Some("there".to_owned()),
            topic: None,
        }]))),
        Message::Transaction {
            number: 4,
            command: TransactionCommand::Add {
                id: "pay".to_owned(),
                producer_id: ProducerId(5),
                epoch: ProducerEpoch(6),
                partitions: vec![("t".to_owned(), 2), ("u".to_owned(), 0)],
                version: TransactionVersion::TWO,
            },
        },
        Message::Transaction {
            number: 4,
            command: TransactionCommand::Verify {
                id: "pay".to_owned(),
                producer_id: ProducerId(5),
                epoch: ProducerEpoch(6),
                partitions: vec![("t".to_owned(), 2)],
            },
        },
        Message::Marker {
            number: 5,
            topic: "t".to_owned(),
            partition: 2,
            marker: Marker {
                producer_id: ProducerId(5),
                producer_epoch: ProducerEpoch(6),
                coordinator_epoch: 7,
                transaction_version: 2,
                committed: true,
            },
        },
        Message::Told {
            number: 5,
            answer: TransactionAnswer::Error(ErrorCode::PRODUCER_FENCED),
        },
        Message::Told {
            number: 4,
            answer: TransactionAnswer::Partitions(vec![
                ErrorCode::NONE,
                ErrorCode::TRANSACTION_ABORTABLE,
            ]),
        },
        Message::LeastAsk {
            number: 6,
            ask: LeastAsk {
                key: key(),
                start: Offset(4),
                drops: None,
                shards: vec![(0, LeaderEpoch(1)), (49, LeaderEpoch(2))],
            },
        },
        Message::LeastAsk {
            number: 6,
            ask: LeastAsk {
                key: key(),
                start: Offset(4),
                drops: Some(Offset(8)),
                shards: Vec::new(),
            },
        },
        Message::Least {
            number: 6,
            answer: Ok(Some(Offset(8))),
        },
        Message::Least {
            number: 6,
            answer: Ok(None),
        },
        Message::Least {
            number: 6,
            answer: Err(ErrorCode::NOT_COORDINATOR),
        },
        Message::Room { key: key() },
        Message::PassOn {
            to: BrokerId(3),
            message: Bytes::from_static(b"a message"),
        },
        Message::PassedOn {
            from: BrokerId(1),
            message: Bytes::from_static(b"a message"),
        },
    ]
}

#[test]
fn only_what_leaders_ask_is_said_to_coordinators() {
    let command = TransactionCommand::End {
        id: "pay".to_owned(),
        producer_id: ProducerId(5),
        epoch: ProducerEpoch(6),
        commit: true,
        version: TransactionVersion::TWO,
        fresh: None,
    };
    let message = Message::Transaction { number: 1, command };
    assert_eq!(message.encode(), None);
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
fn only_what_may_come_twice_goes_round() {
    let (mut questions, mut answers) = (0, 0);
    for message in all() {
        let bytes = message.encode().expect("it can be said");
        match Message::may_go_round(&bytes) {
            Some(Roundabout::Question) => questions += 1,
            Some(Roundabout::Answer) => answers += 1,
            None => continue,
        }
        // No records, no heartbeats, nothing of the quorum, no dead letters, and nothing that goes round already.
        let name = format!("{message:?}");
        let name = name.split(' ').next().unwrap_or_default();
        let may = [
            "Transaction",
            "Marker",
            "Told",
            "ShareAsk",
            "ShareSaid",
            "LeastAsk",
            "Least",
        ];
        assert!(may.contains(&name), "{name}");
        assert!(!format!("{message:?}").contains("Bury"));
    }
    assert_eq!((questions, answers), (12, 11));
}

#[test]
fn what_goes_round_is_told_by_its_beginning() {
    // The kind of question comes after the version, the kind, and 20 bytes of numbers.
    let ask = |question: u8| [&[1, 9][..], &[0; 20], &[question]].concat();
    let is = |bytes: &[u8]| Message::may_go_round(&Bytes::copy_from_slice(bytes));
    for question in 0..7 {
        assert_eq!(is(&ask(question)), Some(Roundabout::Question));
        assert_eq!(is(&ask(question)[..22]), None);
    }
    // Dead letters, and what this release doesn't know.
    assert_eq!(is(&ask(7)), None);
    assert_eq!(is(&ask(8)), None);
    assert_eq!(is(&[1, 15]), None);
    assert_eq!(is(&[1, 16]), None);
    assert_eq!(is(&[2, 8]), None);
    assert_eq!(is(&[1, 8]), Some(Roundabout::Answer));
    assert_eq!(is(&[]), None);
}

#[test]
fn the_golden_bytes_of_what_is_passed_on() {
    let marker = Message::Told {
        number: 5,
        answer: TransactionAnswer::Error(ErrorCode::NONE),
    };
    let message = marker.encode().unwrap();
    let to = BrokerId(3);
    let bytes = Message::PassOn { to, message }.encode().unwrap();
    let inner = [1, 8, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0];
    let outer = [&[1, 11, 0, 0, 0, 3, 15][..], &inner, &[0]].concat();
    assert_eq!(bytes, outer);
    // A node of a release before this one drops and counts both kinds.
    let newer = Message::decode(&Bytes::from_static(&[1, 16, 0]));
    let unknown = MessageError::Unknown {
        what: "kind",
        value: 16,
    };
    assert_eq!(newer.unwrap_err(), unknown);
}

#[test]
fn the_golden_bytes_of_what_is_asked_about_commits() {
    let ask = LeastAsk {
        key: key(),
        start: Offset(4),
        drops: Some(Offset(8)),
        shards: vec![(49, LeaderEpoch(2))],
    };
    let bytes = Message::LeastAsk { number: 6, ask }.encode().unwrap();
    let place = [&b"0123456789abcdef"[..], &[0, 0, 0, 3]].concat();
    let number = |n: u8| [0, 0, 0, 0, 0, 0, 0, n];
    let shard = [2, 0, 0, 0, 49, 0, 0, 0, 2];
    let asked = [
        &[1, 13][..],
        &number(6),
        &place,
        &number(4),
        &number(8),
        &shard,
        &[0],
    ];
    assert_eq!(bytes, asked.concat());
    let answer = Ok(None);
    let bytes = Message::Least { number: 6, answer }.encode().unwrap();
    let said = [&[1, 14][..], &number(6), &[1], &[255; 8], &[0]].concat();
    assert_eq!(bytes, said);
    let bytes = Message::Room { key: key() }.encode().unwrap();
    assert_eq!(bytes, [&[1, 15][..], &place, &[0]].concat());
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
        which in 0..58_usize,
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
