//! A record as it is read.

use std::sync::Arc;

use bytes::Bytes;
use riverlog_wire::batch::{Headers, RecordView};

/// A record as it is read. Key, value and headers are slices of the batch that they came in: cheap to clone, and the batch
/// stays in memory as long as one of them does.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("t", 1)?;
/// # let mut consumer = broker.subscribe("t", "g", "c")?;
/// broker.publish("t", Some(b"k"), b"v")?;
/// # use std::time::Duration;
/// let record = &consumer.poll(1, Duration::from_secs(1))?[0];
/// assert_eq!((&*record.topic, record.partition, record.offset), ("t", 0, 0));
/// assert_eq!(record.key.as_deref(), Some(&b"k"[..]));
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// Its position in the partition.
    pub offset: i64,
    /// In ms since the epoch, the publisher's or the broker's as the topic says; −1 for none.
    pub timestamp: i64,
    /// Absent and empty differ.
    pub key: Option<Bytes>,
    /// Absent for a tombstone; see [`Record::value`].
    pub payload: Option<Bytes>,
    headers: Headers,
}

impl Record {
    pub(crate) fn new(topic: &Arc<str>, partition: i32, view: RecordView) -> Record {
        Record {
            topic: Arc::clone(topic),
            partition,
            offset: view.offset.0,
            timestamp: view.timestamp,
            key: view.key,
            payload: view.value,
            headers: view.headers,
        }
    }
    /// The value; empty for a tombstone (see `payload`).
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// broker.publish("t", None, b"v")?;
    /// # use std::time::Duration;
    /// assert_eq!(consumer.poll(1, Duration::from_secs(1))?[0].value(), b"v");
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn value(&self) -> &[u8] {
        self.payload.as_deref().unwrap_or_default()
    }
    /// The headers in order: key, and value or null. Duplicates are kept.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// # use riverlog::Message;
    /// broker.publish_message("t", &Message::new(None, b"v").header("a", Some(b"1")).header("a", None))?;
    /// # use std::time::Duration;
    /// let record = &consumer.poll(1, Duration::from_secs(1))?[0];
    /// assert_eq!(record.headers().count(), 2);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn headers(&self) -> impl Iterator<Item = (Bytes, Option<Bytes>)> + '_ {
        self.headers.iter()
    }
    /// The last header of that key, as applications usually mean it.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// # use riverlog::Message;
    /// broker.publish_message("t", &Message::new(None, b"v").header("trace", Some(b"7")))?;
    /// # use std::time::Duration;
    /// let record = &consumer.poll(1, Duration::from_secs(1))?[0];
    /// assert_eq!(record.header("trace").as_deref(), Some(&b"7"[..]));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn header(&self, key: &str) -> Option<Bytes> {
        self.headers
            .iter()
            .filter(|(k, _)| k.as_ref() == key.as_bytes())
            .last()
            .and_then(|(_, v)| v)
    }
}
