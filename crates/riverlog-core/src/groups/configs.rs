//! The configs of one group.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

/// What was set for one group, of many: found once for all that a decision asks of it. Defaults are the broker's, and elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupConfigs<'a>(Option<&'a BTreeMap<String, String>>);

impl<'a> GroupConfigs<'a> {
    /// By key; `None` where nothing was set.
    pub fn new(set: Option<&'a BTreeMap<String, String>>) -> Self {
        GroupConfigs(set)
    }

    /// One of them, as it was set.
    pub fn get(self, key: &str) -> Option<&'a str> {
        self.0?.get(key).map(String::as_str)
    }

    /// One that is a number; `None` also for what isn't.
    pub fn number<N: FromStr>(self, key: &str) -> Option<N> {
        self.get(key)?.trim().parse().ok()
    }

    /// One in milliseconds; `None` also for what isn't a number, or is less than 0.
    pub fn millis(self, key: &str) -> Option<Duration> {
        self.number(key).map(Duration::from_millis)
    }
}
