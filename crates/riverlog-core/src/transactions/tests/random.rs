//! Random clients, crashes and failing partitions against what must hold at every step.

use proptest::prelude::*;

use super::*;

/// The outcome that a transaction was given, by id and the position of the decision.
type Outcomes = BTreeMap<(String, Offset), bool>;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[derive(Default)]
struct Model {
    /// What the host was asked to write, and hasn't reported on.
    asked: Vec<WriteMarkers>,
    outcomes: Outcomes,
    /// Epochs given out, by transactional id and producer id: to how many calls of InitProducerId without a resumption.
    given: BTreeMap<(String, ProducerId), ProducerEpoch>,
}

impl Model {
    fn saw(&mut self, effects: Vec<WriteMarkers>) {
        for markers in effects {
            let key = (markers.id.clone(), markers.prepared_at);
            let before = *self.outcomes.entry(key).or_insert(markers.commit);
            assert_eq!(before, markers.commit, "an outcome changed");
            self.asked.push(markers);
        }
    }

    fn gave(&mut self, id: &str, producer: ProducerId, epoch: ProducerEpoch, strictly: bool) {
        let last = self.given.insert((id.to_owned(), producer), epoch);
        if let Some(last) = last {
            assert!(epoch >= last, "an epoch went back");
            assert!(epoch > last || !strictly, "two instances have one epoch");
        }
    }
}

fn run(seed: u64, steps: u32, cluster: TransactionVersion) {
    let mut random = Random(seed | 1);
    let mut world = World::new(cluster);
    let mut model = Model::default();
    // Three clients of two ids.
    let mut clients = [(ProducerId::NONE, ProducerEpoch::NONE); 3];
    for _ in 0..steps {
        let client = random.below(3) as usize;
        let id = format!("id-{}", client % 2);
        let (producer_id, epoch) = clients[client];
        let version = match client {
            0 => TransactionVersion::ONE,
            _ => TransactionVersion::TWO,
        };
        let partitions = vec![(format!("t-{}", random.below(3)), 0)];
        let (command, strictly) = match random.below(20) {
            0..2 => {
                let init = TransactionCommand::Init {
                    id: id.clone(),
                    timeout_ms: 10_000,
                    resume: None,
                    fresh: None,
                };
                (init, true)
            }
            2 if producer_id != ProducerId::NONE => {
                let init = TransactionCommand::Init {
                    id: id.clone(),
                    timeout_ms: 10_000,
                    resume: Some((producer_id, epoch)),
                    fresh: None,
                };
                (init, false)
            }
            3..9 => {
                let add = TransactionCommand::Add {
                    id: id.clone(),
                    producer_id,
                    epoch,
                    partitions,
                    version,
                };
                (add, false)
            }
            9..13 => {
                let end = TransactionCommand::End {
                    id: id.clone(),
                    producer_id,
                    epoch,
                    commit: random.below(2) == 0,
                    version,
                    fresh: None,
                };
                (end, false)
            }
            13..17 if !model.asked.is_empty() => {
                let at = random.below(model.asked.len() as u64) as usize;
                let asked = model.asked.remove(at);
                let fails = random.below(3) == 0;
                let done = asked.partitions.into_iter();
                let done = done.filter(|_| !fails || random.below(2) == 0).collect();
                let written = TransactionCommand::MarkersWritten {
                    id: asked.id,
                    prepared_at: asked.prepared_at,
                    done,
                };
                model.saw(world.tell(written).effects);
                continue;
            }
            17 => {
                // Replies to an earlier life may still come.
                let effects = world.reload();
                model.saw(effects);
                continue;
            }
            _ => {
                let effects = world.pass(Duration::from_millis(random.below(4_000)));
                model.saw(effects);
                continue;
            }
        };
        let commits = match &command {
            TransactionCommand::End { commit, .. } => Some(*commit),
            _ => None,
        };
        let position = world.log.len();
        let step = world.tell(command);
        if let Some(TransactionAnswer::Producer {
            error: ErrorCode::NONE,
            producer_id,
            epoch,
        }) = step.answer
        {
            model.gave(&id, producer_id, epoch, strictly);
            // An answer may be lost: then the client still has what it had.
            if random.below(8) > 0 {
                clients[client] = (producer_id, epoch);
            }
            if let Some(commit) = commits
                && world.log.len() > position
            {
                let at = Offset(position as i64 + 1);
                model.outcomes.insert((id.clone(), at), commit);
            }
        }
        model.saw(step.effects);
    }
    // Healed: everything that was decided is carried out, and what is open runs out.
    for _ in 0..100 {
        let effects = world.pass(Duration::from_secs(1));
        model.saw(effects);
        for asked in std::mem::take(&mut model.asked) {
            let written = TransactionCommand::MarkersWritten {
                id: asked.id,
                prepared_at: asked.prepared_at,
                done: asked.partitions.into_iter().collect(),
            };
            model.saw(world.tell(written).effects);
        }
    }
    for left in world.shard.list(&TransactionFilter::all(), world.now) {
        let state = left.value.state;
        assert!(
            !state.is_prepared() && state != TransactionState::Ongoing,
            "{left:?} is stuck"
        );
    }
    let effects = world.reload();
    assert!(effects.is_empty(), "there was nothing left to do");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn outcomes_stand_and_nobody_is_stuck(seed in any::<u64>()) {
        run(seed, 200, TransactionVersion::TWO);
        run(seed, 200, TransactionVersion::ONE);
    }
}
