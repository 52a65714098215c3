//! How to join a group.

/// When a consumer's position is committed.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("t", 1)?;
/// # broker.publish("t", None, b"x")?;
/// # use std::time::Duration;
/// use riverlog::{Delivery, Subscription};
/// let once = Subscription::new(&["t"], "g", "c").delivery(Delivery::AtMostOnce);
/// let mut consumer = broker.subscribe_with(once)?;
/// assert_eq!(consumer.poll(10, Duration::from_secs(1))?.len(), 1);
/// // Committed before it was handed out.
/// assert_eq!(broker.group("g")?.committed("t", 0)?, Some(1));
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Delivery {
    /// By [`Consumer::commit`](crate::Consumer::commit), after the work is done: a record may come twice, none is left out.
    #[default]
    AtLeastOnce,
    /// Before records are handed out: a record may be left out, none comes twice.
    AtMostOnce,
}

/// Where a group starts in a partition for which it has no committed offset (or one that retention has passed).
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("t", 1)?;
/// # broker.publish("t", None, b"x")?;
/// # use std::time::Duration;
/// use riverlog::{Start, Subscription};
/// let new_ones = Subscription::new(&["t"], "g", "c").start(Start::Latest);
/// let mut consumer = broker.subscribe_with(new_ones)?;
/// assert!(consumer.poll(10, Duration::from_millis(10))?.is_empty());
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Start {
    /// At the first record that is still there.
    #[default]
    Earliest,
    /// After the last record at the time of joining.
    Latest,
}

/// How to join a group.
///
/// ```
/// use riverlog::{Broker, Delivery, Start, Subscription};
/// # let broker = Broker::in_memory();
/// # broker.create_topic("a", 1)?; broker.create_topic("b", 1)?;
/// let subscription = Subscription::new(&["a", "b"], "group", "consumer-1")
///     .delivery(Delivery::AtMostOnce)
///     .start(Start::Latest);
/// let consumer = broker.subscribe_with(subscription)?;
/// # drop(consumer);
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Subscription {
    pub(crate) topics: Vec<String>,
    pub(crate) group: String,
    pub(crate) consumer: String,
    pub(crate) delivery: Delivery,
    pub(crate) start: Start,
}

impl Subscription {
    /// At-least-once from the earliest record.
    ///
    /// ```
    /// use riverlog::Subscription;
    /// let both = Subscription::new(&["orders", "refunds"], "billing", "billing-1");
    /// # drop(both);
    /// ```
    pub fn new(topics: &[&str], group: &str, consumer_id: &str) -> Subscription {
        Subscription {
            topics: topics.iter().map(|t| (*t).to_owned()).collect(),
            group: group.to_owned(),
            consumer: consumer_id.to_owned(),
            delivery: Delivery::default(),
            start: Start::default(),
        }
    }
    /// When positions are committed.
    ///
    /// ```
    /// use riverlog::{Delivery, Subscription};
    /// let once = Subscription::new(&["t"], "g", "c").delivery(Delivery::AtMostOnce);
    /// # drop(once);
    /// ```
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }
    /// Where to start without a committed offset.
    ///
    /// ```
    /// use riverlog::{Start, Subscription};
    /// let tail = Subscription::new(&["t"], "g", "c").start(Start::Latest);
    /// # drop(tail);
    /// ```
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }
}
