//! Logs that lie in the data folder while nobody has said yet whose they are.
//!
//! A node alone reads its metadata before its logs. Behind a shared quorum metadata comes when a majority can be reached, and
//! what the node knew when it last ran may be old: a log without a topic isn't a leftover then, but one of a topic that this node
//! hasn't heard of yet. So all logs are recovered at the start, and given to their partitions as metadata names them.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use riverlog_core::metadata::MetadataImage;
use riverlog_log::{Log, LogKey, LogSettings, OpenError};
use riverlog_wire::{Offset, TopicId};

use crate::jobs::Work;
use crate::node::Node;

#[derive(Default)]
pub(crate) struct Unclaimed(Mutex<BTreeMap<LogKey, Log>>);

impl Node {
    /// Recovers all logs that the data folder holds. One that can't be opened stays where it is, and is tried again once a
    /// partition asks for it.
    pub(crate) fn open_unclaimed(&self) -> Result<(), OpenError> {
        let mut logs = self.unclaimed.0.lock();
        for key in self.volume.logs()? {
            if key.topic != TopicId::METADATA
                && let Ok(log) = self.volume.open_log(key, LogSettings::default())
            {
                logs.insert(key, log);
            }
        }
        Ok(())
    }

    /// A partition's log: the one that was found at the start, or else opened now.
    pub(crate) fn claim_log(&self, key: LogKey, settings: LogSettings) -> Result<Log, OpenError> {
        if let Some(mut log) = self.unclaimed.0.lock().remove(&key) {
            log.set_settings(settings);
            return Ok(log);
        }
        self.volume.open_log(key, settings)
    }

    /// This image knows of everything that was ever committed before this node had last run: what it doesn't give to this
    /// node is nobody's any more.
    pub(crate) fn remove_strays(&self, image: &MetadataImage) {
        let me = self.settings.broker;
        let is_mine = |key: &LogKey| {
            let topic = image.topics.get(&key.topic);
            let at = usize::try_from(key.partition.0).ok();
            let partition = topic.zip(at).and_then(|(t, at)| t.partitions.get(at));
            partition.is_some_and(|p| p.replicas.contains(&me))
        };
        let strays: Vec<LogKey> = {
            let mut logs = self.unclaimed.0.lock();
            let strays: Vec<LogKey> = logs.keys().filter(|key| !is_mine(key)).copied().collect();
            logs.retain(|key, _| is_mine(key));
            strays
        };
        for key in &strays {
            self.jobs.goes(*key);
            self.cut_cleaned(*key, Offset::ZERO);
        }
        if !strays.is_empty() {
            self.run_job(Work::Remove(self.volume.clone(), strays));
        }
    }

    /// A clean stop vouches for what is in the segments.
    pub(crate) fn sync_unclaimed(&self) {
        for log in self.unclaimed.0.lock().values_mut() {
            if let Some(upkeep) = log.sync_segments() {
                // What fails here fails the checkpoint, too.
                let _synced = log.upkeep_done(upkeep.run());
            }
        }
    }

    pub(crate) fn let_go_of_unclaimed(&self) {
        self.unclaimed.0.lock().clear();
    }
}
