//! The simulator's side of a node: flags instead of threads, a seed instead of the system's randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use riverlog_log::disk::Random;
use riverlog_node::{Entropy, Host};

/// Remembers that the node has jobs or another deadline.
#[derive(Debug, Default)]
pub(crate) struct SimHost {
    jobs: AtomicBool,
    deadline: AtomicBool,
}

impl SimHost {
    pub(crate) fn take_jobs(&self) -> bool {
        self.jobs.swap(false, Ordering::Relaxed)
    }
    pub(crate) fn take_deadline(&self) -> bool {
        self.deadline.swap(false, Ordering::Relaxed)
    }
}

impl Host for SimHost {
    fn jobs_ready(&self) {
        self.jobs.store(true, Ordering::Relaxed);
    }
    fn deadline_changed(&self) {
        self.deadline.store(true, Ordering::Relaxed);
    }
}

/// Randomness from the seed.
pub(crate) struct SimEntropy(Mutex<Random>);

impl SimEntropy {
    pub(crate) fn new(random: Random) -> Arc<SimEntropy> {
        Arc::new(SimEntropy(Mutex::new(random)))
    }
}

impl Entropy for SimEntropy {
    fn next_u128(&self) -> u128 {
        let mut random = self.0.lock();
        u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())
    }
}
