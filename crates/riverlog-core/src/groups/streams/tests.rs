//! Members that come, stay and leave, topologies that fit and don't, and random lives in which no task is run twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, TopicId};

use super::topology::{STATUS_INCORRECTLY_PARTITIONED_TOPICS, STATUS_MISSING_INTERNAL_TOPICS};
use crate::groups::records::{StreamsTopology, Subtopology, TaskList, TopicInfo};
use crate::groups::tests::Story;
use crate::groups::{
    CommittedOffset, ConsumerHeartbeat, GroupAnswer, GroupCommand, GroupSettings, Join, OwnedTasks,
    StreamsDescription, StreamsHeartbeat, StreamsHeartbeatAnswer, TopicPartition,
};

fn story(settings: GroupSettings) -> Story {
    let mut story = Story::new(GroupSettings {
        streams_initial_rebalance_delay: Duration::ZERO,
        ..settings
    });
    story.topics.set("lines", 4);
    story
}

fn words() -> StreamsTopology {
    let topic = |name: &str| TopicInfo {
        name: name.to_owned(),
        ..TopicInfo::default()
    };
    StreamsTopology {
        epoch: 0,
        subtopologies: vec![
            Subtopology {
                id: "0".to_owned(),
                source_topics: vec!["lines".to_owned()],
                repartition_sinks: vec!["by-word".to_owned()],
                ..Subtopology::default()
            },
            Subtopology {
                id: "1".to_owned(),
                repartition_sources: vec![topic("by-word")],
                changelogs: vec![topic("counts")],
                ..Subtopology::default()
            },
        ],
        description: None,
    }
}

/// One subtopology without state.
fn copies() -> StreamsTopology {
    StreamsTopology {
        subtopologies: vec![Subtopology {
            id: "0".to_owned(),
            source_topics: vec!["lines".to_owned()],
            ..Subtopology::default()
        }],
        ..StreamsTopology::default()
    }
}

fn join(member: &str, topology: StreamsTopology) -> StreamsHeartbeat {
    StreamsHeartbeat {
        group: "g".to_owned(),
        member: member.to_owned(),
        rebalance_timeout: Some(Duration::from_secs(10)),
        topology: Some(topology),
        owned: Some(OwnedTasks::default()),
        process: Some(format!("process of {member}")),
        tags: Some(Vec::new()),
        version: 1,
        ..StreamsHeartbeat::default()
    }
}

fn stay(member: &str, epoch: i32) -> StreamsHeartbeat {
    StreamsHeartbeat {
        group: "g".to_owned(),
        member: member.to_owned(),
        member_epoch: epoch,
        version: 1,
        ..StreamsHeartbeat::default()
    }
}

fn owns(tasks: &[TaskList; 3]) -> Option<OwnedTasks> {
    let [active, standby, warmup] = tasks.clone();
    Some(OwnedTasks {
        active,
        standby,
        warmup,
    })
}

fn send(story: &mut Story, request: StreamsHeartbeat) -> StreamsHeartbeatAnswer {
    let command = GroupCommand::StreamsHeartbeat(Box::new(request));
    let answers = story.command("x", command);
    match answers.into_iter().next().map(|a| a.body) {
        Some(GroupAnswer::StreamsHeartbeat(answer)) => *answer,
        other => panic!("{other:?}"),
    }
}

fn error(story: &mut Story, request: StreamsHeartbeat) -> ErrorCode {
    send(story, request).error
}

/// Epoch and active tasks.
fn brief(answer: &StreamsHeartbeatAnswer) -> (i32, String) {
    assert_eq!(answer.error, ErrorCode::NONE, "{answer:?}");
    let show = |list: &TaskList| {
        let each = list
            .iter()
            .map(|(id, partitions)| format!("{id}{partitions:?}"));
        each.collect::<Vec<_>>().join(" ")
    };
    let tasks = answer.tasks.as_ref().map(|[active, standby, _]| {
        let standby = match standby.is_empty() {
            true => String::new(),
            false => format!(" standby {}", show(standby)),
        };
        format!("{}{standby}", show(active))
    });
    (answer.member_epoch, tasks.unwrap_or("as before".to_owned()))
}

