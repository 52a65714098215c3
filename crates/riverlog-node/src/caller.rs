//! Who asks, and may leave before the answer: what is parked for it then goes with it, and its place is free for others.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::fetch::Waiting;
use crate::node::Node;
use crate::share::ShareWaiting;

/// The list is swept when it is longer than this and than twice what lived last time, so that a request costs the same however many there were.
const SWEEP: usize = 8;

/// Somebody whose fetches end when it leaves, such as a connection. What it asks is marked with
/// [`Reply::of`](crate::Reply::of), and [`Node::leave`] says that it has left.
#[derive(Default)]
pub struct Caller(Mutex<List>);

#[derive(Default)]
struct List {
    parked: Vec<Parked>,
    /// Length of the list after the last sweep.
    live: usize,
}

/// The fetch is owned by the timers, and its caller only finds it.
pub(crate) enum Parked {
    Fetch(Weak<Waiting>),
    Share(Weak<ShareWaiting>),
}

impl Parked {
    fn is_open(&self) -> bool {
        match self {
            Parked::Fetch(waiting) => waiting.upgrade().is_some_and(|w| !w.is_answered()),
            Parked::Share(waiting) => waiting.upgrade().is_some_and(|w| !w.is_answered()),
        }
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Caller")
    }
}

impl Caller {
    /// One that has asked nothing yet.
    pub fn new() -> Arc<Caller> {
        Arc::default()
    }

    /// Fetches that it is remembered by: those that wait, and some that don't any more.
    pub fn remembered(&self) -> usize {
        self.0.lock().parked.len()
    }

    pub(crate) fn parks(&self, parked: Parked) {
        let mut list = self.0.lock();
        if list.parked.len() >= SWEEP.max(2 * list.live) {
            list.parked.retain(Parked::is_open);
            list.live = list.parked.len();
        }
        list.parked.push(parked);
    }
}

impl Node {
    /// A caller has left, and asks nothing more. Its fetches that wait for data end: their replies are dropped without an answer. What it asked
    /// to be changed goes on.
    pub fn leave(&self, caller: &Caller) {
        let parked = std::mem::take(&mut *caller.0.lock()).parked;
        for parked in parked {
            match parked {
                Parked::Fetch(waiting) => {
                    if let Some(waiting) = waiting.upgrade() {
                        self.drop_fetch(&waiting);
                    }
                }
                Parked::Share(waiting) => {
                    if let Some(waiting) = waiting.upgrade() {
                        self.drop_share_fetch(&waiting);
                    }
                }
            }
        }
    }
}
