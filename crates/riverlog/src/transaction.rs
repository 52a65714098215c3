//! Transactions: records in several partitions, and a consumer's offsets, together or not at all.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use riverlog_core::groups::{GroupAnswer, GroupCommand, InTransaction};
use riverlog_core::transactions::{
    TransactionAnswer, TransactionCommand, TransactionState, TransactionVersion,
};
use riverlog_wire::{ErrorCode, Generation, Offset, ProducerEpoch, ProducerId, Sequence, TopicId};

use crate::publish::{Message, RecordId};
use crate::{Broker, Consumer, Error, Result};

/// Pauses between tries, while a transaction before is being finished or the coordinator reads its log.
const PAUSE: Duration = Duration::from_millis(2);

/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The one producer that a transactional id has. Made by [`Broker::transaction`]; a later one of the same id fences it.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("t", 1)?;
/// let mut producer = broker.transaction("billing-1")?;
/// for order in [b"1", b"2"] {
///     let mut transaction = producer.begin();
///     transaction.publish("t", None, order)?;
///     transaction.commit()?;
/// }
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Debug)]
pub struct TransactionalProducer {
    broker: Broker,
    id: String,
    producer: ProducerId,
    epoch: ProducerEpoch,
    /// The next sequence by partition, since the epoch began.
    sequences: BTreeMap<(TopicId, i32), Sequence>,
    timeout: Duration,
    /// The coordinator may have a transaction to end.
    open: bool,
    /// Why nobody knows what the transaction holds; then it can only be aborted. What was sent may lie in a partition under a sequence
    /// that the next batch there would have, and that one would be taken for a duplicate of it. Ends with the epoch.
    unsure: Option<String>,
}

/// An open transaction: nothing in it is seen by readers of committed records before [`Transaction::commit`]. Dropped without it,
/// it is aborted.
///
/// When it isn't known whether something that was sent is part of it ([`Error::TimedOut`], KAFKA_STORAGE_ERROR), it can only be aborted:
/// everything else is refused with TRANSACTION_ABORTABLE as [`Error::Refused`]. After an error that says that nothing was stored
/// ([`Error::Full`], say) it goes on.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("t", 1)?;
/// let mut producer = broker.transaction("billing-1")?;
/// let mut transaction = producer.begin();
/// transaction.publish("t", None, b"seen only when it is committed")?;
/// transaction.commit()?;
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a transaction that is dropped is aborted"]
pub struct Transaction<'a> {
    producer: &'a mut TransactionalProducer,
    /// Something is part of it.
    stored: bool,
    ended: bool,
}

/// Whether the same command may be answered otherwise in a moment.
fn passes(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::CONCURRENT_TRANSACTIONS
            | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode::COORDINATOR_NOT_AVAILABLE
            | ErrorCode::NOT_COORDINATOR
    )
}

/// Whether an error says that nothing was stored. One that isn't named here may have come after the append.
fn is_refusal(error: &Error) -> bool {
    match error {
        // Of a topic that was deleted meanwhile nothing is left, whatever was stored there.
        Error::Full { .. } | Error::UnknownTopic(_) | Error::Fenced { .. } => true,
        Error::Refused { code, .. } => matches!(
            *code,
            ErrorCode::CONCURRENT_TRANSACTIONS
                | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
                | ErrorCode::CORRUPT_MESSAGE
                | ErrorCode::INVALID_PRODUCER_EPOCH
                | ErrorCode::INVALID_PRODUCER_ID_MAPPING
                | ErrorCode::INVALID_RECORD
                | ErrorCode::INVALID_TIMESTAMP
                | ErrorCode::INVALID_TOPIC_EXCEPTION
                | ErrorCode::INVALID_TXN_STATE
                | ErrorCode::MESSAGE_TOO_LARGE
                | ErrorCode::NOT_COORDINATOR
                | ErrorCode::OFFSET_METADATA_TOO_LARGE
                | ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
                | ErrorCode::PRODUCER_FENCED
                | ErrorCode::TRANSACTION_ABORTABLE
        ),
        _ => false,
    }
}

/// Tries until the answer isn't one that passes.
fn patiently<T>(mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Err(Error::Refused { code, .. }) if passes(code) && Instant::now() < until => {
                std::thread::sleep(PAUSE);
            }
            answer => return answer,
        }
    }
}

impl TransactionalProducer {
    pub(crate) fn start(broker: Broker, id: &str, timeout: Duration) -> Result<Self> {
        let mut producer = TransactionalProducer {
            broker,
            id: id.to_owned(),
            producer: ProducerId::NONE,
            epoch: ProducerEpoch::NONE,
            sequences: BTreeMap::new(),
            timeout,
            open: false,
            unsure: None,
        };
        producer.init()?;
        Ok(producer)
    }