fn is(answer: &StreamsHeartbeatAnswer, epoch: i32, tasks: &str) {
    assert_eq!(brief(answer), (epoch, tasks.to_owned()));
}

fn codes(answer: &StreamsHeartbeatAnswer) -> Vec<i8> {
    answer.status.iter().map(|s| s.code).collect()
}

fn describe(story: &Story) -> StreamsDescription {
    story
        .shard
        .describe_streams("g")
        .0
        .expect("a streams group")
}

fn make_internal_topics(story: &mut Story, answer: &StreamsHeartbeatAnswer) {
    for topic in &answer.missing_topics {
        story.topics.set(&topic.name, topic.partitions);
    }
    story.topics_changed();
}

#[test]
fn a_group_waits_for_its_topics_and_then_runs() {
    let mut story = Story::new(GroupSettings {
        streams_initial_rebalance_delay: Duration::ZERO,
        ..GroupSettings::default()
    });
    let answer = send(&mut story, join("m", words()));
    is(&answer, 1, "");
    assert_eq!(codes(&answer), [1]);
    assert_eq!(describe(&story).state, "NotReady");
    story.topics.set("lines", 4);
    story.topics_changed();
    let answer = send(&mut story, stay("m", 1));
    assert_eq!(codes(&answer), [STATUS_MISSING_INTERNAL_TOPICS]);
    let missing: Vec<(&str, i32)> = answer
        .missing_topics
        .iter()
        .map(|t| (t.name.as_str(), t.partitions))
        .collect();
    assert_eq!(missing, [("by-word", 4), ("counts", 4)]);
    make_internal_topics(&mut story, &answer);
    let answer = send(&mut story, stay("m", answer.member_epoch));
    is(&answer, 3, "0[0, 1, 2, 3] 1[0, 1, 2, 3]");
    assert_eq!((codes(&answer), describe(&story).state), (vec![], "Stable"));
    // A source that is gone takes all tasks away.
    let tasks = answer.tasks.expect("told");
    story.topics = Default::default();
    story.topics_changed();
    let answer = send(&mut story, stay("m", 3));
    is(&answer, 3, "");
    assert_eq!(codes(&answer), [1]);
    let given_back = StreamsHeartbeat {
        owned: Some(OwnedTasks::default()),
        ..stay("m", 3)
    };
    assert_ne!(tasks, <[TaskList; 3]>::default());
    is(&send(&mut story, given_back), 4, "as before");
}

#[test]
fn internal_topics_of_another_size_are_told() {
    let mut story = story(GroupSettings::default());
    story.topics.set("counts", 3);
    let answer = send(&mut story, join("m", words()));
    assert_eq!(codes(&answer), [STATUS_INCORRECTLY_PARTITIONED_TOPICS]);
    assert!(answer.missing_topics.is_empty());
}

#[test]
fn a_task_is_given_once_its_owner_has_let_it_go() {
    let mut story = story(GroupSettings::default());
    let first = send(&mut story, join("a", copies()));
    is(&first, 1, "0[0, 1, 2, 3]");
    is(&send(&mut story, join("b", copies())), 2, "");
    assert_eq!(describe(&story).state, "Reconciling");
    // A heartbeat that doesn't say what the member has shows nothing given back.
    let answer = send(&mut story, stay("a", 1));
    is(&answer, 1, "0[0, 1]");
    is(&send(&mut story, stay("b", 2)), 2, "as before");
    is(&send(&mut story, stay("a", 1)), 1, "as before");
    let still = StreamsHeartbeat {
        owned: owns(&first.tasks.expect("told")),
        ..stay("a", 1)
    };
    is(&send(&mut story, still), 1, "0[0, 1]");
    let given_back = StreamsHeartbeat {
        owned: owns(&answer.tasks.expect("told")),
        ..stay("a", 1)
    };
    is(&send(&mut story, given_back), 2, "as before");
    is(&send(&mut story, stay("b", 2)), 2, "0[2, 3]");
    assert_eq!(describe(&story).state, "Stable");
    // And back, when the other leaves.
    let left = send(&mut story, stay("b", -1));
    assert_eq!((left.error, left.member_epoch), (ErrorCode::NONE, -1));
    is(&send(&mut story, stay("a", 2)), 3, "0[0, 1, 2, 3]");
}

