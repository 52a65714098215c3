//! `riverlog group lag`: how far a group is behind, in records and in seconds, and when retention overtakes it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use riverlog_api::lag::Standing;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::DescribeConfigsRequest;
use riverlog_wire::messages::describe_configs_request::DescribeConfigsResource;
use serde_json::{Value, json};

use super::describe::{Described, described, shared};
use crate::cli::Context;
use crate::cli::consume::committed_of;
use crate::cli::output::Table;
use crate::cli::topic::bounds;
use crate::cli::values::now_ms;
use crate::client::{Broken, Client, Fetcher};
use crate::failure::{Exit, Failure};

/// A config resource of the kind topic.
const TOPIC: i8 = 2;

#[derive(Clone, Debug, Args)]
pub(crate) struct Lag {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,
    /// Exit with 1 when the group is further behind than this in all; a partition without a commit counts whole
    #[arg(long, value_name = "RECORDS")]
    max: Option<i64>,
}

/// A partition that a group has to do with.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) committed: Option<i64>,
    /// Of a share group: records from `committed` on that nobody has accepted yet.
    pub(super) unaccepted: Option<i64>,
    /// First offset, and the next to be written; `None` while nobody knows them.
    pub(super) bounds: Option<(i64, i64)>,
    pub(super) leader: Option<i32>,
    /// Id of the member that has it.
    pub(super) member: Option<String>,
    /// Time of the first record that isn't committed, in ms since the epoch; `None` when there is none or it isn't known.
    pub(super) waits_since: Option<i64>,
    /// `retention.ms` where records go by age.
    retention_ms: Option<i64>,
    /// The first record that waits can't be read.
    pub(super) broken: Option<Broken>,
}

impl Row {
    pub(super) fn key(&self) -> (String, i32) {
        (self.topic.clone(), self.partition)
    }

    fn standing(&self) -> Standing {
        Standing {
            committed: self.committed,
            bounds: self.bounds,
            waits_since: self.waits_since,
            retention_ms: self.retention_ms,
        }
    }

    /// Records that wait; never negative.
    pub(super) fn lag(&self) -> Option<i64> {
        self.unaccepted.or_else(|| self.standing().lag())
    }

    /// Records that wait; all that there are where nothing was committed yet.
    fn waiting(&self) -> i64 {
        self.unaccepted.unwrap_or_else(|| self.standing().waiting())
    }

    /// Records that retention took before they were committed.
    pub(super) fn lost(&self) -> i64 {
        self.standing().lost()
    }

    /// How long the first waiting record waits, in seconds.
    pub(super) fn behind(&self, now_ms: i64) -> Option<f64> {
        match self.lag()? {
            0 => Some(0.0),
            _ => self.standing().behind(now_ms),
        }
    }

    /// Seconds until the first waiting record is old enough to be deleted; `None` when age deletes nothing that waits.
    pub(super) fn time_to_loss(&self, now_ms: i64) -> Option<f64> {
        self.standing().time_to_loss(now_ms)
    }

    /// A number, or why there is none.
    pub(super) fn lag_text(&self) -> Value {
        match (self.lag(), self.committed) {
            (Some(lag), _) => json!(lag),
            (None, None) => json!("no commit"),
            (None, Some(_)) => json!("unknown"),
        }
    }
}

/// Every partition that is committed or assigned.
pub(super) fn rows(
    client: &mut Client,
    group: &str,
    described: &Described,
) -> Result<Vec<Row>, Failure> {
    let mut unaccepted = BTreeMap::new();
    let committed = match described.is_share() {
        false => committed_of(client, group, None)?,
        true => {
            let begun = shared(client, group)?;
            let lags = begun.iter().filter(|(_, (_, lag))| *lag >= 0);
            unaccepted.extend(lags.map(|(key, (_, lag))| (key.clone(), *lag)));
            let begun = begun.into_iter();
            begun.map(|(key, (start, _))| (key, start)).collect()
        }
    };
    let owners = described.owners();
    let keys: BTreeSet<(String, i32)> = committed.keys().chain(owners.keys()).cloned().collect();
    let names: BTreeSet<String> = keys.iter().map(|k| k.0.clone()).collect();
    let names: Vec<String> = names.into_iter().collect();
    let mut at = BTreeMap::new();
    if !names.is_empty() {
        for topic in client.metadata(Some(&names), false)?.topics {
            let Some(name) = topic
                .name
                .clone()
                .filter(|_| topic.error_code == ErrorCode::NONE)
            else {
                continue;
            };
            let leaders: BTreeMap<i32, i32> = topic
                .partitions
                .iter()
                .map(|p| (p.partition_index, p.leader_id))
                .collect();
            for (partition, bounds) in bounds(client, &name, &topic)? {
                let leader = leaders.get(&partition).copied();
                at.insert((name.clone(), partition), (bounds, leader));
            }
        }
    }
    let mut rows: Vec<Row> = keys
        .into_iter()
        .map(|key| Row {
            committed: committed.get(&key).copied(),
            unaccepted: unaccepted.get(&key).copied(),
            bounds: at.get(&key).map(|(bounds, _)| *bounds),
            leader: at.get(&key).and_then(|(_, leader)| *leader),
            member: owners.get(&key).map(|m| m.id.clone()),
            waits_since: None,
            retention_ms: None,
            broken: None,
            topic: key.0,
            partition: key.1,
        })
        .collect();
    find_times(client, &mut rows)?;
    find_retention(client, &names, &mut rows)?;
    Ok(rows)
}

