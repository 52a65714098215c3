//! Deleting logs, so that neither their files nor their entries come back after a crash.

use std::collections::{BTreeMap, BTreeSet};

use riverlog_wire::{PartitionIndex, TopicId};

use super::table::LogState;
use super::{LogKey, Volume};
use crate::DiskError;
use crate::disk::failed;

impl Volume {
    /// Removes a log's folder for good. The [`crate::Log`] must have been dropped; readers that still hold slices of its
    /// files keep them open.
    pub fn delete_log(&self, key: LogKey) -> Result<(), DiskError> {
        self.delete_logs(&[key])
    }
    /// As [`Volume::delete_log`] for many, with one flush of the write-ahead log. After an error it can be called again.
    pub fn delete_logs(&self, keys: &[LogKey]) -> Result<(), DiskError> {
        if keys.is_empty() {
            return Ok(());
        }
        if let Some(error) = self.wal.failed() {
            return Err(error);
        }
        {
            let mut recovery = self.recovery.lock();
            for key in keys {
                recovery.entries.remove(key);
                recovery.failed.remove(key);
            }
        }
        let until = {
            let mut table = self.table.lock();
            let durable = self.wal.durable();
            for key in keys {
                // A full write-ahead log couldn't take a second entry, and would wait for it to let go of the first.
                if table.deletion_is_durable(*key, durable) {
                    continue;
                }
                table.remove(*key);
                let range = self.wal.submit_deleted(*key);
                table.deletion_submitted(*key, range);
            }
            self.release(&table);
            self.wal.submitted()
        };
        match self.make_durable(until) {
            // The files may be what fills the disk. A crash before the entries are durable brings the logs
            // back with nothing in them, and the host then finds again that they don't exist.
            Err(error) if error.is_full() => {}
            other => other?,
        }
        self.remove_folders(keys)?;
        let mut table = self.table.lock();
        for key in keys {
            table.folder_gone(*key);
        }
        Ok(())
    }
    /// Removes folders, and those of topics that have none left, durably.
    pub(super) fn remove_folders(&self, keys: &[LogKey]) -> Result<(), DiskError> {
        self.forget_kept(keys)?;
        let topics: BTreeSet<TopicId> = keys.iter().map(|key| key.topic).collect();
        let there: BTreeMap<TopicId, bool> = {
            let root = self.disk.list("").map_err(failed("list", ""))?;
            let names: BTreeSet<String> = root.into_iter().map(|entry| entry.name).collect();
            let is_there = |topic: &TopicId| names.contains(&topic.to_string());
            topics.iter().map(|t| (*t, is_there(t))).collect()
        };
        for key in keys.iter().filter(|key| there[&key.topic]) {
            let folder = key.folder();
            self.disk
                .remove_dir_all(&folder)
                .map_err(failed("remove", &folder))?;
        }
        let mut root_changed = false;
        for topic in topics.iter().filter(|topic| there[topic]) {
            let folder = topic.to_string();
            self.disk
                .sync_dir(&folder)
                .map_err(failed("sync", &folder))?;
            root_changed |= self
                .files
                .remove_if_empty(&folder)
                .map_err(failed("remove", &folder))?;
        }
        if root_changed {
            self.disk.sync_dir("").map_err(failed("sync", ""))?;
        }
        Ok(())
    }
    /// A log that was deleted a short while ago is opened again: from now on files in its folder are its own, and the
    /// deletion that the write-ahead log still holds is not about them.
    pub(super) fn made_anew(&self, key: LogKey) -> Result<(), DiskError> {
        let until = {
            let mut table = self.table.lock();
            if !table.deleted_lately(key) {
                return Ok(());
            }
            let known = table.get(key).is_some();
            match (table.anew(key), known) {
                // An earlier attempt may have failed.
                (Some(Some(until)), _) => *until,
                // Recovery found it.
                (_, true) => return Ok(()),
                (anew, false) => {
                    let state = LogState::new(None, self.wal.submitted());
                    let range = self.wal.submit_mark(key, state.found());
                    if let Some(anew) = anew {
                        *anew = Some(range.end);
                    }
                    table.insert(key, state);
                    table.mark_submitted(key, range.clone());
                    range.end
                }
            }
        };
        match self.make_durable(until) {
            // Two checkpoints say it as well.
            Err(error) if error.is_full() => self.checkpoint(false),
            other => other,
        }
    }
    /// The folders of logs that are there.
    pub(super) fn folders(&self) -> Result<Vec<LogKey>, DiskError> {
        let mut found = Vec::new();
        for entry in self.disk.list("").map_err(failed("list", ""))? {
            let Some(topic) = TopicId::parse(&entry.name).filter(|_| entry.is_dir) else {
                continue;
            };
            let partitions = self
                .disk
                .list(&entry.name)
                .map_err(failed("list", &entry.name))?;
            for partition in partitions.into_iter().filter(|entry| entry.is_dir) {
                let number: Option<i32> = partition.name.parse().ok();
                let key = LogKey {
                    topic,
                    partition: PartitionIndex(number.unwrap_or(-1)),
                };
                // Only what we would name so is ours.
                if key.folder() == format!("{}/{}", entry.name, partition.name) {
                    found.push(key);
                }
            }
        }
        Ok(found)
    }
}