#[test]
fn the_first_members_are_waited_for() {
    let mut story = Story::new(GroupSettings {
        streams_initial_rebalance_delay: Duration::from_millis(100),
        ..GroupSettings::default()
    });
    story.topics.set("lines", 4);
    let answer = send(&mut story, join("a", copies()));
    is(&answer, 1, "");
    assert_eq!(codes(&answer), [5]);
    assert_eq!(answer.heartbeat_interval, Duration::from_millis(120));
    assert_eq!(describe(&story).state, "Assigning");
    story.wait(Duration::from_millis(50));
    let answer = send(&mut story, join("b", copies()));
    assert_eq!(
        (codes(&answer), answer.heartbeat_interval),
        (vec![5], Duration::from_millis(70))
    );
    // A new coordinator waits too.
    story.crash();
    assert_eq!(codes(&send(&mut story, join("c", copies()))), [5]);
    story.wait(Duration::from_millis(120));
    for (member, tasks) in [("a", "0[0, 3]"), ("b", "0[1]"), ("c", "0[2]")] {
        let answer = send(&mut story, stay(member, 1));
        is(&answer, 4, tasks);
        assert_eq!(answer.heartbeat_interval, Duration::from_secs(5));
    }
}

#[test]
fn a_member_that_waits_for_tasks_comes_again_soon() {
    let mut story = story(GroupSettings::default());
    let usually = Duration::from_secs(5);
    is(&send(&mut story, join("a", copies())), 1, "0[0, 1, 2, 3]");
    let answer = send(&mut story, join("b", copies()));
    is(&answer, 2, "");
    assert!(answer.heartbeat_interval < usually, "{answer:?}");
    story.wait(usually / 2);
    let half = owns(&[vec![("0".to_owned(), vec![0, 1])], vec![], vec![]]);
    let given_back = StreamsHeartbeat {
        owned: half,
        ..stay("a", 1)
    };
    let answer = send(&mut story, given_back);
    assert_eq!(answer.heartbeat_interval, usually);
    let answer = send(&mut story, stay("b", 2));
    is(&answer, 2, "0[2, 3]");
    assert_eq!(answer.heartbeat_interval, usually);
}

#[test]
fn requests_that_can_t_be_are_refused() {
    let mut story = story(GroupSettings {
        streams_max_size: 2,
        ..GroupSettings::default()
    });
    let invalid = ErrorCode::INVALID_REQUEST;
    let m = || join("m", copies());
    let mut pattern = copies();
    pattern.subtopologies[0].source_topic_regex = vec!["l.*".to_owned()];
    let mut counted = words();
    counted.subtopologies[1].changelogs[0].partitions = 3;
    let bad: Vec<(StreamsHeartbeat, ErrorCode)> = vec![
        (join("", copies()), invalid),
        (
            StreamsHeartbeat {
                group: String::new(),
                ..m()
            },
            invalid,
        ),
        (
            StreamsHeartbeat {
                instance: Some(String::new()),
                ..m()
            },
            invalid,
        ),
        (
            StreamsHeartbeat {
                rack: Some(String::new()),
                ..m()
            },
            invalid,
        ),
        (
            StreamsHeartbeat {
                rebalance_timeout: None,
                ..m()
            },
            invalid,
        ),
        (
            StreamsHeartbeat {
                topology: None,
                ..m()
            },
            invalid,
        ),
        (StreamsHeartbeat { owned: None, ..m() }, invalid),
        (
            StreamsHeartbeat {
                owned: owns(&[vec![("0".to_owned(), vec![0])], vec![], vec![]]),
                ..m()
            },
            invalid,
        ),
        (
            StreamsHeartbeat {
                incomplete_tasks: true,
                ..stay("m", 1)
            },
            invalid,
        ),
        (
            StreamsHeartbeat {
                topology: Some(copies()),
                ..stay("m", 1)
            },
            invalid,
        ),
        (join("m", pattern), invalid),
        (join("m", counted), ErrorCode::STREAMS_INVALID_TOPOLOGY),
        (stay("m", -2), invalid),
        (stay("m", -3), invalid),
        (stay("m", 1), ErrorCode::GROUP_ID_NOT_FOUND),
    ];
    for (request, code) in bad {
        let words = format!("{request:?}");
        assert_eq!(error(&mut story, request), code, "{words}");
    }
    assert!(story.log.is_empty(), "a refused request leaves nothing");
    is(&send(&mut story, m()), 1, "0[0, 1, 2, 3]");
    let unknown = StreamsHeartbeat {
        owned: owns(&[vec![("0".to_owned(), vec![4])], vec![], vec![]]),
        ..stay("m", 1)
    };
    for (request, code) in [
        (stay("n", 1), ErrorCode::UNKNOWN_MEMBER_ID),
        (stay("m", 2), ErrorCode::FENCED_MEMBER_EPOCH),
        (unknown, invalid),
        // Another topology while members run this one.
        (join("n", words()), invalid),
    ] {
        assert_eq!(error(&mut story, request), code);
    }
    is(&send(&mut story, join("n", copies())), 2, "");
    assert_eq!(
        error(&mut story, join("o", copies())),
        ErrorCode::GROUP_MAX_SIZE_REACHED
    );
}

