//! Positions in several partitions at once, as a request and an answer write them: `0:12,3:40`.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverlog_core::metadata::TopicImage;
use riverlog_node::Isolation;
use riverlog_wire::Offset;

use crate::door::HttpDoor;
use crate::position::{Position, resolve};
use crate::problem::Problem;

/// The next offset of each partition.
pub(super) type Places = BTreeMap<i32, Offset>;

pub(super) fn write(places: &Places) -> String {
    let parts: Vec<String> = places
        .iter()
        .map(|(partition, offset)| format!("{partition}:{offset}"))
        .collect();
    parts.join(",")
}

/// Positions as [`write`] gave them; partitions that aren't `of` the topic are a mistake.
pub(super) fn read(text: &str, of: usize) -> Result<Places, Problem> {
    let wrong = || {
        Problem::bad_request(format!(
            "{text:?} isn't a list of positions; write them as PARTITION:OFFSET,…, as the last answer did"
        ))
    };
    let mut places = Places::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (partition, offset) = part.split_once(':').ok_or_else(wrong)?;
        let partition: i32 = partition.parse().map_err(|_| wrong())?;
        let offset: i64 = offset.parse().map_err(|_| wrong())?;
        let known = usize::try_from(partition).is_ok_and(|p| p < of);
        if !known || offset < 0 {
            return Err(wrong());
        }
        places.insert(partition, Offset(offset));
    }
    Ok(places)
}

/// The partitions that a request names; all of the topic when it names none.
pub(super) fn partitions(text: Option<&str>, topic: &TopicImage) -> Result<Vec<i32>, Problem> {
    let count = topic.partitions.len();
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok((0..i32::try_from(count).unwrap_or(i32::MAX)).collect());
    };
    let mut partitions = Vec::new();
    for part in text.split(',') {
        let partition: i32 = part.parse().map_err(|_| {
            Problem::bad_request(format!(
                "partitions is {text:?}; give numbers with commas between them"
            ))
        })?;
        check(partition, topic)?;
        partitions.push(partition);
    }
    partitions.sort_unstable();
    partitions.dedup();
    Ok(partitions)
}

pub(super) fn check(partition: i32, topic: &TopicImage) -> Result<(), Problem> {
    let count = topic.partitions.len();
    match usize::try_from(partition) {
        Ok(p) if p < count => Ok(()),
        _ => Err(Problem::no_partition(&topic.name, partition, count)),
    }
}

/// Where each partition begins and ends, for a reader of that isolation.
pub(super) async fn bounds(
    door: &Arc<HttpDoor>,
    topic: &Arc<TopicImage>,
    partitions: &[i32],
    isolation: Isolation,
) -> Result<BTreeMap<i32, (Offset, Offset)>, Problem> {
    let mut out = BTreeMap::new();
    for partition in partitions {
        let found = door.place(topic, *partition)?;
        let start = resolve(door, topic, &found, isolation, &Position::Start).await?;
        let end = resolve(door, topic, &found, isolation, &Position::End).await?;
        out.insert(*partition, (start, end.max(start)));
    }
    Ok(out)
}

/// Where a position lies in each partition, kept within what is there.
pub(super) async fn at(
    door: &Arc<HttpDoor>,
    topic: &Arc<TopicImage>,
    bounds: &BTreeMap<i32, (Offset, Offset)>,
    isolation: Isolation,
    position: &Position,
) -> Result<Places, Problem> {
    let mut places = Places::new();
    for (partition, (start, end)) in bounds {
        let found = door.place(topic, *partition)?;
        let offset = resolve(door, topic, &found, isolation, position).await?;
        places.insert(*partition, offset.max(*start).min(*end));
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_back_as_they_were() {
        let places: Places = [(0, Offset(12)), (3, Offset(i64::MAX))].into();
        let text = write(&places);
        assert_eq!(text, "0:12,3:9223372036854775807");
        assert_eq!(read(&text, 4).unwrap(), places);
        assert_eq!(read("", 4).unwrap(), Places::new());
        for text in ["0", "0:", ":1", "4:0", "-1:0", "0:-1", "0:1;1:2", "0:x"] {
            assert!(read(text, 4).is_err(), "{text}");
        }
    }
}