/// Reads the first record that waits in each partition for its time.
fn find_times(client: &mut Client, rows: &mut [Row]) -> Result<(), Failure> {
    let mut fetcher = Fetcher::new();
    // One batch an answer is enough.
    fetcher.max_bytes = 1;
    fetcher.shows_broken = true;
    for row in rows.iter() {
        if let (Some((start, end)), Some(committed), Some(leader)) =
            (row.bounds, row.committed, row.leader)
            && committed < end
        {
            fetcher.add(&row.topic, row.partition, leader, committed.max(start));
        }
    }
    while !fetcher.is_empty() {
        let fetched = fetcher.poll(client, Duration::ZERO)?;
        if fetched.is_empty() {
            // Retention or a new leader came in between: the times of the others aren't known.
            return Ok(());
        }
        for part in fetched {
            let found = rows
                .iter_mut()
                .find(|r| r.topic == part.topic && r.partition == part.partition);
            let first = part.records.first().map(|record| record.timestamp);
            match (found, first) {
                (Some(row), None) if part.broken.is_some() => {
                    row.broken = part.broken;
                    fetcher.remove(&part.topic, part.partition);
                }
                (Some(row), Some(time)) => {
                    row.waits_since = (time >= 0).then_some(time);
                    fetcher.remove(&part.topic, part.partition);
                }
                // Only control records: they are read over.
                (Some(row), None) if row.bounds.is_some_and(|(_, end)| part.next < end) => {}
                _ => fetcher.remove(&part.topic, part.partition),
            }
        }
    }
    Ok(())
}

/// Where records go by age, and when.
fn find_retention(client: &mut Client, topics: &[String], rows: &mut [Row]) -> Result<(), Failure> {
    let late: Vec<&String> = topics
        .iter()
        .filter(|t| {
            rows.iter()
                .any(|r| r.waits_since.is_some() && r.topic == **t)
        })
        .collect();
    if late.is_empty() {
        return Ok(());
    }
    let resources = late.into_iter().map(|topic| DescribeConfigsResource {
        resource_type: TOPIC,
        resource_name: topic.clone(),
        configuration_keys: Some(vec!["retention.ms".to_owned(), "cleanup.policy".to_owned()]),
    });
    let request = DescribeConfigsRequest {
        resources: resources.collect(),
        ..DescribeConfigsRequest::default()
    };
    for topic in client.ask(&request)?.results {
        let value = |key: &str| {
            let config = topic.configs.iter().find(|c| c.name == key)?;
            config.value.clone()
        };
        let deletes = value("cleanup.policy").is_some_and(|p| p.contains("delete"));
        let ms = value("retention.ms").and_then(|ms| ms.parse::<i64>().ok());
        let ms = ms.filter(|ms| deletes && *ms >= 0);
        for row in rows.iter_mut().filter(|r| r.topic == topic.resource_name) {
            row.retention_ms = ms;
        }
    }
    Ok(())
}

impl Lag {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let mut client = context.client()?;
        let described = described(&mut client, &self.group)?;
        let mut table = Table::new(
            "group.lag",
            &[
                "topic",
                "partition",
                "committed",
                "end",
                "lag",
                "seconds",
                "time_to_loss",
                "member",
                "+start",
                "+lost",
                "+state",
            ],
        );
        let mut sum = 0;
        let now = now_ms();
        for row in rows(&mut client, &self.group, &described)? {
            sum += row.waiting();
            table.row(vec![
                json!(row.topic),
                json!(row.partition),
                json!(row.committed),
                json!(row.bounds.map(|(_, end)| end)),
                row.lag_text(),
                json!(row.behind(now)),
                json!(row.time_to_loss(now)),
                json!(row.member),
                json!(row.bounds.map(|(start, _)| start)),
                json!(row.lost()),
                json!(described.state),
            ]);
            if row.lost() > 0 {
                context.note(&format!(
                    "{} partition {}: retention deleted {} records before the group committed them",
                    row.topic,
                    row.partition,
                    row.lost()
                ));
            }
        }
        table.print(context.output)?;
        if let Some(max) = self.max.filter(|max| sum > *max) {
            return Err(Failure::new(
                Exit::Finding,
                format!("group {:?} is {sum} records behind", self.group),
            )
            .why(format!("that is more than {max}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(committed: Option<i64>, bounds: Option<(i64, i64)>) -> Row {
        Row {
            topic: "t".to_owned(),
            partition: 0,
            committed,
            unaccepted: None,
            bounds,
            leader: Some(1),
            member: None,
            waits_since: Some(1_000),
            retention_ms: Some(60_000),
            broken: None,
        }
    }

    #[test]
    fn lag_is_never_negative_and_has_three_states() {
        assert_eq!(row(Some(3), Some((0, 10))).lag_text(), json!(7));
        // A commit beyond the end, as after a topic was made anew.
        assert_eq!(row(Some(30), Some((0, 10))).lag_text(), json!(0));
        assert_eq!(row(None, Some((0, 10))).lag_text(), json!("no commit"));
        assert_eq!(row(Some(3), None).lag_text(), json!("unknown"));
        // Whoever waits for a group to be done waits for what it hasn't begun, too.
        assert_eq!(row(None, Some((2, 10))).waiting(), 8);
        assert_eq!(row(Some(3), Some((2, 10))).waiting(), 7);
    }

    #[test]
    fn what_retention_took_is_lost_and_no_lag() {
        let overtaken = row(Some(3), Some((5, 10)));
        assert_eq!((overtaken.lost(), overtaken.lag()), (2, Some(5)));
    }

    #[test]
    fn seconds_count_from_the_first_record_that_waits() {
        let late = row(Some(3), Some((0, 10)));
        assert_eq!(late.behind(31_000), Some(30.0));
        assert_eq!(late.time_to_loss(31_000), Some(30.0));
        assert_eq!(late.time_to_loss(99_000), Some(0.0));
        let done = row(Some(10), Some((0, 10)));
        assert_eq!(done.behind(31_000), Some(0.0));
    }
}
