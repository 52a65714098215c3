//! A broker as a check sees it: connections that carry bytes, and time.

use std::time::Duration;

use bytes::Bytes;

/// What came on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// One whole frame, without its length.
    Frame(Bytes),
    /// The broker closed the connection.
    Closed,
    /// Nothing, in the time that was given.
    Nothing,
}

/// One connection.
pub trait Connection {
    /// Sends bytes as they are. A connection that is gone shows when something is received.
    fn send(&mut self, bytes: &[u8]);
    /// Waits for the next frame.
    fn receive(&mut self, within: Duration) -> Received;
}

/// A broker that can be reached.
pub trait Broker {
    /// A new connection.
    fn connect(&mut self) -> Result<Box<dyn Connection>, String>;
    /// Lets time pass.
    fn pass(&mut self, time: Duration);
    /// Time since some moment; only differences count.
    fn clock(&self) -> Duration;
    /// The wall clock of producers, ms since the epoch.
    fn wall_ms(&self) -> i64;
}
