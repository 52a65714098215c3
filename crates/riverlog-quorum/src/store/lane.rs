//! Who writes: a thread of its own, so that a slow disk doesn't hold up heartbeats, or the caller at once, so that a simulated run
//! is the same each time.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;

use parking_lot::Mutex;
use riverlog_log::{Disk, OpenMode};

use super::committed;
use super::journal::{Journal, Line};
use super::snapshot;
use crate::raft::{LogId, io_error};

/// Told once what was written is durable, or can't be.
pub(crate) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

pub(crate) enum Task {
    Append(Line, Done),
    Rewrite(Vec<Line>, Done),
    /// A hint that saves time after a start; nothing rests on it.
    Committed(LogId),
    /// With the last entry that is in it. One that comes late takes the place of no newer one, whose entries may be gone already.
    Snapshot(Option<LogId>, Vec<u8>, Done),
}

pub(crate) enum Lane {
    Inline(Mutex<Hand>),
    Thread(mpsc::Sender<Task>),
}

/// What has the files.
pub(crate) struct Hand {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) journal: Journal,
    /// The last entry in the snapshot that is there.
    pub(crate) held: Option<LogId>,
}

impl Hand {
    fn run(&mut self, task: Task) {
        match task {
            Task::Append(line, done) => done(self.journal.append(&line)),
            Task::Rewrite(lines, done) => done(self.journal.rewrite(&lines)),
            Task::Committed(upto) => {
                let bytes = committed::encode(upto);
                // Without it, the leader says it again.
                let _unwritten = self
                    .disk
                    .open(committed::PATH, OpenMode::Create)
                    .and_then(|file| file.write_at(&[&bytes], 0));
            }
            Task::Snapshot(upto, _, done) if self.held.is_some() && upto <= self.held => {
                done(Ok(()));
            }
            Task::Snapshot(upto, bytes, done) => {
                let replaced = snapshot::replace(&*self.disk, &bytes);
                if replaced.is_ok() {
                    self.held = upto;
                }
                done(replaced);
            }
        }
    }
}

impl Lane {
    pub(crate) fn inline(hand: Hand) -> Lane {
        Lane::Inline(Mutex::new(hand))
    }

    /// The thread ends when the lane is dropped.
    pub(crate) fn thread(mut hand: Hand) -> io::Result<Lane> {
        let (sender, tasks) = mpsc::channel::<Task>();
        std::thread::Builder::new()
            .name("riverlog-vote".to_owned())
            .spawn(move || {
                for task in tasks {
                    hand.run(task);
                }
            })?;
        Ok(Lane::Thread(sender))
    }

    pub(crate) fn put(&self, task: Task) {
        match self {
            Lane::Inline(hand) => hand.lock().run(task),
            Lane::Thread(sender) => {
                if let Err(mpsc::SendError(task)) = sender.send(task) {
                    let gone = || {
                        Err(io_error(
                            "the thread that writes the quorum's files is gone",
                        ))
                    };
                    match task {
                        Task::Append(_, done)
                        | Task::Rewrite(_, done)
                        | Task::Snapshot(_, _, done) => {
                            done(gone());
                        }
                        Task::Committed(_) => {}
                    }
                }
            }
        }
    }

    /// Puts a task and waits until it is durable.
    pub(crate) async fn durable(&self, make: impl FnOnce(Done) -> Task) -> io::Result<()> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.put(make(Box::new(move |result| {
            // Nobody waits any more at a stop.
            let _ = sender.send(result);
        })));
        receiver
            .await
            .unwrap_or_else(|_| Err(io_error("the quorum is stopping")))
    }
}
