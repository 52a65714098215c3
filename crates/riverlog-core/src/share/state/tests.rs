//! A coordinator's host in small: it appends what is decided, and can read all of it back.

use super::*;

#[derive(Default)]
struct World {
    log: Vec<StoredRecord>,
    /// The log was cut off before this one.
    cut: usize,
    live: Option<ShareShard>,
    gone: bool,
}

impl Topics for World {
    fn by_name(&self, _name: &str) -> Option<(TopicId, i32)> {
        None
    }
    fn name_of(&self, _id: TopicId) -> Option<&str> {
        (!self.gone).then_some("topic")
    }
    fn names(&self) -> Vec<&str> {
        Vec::new()
    }
}

fn now(seconds: u64) -> Now {
    Now {
        mono: Duration::from_secs(seconds),
        wall_ms: 1_000,
    }
}

impl World {
    fn shard(&mut self) -> &mut ShareShard {
        if self.live.is_none() {
            let mut shard = ShareShard::new(ShareSettings {
                updates_per_snapshot: 3,
            });
            for (at, record) in self.log.iter().enumerate().skip(self.cut) {
                let at = Offset(at as i64);
                shard.apply(&record.key, record.value.as_deref(), at, now(0));
            }
            shard.loaded(now(0));
            self.live = Some(shard);
        }
        self.live.as_mut().expect("just made")
    }

    fn perform(&mut self, decision: ShareDecision) -> Vec<ShareAnswer> {
        for soft in decision.soft {
            self.shard().soft(soft);
        }
        for record in decision.records {
            let at = Offset(self.log.len() as i64);
            let (key, value) = (record.key.clone(), record.value.clone());
            self.shard().apply(&key, value.as_deref(), at, now(0));
            self.log.push(record);
        }
        for effect in decision.effects {
            let ShareEffect::CutOff(before) = effect.body;
            self.cut = before.0 as usize;
        }
        decision.answers.into_iter().map(|a| a.body).collect()
    }

    fn tell(&mut self, command: ShareCommand) -> ShareAnswer {
        let decision = self.shard().decide(command, Token(1), now(0));
        self.perform(decision).remove(0)
    }

    fn read(&mut self, partition: i32, leader: i32) -> Result<ShareState, ErrorCode> {
        let command = ShareCommand::Read {
            key: key(partition),
            leader_epoch: LeaderEpoch(leader),
        };
        self.tell(command).map(|state| state.expect("a state"))
    }

    fn write(
        &mut self,
        epochs: (i32, i32),
        start: i64,
        batches: &[(i64, i64, i16)],
    ) -> ShareAnswer {
        let batches = batches.iter().map(|(first, last, count)| StateBatch {
            first: Offset(*first),
            last: Offset(*last),
            state: DeliveryState::Available,
            delivery_count: *count,
            not_before: 0,
            rest: 0,
        });
        let update = StateUpdate {
            start: Offset(start),
            complete: 0,
            batches: batches.collect(),
        };
        self.tell(ShareCommand::Write {
            key: key(0),
            state_epoch: epochs.0,
            leader_epoch: LeaderEpoch(epochs.1),
            update,
        })
    }

    fn restart(&mut self) {
        self.live = None;
    }
}

fn key(partition: i32) -> ShareKey {
    ShareKey {
        group: "g".to_owned(),
        topic: TopicId([1; 16]),
        partition,
    }
}

fn ranges(state: &ShareState) -> Vec<(i64, i64, i16)> {
    let batches = state.batches.iter();
    batches
        .map(|b| (b.first.0, b.last.0, b.delivery_count))
        .collect()
}

#[test]
fn updates_add_to_each_other_and_outlive_a_restart() {
    let mut world = World::default();
    assert_eq!(world.read(0, 1).map(|s| s.start), Ok(Offset(-1)));
    assert_eq!(world.write((0, 1), 10, &[(10, 19, 1)]), Ok(None));
    assert_eq!(world.write((0, 1), 12, &[(14, 15, 2)]), Ok(None));
    let expected = vec![(12, 13, 1), (14, 15, 2), (16, 19, 1)];
    world.restart();
    let state = world.read(0, 1).unwrap();
    assert_eq!((state.start, ranges(&state)), (Offset(12), expected));
    // After three updates comes a snapshot.
    for start in 13..18 {
        assert_eq!(world.write((0, 1), start, &[]), Ok(None));
    }
    world.restart();
    let state = world.read(0, 1).unwrap();
    assert_eq!(
        (state.start, ranges(&state)),
        (Offset(17), vec![(17, 19, 1)])
    );
    let snapshots = world.log.iter().filter(|r| r.key[1] == 0).count();
    assert_eq!((world.log.len(), snapshots), (8, 2));
}

