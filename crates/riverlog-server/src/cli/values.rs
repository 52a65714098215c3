//! Values on the command line: durations, sizes, positions in a topic, `key=value`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::failure::Failure;

/// `500ms`, `10s`, `5m`, `2h`, `7d`; for clap.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        _ => return Err("give a number with a unit: 500ms, 10s, 5m, 2h, 7d".to_owned()),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "give a number with a unit: 500ms, 10s, 5m, 2h, 7d".to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "that is too long".to_owned())
}

/// `1024`, `16KiB`, `1MB`; for clap.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let bytes: bytesize::ByteSize = text
        .parse()
        .map_err(|_| "give a number of bytes: 1024, 16KiB, 1MB".to_owned())?;
    usize::try_from(bytes.as_u64()).map_err(|_| "that is too much".to_owned())
}

/// `key=value`; for clap.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.to_owned()))
        }
        _ => Err("give KEY=VALUE".to_owned()),
    }
}

/// Milliseconds since the epoch.
pub(crate) fn now_ms() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// A position in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The first record.
    Start,
    /// After the last record.
    End,
    /// That offset.
    Offset(i64),
    /// That many records before the end.
    Last(i64),
    /// The first record at or after that time (ms).
    Time(i64),
    /// Where the group left off.
    Committed,
}

impl std::str::FromStr for Position {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Position, Failure> {
        let wrong = || {
            Failure::usage(format!("{text:?} isn't a position in a topic")).hint(
                "give start, end, committed, an offset (42), the last N (-5), a time (2026-01-31T12:00:00Z, @1767225600000) or how long ago (10m)",
            )
        };
        match text {
            "start" | "beginning" | "earliest" => return Ok(Position::Start),
            "end" | "latest" => return Ok(Position::End),
            "committed" | "stored" => return Ok(Position::Committed),
            _ => {}
        }
        if let Some(time) = text.strip_prefix('@').or(text.strip_prefix("s@")) {
            return time
                .parse()
                .ok()
                .filter(|t| *t >= 0)
                .map(Position::Time)
                .ok_or_else(wrong);
        }
        if let Ok(number) = text.parse::<i64>() {
            return Ok(if text.starts_with('-') {
                Position::Last(number.saturating_neg())
            } else {
                Position::Offset(number)
            });
        }
        if let Ok(ago) = duration(text.trim_start_matches('-')) {
            return Ok(Position::Time(
                now_ms() - i64::try_from(ago.as_millis()).unwrap_or(i64::MAX),
            ));
        }
        time_ms(text).map(Position::Time).ok_or_else(wrong)
    }
}

/// A time or a date; without a zone, this machine's.
fn time_ms(text: &str) -> Option<i64> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(time.as_millisecond());
    }
    let zone = jiff::tz::TimeZone::system();
    if let Ok(time) = text.parse::<jiff::civil::DateTime>() {
        return Some(time.to_zoned(zone).ok()?.timestamp().as_millisecond());
    }
    let date = text.parse::<jiff::civil::Date>().ok()?;
    Some(date.to_zoned(zone).ok()?.timestamp().as_millisecond())
}

/// A time as people read it, in UTC.
pub(crate) fn time_text(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) if ms >= 0 => time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        _ => ms.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        for wrong in ["5", "", "s", "5x", "-5s", "1e999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn positions() {
        for (text, position) in [
            ("start", Position::Start),
            ("beginning", Position::Start),
            ("end", Position::End),
            ("stored", Position::Committed),
            ("42", Position::Offset(42)),
            ("-5", Position::Last(5)),
            ("@1767225600000", Position::Time(1_767_225_600_000)),
            ("s@5", Position::Time(5)),
            ("2026-01-01T00:00:00Z", Position::Time(1_767_225_600_000)),
        ] {
            assert_eq!(text.parse::<Position>().unwrap(), position, "{text}");
        }
        assert!(matches!("10m".parse::<Position>(), Ok(Position::Time(_))));
        for wrong in ["", "yesterday", "@x", "1.5"] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong}");
        }
        assert_eq!(time_text(1_767_225_600_000), "2026-01-01T00:00:00.000Z");
    }
}
