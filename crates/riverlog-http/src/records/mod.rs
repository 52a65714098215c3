//! `GET /v1/topics/{t}/records`: records of all partitions, put together by time; a page, or a tail. It is for looking at them: between
//! partitions there is no order that anybody promises.

mod page;
mod place;
pub(crate) mod search;
mod tail;
mod wanted;

pub(crate) use search::search;

use axum::http::{StatusCode, header};
use riverlog_node::Isolation;

use crate::body::accepts;
use crate::door::{Answer, Call};
use crate::fetch::read::Fetched;
use crate::fetch::write::Form;
use crate::fetch::{EVENTS, ISOLATION};
use crate::int64::Digits;
use crate::position::Position;
use crate::problem::Problem;
use crate::schema;
use crate::value::Embed;

use page::{Page, Source};
use wanted::{Wanted, Where};

/// Records of a page unless asked otherwise, and the most.
const RECORDS: usize = 100;
const MOST_RECORDS: usize = 1_000;

/// Records of all partitions, put together by time
///
/// A page; or a tail with Accept: text/event-stream. Between partitions there is no order that anybody promises.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/records", tag = "records", operation_id = "lookAtRecords",
    params(("topic" = String, Path, description = "Name"), schema::Look),
    responses((status = 200, description = "Records in order of their times", content(
        (Value = "application/json"),
        (String = "text/event-stream")
    )))
)]
pub(crate) async fn look(mut call: Call) -> Answer {
    let topic = call.door.topic(call.name())?;
    let mut query = std::mem::take(&mut call.query);
    let offset = query.text("offset");
    let cursor = query.text("cursor");
    let before = query.text("before");
    let partitions = query.text("partitions");
    let limit = query.number("limit", 1..=MOST_RECORDS)?;
    let wanted = Where::of_query(&mut query);
    let isolation = query.choice("isolation", ISOLATION)?;
    let isolation = isolation.unwrap_or(Isolation::ReadCommitted);
    let form = form(&mut query)?;
    query.done()?;
    let given = [&offset, &cursor, &before].into_iter().flatten().count();
    if given > 1 {
        return Err(Problem::bad_request(
            "offset, cursor and before each say where to begin; give one of them",
        ));
    }
    let partitions = place::partitions(partitions.as_deref(), &topic)?;
    let bounds = place::bounds(&call.door, &topic, &partitions, isolation).await?;
    let known = topic.partitions.len();
    // Partitions that the cursor doesn't name are read from their start: they were added since.
    let resumed = |text: &str| -> Result<place::Places, Problem> {
        let places = place::read(text, known)?;
        let place = |(p, b): (&i32, &(_, _))| (*p, places.get(p).map_or(b.0, |at| (*at).max(b.0)));
        Ok(bounds.iter().map(place).collect())
    };
    let accept = call.header(header::ACCEPT.as_str())?.unwrap_or("*/*");
    if accepts(accept, EVENTS) && !accept.contains("*/*") {
        let resume = call.header("last-event-id")?.map(str::to_owned);
        let from = match (resume.or(cursor), offset) {
            (Some(text), _) => resumed(&text)?,
            (None, offset) => {
                let position = Position::parse(offset.as_deref().unwrap_or("end"))?;
                place::at(&call.door, &topic, &bounds, isolation, &position).await?
            }
        };
        return tail::tail(&call, &topic, from, isolation, form, Wanted::new(wanted));
    }
    if wanted != Where::default() {
        return Err(Problem::bad_request(
            "only a tail (Accept: text/event-stream) takes a filter; POST …/search looks through what is there",
        ));
    }
    let limit = limit.unwrap_or(RECORDS);
    let source = Source {
        door: &call.door,
        topic: &topic,
        bounds: &bounds,
        isolation,
    };
    let ends = || bounds.iter().map(|(p, b)| (*p, b.1)).collect();
    let page = match (cursor, before, offset.as_deref()) {
        (Some(cursor), _, _) => source.forward(resumed(&cursor)?, limit).await?,
        (None, Some(before), _) => source.backward(resumed(&before)?, limit).await?,
        (None, None, None) => source.backward(ends(), limit).await?,
        (None, None, Some(text)) => match Position::parse(text)? {
            Position::Last(count) => {
                let count = usize::try_from(count).unwrap_or(usize::MAX).min(limit);
                source.backward(ends(), count).await?
            }
            position => {
                let from = place::at(&call.door, &topic, &bounds, isolation, &position).await?;
                source.forward(from, limit).await?
            }
        },
    };
    let at_start = page
        .first
        .iter()
        .all(|(p, at)| bounds.get(p).is_none_or(|b| *at <= b.0));
    let at_end = page
        .next
        .iter()
        .all(|(p, at)| bounds.get(p).is_none_or(|b| *at >= b.1));
    Ok(call.answer(StatusCode::OK, written(&page, form, at_start, at_end)))
}

fn form(query: &mut crate::query::Query) -> Result<Form, Problem> {
    Ok(Form {
        embed: query.choice("embed", Embed::CHOICES)?.unwrap_or_default(),
        digits: query.choice("int64", Digits::CHOICES)?.unwrap_or_default(),
    })
}

fn written(page: &Page, form: Form, at_start: bool, at_end: bool) -> Vec<u8> {
    let mut out = b"{\"records\":[".to_vec();
    for (n, (partition, fetched)) in page.records.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        record(&mut out, form, *partition, fetched);
    }
    let (first, next) = (place::write(&page.first), place::write(&page.next));
    out.extend_from_slice(
        format!(
            "],\"first\":\"{first}\",\"next\":\"{next}\",\"at_start\":{at_start},\"at_end\":{at_end}}}"
        )
        .as_bytes(),
    );
    out
}

/// A record with its partition.
fn record(out: &mut Vec<u8>, form: Form, partition: i32, fetched: &Fetched) {
    out.extend_from_slice(format!("{{\"partition\":{partition},").as_bytes());
    form.fields(out, fetched);
    out.push(b'}');
}
