//! Where a group begins on a partition of which nothing is kept yet.

/// `share.auto.offset.reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OffsetReset {
    /// With the next record.
    #[default]
    Latest,
    /// With the first record that there is.
    Earliest,
    /// With the first record that is no older than so many milliseconds.
    ByDuration(i64),
}

impl OffsetReset {
    /// From the value of `share.auto.offset.reset`; `None` when it is none.
    pub fn parse(text: &str) -> Option<OffsetReset> {
        match text.trim() {
            "latest" => Some(OffsetReset::Latest),
            "earliest" => Some(OffsetReset::Earliest),
            other => millis(other.strip_prefix("by_duration:")?).map(OffsetReset::ByDuration),
        }
    }
}

/// Milliseconds of an ISO 8601 duration of days to seconds, as Java reads them: `P1DT2H3M4.5S`.
fn millis(text: &str) -> Option<i64> {
    let (days, time) = match text.strip_prefix('P')?.split_once('T') {
        Some((days, time)) => (days, Some(time)),
        None => (text.strip_prefix('P')?, None),
    };
    if time.is_some_and(str::is_empty) || (time.is_none() && days.is_empty()) {
        return None;
    }
    let mut total: f64 = 0.0;
    for (mut rest, units) in [
        (days, &[('D', 86_400_000.0)][..]),
        (
            time.unwrap_or_default(),
            &[('H', 3_600_000.0), ('M', 60_000.0), ('S', 1_000.0)][..],
        ),
    ] {
        for (unit, factor) in units {
            if let Some((number, after)) = rest.split_once(*unit) {
                let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
                total += number.parse::<f64>().ok().filter(|_| plain)? * factor;
                rest = after;
            }
        }
        if !rest.is_empty() {
            return None;
        }
    }
    // Longer than any clock has run is no place in a log.
    (total < 1e15).then_some(total as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_kafka_does() {
        let by = |millis| Some(OffsetReset::ByDuration(millis));
        for (text, expected) in [
            ("latest", Some(OffsetReset::Latest)),
            (" earliest ", Some(OffsetReset::Earliest)),
            ("by_duration:PT1H", by(3_600_000)),
            ("by_duration:P1DT2H3M4.5S", by(93_784_500)),
            ("by_duration:P2D", by(172_800_000)),
            ("by_duration:PT0S", by(0)),
            ("by_duration:PT", None),
            ("by_duration:P", None),
            ("by_duration:PT1D", None),
            ("by_duration:PT-1H", None),
            ("by_duration:PT1S1H", None),
            ("by_duration:PT99999999999999999999S", None),
            ("none", None),
        ] {
            assert_eq!(OffsetReset::parse(text), expected, "{text}");
        }
    }
}
