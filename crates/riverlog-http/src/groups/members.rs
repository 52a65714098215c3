//! Members of a group over HTTP (KIP-848): a poll is the heartbeat, and any node answers it.
//!
//! What a member holds comes with its cursor. When the coordinator takes partitions away, the answer says so and its cursor has them no
//! more: the member commits what it has done, and gives them up with its next poll.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use futures_util::{StreamExt, stream};
use riverlog_core::groups::{ConsumerHeartbeat, GroupAnswer, GroupCommand, TopicPartition};
use riverlog_core::metadata::TopicRef;
use riverlog_node::{FetchCommand, FetchPartition, FetchedPartition, Isolation, OffsetQuery};
use riverlog_wire::batch::Aborted;
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, TopicId};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::Place;
use super::cursor::Cursor;
use super::offsets::with_generation;
use crate::body::nothing;
use crate::door::{Answer, Call, HttpDoor};
use crate::fetch::read::{Fetched, Window, damaged, open, whole};
use crate::fetch::write::Form;
use crate::fetch::{BYTES, LONGEST_WAIT_MS, MOST_BYTES, MOST_RECORDS, RECORDS};
use crate::int64::Digits;
use crate::path::encode;
use crate::problem::Problem;
use crate::schema;
use crate::value::{self, Embed};

/// How often a poll that waits shows that its member is there, and learns of a new assignment.
const HEARTBEAT_WHILE_WAITING: Duration = Duration::from_millis(500);
/// How soon a poll looks again where to begin: what it waits for, as the markers of a transaction, mostly takes milliseconds.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Partitions that are asked at once for their first record, since a node that doesn't answer is waited for.
const ASKED_AT_ONCE: usize = 16;
/// How a member goes on behind what can't be read.
const BEHIND: &str =
    "commit an offset behind it, and poll without a cursor: that goes on at the commits";
