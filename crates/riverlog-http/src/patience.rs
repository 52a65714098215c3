//! Coordinators read their logs when they are first asked: a client needn't come again for that.

use std::time::Duration;

use riverlog_wire::ErrorCode;
use tokio::time::Instant;

/// How long a call waits for a coordinator, and between two looks.
const LONGEST: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// How much of it is left.
#[derive(Debug)]
pub(crate) struct Patience(Instant);

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience(Instant::now() + LONGEST)
    }

    /// Whether to ask again after this answer; waits a moment first.
    pub(crate) async fn again(&self, error: ErrorCode) -> bool {
        let loading = matches!(
            error,
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
                | ErrorCode::COORDINATOR_NOT_AVAILABLE
                | ErrorCode::NOT_COORDINATOR
        );
        if !loading || Instant::now() >= self.0 {
            return false;
        }
        tokio::time::sleep(PAUSE).await;
        true
    }
}
