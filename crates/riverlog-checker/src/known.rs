//! What a history tells, sorted by what the rules ask for.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Event, Place, What};
use crate::{Counts, STUCK_AFTER_NS};

/// A value that was sent.
#[derive(Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) client: &'a str,
    pub(crate) place: &'a Place,
    pub(crate) txn: Option<&'a str>,
    /// When it was sent first.
    pub(crate) at: u64,
    /// How often the program sent it.
    pub(crate) times: usize,
    /// When it was acknowledged, and at which offset, if the answer said so.
    pub(crate) acked: Option<(u64, Option<i64>)>,
    /// Each send ended, none with success, and none may be stored.
    pub(crate) refused: usize,
    pub(crate) perhaps: bool,
}

/// A transaction.
#[derive(Debug, Default)]
pub(crate) struct Txn<'a> {
    pub(crate) values: Vec<&'a str>,
    /// When its end was asked for, and which.
    pub(crate) ending: Option<(u64, bool)>,
    /// When the answer came, and what it said.
    pub(crate) ended: Option<(u64, Option<bool>)>,
}

impl Txn<'_> {
    pub(crate) fn committed(&self) -> bool {
        matches!(self.ended, Some((_, Some(true))))
    }
    /// It was aborted, or nobody can have committed it.
    pub(crate) fn aborted(&self) -> bool {
        matches!(self.ended, Some((_, Some(false)))) || matches!(self.ending, Some((_, false)))
    }
}

/// A client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'a> {
    pub(crate) idempotent: bool,
    pub(crate) retries: bool,
    pub(crate) group: Option<&'a str>,
    pub(crate) read_committed: bool,
    pub(crate) closed: Option<u64>,
}

impl Default for Client<'_> {
    fn default() -> Self {
        Client {
            idempotent: true,
            retries: true,
            group: None,
            read_committed: false,
            closed: None,
        }
    }
}

/// One sight of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    pub(crate) value: &'a str,
    pub(crate) by: &'a str,
    pub(crate) at: u64,
}

#[derive(Debug)]
pub(crate) struct Known<'a> {
    /// In order of time.
    pub(crate) events: Vec<&'a Event>,
    pub(crate) clients: BTreeMap<&'a str, Client<'a>>,
    pub(crate) sent: BTreeMap<&'a str, Sent<'a>>,
    pub(crate) txns: BTreeMap<&'a str, Txn<'a>>,
    /// Each different content of each offset, as acknowledged or read.
    pub(crate) log: BTreeMap<&'a Place, BTreeMap<i64, Vec<Sight<'a>>>>,
    /// Values by where they were read or acknowledged.
    pub(crate) offsets: BTreeMap<(&'a Place, &'a str), BTreeSet<i64>>,
    deletable: BTreeMap<&'a Place, i64>,
    damaged: BTreeMap<&'a Place, Vec<(i64, i64)>>,
    /// How old an end or a commit may be that is told.
    pub(crate) lag: u64,
    /// When the last fault was over.
    pub(crate) healed: Option<u64>,
    read: usize,
}