/// The member epochs that join and leave.
const JOIN: i32 = 0;
const LEAVE: i32 = -1;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Join {
    topics: Vec<String>,
    protocol: Option<String>,
    member_id: Option<String>,
    instance_id: Option<String>,
    rebalance_timeout_ms: Option<u32>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Alive {
    cursor: Option<String>,
}

/// A member as an answer shows it.
#[derive(Serialize, ToSchema)]
struct MemberState {
    group: String,
    member_id: String,
    generation: i32,
    rebalance: bool,
    assignment: Vec<PlaceView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    revoked: Vec<PlaceView>,
    cursor: String,
    heartbeat_interval_ms: u64,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PlaceView {
    pub(super) topic: String,
    pub(super) partition: i32,
}

impl From<Place> for PlaceView {
    fn from((topic, partition): Place) -> PlaceView {
        PlaceView { topic, partition }
    }
}

/// What a poll gives: the member, and records with topic and partition.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description: the bytes are written without it")]
pub(crate) struct Polled {
    group: String,
    member_id: String,
    generation: i32,
    rebalance: bool,
    assignment: Vec<PlaceView>,
    revoked: Option<Vec<PlaceView>>,
    cursor: String,
    heartbeat_interval_ms: u64,
    records: Vec<schema::RecordOut>,
}

/// What a heartbeat gave.
struct Step {
    cursor: Cursor,
    interval: Duration,
    /// What it must give up.
    revoked: Vec<(TopicId, Vec<i32>)>,
    /// The assignment is another one.
    changed: bool,
    /// Why it can't begin somewhere; nothing where that passes by itself.
    unread: Option<Problem>,
}

impl Step {
    /// Gives up what isn't in `assignment`; what is new waits until it is known where to begin.
    fn take_assignment(&mut self, assignment: &[(TopicId, Vec<i32>)]) {
        let wanted: BTreeSet<(TopicId, i32)> = assignment
            .iter()
            .flat_map(|(topic, partitions)| partitions.iter().map(|p| (*topic, *p)))
            .collect();
        let cursor = &mut self.cursor;
        let mut revoked: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
        let mut stays = |key: &(TopicId, i32)| {
            let stays = wanted.contains(key);
            if !stays {
                revoked.entry(key.0).or_default().push(key.1);
            }
            stays
        };
        cursor.held.retain(|key, _| stays(key));
        cursor.waiting.retain(stays);
        self.revoked = revoked.into_iter().collect();
        self.changed = !self.revoked.is_empty();
        for key in wanted {
            if !cursor.held.contains_key(&key) {
                self.changed |= cursor.waiting.insert(key);
            }
        }
    }
}

/// A problem that doesn't pass by itself, as that of a partition that gets a leader, or of a topic that is gone, which the coordinator
/// takes away: a member is told of that alone.
fn lasting(problem: Problem) -> Option<Problem> {
    let passing = [
        "leader-moving",
        // Its node was asked and gave no answer.
        "timed-out",
        "unavailable",
        "unknown-topic",
        "unknown-partition",
    ];
    let passes = passing.iter().any(|slug| problem.is(slug));
    (!passes).then_some(problem)
}

/// A problem of one partition.
fn at(problem: Problem, topic: String, partition: i32) -> Problem {
    problem.with("topic", topic).with("partition", partition)
}

/// Who asks.
struct Member {
    door: Arc<HttpDoor>,
    group: String,
    id: String,
}

impl Member {
    fn of(call: &Call) -> Member {
        Member {
            door: Arc::clone(&call.door),
            group: call.name().to_owned(),
            id: call.target.segments.get(3).cloned().unwrap_or_default(),
        }
    }

    async fn say(
        &self,
        heartbeat: ConsumerHeartbeat,
    ) -> Result<(i32, Duration, Option<Vec<(TopicId, Vec<i32>)>>), Problem> {
        let command = GroupCommand::ConsumerHeartbeat(ConsumerHeartbeat {
            group: self.group.clone(),
            member: self.id.clone(),
            client_id: "http".to_owned(),
            client_host: "http".to_owned(),
            random: self.door.node.random(),
            version: 1,
            ..heartbeat
        });
        let answer = match super::ask(&self.door, command).await? {
            GroupAnswer::ConsumerHeartbeat(answer) => answer,
            GroupAnswer::Error(error) => return Err(Problem::kafka(error)),
            _ => return Err(Problem::kafka(ErrorCode::UNKNOWN_SERVER_ERROR)),
        };
        match answer.error {
            ErrorCode::NONE => Ok((
                answer.member_epoch,
                answer.heartbeat_interval,
                answer.assignment,
            )),
            error => {
                let problem = Problem::kafka(error);
                let problem = match answer.message {
                    Some(message) => problem.detail(message),
                    None => problem,
                };
                if !problem.is("stale-generation") {
                    return Err(problem);
                }
                Err(with_generation(&self.door, &self.group, &self.id, problem).await)
            }
        }
    }

    /// Shows that the member is there, and follows its assignment.
    async fn step(&self, cursor: Cursor) -> Result<Step, Problem> {
        // The coordinator tells an assignment when it is another one; what it was is in the cursor, and nothing is remembered here.
        let heartbeat = ConsumerHeartbeat {
            member_epoch: cursor.generation,
            rebalance_timeout: (cursor.generation == JOIN)
                .then(|| self.door.node.settings().groups.consumer_session_timeout),
            subscribed_topics: (cursor.generation == JOIN).then(|| cursor.topics.clone()),
            owned: Some(cursor.owned()),
            ..ConsumerHeartbeat::default()
        };
        let (generation, interval, assignment) = self.say(heartbeat).await?;
        Ok(self.follow(cursor, generation, interval, assignment).await)
    }

    /// Takes in what the coordinator said. That has happened, so it can't fail: where the member can't begin now, the next step looks again.
    async fn follow(
        &self,
        mut cursor: Cursor,
        generation: i32,
        interval: Duration,
        assignment: Option<Vec<(TopicId, Vec<i32>)>>,
    ) -> Step {
        cursor.generation = generation;
        let mut step = Step {
            cursor,
            interval,
            revoked: Vec::new(),
            changed: false,
            unread: None,
        };
        if let Some(assignment) = assignment {
            step.take_assignment(&assignment);
        }
        step.unread = self.begin(&mut step.cursor).await;
        step
    }

    /// Begins in partitions that were given: at the commit, or at the first record that is there. Where an open transaction is to move
    /// the commit, the next step looks again, as Kafka's consumers do (KIP-447): what it covers isn't read twice. So it does where
    /// something is wrong; what doesn't pass by itself comes back.
    async fn begin(&self, cursor: &mut Cursor) -> Option<Problem> {
        let image = self.door.node.image();
        let asked: Vec<TopicPartition> = cursor
            .waiting
            .iter()
            .filter_map(|(id, partition)| {
                Some(TopicPartition {
                    topic: image.topics.get(id)?.name.clone(),
                    id: *id,
                    partition: *partition,
                })
            })
            .collect();
        if asked.is_empty() {
            return None;
        }
        let places = match super::stable_places_of(&self.door, &self.group, asked).await {
            Ok(places) => places,
            Err(problem) => return lasting(problem),
        };
        let starts = places.into_iter().map(|(place, committed)| async move {
            let start = match committed {
                Ok(Some(committed)) => Some(Ok(committed.offset)),
                Ok(None) => Some(self.earliest(place.id, place.partition).await),
                Err(ErrorCode::UNSTABLE_OFFSET_COMMIT) => None,
                Err(error) => Some(Err(Problem::kafka(error))),
            };
            (place, start)
        });
        let mut unread = None;
        let mut starts = stream::iter(starts).buffered(ASKED_AT_ONCE);
        while let Some((place, start)) = starts.next().await {
            let key = (place.id, place.partition);
            match start {
                Some(Ok(offset)) => {
                    cursor.waiting.remove(&key);
                    cursor.held.insert(key, offset);
                }
                Some(Err(problem)) => {
                    unread = unread.or_else(|| lasting(at(problem, place.topic, key.1)));
                }
                None => {}
            }
        }
        unread
    }

    async fn earliest(&self, topic: TopicId, partition: i32) -> Result<Offset, Problem> {
        let image = self.door.node.image();
        let topic = image.topics.get(&topic);
        let topic = topic.ok_or_else(|| Problem::kafka(ErrorCode::UNKNOWN_TOPIC_ID))?;
        let place = self.door.place(topic, partition)?;
        let isolation = Isolation::ReadCommitted;
        self.door
            .offset(&place, OffsetQuery::Earliest, isolation)
            .await
    }

    /// The cursor of a member that has lost it: what the coordinator gave it, to be begun where it has committed.
    async fn recall(&self) -> Result<Cursor, Problem> {
        let found = super::found(&self.door, &self.group).await?;
        let own = found.members.into_iter().find(|m| m.member == self.id);
        let own = own.ok_or_else(|| Problem::kafka(ErrorCode::UNKNOWN_MEMBER_ID))?;
        let keys = own.assigned.iter();
        let keys = keys.flat_map(|(topic, partitions)| partitions.iter().map(|p| (*topic, *p)));
        Ok(Cursor {
            generation: own.member_epoch,
            topics: own.subscribed_topics.clone(),
            held: BTreeMap::new(),
            waiting: keys.collect(),
        })
    }

    fn view(&self, step: &Step) -> MemberState {
        let places = |owned: &[(TopicId, Vec<i32>)]| {
            let places = super::named(&self.door, owned).into_iter();
            places.map(PlaceView::from).collect()
        };
        MemberState {
            group: self.group.clone(),
            member_id: self.id.clone(),
            generation: step.cursor.generation,
            rebalance: step.changed,
            assignment: places(&step.cursor.owned()),
            revoked: places(&step.revoked),
            cursor: step.cursor.encode(),
            heartbeat_interval_ms: u64::try_from(step.interval.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Records of what the member holds: topic, partition, record. A partition that can't be read is passed over, and comes back
    /// with its problem where that doesn't pass by itself.
    async fn read(
        &self,
        cursor: &mut Cursor,
        limit: usize,
        max_bytes: usize,
        wait: Duration,
    ) -> Result<(Vec<(Place, Fetched)>, Option<Problem>), Problem> {
        let deadline = Instant::now() + wait;
        let (mut passed_over, mut unread) = (BTreeSet::new(), None);
        loop {
            let held = cursor.held.iter();
            let held = held.filter(|(key, _)| !passed_over.contains(*key));
            let held: Vec<((TopicId, i32), Offset)> = held.map(|(k, at)| (*k, *at)).collect();
            // With a problem to tell nothing is waited for.
            let wait = match &unread {
                Some(_) => Duration::ZERO,
                None => deadline.saturating_duration_since(Instant::now()),
            };
            if held.is_empty() {
                tokio::time::sleep(wait).await;
                return Ok((Vec::new(), unread));
            }
            let partitions = held
                .iter()
                .map(|((topic, partition), from)| FetchPartition {
                    topic: TopicRef::Id(*topic),
                    partition: *partition,
                    from: *from,
                    max_bytes,
                    current_leader_epoch: LeaderEpoch::NONE,
                    last_fetched_epoch: LeaderEpoch::NONE,
                });
            let command = FetchCommand {
                partitions: partitions.collect(),
                max_wait: wait,
                min_bytes: 1,
                max_bytes,
                isolation: Isolation::ReadCommitted,
                replica: None,
            };
            let answers = self.door.fetch(command).await?;
            let image = self.door.node.image();
            let (mut out, mut left, before) = (Vec::new(), max_bytes, passed_over.len());
            for ((key, from), fetched) in held.into_iter().zip(answers) {
                let Some(topic) = image.topics.get(&key.0) else {
                    passed_over.insert(key);
                    continue;
                };
                let window = Window {
                    from,
                    until: None,
                    limit: limit.saturating_sub(out.len()),
                    max_bytes: left,
                };
                let place = (topic.name.clone(), key.1);
                match self.take(cursor, key, fetched, window).await {
                    Ok((records, size)) => {
                        left = left.saturating_sub(size);
                        out.extend(records.into_iter().map(|record| (place.clone(), record)));
                    }
                    Err(problem) => {
                        passed_over.insert(key);
                        unread = unread.or_else(|| lasting(at(problem, place.0, place.1)));
                    }
                }
            }
            // Beside what can't be read there may have been no room for others.
            if !out.is_empty() || passed_over.len() == before {
                return Ok((out, unread));
            }
        }
    }

    /// Records of one partition, and their bytes; the cursor moves behind them.
    async fn take(
        &self,
        cursor: &mut Cursor,
        key: (TopicId, i32),
        fetched: FetchedPartition,
        window: Window,
    ) -> Result<(Vec<Fetched>, usize), Problem> {
        let nothing = (Vec::new(), 0);
        match fetched.error {
            ErrorCode::NONE => {}
            // Retention was faster than the member.
            ErrorCode::OFFSET_OUT_OF_RANGE => {
                let start = self.earliest(key.0, key.1).await?;
                cursor.held.insert(key, start);
                return Ok(nothing);
            }
            error @ ErrorCode::CORRUPT_MESSAGE => {
                let from = window.from;
                let detail = format!("what is stored at offset {from} is damaged on the disk");
                return Err(Problem::kafka(error).detail(detail).hint(BEHIND));
            }
            error => return Err(Problem::kafka(error)),
        }
        if fetched.records.len == 0 || window.limit == 0 || window.max_bytes == 0 {
            return Ok(nothing);
        }
        let aborted = Aborted::new(fetched.aborted);
        let bytes = whole(fetched.records).await?;
        let mut records = Vec::new();
        let opened = open(&bytes, aborted, window, &mut records);
        cursor.held.insert(key, opened.next);
        match opened.damage {
            // What lies before the damage comes first.
            Some(error) if records.is_empty() => Err(damaged(opened.next, &error).hint(BEHIND)),
            _ => Ok((records, opened.size)),
        }
    }
}

/// Join a group
#[utoipa::path(
    post, path = "/v1/groups/{group}/members", tag = "groups", operation_id = "joinGroup",
    params(("group" = String, Path, description = "Name, percent-encoded")),
    request_body = Join,
    responses((status = 201, description = "Joined", body = MemberState))
)]
pub(crate) async fn join(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let asked: Join = call.json().await?;
    if asked.protocol.as_deref().is_some_and(|p| p != "consumer") {
        return Err(Problem::unprocessable(
            "group-protocol",
            "members over HTTP speak the protocol \"consumer\", in which the coordinator assigns",
        ));
    }
    for topic in &asked.topics {
        call.door.topic(topic)?;
    }
    let fresh = || TopicId(call.door.node.random().to_be_bytes()).to_string();
    let member = Member {
        door: Arc::clone(&call.door),
        group: call.name().to_owned(),
        id: asked.member_id.unwrap_or_else(fresh),
    };
    let session = call.door.node.settings().groups.consumer_session_timeout;
    let timeout = asked.rebalance_timeout_ms.map(u64::from);
    let heartbeat = ConsumerHeartbeat {
        member_epoch: JOIN,
        instance: asked.instance_id,
        rebalance_timeout: Some(timeout.map_or(session, Duration::from_millis)),
        subscribed_topics: Some(asked.topics.clone()),
        owned: Some(Vec::new()),
        ..ConsumerHeartbeat::default()
    };
    let (generation, interval, assignment) = member.say(heartbeat).await?;
    let cursor = Cursor {
        generation,
        topics: asked.topics,
        ..Cursor::default()
    };
    let step = member
        .follow(cursor, generation, interval, assignment)
        .await;
    let mut response = call.answer_json(StatusCode::CREATED, &member.view(&step));
    let at = format!(
        "/v1/groups/{}/members/{}",
        encode(&member.group),
        encode(&member.id)
    );
    if let Ok(at) = HeaderValue::from_str(&at) {
        response.headers_mut().insert(header::LOCATION, at);
    }
    Ok(response)
}

/// Show that a member is there
#[utoipa::path(
    post, path = "/v1/groups/{group}/members/{member}/heartbeat", tag = "groups", operation_id = "heartbeat",
    params(("group" = String, Path, description = "Name, percent-encoded"), ("member" = String, Path, description = "Id")),
    request_body = Alive,
    responses((status = 200, description = "The member", body = MemberState))
)]
pub(crate) async fn heartbeat(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let asked: Alive = call.json().await?;
    let member = Member::of(&call);
    let cursor = match asked.cursor {
        Some(text) => Cursor::decode(&text)?,
        None => member.recall().await?,
    };
    let step = member.step(cursor).await?;
    Ok(call.answer_json(StatusCode::OK, &member.view(&step)))
}

/// Leave a group
#[utoipa::path(
    delete, path = "/v1/groups/{group}/members/{member}", tag = "groups", operation_id = "leaveGroup",
    params(("group" = String, Path, description = "Name, percent-encoded"), ("member" = String, Path, description = "Id")),
    responses((status = 204, description = "Left"))
)]
pub(crate) async fn leave(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let member = Member::of(&call);
    let heartbeat = ConsumerHeartbeat {
        member_epoch: LEAVE,
        ..ConsumerHeartbeat::default()
    };
    member.say(heartbeat).await?;
    Ok(nothing())
}

