//! What a history is made of, and its form in a file: JSON, one event a line.

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};

/// A partition, `["topic",0]` in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place(pub String, pub i32);

/// The partition `partition` of `topic`.
pub fn place(topic: &str, partition: i32) -> Place {
    Place(topic.to_owned(), partition)
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

/// Something that a client did or was told.
///
/// As a line: `{"at":17,"client":"p1","op":"ack","place":["orders",0],"value":"p1-4","offset":7}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Nanoseconds on a clock that never steps and that all clients of the run share.
    pub at: u64,
    /// The client's name, unique in the run; a client that starts anew has a new name.
    pub client: String,
    /// What it did.
    #[serde(flatten)]
    pub what: What,
}

/// What a client did or was told. An operation that takes time is either two events, or one at its end with its begin
/// in `since`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum What {
    /// A client starts. One that never says so counts as an idempotent producer or a consumer without a group.
    Open {
        /// It sends with idempotence: nothing twice, and in order within a partition.
        #[serde(default)]
        idempotent: bool,
        /// It may send again by itself what was not answered.
        #[serde(default)]
        retries: bool,
        /// Its consumer group.
        #[serde(default)]
        group: Option<String>,
        /// It reads committed records only.
        #[serde(default)]
        read_committed: bool,
    },
    /// A client ends; nothing is expected from it any more.
    Close,
    /// A value goes out. Values are unique in the run, but for a program's own repetition of the same send.
    Send {
        /// Where to.
        place: Place,
        /// The value.
        value: String,
        /// The transaction that it is part of; such names are unique in the run.
        #[serde(default)]
        txn: Option<String>,
    },
    /// A send was answered with success.
    Ack {
        /// Where it was sent to.
        place: Place,
        /// The value.
        value: String,
        /// Where it lies; negative: the answer didn't say.
        offset: i64,
    },
    /// A send ended without success.
    Fail {
        /// The value.
        value: String,
        /// It may be stored all the same: a time-out, a lost connection.
        maybe: bool,
    },
    /// The end of a transaction was asked for.
    Ending {
        /// The transaction.
        txn: String,
        /// To commit it; otherwise to abort it.
        commit: bool,
    },
    /// The answer to that; a transaction without one is of unknown outcome.
    Ended {
        /// The transaction.
        txn: String,
        /// How it ended, where that is known.
        committed: Option<bool>,
    },
    /// A consumer's partitions from now on, all of them: where it begins in each is its own affair.
    Assign {
        /// The partitions.
        places: Vec<Place>,
    },
    /// A poll returned, with or without records.
    Poll {
        /// When it began.
        since: u64,
        /// Partition, offset and value, in the order in which they were handed out.
        records: Vec<(Place, i64, String)>,
        /// The transaction in whose course it was done.
        #[serde(default)]
        txn: Option<String>,
    },
    /// An offset commit goes out.
    Committing {
        /// The group.
        group: String,
        /// The partition.
        place: Place,
        /// The next offset to be read.
        offset: i64,
    },
    /// The answer to the client's last such commit.
    Committed {
        /// The group.
        group: String,
        /// The partition.
        place: Place,
        /// The next offset to be read.
        offset: i64,
        /// Stored; otherwise perhaps.
        stored: bool,
    },
    /// A group's committed offset was asked for.
    Offset {
        /// When that began.
        since: u64,
        /// The group.
        group: String,
        /// The partition.
        place: Place,
        /// The answer.
        offset: Option<i64>,
    },
    /// The first and the end offset of a partition were asked for.
    Bounds {
        /// When that began.
        since: u64,
        /// The partition.
        place: Place,
        /// Log start offset.
        start: i64,
        /// High watermark or last stable offset.
        end: i64,
    },
    /// What is promised of a system of several nodes: a leader or coordinator that was superseded and doesn't know it may tell ends and
    /// commits that are so old, and not older. Holds for the whole run; without it they are never old.
    Lags {
        /// Nanoseconds.
        most: u64,
    },
    /// From now on records may be deleted: those before `to`, or as retention likes.
    Deleting {
        /// The partition.
        place: Place,
        /// Exclusive.
        to: Option<i64>,
    },
    /// The run itself damaged this range: that it can't be read is right.
    Damaged {
        /// The partition.
        place: Place,
        /// First offset.
        from: i64,
        /// Exclusive.
        to: i64,
    },
    /// A partition was read from its start to its end.
    Whole {
        /// When that began.
        since: u64,
        /// The partition.
        place: Place,
        /// Log start offset.
        start: i64,
        /// The end that was read to.
        end: i64,
        /// Offsets and values.
        records: Vec<(i64, String)>,
        /// Committed records only.
        #[serde(default)]
        read_committed: bool,
    },
    /// All members of a group together say that they have read everything that there is.
    Drained {
        /// The group.
        group: String,
    },
    /// A fault begins.
    Fault {
        /// Which, in words.
        what: String,
    },
    /// The last fault is over: from here on everyone must move.
    Healed,
}

/// A history that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file.
    #[error("the history can't be read: {0}")]
    Io(#[from] std::io::Error),
    /// A line that is none.
    #[error(
        "line {line} is not an event: {source}; a line looks like {{\"at\":1,\"client\":\"c\",\"op\":\"close\"}}"
    )]
    Line {
        /// From 1.
        line: usize,
        /// What serde says.
        source: serde_json::Error,
    },
}

/// Reads events, one JSON object a line; empty lines are passed over. A last line without its end is dropped: a client that
/// is killed leaves one.
pub fn read(mut from: impl BufRead) -> Result<Vec<Event>, HistoryError> {
    let mut events = Vec::new();
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        if from.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            break;
        }
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(&line) {
            Ok(event) => events.push(event),
            Err(source) => {
                return Err(HistoryError::Line {
                    line: number,
                    source,
                });
            }
        }
    }
    Ok(events)
}

/// Writes events, one JSON object a line.
pub fn write<'a>(
    mut to: impl Write,
    events: impl IntoIterator<Item = &'a Event>,
) -> std::io::Result<()> {
    for event in events {
        serde_json::to_writer(&mut to, event)?;
        to.write_all(b"\n")?;
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_after_a_file_and_a_cut_line_is_dropped() {
        let events = [
            Event {
                at: 1,
                client: "p".into(),
                what: What::Send {
                    place: place("t", 3),
                    value: "v".into(),
                    txn: None,
                },
            },
            Event {
                at: u64::MAX,
                client: "c".into(),
                what: What::Poll {
                    since: 2,
                    records: vec![(place("t", 3), 7, "v".into())],
                    txn: Some("x".into()),
                },
            },
            Event {
                at: 4,
                client: "c".into(),
                what: What::Healed,
            },
        ];
        let mut file = Vec::new();
        write(&mut file, &events).unwrap();
        assert_eq!(read(&file[..]).unwrap(), events);
        assert_eq!(read(&file[..file.len() - 1]).unwrap(), events[..2]);
    }

    #[test]
    fn what_may_be_left_out_may_be_left_out() {
        let text = "{\"at\":1,\"client\":\"p\",\"op\":\"open\"}\n\n{\"at\":2,\"client\":\"p\",\"op\":\"send\",\
                    \"place\":[\"t\",0],\"value\":\"a\"}\n";
        assert_eq!(read(text.as_bytes()).unwrap().len(), 2);
    }

    #[test]
    fn a_line_that_is_no_event_is_named() {
        let error = read(&b"\n{\"at\":1}\n"[..]).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
