//! The share group: what its members were given, what they said of it, and what they were told.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_core::metadata::{AdminCommand, ConfigChange, ConfigResource};
use riverlog_wire::TopicId;

use crate::model::Violation;

/// The group.
pub(crate) const GROUP: &str = "sharers";
/// What its members read.
pub(crate) const TOPIC: &str = "shared";
/// Its id.
pub(crate) const ID: TopicId = TopicId(*b"of-share-groups!");
/// Its partitions.
pub(crate) const PARTITIONS: i32 = 2;
/// How often a record is given out.
pub(crate) const LIMIT: i16 = 4;
/// How long a member has it.
pub(crate) const LOCK: Duration = Duration::from_secs(2);

/// How a run's share group is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharePlan {
    pub(crate) members: usize,
    /// Keys come in order.
    pub(crate) key_order: bool,
    /// How long a record rests that was given back once.
    pub(crate) backoff: Duration,
}

impl SharePlan {
    /// The group's settings.
    pub(crate) fn configs(&self) -> AdminCommand {
        let set = |(key, value): (&str, String)| ConfigChange::Set(key.to_owned(), Some(value));
        let changes = [
            ("share.auto.offset.reset", "earliest".to_owned()),
            ("share.delivery.count.limit", LIMIT.to_string()),
            (
                "share.record.lock.duration.ms",
                LOCK.as_millis().to_string(),
            ),
            ("riverlog.share.key.order", self.key_order.to_string()),
            (
                "riverlog.share.backoff.ms",
                self.backoff.as_millis().to_string(),
            ),
        ];
        AdminCommand::AlterConfigs {
            resources: vec![(
                ConfigResource::Group(GROUP.to_owned()),
                changes.into_iter().map(set).collect(),
            )],
            replace: false,
            validate_only: false,
        }
    }
}

/// A record by partition and offset.
pub(crate) type Spot = (i32, i64);

/// A life of the node, and the leader epoch of the partition: what is in flight doesn't outlive either.
pub(crate) type Leadership = (u64, i32);

/// What a member says of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Accept,
    Reject,
    Release,
}

#[derive(Clone, Debug, Default)]
struct Record {
    /// It was stored, and its producer was told so.
    key: Option<u8>,
    /// Accepted, refused or given up, and who said so was told.
    done: bool,
    /// That was asked for, and nobody knows what became of it.
    perhaps: bool,
    /// How often some member was given it.
    given: u32,
    /// Who was given it last, until when at least, in which leadership.
    holder: Option<(usize, Duration, Leadership)>,
    last: Option<usize>,
    /// It was given out as often as it may be: when its time is up it is done with, and nobody says so.
    spent: bool,
    /// The least that the next delivery counts.
    least: i16,
    /// Before that it isn't given out again.
    rests_until: Duration,
}

/// What is known of the group.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    records: BTreeMap<Spot, Record>,
    /// Fetches of which nobody heard what they were given.
    lost: u32,
}

/// A delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) spot: Spot,
    pub(crate) count: i16,
    pub(crate) to: usize,
    pub(crate) asked_at: Duration,
    pub(crate) now: Duration,
    /// `None`: it has changed meanwhile.
    pub(crate) leadership: Option<Leadership>,
    /// The wall clock may have jumped.
    pub(crate) jumps: bool,
}

impl Shares {
    /// A record was stored.
    pub(crate) fn stored(&mut self, spot: Spot, key: u8) {
        self.records.entry(spot).or_default().key = Some(key);
    }

    /// A fetch was not answered.
    pub(crate) fn fetch_lost(&mut self) {
        self.lost += 1;
    }

    /// Somebody who may lead no more gave out a record: it counts for nothing, unless it was kept.
    pub(crate) fn perhaps_given(&mut self, spot: Spot) {
        self.records.entry(spot).or_default().given += 1;
    }