/// Poll records as a member; the heartbeat too
///
/// Records for a member. An answer comes with the first records, when the assignment or the generation changes, or when the wait is over.
#[utoipa::path(
    get, path = "/v1/groups/{group}/members/{member}/records", tag = "groups", operation_id = "poll",
    params(("group" = String, Path, description = "Name, percent-encoded"), ("member" = String, Path, description = "Id"), schema::Poll),
    responses((status = 200, description = "Records, and the next cursor", body = Polled))
)]
pub(crate) async fn poll(mut call: Call) -> Answer {
    let mut query = std::mem::take(&mut call.query);
    let cursor = query.text("cursor");
    let wait_ms = query.number("wait_ms", 0..=LONGEST_WAIT_MS)?.unwrap_or(0);
    let limit = query.number("limit", 1..=MOST_RECORDS)?.unwrap_or(RECORDS);
    let max_bytes = query.number("max_bytes", 1..=MOST_BYTES)?.unwrap_or(BYTES);
    let form = Form {
        embed: query.choice("embed", Embed::CHOICES)?.unwrap_or_default(),
        digits: query.choice("int64", Digits::CHOICES)?.unwrap_or_default(),
    };
    query.done()?;
    let member = Member::of(&call);
    let mut cursor = match cursor {
        Some(text) => Cursor::decode(&text)?,
        None => member.recall().await?,
    };
    let generation = cursor.generation;
    let deadline = Instant::now() + Duration::from_millis(wait_ms);
    loop {
        let mut step = member.step(cursor).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        let (mut records, mut unread) = (Vec::new(), step.unread.take());
        // A new epoch too: should this answer be lost, the coordinator takes the cursor of the one before for one epoch more, not for two.
        let news = step.changed || step.cursor.generation != generation;
        if !step.changed || step.revoked.is_empty() {
            let wait = match news || unread.is_some() {
                true => Duration::ZERO,
                false if step.cursor.waiting.is_empty() => left.min(HEARTBEAT_WHILE_WAITING),
                false => left.min(LOOK_AGAIN),
            };
            let (read, more) = member
                .read(&mut step.cursor, limit, max_bytes, wait)
                .await?;
            records = read;
            unread = unread.or(more);
        }
        let passed_over = unread.is_some();
        // A problem has no cursor: what is new of the member goes first, and the next poll tells it.
        if let Some(problem) = unread
            && records.is_empty()
            && !news
        {
            return Err(problem);
        }
        let over = Instant::now() >= deadline;
        if !records.is_empty() || news || over || passed_over {
            let json = written(&member.view(&step), &records, form);
            return Ok(call.answer(StatusCode::OK, json));
        }
        cursor = step.cursor;
    }
}

fn written(state: &MemberState, records: &[(Place, Fetched)], form: Form) -> Vec<u8> {
    // Text and numbers always have a JSON form; it ends with the brace that records go before.
    let mut out = serde_json::to_vec(state).unwrap_or_default();
    out.pop();
    out.extend_from_slice(b",\"records\":[");
    for (n, ((topic, partition), record)) in records.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"topic\":");
        value::write_text(&mut out, topic);
        out.extend_from_slice(format!(",\"partition\":{partition},").as_bytes());
        form.fields(&mut out, record);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    out
}
