//! An event log that runs inside a program.
//!
//! The same engine as the Riverlog server, without a server: topics with partitions, offsets, consumer groups, retention,
//! on disk or in memory. Everything is thread-safe; nothing here needs an async runtime.
//!
//! ```
//! use std::time::Duration;
//! use riverlog::Broker;
//!
//! let broker = Broker::in_memory();
//! broker.create_topic("orders", 3)?;
//! let id = broker.publish("orders", Some(b"customer-7"), b"two apples")?;
//!
//! let mut consumer = broker.subscribe("orders", "billing", "billing-1")?;
//! let records = consumer.poll(10, Duration::from_secs(1))?;
//! assert_eq!(records[0].value(), b"two apples");
//! assert_eq!(records[0].offset, id.offset);
//! consumer.commit()?;
//! # Ok::<(), riverlog::Error>(())
//! ```
//!
//! # What is promised
//!
//! - Records with one key go to one partition (Kafka's murmur2 hash, so that every Kafka client agrees), and order holds
//!   within a partition.
//! - On disk, [`Broker::publish`] returns when the record survives a power cut, unless the topic asks for
//!   [`Durability::PageCache`].
//! - A partition goes to one consumer of a group at a time. Joins and leaves move only what must move; a consumer that
//!   lost a partition can't commit for it any more.
//! - Records of a [`Transaction`], and the offsets committed in it, count together or not at all.
//! - Members of a share group ([`Broker::subscribe_shared`]) read a partition together: each record goes to one of them at a
//!   time and is acknowledged on its own, in order per key where the group wants that.
//! - At-least-once by default: what was handed out and not committed comes again. [`Delivery::AtMostOnce`] commits first.
//!
//! # Features
//!
//! - `listen`: `Broker::listen` opens a port for Kafka clients, so that a test of a program in any language has a real broker in
//!   milliseconds.

mod broker;
mod consumer;
#[cfg(test)]
mod damaged;
mod error;
mod group;
#[cfg(feature = "listen")]
mod listen;
mod publish;
mod record;
mod shared;
mod subscription;
mod topic;
mod transaction;

pub use broker::{Broker, BrokerBuilder};
pub use consumer::Consumer;
pub use error::{Error, Result};
pub use group::{ConsumerGroup, Lag, Member, PartitionLag};
#[cfg(feature = "listen")]
pub use listen::Listener;
pub use publish::{Message, RecordId};
pub use record::Record;
pub use shared::{SharedConsumer, SharedRecord, SharedSubscription};
pub use subscription::{Delivery, Start, Subscription};
pub use topic::{Durability, Full, Partition, Topic, TopicBuilder};
pub use transaction::{Transaction, TransactionalProducer};