    /// Begins a transaction. Nothing is stored for it before it is used.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// let mut producer = broker.transaction("billing-1")?;
    /// producer.begin().commit()?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn begin(&mut self) -> Transaction<'_> {
        Transaction {
            producer: self,
            stored: false,
            ended: false,
        }
    }

    fn init(&mut self) -> Result<()> {
        let timeout_ms = i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX);
        let id = self.id.clone();
        let command = move || TransactionCommand::Init {
            id: id.clone(),
            timeout_ms,
            resume: None,
            fresh: None,
        };
        self.ask(command)
    }

    fn end(&mut self, commit: bool) -> Result<()> {
        let (id, producer_id, epoch) = (self.id.clone(), self.producer, self.epoch);
        let command = move || TransactionCommand::End {
            id: id.clone(),
            producer_id,
            epoch,
            commit,
            version: TransactionVersion::TWO,
            fresh: None,
        };
        if let Err(error) = self.ask(command) {
            // What is still open there would become part of the next transaction.
            self.unsure = Some(format!(
                "it isn't known how the transaction before has ended ({error})"
            ));
            return Err(error);
        }
        (self.open, self.unsure) = (false, None);
        self.shown()
    }

    /// Nothing but an abort is left when it isn't known what the transaction holds.
    fn check_sure(&self) -> Result<()> {
        let Some(why) = &self.unsure else {
            return Ok(());
        };
        Err(Error::Refused {
            code: ErrorCode::TRANSACTION_ABORTABLE,
            message: format!("{why}; abort the transaction and do its work again in another one"),
        })
    }

    /// Takes note of an error of something that was sent as part of the transaction.
    fn sent<T>(&mut self, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer
            && !is_refusal(error)
        {
            self.unsure = Some(format!(
                "it isn't known whether something that was sent is part of this transaction ({error})"
            ));
        }
        answer
    }

    /// Waits until what was decided shows everywhere: the answer comes before the markers are written, and whoever looks next is to
    /// find them. They come whether or not anybody waits.
    fn shown(&self) -> Result<()> {
        let (id, driver) = (&self.id, &self.broker.driver);
        let waited = patiently(|| {
            let described = driver.call(true, |node, now, reply| {
                node.describe_transaction(id, now, reply);
            })?;
            let state = described.map_err(Error::refused)?.value.state;
            match state {
                TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                    Err(Error::refused(ErrorCode::CONCURRENT_TRANSACTIONS))
                }
                _ => Ok(()),
            }
        });
        match waited {
            // It is decided all the same.
            Err(Error::Refused { .. }) => Ok(()),
            waited => waited,
        }
    }

    /// Asks the coordinator, and goes on with what it gives.
    fn ask(&mut self, command: impl Fn() -> TransactionCommand) -> Result<()> {
        let driver = &self.broker.driver;
        let (producer, epoch) = patiently(|| {
            let command = command();
            let answer = driver.call(true, |node, now, reply| {
                node.transaction(command, now, reply);
            })?;
            match answer {
                TransactionAnswer::Producer {
                    error: ErrorCode::NONE,
                    producer_id,
                    epoch,
                } => Ok((producer_id, epoch)),
                TransactionAnswer::Producer { error, .. } => Err(Error::refused(error)),
                _ => Err(Error::refused(ErrorCode::UNKNOWN_SERVER_ERROR)),
            }
        })?;
        if (producer, epoch) != (self.producer, self.epoch) {
            self.sequences.clear();
        }
        (self.producer, self.epoch) = (producer, epoch);
        Ok(())
    }
}

