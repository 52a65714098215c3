//! One JSON document of records.

use std::borrow::Cow;

use axum::http::{HeaderValue, StatusCode};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::keyed::reused;
use super::publish::{Outcome, Record, publish};
use super::{ACKS, Options, ok};
use crate::body::of_json;
use crate::door::{Answer, Call};
use crate::int64::Int64;
use crate::problem::Problem;
use crate::value::{Embed, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Records<'a> {
    #[serde(borrow)]
    records: Vec<RecordIn<'a>>,
    acks: Option<Acks>,
}

/// A record as a request has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordIn<'a> {
    #[serde(borrow)]
    key: Option<&'a RawValue>,
    /// Must be there: a value that was forgotten isn't the same as null, which deletes.
    #[serde(borrow, deserialize_with = "required")]
    value: Option<&'a RawValue>,
    #[serde(borrow, default)]
    headers: Vec<HeaderIn<'a>>,
    partition: Option<i32>,
    timestamp: Option<Int64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderIn<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "required")]
    value: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Acks {
    Number(i16),
    Word(String),
}

fn required<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    Option::deserialize(from)
}

impl<'a> RecordIn<'a> {
    pub(super) fn read(self, embed: Embed) -> Result<Record<'a>, Problem> {
        let wrong = |what: &str| {
            let what = what.to_owned();
            move |why: String| {
                Problem::unprocessable("bad-fields", format!("the record's {what}: {why}"))
            }
        };
        let mut headers = Vec::with_capacity(self.headers.len());
        for header in self.headers {
            let name = match header.name {
                Cow::Borrowed(name) => Cow::Borrowed(name.as_bytes()),
                Cow::Owned(name) => Cow::Owned(name.into_bytes()),
            };
            let value = read(Embed::Typed, header.value).map_err(wrong("header value"))?;
            headers.push((name, value));
        }
        Ok(Record {
            key: read(embed, self.key).map_err(wrong("key"))?,
            value: read(embed, self.value).map_err(wrong("value"))?,
            headers,
            partition: self.partition,
            timestamp: self.timestamp.map(|t| t.0),
        })
    }
}

pub(super) async fn produce(mut call: Call, mut options: Options) -> Answer {
    let topic = call.door.topic(call.name())?;
    let held = call.whole().await?;
    let text = std::str::from_utf8(&held.bytes)
        .map_err(|e| Problem::bad_request(format!("the body isn't UTF-8: {e}")))?;
    let body: Records<'_> = serde_json::from_str(text).map_err(|e| of_json(&e))?;
    if let Some(acks) = body.acks {
        options.acks = acks.read()?;
    }
    if body.records.is_empty() {
        return Err(Problem::unprocessable(
            "no-records",
            "there are no records; send at least one",
        ));
    }
    options.take_body(&call, &held.bytes)?;
    let embed = options.embed;
    let records = body.records.into_iter().map(|record| record.read(embed));
    let outcomes = publish(&call.door, &topic, records, &options).await?;
    answer(&call, &outcomes, &options)
}

/// The answer about records that were published.
pub(super) fn answer(call: &Call, outcomes: &[Outcome], options: &Options) -> Answer {
    let (status, json) = told(outcomes, options).map_err(|problem| match options.key {
        Some(_) => reused(problem),
        None => problem,
    })?;
    let mut response = call.answer(status, json);
    let replayed = |outcome: &Outcome| {
        matches!(
            outcome,
            Outcome::Stored {
                duplicate: true,
                ..
            }
        )
    };
    if options.key.is_some() && outcomes.iter().all(replayed) {
        response
            .headers_mut()
            .insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// The answer about several records: a problem when nothing was stored, 207 when only some was.
fn told(outcomes: &[Outcome], options: &Options) -> Result<(StatusCode, Vec<u8>), Problem> {
    let failures = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Failed(problem) => Some(problem),
        Outcome::Stored { .. } => None,
    });
    let failures: Vec<&Problem> = failures.collect();
    let to_blame = failures
        .iter()
        .find(|problem| problem.status() != StatusCode::FAILED_DEPENDENCY);
    let status = match to_blame.or(failures.first()) {
        None => ok(options.acks),
        Some(first) if failures.len() == outcomes.len() => {
            let problem = (*first).clone();
            return Err(match failures.len() {
                1 => problem,
                _ => problem.with_errors(&failures),
            });
        }
        Some(_) => StatusCode::MULTI_STATUS,
    };
    let mut json = b"{\"results\":[".to_vec();
    for (n, outcome) in outcomes.iter().enumerate() {
        if n > 0 {
            json.push(b',');
        }
        outcome.write(&mut json, options.digits);
    }
    json.extend_from_slice(b"]}");
    Ok((status, json))
}

impl Acks {
    fn read(self) -> Result<i16, Problem> {
        let word = match self {
            Acks::Number(number) => number.to_string(),
            Acks::Word(word) => word,
        };
        let found = ACKS.iter().find(|(name, _)| *name == word);
        found.map(|(_, acks)| *acks).ok_or_else(|| {
            Problem::unprocessable(
                "bad-fields",
                format!("acks is {word:?}; give all (-1), leader (1) or none (0)"),
            )
        })
    }
}
