//! Where to begin in a partition.

use riverlog_core::groups::TopicPartition;
use riverlog_core::metadata::TopicImage;
use riverlog_node::{Isolation, OffsetQuery};
use riverlog_wire::Offset;

use crate::door::HttpDoor;
use crate::groups::places_of;
use crate::nodes::Place;
use crate::problem::Problem;

/// A position, as a request says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The first record that is there.
    Start,
    /// After the last record.
    End,
    /// That offset.
    At(i64),
    /// So many offsets before the end.
    Last(i64),
    /// The first record at or after that time, ms since the epoch.
    Time(i64),
    /// Where the group has committed; the start without a commit.
    Group(String),
}

impl Position {
    pub(crate) fn parse(text: &str) -> Result<Position, Problem> {
        let wrong = || {
            Problem::bad_request(format!("{text:?} isn't a position in a partition")).hint(
                "give an offset, start, end, -N (so many before the end), time: and a time (2026-01-31T12:00:00Z or ms since 1970), or group: and a group",
            )
        };
        match text {
            "start" => return Ok(Position::Start),
            "end" => return Ok(Position::End),
            _ => {}
        }
        if let Some(group) = text.strip_prefix("group:") {
            return Ok(Position::Group(group.to_owned()));
        }
        if let Some(time) = text.strip_prefix("time:") {
            let ms = time.parse::<i64>().ok().filter(|ms| *ms >= 0);
            let parsed = || time.parse::<jiff::Timestamp>().ok();
            let ms = ms.or_else(|| parsed().map(jiff::Timestamp::as_millisecond));
            return ms.map(Position::Time).ok_or_else(wrong);
        }
        match text.parse::<i64>() {
            Ok(n) if n >= 0 && !text.starts_with('-') => Ok(Position::At(n)),
            Ok(n) => Ok(Position::Last(n.saturating_neg())),
            Err(_) => Err(wrong()),
        }
    }
}

/// The offset that a position means now.
pub(crate) async fn resolve(
    door: &HttpDoor,
    topic: &TopicImage,
    partition: &Place,
    isolation: Isolation,
    position: &Position,
) -> Result<Offset, Problem> {
    let find = |query| door.offset(partition, query, isolation);
    match position {
        Position::Start => find(OffsetQuery::Earliest).await,
        Position::End => find(OffsetQuery::Latest).await,
        Position::At(offset) => Ok(Offset(*offset)),
        Position::Last(count) => {
            let end = find(OffsetQuery::Latest).await?;
            let start = find(OffsetQuery::Earliest).await?;
            Ok((end + count.saturating_neg()).max(start).min(end))
        }
        Position::Time(ms) => match find(OffsetQuery::AtTime(*ms)).await? {
            Offset(-1) => find(OffsetQuery::Latest).await,
            offset => Ok(offset),
        },
        Position::Group(group) => {
            if let Some(coordinator) = door.other(door.group_at(group).await) {
                let index = partition.index();
                let committed = door.committed_there(coordinator, group, topic, index);
                return match committed.await? {
                    Some(committed) => Ok(committed),
                    None => find(OffsetQuery::Earliest).await,
                };
            }
            let place = TopicPartition {
                topic: topic.name.clone(),
                id: topic.id,
                partition: partition.index(),
            };
            let committed = places_of(door, group, Some(vec![place])).await?;
            match committed.into_iter().next() {
                Some((_, Some(committed))) => Ok(committed.offset),
                _ => find(OffsetQuery::Earliest).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_written_in_many_ways() {
        for (text, position) in [
            ("start", Position::Start),
            ("end", Position::End),
            ("0", Position::At(0)),
            ("42", Position::At(42)),
            ("-5", Position::Last(5)),
            ("-0", Position::Last(0)),
            ("time:1767225600000", Position::Time(1_767_225_600_000)),
            (
                "time:2026-01-01T00:00:00Z",
                Position::Time(1_767_225_600_000),
            ),
            (
                "time:2026-01-01T01:00:00+01:00",
                Position::Time(1_767_225_600_000),
            ),
            ("group:a:b", Position::Group("a:b".to_owned())),
        ] {
            assert_eq!(Position::parse(text).unwrap(), position, "{text}");
        }
        for text in [
            "",
            "begin",
            "1.5",
            "time:",
            "time:-1",
            "time:yesterday",
            "+-1",
            "99999999999999999999",
        ] {
            assert!(Position::parse(text).is_err(), "{text}");
        }
    }
}
