//! The file in which the broker keeps what it saw of itself, so that the console's plots go on after a restart.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use riverlog_http::HttpDoor;

/// In the data folder.
const NAME: &str = "history";
/// Looks between two times that it is written: five minutes, the step of what it holds.
pub(super) const LOOKS: u32 = 30;

/// Takes up what an earlier run has left, if anything.
pub(super) fn recall(door: &HttpDoor, data: &Path) {
    let most = HttpDoor::LARGEST_PAST as u64;
    let mut bytes = Vec::new();
    let read =
        File::open(data.join(NAME)).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if door.recall(&bytes) => {}
        Ok(_) => tracing::info!("the history of the last run can't be read; it begins anew"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!("the history of the last run can't be read: {error}"),
    }
}

/// Writes it anew. It is for people to look at: what fails is told, and nothing else comes of it.
pub(super) async fn keep(door: &Arc<HttpDoor>, data: &Path) {
    let (door, data) = (Arc::clone(door), data.to_owned());
    let written = tokio::task::spawn_blocking(move || write(&data, &door.remember())).await;
    if let Ok(Err(error)) = written {
        tracing::warn!("the history for the console can't be written: {error}");
    }
}

/// A crash leaves the old one or the new one.
fn write(data: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let fresh = data.join(format!("{NAME}.tmp"));
    // Names of topics and groups are nobody else's business, as what lies beside it.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(&fresh).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_data()
    });
    match written.and_then(|()| fs::rename(&fresh, data.join(NAME))) {
        Ok(()) => Ok(()),
        Err(error) => {
            // A full disk has no room for half of it.
            let _ = fs::remove_file(&fresh);
            Err(error)
        }
    }
}
