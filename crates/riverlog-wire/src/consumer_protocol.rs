//! What consumers tell each other through a classic group: subscriptions and assignments (Kafka's ConsumerProtocol).

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::primitives::{DecodeError, Reader, Writer};

/// Topics to partitions.
pub type Assignment = BTreeMap<String, Vec<i32>>;

/// What a member asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// Names.
    pub topics: Vec<String>,
    /// What it has now.
    pub owned: Assignment,
    /// When it was given that; −1 for never.
    pub generation: i32,
    /// Where it is, since version 3.
    pub rack: Option<String>,
}

/// Version 2: topics, user data, owned partitions, generation. The user data carries the generation once more, for clients from
/// before version 2.
pub fn encode_subscription(subscription: &Subscription) -> Bytes {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    w.i16(2);
    w.array_len(subscription.topics.len());
    for topic in &subscription.topics {
        w.string(topic);
    }
    w.nullable_bytes(Some(&subscription.generation.to_be_bytes()));
    partitions_of(&mut w, &subscription.owned);
    w.i32(subscription.generation);
    // A topic's name is checked before it comes here, so each fits its length field.
    let _ = w.finish();
    out.into()
}

/// A subscription of any version; what later versions add comes after what is read here.
pub fn decode_subscription(bytes: &[u8]) -> Result<Subscription, DecodeError> {
    let mut r = Reader::new(bytes);
    let version = r.i16()?;
    let len = r.array_len(2)?;
    let topics = r.elements(len, |r| r.string().map(str::to_owned))?;
    let mut out = Subscription {
        topics,
        generation: -1,
        ..Subscription::default()
    };
    if version >= 1 {
        let user_data = r.nullable_bytes()?;
        if let Some(generation) = user_data.and_then(<[u8]>::first_chunk) {
            out.generation = i32::from_be_bytes(*generation);
        }
        out.owned = read_partitions(&mut r)?;
    }
    if version >= 2 {
        out.generation = r.i32()?;
    }
    if version >= 3 {
        out.rack = r.nullable_string()?.map(str::to_owned);
    }
    Ok(out)
}

fn partitions_of(w: &mut Writer<'_>, assignment: &Assignment) {
    w.array_len(assignment.len());
    for (topic, partitions) in assignment {
        w.string(topic);
        w.array_len(partitions.len());
        for partition in partitions {
            w.i32(*partition);
        }
    }
}

fn read_partitions(r: &mut Reader<'_>) -> Result<Assignment, DecodeError> {
    let len = r.array_len(6)?;
    let topics = r.elements(len, |r| {
        let topic = r.string()?.to_owned();
        let len = r.array_len(4)?;
        Ok((topic, r.elements(len, Reader::i32)?))
    })?;
    Ok(topics.into_iter().collect())
}

/// An assignment: version, topics with partitions, user data.
pub fn encode_assignment(assignment: &Assignment) -> Bytes {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    w.i16(0);
    partitions_of(&mut w, assignment);
    w.nullable_bytes(None);
    let _ = w.finish();
    out.into()
}

/// Reads an assignment; no bytes at all are an empty one.
pub fn decode_assignment(bytes: &[u8]) -> Result<Assignment, DecodeError> {
    if bytes.is_empty() {
        return Ok(Assignment::new());
    }
    let mut r = Reader::new(bytes);
    r.i16()?;
    read_partitions(&mut r)
}

/// Whether an assignment carries data that only the assignor which made it understands.
pub fn has_user_data(assignment: &[u8]) -> Result<bool, DecodeError> {
    if assignment.is_empty() {
        return Ok(false);
    }
    let mut r = Reader::new(assignment);
    r.i16()?;
    read_partitions(&mut r)?;
    Ok(r.nullable_bytes()?.is_some_and(|data| !data.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_and_assignments_come_back_as_they_were() {
        let subscription = Subscription {
            topics: vec!["a".to_owned(), "b".to_owned()],
            owned: [("a".to_owned(), vec![0, 3])].into(),
            generation: 7,
            rack: None,
        };
        assert_eq!(
            decode_subscription(&encode_subscription(&subscription)).unwrap(),
            subscription
        );
        // Version 0, as old clients send it: nothing is owned.
        let old = [0, 0, 0, 0, 0, 1, 0, 1, b't', 0xff, 0xff, 0xff, 0xff];
        assert_eq!(
            decode_subscription(&old).unwrap(),
            Subscription {
                topics: vec!["t".to_owned()],
                generation: -1,
                ..Subscription::default()
            }
        );
        let assignment: Assignment = [("a".to_owned(), vec![0, 5])].into();
        assert_eq!(
            decode_assignment(&encode_assignment(&assignment)).unwrap(),
            assignment
        );
        assert_eq!(decode_assignment(b"").unwrap(), Assignment::new());
        assert!(decode_assignment(&[0, 0, 127, 255, 255, 255]).is_err());
        assert!(!has_user_data(&encode_assignment(&assignment)).unwrap());
        assert!(!has_user_data(b"").unwrap());
        assert!(has_user_data(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 9]).unwrap());
    }

    #[test]
    fn newer_subscriptions_say_where_the_member_is() {
        let newer = [
            0, 3, 0, 0, 0, 1, 0, 1, b't', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1,
            b'r',
        ];
        let read = decode_subscription(&newer).unwrap();
        assert_eq!((read.generation, read.rack.as_deref()), (4, Some("r")));
    }
}