#[test]
fn a_lost_answer_is_given_again() {
    let mut story = story(GroupSettings::default());
    send(&mut story, join("a", copies()));
    send(&mut story, join("b", copies()));
    let kept = vec![("0".to_owned(), vec![0, 1])];
    let given_back = || StreamsHeartbeat {
        owned: owns(&[kept.clone(), vec![], vec![]]),
        ..stay("a", 1)
    };
    is(&send(&mut story, given_back()), 2, "0[0, 1]");
    is(&send(&mut story, given_back()), 2, "0[0, 1]");
    let more = StreamsHeartbeat {
        owned: owns(&[vec![("0".to_owned(), vec![0, 1, 2])], vec![], vec![]]),
        ..stay("a", 1)
    };
    assert_eq!(error(&mut story, more), ErrorCode::FENCED_MEMBER_EPOCH);
    assert_eq!(
        error(&mut story, stay("a", 1)),
        ErrorCode::FENCED_MEMBER_EPOCH
    );
}

#[test]
fn a_silent_member_is_taken_out_and_a_slow_one_too() {
    let mut story = story(GroupSettings::default());
    send(&mut story, join("a", copies()));
    send(&mut story, join("b", copies()));
    is(&send(&mut story, stay("a", 1)), 1, "0[0, 1]");
    // It has 10 s to give two tasks back, and says nothing.
    story.wait(Duration::from_secs(11));
    assert_eq!(
        error(&mut story, stay("a", 1)),
        ErrorCode::UNKNOWN_MEMBER_ID
    );
    is(&send(&mut story, stay("b", 2)), 3, "0[0, 1, 2, 3]");
    story.wait(Duration::from_secs(46));
    assert_eq!(
        error(&mut story, stay("b", 3)),
        ErrorCode::UNKNOWN_MEMBER_ID
    );
    assert_eq!(describe(&story).state, "Empty");
}

#[test]
fn a_static_member_that_comes_back_has_its_tasks() {
    let mut story = story(GroupSettings::default());
    let named = |member: &str, name: &str| StreamsHeartbeat {
        instance: Some(name.to_owned()),
        process: Some(format!("process of {name}")),
        ..join(member, copies())
    };
    is(&send(&mut story, named("a1", "a")), 1, "0[0, 1, 2, 3]");
    assert_eq!(
        error(&mut story, named("a2", "a")),
        ErrorCode::UNRELEASED_INSTANCE_ID
    );
    send(&mut story, named("b1", "b"));
    let kept = owns(&[vec![("0".to_owned(), vec![0, 1])], vec![], vec![]]);
    let given_back = StreamsHeartbeat {
        owned: kept,
        ..stay("a1", 1)
    };
    is(&send(&mut story, given_back), 2, "0[0, 1]");
    let away = StreamsHeartbeat {
        instance: Some("a".to_owned()),
        ..stay("a1", -2)
    };
    assert_eq!(send(&mut story, away.clone()).member_epoch, -2);
    // Nothing moves while it is away.
    is(&send(&mut story, stay("b1", 2)), 2, "0[2, 3]");
    is(&send(&mut story, named("a2", "a")), 2, "0[0, 1]");
    let old = StreamsHeartbeat {
        member_epoch: 2,
        ..away
    };
    assert_eq!(error(&mut story, old), ErrorCode::FENCED_INSTANCE_ID);
}

