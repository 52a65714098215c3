//! The file that holds all metadata at one place of the log: `docs/format/quorum.md`.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use riverlog_log::{Disk, OpenMode};
use riverlog_node::quorum::MetadataSnapshot;
use riverlog_wire::Offset;
use riverlog_wire::primitives::{Reader, Writer};

use super::frame::{self, Found};
use super::journal::{FOLDER, read_whole};
use crate::encode::{
    BadBytes, end, get_log_id, get_records, get_stored_membership, put_log_id, put_records,
    put_stored_membership,
};
use crate::error::QuorumError;
use crate::raft::{SnapshotMeta, io_error};

const PATH: &str = "quorum/snapshot";
const PATH_NEW: &str = "quorum/snapshot.new";
const VERSION: u16 = 1;

/// All metadata, without the place of the log that it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Records that were applied until then.
    pub(crate) position: Offset,
    pub(crate) records: Arc<Vec<Bytes>>,
}

impl State {
    pub(crate) fn new(snapshot: MetadataSnapshot) -> State {
        State {
            position: snapshot.position,
            records: Arc::new(snapshot.records),
        }
    }

    pub(crate) fn at(&self, index: u64) -> MetadataSnapshot {
        MetadataSnapshot {
            index,
            position: self.position,
            records: self.records.to_vec(),
        }
    }
}

/// A snapshot as it lies in the file, and as it is sent.
pub(crate) fn encode(meta: &SnapshotMeta, state: &State) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    w.u16(VERSION);
    put_log_id(&mut w, meta.last_log_id.as_ref());
    put_stored_membership(&mut w, &meta.last_membership);
    w.i64(state.position.0);
    put_records(&mut w, &state.records);
    w.finish().map_err(io_error)?;
    Ok(out)
}

pub(crate) fn decode(bytes: &Bytes) -> Result<(SnapshotMeta, State), BadBytes> {
    let mut r = Reader::shared(bytes);
    let version = r.u16()?;
    if version != VERSION {
        return Err(BadBytes::Unknown {
            what: "version",
            value: version.into(),
        });
    }
    let meta = SnapshotMeta {
        last_log_id: get_log_id(&mut r)?,
        last_membership: get_stored_membership(&mut r)?,
    };
    let state = State {
        position: Offset(r.i64()?),
        records: Arc::new(get_records(&mut r)?),
    };
    end(&r)?;
    Ok((meta, state))
}

/// Replaces the file: afterwards the new one is durable; after a crash it is the old or the new.
pub(crate) fn replace(disk: &dyn Disk, encoded: &[u8]) -> io::Result<()> {
    let bytes = frame::frame(0, encoded)
        .ok_or_else(|| io_error("the metadata is too long for a snapshot"))?;
    let file = disk.open(PATH_NEW, OpenMode::Create)?;
    file.set_len(0)?;
    file.write_at(&[&bytes], 0)?;
    file.sync()?;
    disk.rename(PATH_NEW, PATH)?;
    disk.sync_dir(FOLDER)
}

/// The snapshot on the disk; `None` when there is none.
pub(crate) fn load(disk: &dyn Disk) -> Result<Option<(SnapshotMeta, State)>, QuorumError> {
    let file = match disk.open(PATH, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(QuorumError::disk(PATH)(error)),
    };
    let bytes = read_whole(&*file).map_err(QuorumError::disk(PATH))?;
    // It was synced before it got its name.
    let Found::Whole { payload, .. } = frame::read(&bytes) else {
        return Err(QuorumError::damaged(PATH, "its checksum doesn't match"));
    };
    let payload = Bytes::copy_from_slice(payload);
    let decoded = decode(&payload).map_err(|error| QuorumError::damaged(PATH, error))?;
    Ok(Some(decoded))
}