impl<'a> Known<'a> {
    /// `events` in order of time.
    pub(crate) fn new(events: Vec<&'a Event>) -> Known<'a> {
        let mut known = Known {
            events: Vec::new(),
            clients: BTreeMap::new(),
            sent: BTreeMap::new(),
            txns: BTreeMap::new(),
            log: BTreeMap::new(),
            offsets: BTreeMap::new(),
            deletable: BTreeMap::new(),
            damaged: BTreeMap::new(),
            lag: 0,
            healed: None,
            read: 0,
        };
        for event in &events {
            known.take(event);
        }
        known.events = events;
        known
    }

    fn take(&mut self, event: &'a Event) {
        let (at, by) = (event.at, event.client.as_str());
        let client = self.clients.entry(by).or_default();
        match &event.what {
            What::Open {
                idempotent,
                retries,
                group,
                read_committed,
            } => {
                *client = Client {
                    idempotent: *idempotent,
                    retries: *retries,
                    group: group.as_deref(),
                    read_committed: *read_committed,
                    closed: None,
                };
            }
            What::Close => client.closed = Some(at),
            What::Send { place, value, txn } => {
                let txn = txn.as_deref();
                let sent = self.sent.entry(value).or_insert(Sent {
                    client: by,
                    place,
                    txn,
                    at,
                    times: 0,
                    acked: None,
                    refused: 0,
                    perhaps: false,
                });
                sent.times += 1;
                if let Some(txn) = txn {
                    self.txns.entry(txn).or_default().values.push(value);
                }
            }
            What::Ack {
                place,
                value,
                offset,
            } => {
                let offset = (*offset >= 0).then_some(*offset);
                if let Some(sent) = self.sent.get_mut(value.as_str()) {
                    sent.acked = Some((at, offset));
                }
                if let Some(offset) = offset {
                    self.sight(place, offset, Sight { value, by, at });
                }
            }
            What::Fail { value, maybe } => {
                if let Some(sent) = self.sent.get_mut(value.as_str()) {
                    match maybe {
                        true => sent.perhaps = true,
                        false => sent.refused += 1,
                    }
                }
            }
            What::Ending { txn, commit } => {
                self.txns.entry(txn).or_default().ending = Some((at, *commit));
            }
            What::Ended { txn, committed } => {
                self.txns.entry(txn).or_default().ended = Some((at, *committed));
            }
            What::Poll { records, .. } => {
                for (place, offset, value) in records {
                    self.read += 1;
                    self.sight(place, *offset, Sight { value, by, at });
                }
            }
            What::Whole { place, records, .. } => {
                for (offset, value) in records {
                    self.read += 1;
                    self.sight(place, *offset, Sight { value, by, at });
                }
            }
            What::Deleting { place, to } => {
                let below = self.deletable.entry(place).or_insert(0);
                *below = (*below).max(to.unwrap_or(i64::MAX));
            }
            What::Damaged { place, from, to } => {
                self.damaged.entry(place).or_default().push((*from, *to));
            }
            What::Lags { most } => self.lag = self.lag.max(*most),
            What::Healed => self.healed = Some(at),
            // A fault after that: it is to be healed again.
            What::Fault { .. } => self.healed = None,
            What::Assign { .. }
            | What::Committing { .. }
            | What::Committed { .. }
            | What::Offset { .. }
            | What::Bounds { .. }
            | What::Drained { .. } => {}
        }
    }

    fn sight(&mut self, place: &'a Place, offset: i64, sight: Sight<'a>) {
        let sights = self
            .log
            .entry(place)
            .or_default()
            .entry(offset)
            .or_default();
        if sights.iter().all(|s| s.value != sight.value) {
            sights.push(sight);
            let offsets = self.offsets.entry((place, sight.value)).or_default();
            offsets.insert(offset);
        }
    }

    /// Whether a record at this offset may be missing by the run's own doing.
    pub(crate) fn excused(&self, place: &Place, offset: i64) -> bool {
        let deleted = self.deletable.get(place).is_some_and(|to| offset < *to);
        let damaged = self.damaged.get(place).is_some_and(|ranges| {
            ranges
                .iter()
                .any(|(from, to)| (*from..*to).contains(&offset))
        });
        deleted || damaged
    }

    /// The transaction of a value.
    pub(crate) fn txn_of(&self, value: &str) -> Option<(&'a str, &Txn<'a>)> {
        let name = self.sent.get(value)?.txn?;
        Some((name, self.txns.get(name)?))
    }

    /// When this value became a promise to all readers; `None` while it isn't one.
    pub(crate) fn promised(&self, sent: &Sent<'a>) -> Option<u64> {
        let (acked, _) = sent.acked?;
        match sent.txn {
            None => Some(acked),
            Some(txn) => match self.txns.get(txn)?.ended {
                Some((at, Some(true))) => Some(at.max(acked)),
                _ => None,
            },
        }
    }

    /// The last read of each whole partition with this isolation.
    pub(crate) fn last_wholes(&self, committed_only: bool) -> BTreeMap<&'a Place, Whole<'a>> {
        let mut wholes = BTreeMap::new();
        for event in &self.events {
            if let What::Whole {
                since,
                place,
                records,
                read_committed,
                ..
            } = &event.what
                && *read_committed == committed_only
            {
                let whole = Whole {
                    since: *since,
                    records,
                };
                wholes.insert(place, whole);
            }
        }
        wholes
    }

    /// Time of the last event.
    pub(crate) fn end(&self) -> u64 {
        self.events.last().map_or(0, |event| event.at)
    }

    /// When everyone must have moved, if the history goes on for that long after the last fault.
    pub(crate) fn deadline(&self) -> Option<(u64, u64)> {
        let healed = self.healed?;
        let deadline = healed.saturating_add(STUCK_AFTER_NS);
        (self.end() >= deadline).then_some((healed, deadline))
    }

    pub(crate) fn counts(&self) -> Counts {
        let count = |of: fn(&What) -> bool| self.events.iter().filter(|e| of(&e.what)).count();
        Counts {
            sent: self.sent.len(),
            acknowledged: self.sent.values().filter(|s| s.acked.is_some()).count(),
            read: self.read,
            transactions: self.txns.len(),
            committed: count(|what| matches!(what, What::Committed { stored: true, .. })),
            faults: count(|what| matches!(what, What::Fault { .. })),
        }
    }
}

/// A read of a whole partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole<'a> {
    pub(crate) since: u64,
    pub(crate) records: &'a [(i64, String)],
}
