//! What consumers tell each other through a group: subscriptions and assignments (Kafka's ConsumerProtocol, version 0,
//! which every client reads), and the range assignment.

use std::collections::BTreeMap;

use bytes::Bytes;
use riverlog_wire::primitives::{DecodeError, Reader, Writer};

/// Topics to partitions.
pub(crate) type Assignment = BTreeMap<String, Vec<i32>>;

/// A subscription: version, topics, user data.
pub(crate) fn encode_subscription(topics: &[String]) -> Bytes {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    w.i16(0);
    w.array_len(topics.len());
    for topic in topics {
        w.string(topic);
    }
    w.nullable_bytes(None);
    // A topic's name is checked before it comes here, so each fits its length field.
    let _ = w.finish();
    out.into()
}

/// The topics of a subscription; what later versions add comes after them.
pub(crate) fn decode_subscription(bytes: &[u8]) -> Result<Vec<String>, DecodeError> {
    let mut r = Reader::new(bytes);
    r.i16()?;
    let len = r.array_len(2)?;
    r.elements(len, |r| r.string().map(str::to_owned))
}

/// An assignment: version, topics with partitions, user data.
pub(crate) fn encode_assignment(assignment: &Assignment) -> Bytes {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    w.i16(0);
    w.array_len(assignment.len());
    for (topic, partitions) in assignment {
        w.string(topic);
        w.array_len(partitions.len());
        for partition in partitions {
            w.i32(*partition);
        }
    }
    w.nullable_bytes(None);
    let _ = w.finish();
    out.into()
}

/// Reads an assignment; no bytes at all are an empty one.
pub(crate) fn decode_assignment(bytes: &[u8]) -> Result<Assignment, DecodeError> {
    if bytes.is_empty() {
        return Ok(Assignment::new());
    }
    let mut r = Reader::new(bytes);
    r.i16()?;
    let len = r.array_len(6)?;
    let topics = r.elements(len, |r| {
        let topic = r.string()?.to_owned();
        let len = r.array_len(4)?;
        Ok((topic, r.elements(len, Reader::i32)?))
    })?;
    Ok(topics.into_iter().collect())
}

/// Kafka's range assignor: of each topic, members in order of id get neighbouring partitions, the first ones one more.
/// `members`: id and topics; `partitions`: of each topic.
pub(crate) fn assign_range(
    members: &BTreeMap<String, Vec<String>>,
    partitions: &BTreeMap<String, i32>,
) -> BTreeMap<String, Assignment> {
    let mut out: BTreeMap<String, Assignment> = members
        .keys()
        .map(|m| (m.clone(), Assignment::new()))
        .collect();
    for (topic, count) in partitions {
        let interested: Vec<&String> = members
            .iter()
            .filter(|(_, topics)| topics.contains(topic))
            .map(|(m, _)| m)
            .collect();
        let Ok(among) = i32::try_from(interested.len()) else {
            continue;
        };
        if among == 0 {
            continue;
        }
        let (each, more) = (count / among, count % among);
        let mut next = 0;
        for (i, member) in (0..).zip(interested) {
            let len = each + i32::from(i < more);
            if len > 0
                && let Some(assignment) = out.get_mut(member)
            {
                assignment.insert(topic.clone(), (next..next + len).collect());
            }
            next += len;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_gives_neighbours_and_the_first_members_one_more() {
        let members = [("a", vec!["t", "u"]), ("b", vec!["t"]), ("c", vec!["t"])]
            .into_iter()
            .map(|(m, t)| (m.to_owned(), t.into_iter().map(str::to_owned).collect()))
            .collect();
        let partitions = [("t".to_owned(), 7), ("u".to_owned(), 2)].into();
        let out = assign_range(&members, &partitions);
        assert_eq!(out["a"]["t"], [0, 1, 2]);
        assert_eq!(out["a"]["u"], [0, 1]);
        assert_eq!(out["b"]["t"], [3, 4]);
        assert_eq!(out["c"]["t"], [5, 6]);
    }

    #[test]
    fn subscriptions_and_assignments_come_back_as_they_were() {
        let topics = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(
            decode_subscription(&encode_subscription(&topics)).unwrap(),
            topics
        );
        let assignment: Assignment = [("a".to_owned(), vec![0, 5])].into();
        assert_eq!(
            decode_assignment(&encode_assignment(&assignment)).unwrap(),
            assignment
        );
        assert_eq!(decode_assignment(b"").unwrap(), Assignment::new());
        assert!(decode_assignment(&[0, 0, 127, 255, 255, 255]).is_err());
    }
}
