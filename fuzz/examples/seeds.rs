//! Writes the seeds of the targets for files from a data folder as the log writes it now:
//! `cargo run --example seeds`, from the folder `fuzz`.

use std::path::Path;

use libfuzzer_sys as _;
use riverlog_core::groups::records::{OffsetValue, Record};
use riverlog_core::metadata::MetadataRecord;
use riverlog_fuzz::image;
use riverlog_wire::{LeaderEpoch, Offset, TopicId};

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let put = |target: &str, name: &str, bytes: &[u8]| {
        let folder = root.join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)
    };
    for (name, closed) in [("closed", true), ("killed", false)] {
        for (path, bytes) in &image(closed).files {
            let (_, file) = path.rsplit_once('/').unwrap_or(("", path));
            let target = match file.rsplit_once('.').unwrap_or((file, "")) {
                (_, "index") => "index",
                (_, "timeindex") => "timeindex",
                (_, "snapshot") => "snapshot",
                ("00000000000000000000", "check") => "check",
                (_, "log") => "batch",
                ("leader-epoch-checkpoint", _) => "epochs",
                _ => continue,
            };
            put(target, &format!("{name}-{file}"), bytes)?;
        }
        // One edit of each kind.
        for kind in 0..10 {
            let edits = [u8::from(closed), kind, 3, 0, 9, 1, 2, 0, 8, 1, 5, 5, 5, 5];
            put("folder", &format!("{name}-{kind}"), &edits)?;
        }
    }
    let records = [
        ("producer-ids", MetadataRecord::ProducerIds { next: 2_000 }),
        (
            "feature",
            MetadataRecord::Feature {
                name: "metadata.version".into(),
                level: 3,
            },
        ),
    ];
    for (name, record) in records {
        put("metadata", name, &record.encode())?;
    }
    let record = Record::Offset {
        group: "group".into(),
        topic: "topic".into(),
        partition: 3,
        value: Some(OffsetValue {
            offset: Offset(17),
            leader_epoch: LeaderEpoch(2),
            metadata: "here".into(),
            commit_timestamp: 1_000,
            expire_timestamp: None,
            topic_id: TopicId(*b"riverlog-fuzzing"),
        }),
    };
    if let Ok(stored) = record.encode() {
        let value = stored.value.unwrap_or_default();
        let parts = [&[stored.key.len() as u8], &stored.key[..], &value[..]];
        put("offsets", "offset", &parts.concat())?;
    }
    Ok(())
}