#[test]
fn who_was_replaced_is_kept_out() {
    let mut world = World::default();
    assert_eq!(world.write((0, 1), 1, &[]), Err(ErrorCode::INVALID_REQUEST));
    world.read(0, 5).unwrap();
    assert_eq!(world.read(0, 4), Err(ErrorCode::FENCED_LEADER_EPOCH));
    let fenced = Err(ErrorCode::FENCED_LEADER_EPOCH);
    assert_eq!(world.write((0, 4), 1, &[]), fenced);
    assert_eq!(world.write((0, 5), 1, &[(1, 3, 1)]), Ok(None));
    let anew = |epoch| ShareCommand::Initialize {
        key: key(0),
        state_epoch: epoch,
        start: Offset(7),
    };
    assert_eq!(world.tell(anew(None)), Ok(None));
    assert_eq!(
        world.tell(anew(Some(0))),
        Err(ErrorCode::FENCED_STATE_EPOCH)
    );
    assert_eq!(
        world.write((0, 5), 2, &[]),
        Err(ErrorCode::FENCED_STATE_EPOCH)
    );
    world.restart();
    let state = world.read(0, 5).unwrap();
    assert_eq!((state.state_epoch, state.start), (1, Offset(7)));
    assert_eq!(ranges(&state), []);
}

#[test]
fn what_comes_late_or_twice_from_another_node_counts_for_nothing() {
    let mut world = World::default();
    let mut told = |number, command| {
        let turn = Some(ShareTurn {
            from: BrokerId(2),
            broker_epoch: 7,
            number,
        });
        let told = ShareTold { turn, command };
        world.shard();
        let shard = world.live.as_ref().unwrap();
        let decision = shard.decide_told(told, Token(1), &World::default(), now(0));
        world
            .perform(decision)
            .remove(0)
            .map(|s| s.map(|s| s.start.0))
    };
    let read = || ShareCommand::Read {
        key: key(0),
        leader_epoch: LeaderEpoch(1),
    };
    let write = |start| ShareCommand::Write {
        key: key(0),
        state_epoch: 0,
        leader_epoch: LeaderEpoch(1),
        update: StateUpdate {
            start: Offset(start),
            ..StateUpdate::default()
        },
    };
    let late = Err(ErrorCode::DUPLICATE_SEQUENCE_NUMBER);
    assert_eq!(told(1, read()), Ok(Some(-1)));
    assert_eq!(told(2, write(5)), Ok(None));
    assert_eq!(told(2, write(5)), late);
    // The leader has given up waiting for 3 and has read anew.
    assert_eq!(told(4, read()), Ok(Some(5)));
    assert_eq!(told(3, write(9)), late);
    assert_eq!(told(5, read()), Ok(Some(5)));
    // Of a topic that isn't known here nothing is made.
    let turn = Some(ShareTurn {
        from: BrokerId(2),
        broker_epoch: 7,
        number: 6,
    });
    let told = ShareTold {
        turn,
        command: read(),
    };
    world.gone = true;
    let decision = world
        .live
        .as_ref()
        .unwrap()
        .decide_told(told, Token(1), &world, now(0));
    assert!(decision.records.is_empty());
    let loading = Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    assert_eq!(world.perform(decision), [loading]);
}

#[test]
fn the_log_is_cut_off_behind_the_last_snapshots() {
    let mut world = World::default();
    world.read(0, 1).unwrap();
    world.read(1, 1).unwrap();
    for start in 0..LONG + 10 {
        assert_eq!(world.write((0, 1), start, &[]), Ok(None));
    }
    // The share partition that nobody writes to is in the way until it is known to be cold.
    let mut time = 0;
    for _ in 0..3 {
        while world.shard().next_deadline().is_some() {
            time += 60;
            let decision = world
                .live
                .as_ref()
                .unwrap()
                .decide_timers(&world, now(time));
            world.perform(decision);
        }
        assert_eq!(world.write((0, 1), LONG + 10, &[]), Ok(None));
    }
    assert!(world.log.len() - world.cut < 10, "cut at {}", world.cut);
    world.restart();
    assert_eq!(world.read(1, 1).map(|s| s.start), Ok(Offset(-1)));
    assert_eq!(world.read(0, 1).map(|s| s.start), Ok(Offset(LONG + 10)));
}

#[test]
fn what_belongs_to_deleted_topics_goes_in_steps() {
    let mut world = World::default();
    for partition in 0..(STEP as i32 * 2 + 5) {
        world.read(partition, 1).unwrap();
    }
    world.gone = true;
    let decision = world.live.as_ref().unwrap().decide_topics_changed(&world);
    world.perform(decision);
    let mut steps = 0;
    while world.live.as_ref().unwrap().walk.is_some() {
        let decision = world.live.as_ref().unwrap().decide_timers(&world, now(1));
        world.perform(decision);
        steps += 1;
    }
    assert_eq!((steps, world.shard().kept.len()), (2, 0));
    assert_eq!(world.shard().summary(&key(0)).0, None);
}

#[test]
fn a_name_reads_back() {
    let with_colons = ShareKey {
        group: "a:b".to_owned(),
        ..key(3)
    };
    assert_eq!(ShareKey::parse(&with_colons.name()), Some(with_colons));
    for bad in [
        "",
        "g",
        "g:AQEBAQEBAQEBAQEBAQEBAQ",
        "g:x:0",
        "g:AQEBAQEBAQEBAQEBAQEBAQ:-1",
    ] {
        assert_eq!(ShareKey::parse(bad), None, "{bad}");
    }
    assert_eq!(ShareKey::parse(":AQEBAQEBAQEBAQEBAQEBAQ:0"), None);
}