#[test]
fn standby_tasks_follow_the_config_of_the_group() {
    let mut story = story(GroupSettings {
        streams_standbys: 1,
        ..GroupSettings::default()
    });
    let answer = send(&mut story, join("a", words()));
    make_internal_topics(&mut story, &answer);
    is(
        &send(&mut story, stay("a", answer.member_epoch)),
        2,
        "0[0, 1, 2, 3] 1[0, 1, 2, 3]",
    );
    let answer = send(&mut story, join("b", words()));
    // Those that are active elsewhere can follow at once.
    is(&answer, 3, " standby 1[0, 1]");
    let half = owns(&[
        vec![("0".to_owned(), vec![0, 1]), ("1".to_owned(), vec![0, 1])],
        vec![],
        vec![],
    ]);
    let given_back = StreamsHeartbeat {
        owned: half,
        ..stay("a", 2)
    };
    is(
        &send(&mut story, given_back),
        3,
        "0[0, 1] 1[0, 1] standby 1[2, 3]",
    );
    is(
        &send(&mut story, stay("b", 3)),
        3,
        "0[2, 3] 1[2, 3] standby 1[0, 1]",
    );
    is(&send(&mut story, stay("a", 3)), 3, "as before");
}

#[test]
fn whoever_asks_stops_the_application() {
    let mut story = story(GroupSettings::default());
    send(&mut story, join("a", copies()));
    send(&mut story, join("b", copies()));
    let last = StreamsHeartbeat {
        shutdown: true,
        ..stay("a", -1)
    };
    send(&mut story, last);
    let answer = send(&mut story, stay("b", 2));
    assert_eq!((codes(&answer), answer.member_epoch), (vec![4], 3));
    send(&mut story, stay("b", -1));
    assert_eq!(codes(&send(&mut story, join("b", copies()))), [0_i8; 0]);
}

#[test]
fn endpoints_are_told_when_they_change() {
    let mut story = story(GroupSettings::default());
    let with = |member: &str, port: u16| StreamsHeartbeat {
        endpoint: Some(("host".to_owned(), port)),
        ..join(member, copies())
    };
    let answer = send(&mut story, with("a", 1));
    let endpoints = answer.endpoints.expect("told");
    assert_eq!(endpoints.len(), 1);
    assert_eq!(
        endpoints[0].active,
        vec![("lines".to_owned(), vec![0, 1, 2, 3])]
    );
    let again = |epoch: i32, seen: i32| StreamsHeartbeat {
        endpoint_epoch: seen,
        ..stay("a", epoch)
    };
    let seen = answer.endpoint_epoch;
    assert_eq!(send(&mut story, again(1, seen)).endpoints, None);
    send(&mut story, with("b", 2));
    let answer = send(&mut story, again(1, seen));
    let ports: Vec<u16> = answer
        .endpoints
        .iter()
        .flatten()
        .map(|e| e.endpoint.1)
        .collect();
    assert_eq!(ports, [1, 2]);
}

#[test]
fn missing_client_tags_are_told() {
    let mut story = story(GroupSettings {
        streams_tags: "zone, rack".to_owned(),
        ..GroupSettings::default()
    });
    let tagged = StreamsHeartbeat {
        tags: Some(vec![("zone".to_owned(), "a".to_owned())]),
        ..join("a", copies())
    };
    let answer = send(&mut story, tagged.clone());
    assert_eq!(codes(&answer), [6]);
    assert!(answer.status[0].detail.contains(": rack;"), "{answer:?}");
    // Clients of version 0 don't know the status.
    let old = StreamsHeartbeat {
        version: 0,
        ..tagged
    };
    assert_eq!(codes(&send(&mut story, old)), [0_i8; 0]);
}

