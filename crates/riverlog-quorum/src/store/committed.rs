//! How far entries are known to be committed: a file that is written without a sync, so that a node which starts while no majority
//! can be reached knows again what it has served.

use riverlog_log::{Disk, OpenMode};

use super::frame::{self, Found};
use crate::raft::{LogId, Term};

pub(crate) const PATH: &str = "quorum/committed";

pub(crate) fn encode(upto: LogId) -> Vec<u8> {
    let mut payload = Vec::with_capacity(16);
    payload.extend(upto.leader_id.term.to_be_bytes());
    payload.extend(upto.index.to_be_bytes());
    frame::frame(0, &payload).unwrap_or_default()
}

/// `None` when there is none, or it isn't whole.
pub(crate) fn read(disk: &dyn Disk) -> Option<LogId> {
    let file = disk.open(PATH, OpenMode::Read).ok()?;
    let mut bytes = [0; 64];
    let len = file.read_at(&mut bytes, 0).ok()?;
    let Found::Whole { payload, .. } = frame::read(bytes.get(..len)?) else {
        return None;
    };
    let (term, rest) = payload.split_first_chunk()?;
    let index = rest.first_chunk()?;
    let term = Term::new(u64::from_be_bytes(*term));
    Some(LogId::new(term, u64::from_be_bytes(*index)))
}
