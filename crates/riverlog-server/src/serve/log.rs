//! The server's own log: readable on a terminal, JSON lines otherwise; repeats are held back.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

const OPENRAFT: &str = "openraft";

/// Sets up the log on standard error. A second call changes nothing.
pub(crate) fn start(format: LogFormat, level: &str) -> Result<(), Failure> {
    let unusable = |why: String| {
        Failure::usage(format!("--log-level {level:?} can't be used"))
            .why(why)
            .hint("give error, warn, info, debug, trace or off, or a list like info,riverlog=debug")
    };
    // The filter takes a lone word for a part of the program, and would say nothing at all then.
    let known = ["error", "warn", "info", "debug", "trace", "off"];
    let is_level =
        |item: &str| item.contains('=') || known.contains(&item.to_ascii_lowercase().as_str());
    if let Some(item) = level.split(',').map(str::trim).find(|item| !is_level(item)) {
        return Err(unusable(format!("{item:?} isn't a level")));
    }
    // What the quorum's library says of its doings is for its developers; a level of its own shows it.
    let level = match level.contains(OPENRAFT) || level.contains("debug") || level.contains("trace")
    {
        true => level.to_owned(),
        false => format!("{level},{OPENRAFT}=error"),
    };
    let filter = EnvFilter::try_new(level).map_err(|error| unusable(error.to_string()))?;
    let json = match format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Human => false,
        LogFormat::Json => true,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    // It fails only when there is a log already.
    let _ = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder
            .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
            .try_init()
    };
    Ok(())
}

/// The first lines of a kind in each interval are said, the others are counted.
#[derive(Debug)]
pub(crate) struct Repeats {
    each: Duration,
    lines: u32,
    kinds: Mutex<BTreeMap<&'static str, (Instant, u32)>>,
}

impl Repeats {
    pub(crate) fn new(each: Duration, lines: u32) -> Repeats {
        Repeats {
            each,
            lines,
            kinds: Mutex::default(),
        }
    }

    /// Whether to say it; and how many of this kind were held back before.
    pub(crate) fn say(&self, kind: &'static str, now: Instant) -> Option<u32> {
        let mut kinds = self.kinds.lock();
        let (since, count) = kinds.entry(kind).or_insert((now, 0));
        let mut before = 0;
        if now.duration_since(*since) >= self.each {
            before = count.saturating_sub(self.lines);
            (*since, *count) = (now, 0);
        }
        *count += 1;
        (*count <= self.lines).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_counted_and_said_later() {
        let repeats = Repeats::new(Duration::from_secs(10), 2);
        let start = Instant::now();
        assert_eq!(repeats.say("a", start), Some(0));
        assert_eq!(repeats.say("a", start), Some(0));
        assert_eq!(repeats.say("a", start), None);
        assert_eq!(repeats.say("a", start), None);
        assert_eq!(repeats.say("b", start), Some(0));
        assert_eq!(repeats.say("a", start + Duration::from_secs(10)), Some(2));
    }
}
