//! Bounds that all connections share: memory for what is being received, and their number.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard};

/// Connections of other nodes that are let in beyond the bounds: no number of clients keeps a cluster from talking to itself.
const NODES_BEYOND: usize = 64;

/// The bounds.
#[derive(Debug)]
pub(crate) struct Limits {
    receive_bytes: usize,
    used: AtomicUsize,
    freed: Notify,
    /// Whoever has it may pass the bound: so at least one frame is always received whole.
    overdraft: Arc<tokio::sync::Mutex<()>>,
    connections: usize,
    connections_per_ip: usize,
    counts: Mutex<BTreeMap<IpAddr, usize>>,
    beyond: AtomicUsize,
}

impl Limits {
    pub(crate) fn new(
        receive_bytes: usize,
        connections: usize,
        connections_per_ip: usize,
    ) -> Arc<Limits> {
        Arc::new(Limits {
            receive_bytes,
            used: AtomicUsize::new(0),
            freed: Notify::new(),
            overdraft: Arc::default(),
            connections,
            connections_per_ip,
            counts: Mutex::default(),
            beyond: AtomicUsize::new(0),
        })
    }

    /// Counts a connection; the bound that stands in its way otherwise. Dropping the seat frees it.
    pub(crate) fn admit(self: &Arc<Limits>, ip: IpAddr) -> Result<Seat, &'static str> {
        let mut counts = self.counts.lock();
        if counts.values().sum::<usize>() >= self.connections {
            return Err("max.connections");
        }
        let mine = counts.entry(ip).or_default();
        if *mine >= self.connections_per_ip {
            return Err("max.connections.per.ip");
        }
        *mine += 1;
        Ok(Seat {
            limits: Arc::clone(self),
            ip: Some(ip),
        })
    }

    /// A seat beyond the bounds, for whoever turns out to be another node.
    pub(crate) fn admit_beyond(self: &Arc<Limits>) -> Option<Seat> {
        let one_more = |beyond| (beyond < NODES_BEYOND).then_some(beyond + 1);
        let beyond = &self.beyond;
        let taken = beyond.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more);
        taken.is_ok().then(|| Seat {
            limits: Arc::clone(self),
            ip: None,
        })
    }

    /// Connections now.
    pub(crate) fn connected(&self) -> usize {
        let counted: usize = self.counts.lock().values().sum();
        counted + self.beyond.load(Ordering::Relaxed)
    }

    /// Bytes held now by connections that are being received from.
    pub(crate) fn received(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, more: usize) -> bool {
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
                used.checked_add(more)
                    .filter(|sum| *sum <= self.receive_bytes)
            })
            .is_ok()
    }
}

/// A connection that is counted.
#[derive(Debug)]
pub(crate) struct Seat {
    limits: Arc<Limits>,
    /// `None`: beyond the bounds.
    ip: Option<IpAddr>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(ip) = self.ip else {
            self.limits.beyond.fetch_sub(1, Ordering::AcqRel);
            return;
        };
        let mut counts = self.limits.counts.lock();
        if let Some(mine) = counts.get_mut(&ip) {
            *mine -= 1;
            if *mine == 0 {
                counts.remove(&ip);
            }
        }
    }
}

/// What one connection holds of the receive budget.
#[derive(Debug)]
pub(crate) struct Receiving {
    limits: Arc<Limits>,
    held: usize,
    overdraft: Option<OwnedMutexGuard<()>>,
}

impl Receiving {
    pub(crate) fn new(limits: &Arc<Limits>) -> Receiving {
        Receiving {
            limits: Arc::clone(limits),
            held: 0,
            overdraft: None,
        }
    }

    /// Changes what is held; waits while that would pass the bound.
    pub(crate) async fn hold(&mut self, bytes: usize) {
        if bytes <= self.held {
            let less = self.held - bytes;
            self.held = bytes;
            if bytes == 0 {
                self.overdraft = None;
            }
            if less > 0 {
                self.limits.used.fetch_sub(less, Ordering::AcqRel);
                self.limits.freed.notify_waiters();
            }
            return;
        }
        let more = bytes - self.held;
        loop {
            let mut freed = std::pin::pin!(self.limits.freed.notified());
            freed.as_mut().enable();
            if self.limits.take(more) {
                break;
            }
            if self.overdraft.is_some() {
                self.limits.used.fetch_add(more, Ordering::AcqRel);
                break;
            }
            tokio::select! {
                () = freed => {}
                guard = Arc::clone(&self.limits.overdraft).lock_owned() => self.overdraft = Some(guard),
            }
        }
        self.held = bytes;
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if self.held > 0 {
            self.limits.used.fetch_sub(self.held, Ordering::AcqRel);
            self.limits.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn connections_are_counted_for_each_address_and_in_all() {
        let limits = Limits::new(0, 3, 2);
        let (a, b): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        let first = limits.admit(a).unwrap();
        let _second = limits.admit(a).unwrap();
        assert_eq!(limits.admit(a).unwrap_err(), "max.connections.per.ip");
        let _third = limits.admit(b).unwrap();
        assert_eq!(limits.admit(b).unwrap_err(), "max.connections");
        drop(first);
        assert_eq!(limits.connected(), 2);
        assert!(limits.admit(a).is_ok());
    }

    #[test]
    fn seats_beyond_the_bounds_are_counted_apart() {
        let limits = Limits::new(0, 1, 1);
        let ip: IpAddr = [127, 0, 0, 1].into();
        let _client = limits.admit(ip).unwrap();
        let nodes: Vec<Seat> = std::iter::from_fn(|| limits.admit_beyond()).collect();
        assert_eq!(nodes.len(), NODES_BEYOND);
        assert_eq!(limits.connected(), 1 + NODES_BEYOND);
        drop(nodes);
        assert!(limits.admit_beyond().is_some());
        assert!(limits.admit(ip).is_err());
    }

    #[tokio::test]
    async fn over_the_budget_one_goes_on_and_the_others_wait() {
        let limits = Limits::new(100, 1, 1);
        let (mut a, mut b, mut c) = (
            Receiving::new(&limits),
            Receiving::new(&limits),
            Receiving::new(&limits),
        );
        a.hold(90).await;
        // Not enough for it, but nobody else has gone over.
        b.hold(50).await;
        let wait = tokio::time::timeout(Duration::from_millis(20), c.hold(20)).await;
        assert!(wait.is_err(), "the third waits");
        assert_eq!(limits.received(), 140);
        b.hold(0).await;
        c.hold(5).await;
        drop((a, c));
        assert_eq!(limits.received(), 0);
    }
}
