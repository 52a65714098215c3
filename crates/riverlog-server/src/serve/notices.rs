//! What the node tells its operator, as lines of the log: what happened, where, and what to do.

use std::path::Path;
use std::time::Instant;

use riverlog_node::{Damage, LostRange, Notice};

use super::log::Repeats;

const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Writes one line; of reads that fail again and again, the first ones.
pub(crate) fn say(notice: &Notice, data: &Path, repeats: &Repeats) {
    match notice {
        Notice::LossAccepted { reason, lost } => say_loss(reason, lost),
        Notice::Damaged(damage) => say_damage(damage, data),
        Notice::ReadFailed {
            topic,
            partition,
            error,
        } => {
            if let Some(before) = repeats.say("read", Instant::now()) {
                tracing::error!(
                    topic,
                    partition,
                    before,
                    "a read of {topic}-{partition} failed: {error}; clients try again, and if it stays so, look at the disk and at the limit of open files"
                );
            }
        }
        Notice::NotOpened {
            topic,
            partition,
            reason,
        } => tracing::error!(
            topic,
            partition,
            "partition {topic}-{partition} can't be opened: {reason}; it is tried again by itself, the other partitions work"
        ),
        Notice::Opened { topic, partition } => {
            tracing::info!(
                topic,
                partition,
                "partition {topic}-{partition} is open again"
            );
        }
        Notice::CoordinatorUnavailable {
            topic,
            partition,
            reason,
        } => tracing::error!(
            topic,
            partition,
            "what {topic}-{partition} keeps can't be served: {reason}; it is tried again by itself, all that other partitions keep works. \
             If a file is damaged, bring it back from a copy while the broker is stopped"
        ),
        Notice::CoordinatorAvailable { topic, partition } => tracing::info!(
            topic,
            partition,
            "what {topic}-{partition} keeps is served again"
        ),
        Notice::DiskFull => tracing::error!(
            data = %data.display(),
            "the disk is full: records are refused with KAFKA_STORAGE_ERROR, reading goes on; delete topics or records, lower a retention, or make room for {}: writing then works again by itself",
            data.display()
        ),
        Notice::DiskHasRoom => {
            tracing::info!("the disk has room again: records are taken");
        }
        Notice::DiskFailed { error } => tracing::error!(
            "the disk failed: {error}; nothing can be written until a restart, reading goes on. Nothing that was acknowledged is lost: look at the disk (dmesg, SMART), then restart the broker, which recovers what is on it"
        ),
        other => tracing::warn!("{other}"),
    }
}

fn say_damage(damage: &Damage, data: &Path) {
    let Damage {
        topic,
        partition,
        path,
        from,
        to,
        reason,
        ..
    } = damage;
    let file = data.join(path);
    let file = file.display();
    let trim = if topic == OFFSETS_TOPIC {
        String::new()
    } else {
        format!(
            ", or drop everything before offset {to}: `riverlog topic trim {topic} -p {partition} --before {to}`"
        )
    };
    tracing::error!(
        topic,
        partition,
        file = %file,
        from = from.0,
        to = to.0,
        "damaged: offsets {from} to {} of {topic}-{partition} can't be read ({reason}) in {file}; readers of them get CORRUPT_MESSAGE, all other records are served. \
         Look at the disk; bring the file back from a copy while the broker is stopped (`riverlog segment check` tells what is sound){trim}",
        to.0 - 1
    );
}

fn say_loss(reason: &str, lost: &[LostRange]) {
    tracing::error!(
        partitions = lost.len(),
        "ACKNOWLEDGED RECORDS MAY BE LOST: the data folder was damaged and was opened because of the file accept-loss in it: {reason}"
    );
    for LostRange {
        topic,
        partition,
        from,
        to,
    } in lost
    {
        tracing::error!(
            topic,
            partition,
            from = from.0,
            to = to.0,
            "lost: offsets {from} to {} of {topic}-{partition} were there and can't be read any more; send these records again",
            to.0 - 1
        );
    }
    if lost.is_empty() {
        tracing::error!(
            "of no partition is it known which records are gone; what was acknowledged shortly before the damage may be: compare with what the producers have sent"
        );
    }
}