impl Transaction<'_> {
    /// Publishes a record as part of the transaction; returns when it is stored, which isn't yet committed.
    ///
    /// - Errors: after [`Error::TimedOut`] and KAFKA_STORAGE_ERROR the record may or may not be stored, and the transaction can only be
    ///   aborted; until then this and everything else of it is refused with TRANSACTION_ABORTABLE (both as [`Error::Refused`]).
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// let mut producer = broker.transaction("billing-1")?;
    /// let mut transaction = producer.begin();
    /// assert_eq!(transaction.publish("t", None, b"x")?.offset, 0);
    /// transaction.commit()?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn publish(&mut self, topic: &str, key: Option<&[u8]>, value: &[u8]) -> Result<RecordId> {
        self.publish_message(topic, &Message::new(key, value))
    }

    /// As [`Transaction::publish`], with headers, timestamp, partition, or a null value.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # use riverlog::Message;
    /// let mut producer = broker.transaction("billing-1")?;
    /// let mut transaction = producer.begin();
    /// transaction.publish_message("t", &Message::new(None, b"x").header("trace", Some(b"7")))?;
    /// transaction.commit()?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn publish_message(&mut self, topic: &str, message: &Message<'_>) -> Result<RecordId> {
        let producer = &mut *self.producer;
        producer.check_sure()?;
        let sent = producer.broker.publisher().in_transaction(topic, message)?;
        producer.open = true;
        let (place, who) = (sent.place(), (producer.producer, producer.epoch));
        let sequence = producer
            .sequences
            .get(&place)
            .copied()
            .unwrap_or(Sequence(0));
        let answer = patiently(|| sent.send(&producer.id, who, sequence));
        let stored = producer.sent(answer)?;
        producer.sequences.insert(place, sequence.plus(1));
        self.stored = true;
        Ok(stored)
    }

    /// Commits everything that the consumer has handed out, as part of the transaction: with its records or not at all.
    ///
    /// - Errors: [`Error::Fenced`] when the consumer's partitions have gone to another member; the transaction should be aborted
    ///   then, since that member reads the same records again. Others as of [`Transaction::publish`].
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// # broker.publish("t", None, b"x")?;
    /// # use std::time::Duration;
    /// let mut producer = broker.transaction("billing-1")?;
    /// let mut transaction = producer.begin();
    /// consumer.poll(10, Duration::from_secs(1))?;
    /// transaction.commit_offsets(&mut consumer)?;
    /// transaction.commit()?;
    /// assert_eq!(broker.group("g")?.committed("t", 0)?, Some(1));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn commit_offsets(&mut self, consumer: &mut Consumer) -> Result<()> {
        let producer = &mut *self.producer;
        producer.check_sure()?;
        let offsets = consumer.handed_out();
        if offsets.is_empty() {
            return Ok(());
        }
        producer.open = true;
        let (member, generation) = consumer.membership();
        let command = GroupCommand::TxnCommit {
            group: consumer.group().to_owned(),
            generation: Generation(generation),
            member: member.to_owned(),
            instance: None,
            offsets,
            version: 6,
            transaction: InTransaction {
                producer_id: producer.producer,
                producer_epoch: producer.epoch,
                verified: Offset::ZERO,
            },
        };
        let answer = patiently(|| {
            let (id, command) = (&producer.id, command.clone());
            let driver = &producer.broker.driver;
            let answer = driver.call(true, |node, now, reply| {
                node.commit_in_transaction(id, true, command, now, reply);
            })?;
            let (error, each) = match answer {
                GroupAnswer::Partitions(error, each) => (error, each),
                _ => (ErrorCode::UNKNOWN_SERVER_ERROR, Vec::new()),
            };
            let mut errors = std::iter::once(error).chain(each);
            match errors.find(|e| *e != ErrorCode::NONE) {
                None => Ok(()),
                Some(code) => Err(consumer.membership_error(code)),
            }
        });
        producer.sent(answer)?;
        self.stored = true;
        Ok(())
    }

    /// Makes all of it visible, at once, for ever.
    ///
    /// - Errors: PRODUCER_FENCED (as [`Error::Refused`]) when a later producer of this id was made, or the transaction took longer than
    ///   its time-out: then nothing of it counts. TRANSACTION_ABORTABLE when it isn't known what the transaction holds: it is aborted.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// let mut producer = broker.transaction("billing-1")?;
    /// let mut transaction = producer.begin();
    /// transaction.publish("t", None, b"x")?;
    /// transaction.commit()?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn commit(mut self) -> Result<()> {
        // Refused, it is dropped here, and aborted by that.
        self.producer.check_sure()?;
        // When everything was refused the coordinator may have nothing to commit; to abort it is the same, and always goes.
        self.finish(self.stored)
    }

    /// Forgets all of it.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// # use std::time::Duration;
    /// let mut producer = broker.transaction("billing-1")?;
    /// let mut transaction = producer.begin();
    /// transaction.publish("t", None, b"never seen")?;
    /// transaction.abort()?;
    /// assert!(consumer.poll(10, Duration::from_millis(20))?.is_empty());
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn abort(mut self) -> Result<()> {
        self.finish(false)
    }

    fn finish(&mut self, commit: bool) -> Result<()> {
        self.ended = true;
        match self.producer.open {
            true => self.producer.end(commit),
            false => Ok(()),
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // Who can't be told now ends it by its time-out.
            let _ = self.finish(false);
        }
    }
}
