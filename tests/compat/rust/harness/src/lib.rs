//! Runs the cases of one client library, a line of output for each; see `../../README.md`.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

/// What a case comes to, or a part of it.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const CASE_LIMIT: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(15);

/// Where `offsets-by-time` begins, in milliseconds, and how far its records lie apart.
pub const EPOCH_MS: i64 = 1_700_000_000_000;
pub const STEP_MS: i64 = 60_000;

/// Headers of those records that have some.
pub const HEADERS: [(&str, &[u8]); 2] = [("trace", &[0, 1, 255]), ("empty", &[])];

/// A record as every library can carry it; no key or value: null.
pub struct Plain {
    pub key: Option<String>,
    pub value: Option<String>,
    /// It has [`HEADERS`].
    pub headers: bool,
}

/// Compressible ones, one whose value is null and one whose key is null.
pub fn records() -> Vec<Plain> {
    let some = (0..50).map(|n| Plain {
        key: Some(format!("key-{n}")),
        value: Some(format!("value {n} ").repeat(20)),
        headers: true,
    });
    let tombstone = Plain {
        key: Some("gone".to_owned()),
        value: None,
        headers: false,
    };
    let keyless = Plain {
        key: None,
        value: Some("no key".to_owned()),
        headers: true,
    };
    some.chain([tombstone, keyless]).collect()
}

/// BOOTSTRAP, which may hold several addresses with a comma between, and PREFIX.
pub fn arguments() -> Outcome<(String, String)> {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    match (arguments.next(), arguments.next()) {
        (Some(bootstrap), Some(prefix)) => Ok((bootstrap, prefix)),
        _ => Err(format!("usage: {program} BOOTSTRAP PREFIX").into()),
    }
}

/// Fails with both where they differ.
pub fn same<T: PartialEq + Debug>(got: T, expected: T, what: &str) -> Outcome {
    if got == expected {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:.150?}, got {got:.150?}").into())
}

/// Fails with `what` when it isn't so in time.
pub struct Until {
    what: String,
    end: Instant,
}

impl Until {
    pub fn new(what: &str) -> Until {
        Until {
            what: what.to_owned(),
            end: Instant::now() + PATIENCE,
        }
    }

    pub fn check(&self) -> Outcome {
        match Instant::now() < self.end {
            true => Ok(()),
            false => Err(format!("{}: not within {} s", self.what, PATIENCE.as_secs()).into()),
        }
    }

    /// Before it is looked at again.
    pub async fn pause(&self) -> Outcome {
        self.check()?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(())
    }
}

/// Runs a case and says what came out.
pub async fn report(name: &str, case: impl Future<Output = Outcome>) {
    match tokio::time::timeout(CASE_LIMIT, case).await {
        Ok(Ok(())) => println!("PASS {name}"),
        Ok(Err(error)) => {
            let text = error.to_string();
            let text: Vec<&str> = text.split_whitespace().collect();
            println!("FAIL {name} {:.300}", text.join(" "));
        }
        Err(_) => println!("FAIL {name} not done after {} s", CASE_LIMIT.as_secs()),
    }
}
