//! What copies catch up with: connections of its own, and threads that give way to all others of this machine that have something to do.
//!
//! Who waits for an acknowledgement is to notice nothing of a node that has been away for an hour and takes what it has missed.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::Cluster;
use super::dial::{FIRST_PAUSE, LONGEST_PAUSE, connect_for, speak};
use super::hello::Hello;
use super::wire::{Purpose, WireError};

/// How far such a thread stands back (setpriority(2)): beside one that never rests it has a tenth of a core.
const NICE: i32 = 10;
/// Who catches up checks and stores what several leaders send.
const THREADS: usize = 2;

/// The threads.
pub(super) fn threads() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("riverlog-bulk")
        .on_thread_start(|| {
            // Elsewhere that would be said of the whole process.
            #[cfg(target_os = "linux")]
            // Where it is refused it goes on like all others.
            let _ = rustix::process::setpriority_process(None, NICE);
        })
        .build()
}

impl Cluster {
    /// Does something on those threads, for as long as it is waited for.
    pub(super) async fn in_bulk<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, WireError>> + Send + 'static,
    ) -> Result<T, WireError> {
        let Some(threads) = self.bulk.get() else {
            return work.await;
        };
        // Dropped, it ends what it has begun.
        let mut set = JoinSet::new();
        set.spawn_on(work, threads);
        match set.join_next().await {
            Some(Ok(done)) => done,
            _ => Err(io::Error::other("its thread has ended").into()),
        }
    }
}

/// Keeps such a connection to a node beside the one for messages.
pub(super) async fn keep(cluster: &Arc<Cluster>, address: &str, there: &Hello) -> Infallible {
    let mut pause = FIRST_PAUSE;
    loop {
        if let Ok((hello, read, sender)) = connect_for(cluster, address, Purpose::Bulk).await
            && hello.who.disk == there.who.disk
        {
            pause = FIRST_PAUSE;
            let speaking = Arc::clone(cluster);
            let until_it_ends = async move {
                let error = speak(&speaking, Purpose::Bulk, &hello, read, sender).await;
                Err::<Infallible, WireError>(error.into())
            };
            // Why it ended the other connection tells, or nobody needs to know.
            let _ = cluster.in_bulk(until_it_ends).await;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