#[test]
fn a_description_is_asked_for_once() {
    let mut story = story(GroupSettings::default());
    assert!(send(&mut story, join("a", copies())).describe);
    let describe_as = |member: &str, epoch: i32, description: Option<&'static [u8]>| {
        GroupCommand::DescribeTopology {
            group: "g".to_owned(),
            member: member.to_owned(),
            epoch,
            description: description.map(Bytes::from_static),
        }
    };
    let tell = |story: &mut Story, command| {
        let answers = story.command("x", command);
        match answers.into_iter().next().map(|a| a.body) {
            Some(GroupAnswer::Error(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let nodes: Option<&'static [u8]> = Some(b"nodes");
    assert_eq!(
        tell(&mut story, describe_as("b", 0, nodes)),
        ErrorCode::UNKNOWN_MEMBER_ID
    );
    assert_eq!(
        tell(&mut story, describe_as("a", 1, nodes)),
        ErrorCode::INVALID_REQUEST
    );
    let too_large = ErrorCode::STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED;
    assert_eq!(tell(&mut story, describe_as("a", 0, None)), too_large);
    assert!(!send(&mut story, stay("a", 1)).describe);
    assert_eq!(
        tell(&mut story, describe_as("a", 0, nodes)),
        ErrorCode::NONE
    );
    story.crash();
    assert!(!send(&mut story, stay("a", 1)).describe);
    let topology = describe(&story).topology.expect("there");
    assert_eq!(topology.description.as_deref(), nodes);
    // Another topology has another description.
    send(&mut story, stay("a", -1));
    assert!(send(&mut story, join("a", words())).describe);
    let topology = describe(&story).topology.expect("there");
    assert_eq!(
        (
            topology.description.as_deref(),
            topology.subtopologies.len()
        ),
        (None, 2)
    );
}

#[test]
fn commits_are_the_owners() {
    let mut story = story(GroupSettings::default());
    send(&mut story, join("a", copies()));
    let commit = |epoch: i32, partition: i32, version: i16| GroupCommand::Commit {
        group: "g".to_owned(),
        generation: epoch.into(),
        member: "a".to_owned(),
        instance: None,
        offsets: vec![(
            TopicPartition {
                topic: "lines".to_owned(),
                id: TopicId::ZERO,
                partition,
            },
            CommittedOffset {
                offset: Offset(1),
                leader_epoch: LeaderEpoch(0),
                metadata: String::new(),
                commit_timestamp: 0,
                expire_timestamp: None,
            },
        )],
        version,
    };
    let tell = |story: &mut Story, command| {
        let answers = story.command("x", command);
        match answers.into_iter().next().map(|a| a.body) {
            Some(GroupAnswer::Partitions(error, _)) => error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(tell(&mut story, commit(1, 0, 9)), ErrorCode::NONE);
    assert_eq!(
        tell(&mut story, commit(1, 0, 8)),
        ErrorCode::UNSUPPORTED_VERSION
    );
    assert_eq!(
        tell(&mut story, commit(2, 0, 9)),
        ErrorCode::STALE_MEMBER_EPOCH
    );
    assert_eq!(
        tell(&mut story, commit(-1, 0, 9)),
        ErrorCode::STALE_MEMBER_EPOCH
    );
    send(&mut story, join("b", copies()));
    let kept = owns(&[vec![("0".to_owned(), vec![0, 1])], vec![], vec![]]);
    is(
        &send(
            &mut story,
            StreamsHeartbeat {
                owned: kept,
                ..stay("a", 1)
            },
        ),
        2,
        "0[0, 1]",
    );
    // A commit from before for what it still has counts, another doesn't.
    assert_eq!(tell(&mut story, commit(1, 0, 9)), ErrorCode::NONE);
    assert_eq!(
        tell(&mut story, commit(1, 3, 9)),
        ErrorCode::STALE_MEMBER_EPOCH
    );
    let fetch = |story: &Story, epoch| story.shard.offsets("g", None, Some(("a", epoch))).0.err();
    assert_eq!(fetch(&story, 2), None);
    assert_eq!(fetch(&story, 1), Some(ErrorCode::STALE_MEMBER_EPOCH));
}

#[test]
fn groups_of_other_kinds_stay_what_they_are() {
    let mut story = story(GroupSettings::default());
    send(&mut story, join("a", copies()));
    let consumer = || {
        GroupCommand::ConsumerHeartbeat(ConsumerHeartbeat {
            group: "g".to_owned(),
            member: "c".to_owned(),
            rebalance_timeout: Some(Duration::from_secs(1)),
            subscribed_topics: Some(vec!["lines".to_owned()]),
            owned: Some(Vec::new()),
            version: 1,
            ..ConsumerHeartbeat::default()
        })
    };
    let classic = || {
        GroupCommand::Join(Join {
            group: "g".to_owned(),
            session_timeout: Duration::from_secs(10),
            rebalance_timeout: Duration::from_secs(10),
            protocol_type: "consumer".to_owned(),
            protocols: vec![("range".to_owned(), Bytes::new())],
            ..Join::default()
        })
    };
    let answer = |story: &mut Story, command| {
        let mut answers = story.command("x", command);
        answers.extend(story.wait(Duration::from_secs(1)));
        match answers.into_iter().next().map(|a| a.body) {
            Some(GroupAnswer::ConsumerHeartbeat(answer)) => answer.error,
            Some(GroupAnswer::Join(answer)) => answer.error,
            Some(GroupAnswer::Error(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let delete = || GroupCommand::DeleteGroup {
        group: "g".to_owned(),
    };
    assert_eq!(
        answer(&mut story, consumer()),
        ErrorCode::GROUP_ID_NOT_FOUND
    );
    assert_eq!(
        answer(&mut story, classic()),
        ErrorCode::INCONSISTENT_GROUP_PROTOCOL
    );
    assert_eq!(answer(&mut story, delete()), ErrorCode::NON_EMPTY_GROUP);
    send(&mut story, stay("a", -1));
    // An application that has stopped can go back to the classic protocol, and stop and come again.
    assert_eq!(answer(&mut story, classic()), ErrorCode::NONE);
    assert_eq!(
        error(&mut story, join("a", copies())),
        ErrorCode::GROUP_ID_NOT_FOUND
    );
    story.wait(Duration::from_secs(60));
    is(&send(&mut story, join("a", copies())), 1, "0[0, 1, 2, 3]");
    story.crash();
    assert_eq!(describe(&story).state, "Stable");
    send(&mut story, stay("a", -1));
    assert_eq!(answer(&mut story, delete()), ErrorCode::NONE);
    assert_eq!(answer(&mut story, delete()), ErrorCode::GROUP_ID_NOT_FOUND);
    story.crash();
    assert_eq!(answer(&mut story, delete()), ErrorCode::GROUP_ID_NOT_FOUND);
}

/// What a member does in a random life.
#[derive(Clone, Debug)]
enum Step {
    Heartbeat(usize),
    /// Its answer doesn't arrive.
    Deaf(usize),
    Leave(usize),
    /// Time passes, in seconds.
    Wait(u64),
    Crash,
    Grow,
}

#[derive(Clone, Debug, Default)]
struct Client {
    epoch: i32,
    /// What it runs: role and task.
    runs: BTreeSet<(usize, String, i32)>,
    /// What it was last told to run.
    told: BTreeSet<(usize, String, i32)>,
    last: Duration,
    joined: bool,
}

fn flat(tasks: &[TaskList; 3]) -> BTreeSet<(usize, String, i32)> {
    let mut all = BTreeSet::new();
    for (role, list) in tasks.iter().enumerate() {
        for (id, partitions) in list {
            all.extend(partitions.iter().map(|p| (role, id.clone(), *p)));
        }
    }
    all
}

fn lists(runs: &BTreeSet<(usize, String, i32)>) -> [TaskList; 3] {
    let mut by: [BTreeMap<String, Vec<i32>>; 3] = Default::default();
    for (role, id, p) in runs {
        by[*role].entry(id.clone()).or_default().push(*p);
    }
    by.map(|b| b.into_iter().collect())
}

fn play(steps: Vec<Step>, standbys: usize) {
    let mut story = story(GroupSettings {
        streams_standbys: standbys,
        ..GroupSettings::default()
    });
    story.topics.set("by-word", 4);
    story.topics.set("counts", 4);
    let mut clients: Vec<Client> = vec![Client::default(); 4];
    // Members 0 and 1 are threads of one process.
    let process = |at: usize| format!("p{}", at / 2);
    // Longer than the session, so that only those who are silent are taken out.
    let patience = Some(Duration::from_secs(60));
    for step in steps {
        match step {
            Step::Wait(seconds) => {
                story.wait(Duration::from_secs(seconds));
                // Whoever is silent for too long stops by itself: its transactions would be fenced.
                for client in &mut clients {
                    if client.joined && story.now.mono - client.last >= Duration::from_secs(9) {
                        *client = Client::default();
                    }
                }
            }
            Step::Crash => story.crash(),
            Step::Grow => {
                for name in ["lines", "by-word", "counts"] {
                    story.topics.set(name, 5);
                }
                story.topics_changed();
            }
            Step::Leave(at) => {
                let client = std::mem::take(&mut clients[at]);
                if client.joined {
                    send(&mut story, stay(&format!("m{at}"), -1));
                }
            }
            Step::Heartbeat(at) | Step::Deaf(at) => {
                let client = &mut clients[at];
                let told = client.told.clone();
                client.runs.retain(|task| told.contains(task));
                let mut request = match client.joined {
                    true => StreamsHeartbeat {
                        owned: owns(&lists(&client.runs)),
                        ..stay(&format!("m{at}"), client.epoch)
                    },
                    false => join(&format!("m{at}"), words()),
                };
                request.process = Some(process(at));
                request.rebalance_timeout = patience;
                let answer = send(&mut story, request);
                client.last = story.now.mono;
                if matches!(step, Step::Deaf(_)) {
                    continue;
                }
                match answer.error {
                    ErrorCode::NONE => {
                        client.joined = true;
                        client.epoch = answer.member_epoch;
                        if let Some(tasks) = &answer.tasks {
                            client.told = flat(tasks);
                            let told = client.told.clone();
                            client.runs.extend(told);
                        }
                    }
                    ErrorCode::FENCED_MEMBER_EPOCH
                    | ErrorCode::UNKNOWN_MEMBER_ID
                    | ErrorCode::GROUP_ID_NOT_FOUND => {
                        *client = Client::default();
                    }
                    other => panic!("{other:?} {answer:?}"),
                }
            }
        }
        let mut active = BTreeSet::new();
        let mut in_process = BTreeSet::new();
        for (at, client) in clients.iter().enumerate() {
            for (role, id, p) in &client.runs {
                if *role == 0 {
                    assert!(
                        active.insert((id.clone(), *p)),
                        "{id}_{p} runs twice: {clients:?}"
                    );
                }
                // What a member is to give back and to get in another role it has given back first.
                assert!(
                    in_process.insert((process(at), id.clone(), *p)),
                    "{id}_{p} is twice in a process: {clients:?}"
                );
            }
        }
    }
    // Left alone with heartbeats, the group comes to rest, and each task runs.
    for _ in 0..12 {
        for (at, client) in clients.iter_mut().enumerate() {
            let told = client.told.clone();
            client.runs.retain(|task| told.contains(task));
            let mut request = match client.joined {
                true => StreamsHeartbeat {
                    owned: owns(&lists(&client.runs)),
                    ..stay(&format!("m{at}"), client.epoch)
                },
                false => join(&format!("m{at}"), words()),
            };
            request.process = Some(process(at));
            request.rebalance_timeout = patience;
            let answer = send(&mut story, request);
            if answer.error != ErrorCode::NONE {
                *client = Client::default();
                continue;
            }
            client.joined = true;
            client.epoch = answer.member_epoch;
            if let Some(tasks) = &answer.tasks {
                client.told = flat(tasks);
                client.runs.extend(client.told.clone());
            }
        }
    }
    assert_eq!(describe(&story).state, "Stable");
    let active: usize = clients
        .iter()
        .map(|c| c.runs.iter().filter(|t| t.0 == 0).count())
        .sum();
    let tasks = describe(&story)
        .topology
        .map_or(0, |t| t.subtopologies.len());
    let partitions = story.topics.clone();
    let count = crate::groups::Topics::by_name(&partitions, "lines").map_or(0, |(_, n)| n);
    assert_eq!(active, tasks * usize::try_from(count).unwrap());
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0_usize..4).prop_map(Step::Heartbeat),
        2 => (0_usize..4).prop_map(Step::Deaf),
        2 => (0_usize..4).prop_map(Step::Leave),
        2 => (1_u64..5).prop_map(Step::Wait),
        1 => Just(Step::Wait(50)),
        1 => Just(Step::Crash),
        1 => Just(Step::Grow),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn no_task_runs_twice(steps in prop::collection::vec(step(), 1..60), standbys in 0_usize..2) {
        play(steps, standbys);
    }
}