    /// A member was given a record.
    pub(crate) fn given(&mut self, plan: &SharePlan, given: Given) -> Result<(), Violation> {
        let Given {
            spot, count, now, ..
        } = given;
        let what = |why: String| format!("{spot:?} to {} for the {count}. time: {why}", given.to);
        let record = self.records.entry(spot).or_default();
        if record.done {
            return Err(Violation::new(
                "an accepted record never comes again",
                what(format!("{record:?}")),
            ));
        }
        if count > LIMIT {
            return Err(Violation::new(
                "a record is given out no more often than it may be",
                what(format!("the limit is {LIMIT}")),
            ));
        }
        let most = record.given + self.lost + 1;
        if count < record.least.max(1) || u32::from(count.unsigned_abs()) > most {
            return Err(Violation::new(
                "deliveries are counted",
                what(format!("{} to {most} would be right", record.least)),
            ));
        }
        let same = |of: Leadership| Some(of) == given.leadership;
        let held = record
            .holder
            .filter(|(_, until, of)| *until > now && same(*of));
        if let Some((holder, until, _)) = held {
            return Err(Violation::new(
                "a record has one holder",
                what(format!("{holder} has it until {until:?}")),
            ));
        }
        if now < record.rests_until && !given.jumps {
            return Err(Violation::new(
                "a record that was given back rests",
                what(format!("until {:?}", record.rests_until)),
            ));
        }
        record.given += 1;
        record.last = Some(given.to);
        record.spent = count == LIMIT;
        record.holder = given
            .leadership
            .map(|of| (given.to, given.asked_at + LOCK, of));
        let key = record.key;
        if plan.key_order
            && let Some(key) = key
        {
            let lost = self.lost;
            let sure = |r: &Record| {
                !r.done && !r.perhaps && r.given + lost < u32::from(LIMIT.unsigned_abs())
            };
            let mut before = self.records.range((spot.0, 0)..spot);
            if let Some((first, _)) = before.find(|(_, r)| r.key == Some(key) && sure(r)) {
                return Err(Violation::new(
                    "the records of a key come in order",
                    what(format!("{first:?} has the same key and isn't done with")),
                ));
            }
        }
        Ok(())
    }

    /// A member is about to say something of a record; whether it may, as far as anybody knows. What is done with may be said to be
    /// once more.
    pub(crate) fn says(&mut self, client: usize, spot: Spot, word: Word) -> bool {
        let record = self.records.entry(spot).or_default();
        let may = record.last == Some(client) || record.done || record.perhaps;
        record.perhaps |= word != Word::Release;
        record.holder = None;
        may
    }

    /// It was told that this holds.
    pub(crate) fn said(
        &mut self,
        plan: &SharePlan,
        client: usize,
        (spot, count, word, may): (Spot, i16, Word, bool),
        asked_at: Duration,
    ) -> Result<(), Violation> {
        let record = self.records.entry(spot).or_default();
        // What was done with meanwhile may be said to be once more.
        if !may && !record.done && !record.perhaps && !record.spent {
            return Err(Violation::new(
                "who no longer has a record has no say in it",
                format!("{word:?} of {spot:?} by {client}: {record:?}"),
            ));
        }
        match word {
            Word::Accept | Word::Reject => record.done = true,
            Word::Release if count >= LIMIT => record.done = true,
            Word::Release => {
                record.least = record.least.max(count + 1);
                let rests = plan.backoff * (1 << (count - 1));
                // The state keeps milliseconds.
                let until = (asked_at + rests).saturating_sub(Duration::from_millis(2));
                record.rests_until = record.rests_until.max(until);
            }
        }
        Ok(())
    }

    /// How often members were given a record at most: perhaps with each answer that nobody heard, too. `None`: it need not come again.
    pub(crate) fn times_given(&self, spot: Spot) -> Option<u32> {
        let record = self.records.get(&spot)?;
        (!record.done && !record.perhaps).then_some(self.lost + record.given)
    }

    /// Something went wrong with the group's partition: perhaps all that was in flight there is offered again.
    pub(crate) fn shaken(&mut self) {
        for record in self.records.values_mut() {
            record.holder = None;
        }
    }

    /// A member's session is over.
    pub(crate) fn ended(&mut self, client: usize) {
        for record in self.records.values_mut() {
            if record.holder.is_some_and(|(holder, ..)| holder == client) {
                record.holder = None;
            }
        }
    }

    /// Whether every record that was stored has come to its end, as far as anybody knows.
    pub(crate) fn is_drained(&self) -> bool {
        let limit = u32::from(LIMIT.unsigned_abs());
        self.records
            .values()
            .all(|r| r.key.is_none() || r.done || r.perhaps || r.given + self.lost >= limit)
    }
}
