//! `riverlog consume` and `riverlog tail`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::OffsetFetchRequest;
use riverlog_wire::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};

use super::format::{Format, Placed, harmless, to_json};
use super::output::Output;
use super::topic::{bounds, resolve, resolve_within};
use super::values::{self, Position, time_text};
use super::{Context, interrupt};
use crate::client::{Client, Fetched, Fetcher, Member, MemberState};
use crate::failure::{Exit, Failure};

/// How long a broker may wait for records.
const WAIT: Duration = Duration::from_millis(500);
/// How often a group's offsets are committed.
const COMMIT: Duration = Duration::from_secs(1);

/// Reads records.
#[derive(Clone, Debug, Args)]
pub(crate) struct Consume {
    /// Topics to read
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Where to begin: start, end, an offset, -N, a time, how long ago (10m), committed
    #[arg(long, allow_hyphen_values = true, value_name = "POSITION")]
    from: Option<String>,
    /// Where to stop, exclusive: as --from
    #[arg(long, allow_hyphen_values = true, value_name = "POSITION")]
    until: Option<String>,
    /// Stop after this many records
    #[arg(short = 'n', long, visible_alias = "max", value_name = "N")]
    count: Option<u64>,
    /// Stop at the end of the topic
    #[arg(short = 'e', long)]
    exit: bool,
    /// Read as a member of this group, and commit what was read
    #[arg(short, long, conflicts_with = "partition", value_name = "GROUP")]
    group: Option<String>,
    /// These partitions only
    #[arg(short, long, value_delimiter = ',', value_parser = clap::value_parser!(i32).range(0..), value_name = "N")]
    partition: Vec<i32>,
    /// Records whose value matches this regular expression
    #[arg(long, value_name = "REGEX")]
    grep: Option<String>,
    /// Records with this key
    #[arg(short, long, value_name = "KEY")]
    key: Option<String>,
    /// Form of a record: %t topic, %p partition, %o offset, %k key, %s value, %h headers, %T time
    #[arg(short, long, conflicts_with = "output", value_name = "FORMAT")]
    format: Option<String>,
    /// Hide records of open and aborted transactions
    #[arg(long)]
    read_committed: bool,
    /// How long to try again when the broker goes away
    #[arg(long, default_value = "120s", value_parser = values::duration, value_name = "TIME")]
    reconnect: Duration,
}

/// Reads new records, one line each.
#[derive(Clone, Debug, Args)]
pub(crate) struct Tail {
    /// Topics to read
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Where to begin
    #[arg(
        long,
        default_value = "end",
        allow_hyphen_values = true,
        value_name = "POSITION"
    )]
    from: String,
    /// Stop after this many records
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Records whose value matches this regular expression
    #[arg(long, value_name = "REGEX")]
    grep: Option<String>,
    /// How long to try again when the broker goes away
    #[arg(long, default_value = "120s", value_parser = values::duration, value_name = "TIME")]
    reconnect: Duration,
}

impl Tail {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let plan = Consume {
            topics: self.topics,
            from: Some(self.from),
            until: None,
            count: self.count,
            exit: false,
            group: None,
            partition: Vec::new(),
            grep: self.grep,
            key: None,
            format: None,
            read_committed: false,
            reconnect: self.reconnect,
        };
        let style = match context.output {
            Some(Output::Json | Output::Ndjson) => Style::Json,
            _ => Style::Line {
                colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            },
        };
        plan.read(context, style)
    }
}

/// How a record is written.
#[derive(Clone, Debug)]
enum Style {
    /// Its value and a line end; `terminal`: without control characters.
    Value {
        terminal: bool,
    },
    Json,
    Format(Format),
    /// Place, time, key and value.
    Line {
        colour: bool,
    },
}

impl Consume {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let style = match (&self.format, context.output) {
            (Some(format), _) => Style::Format(Format::parse(format)?),
            (None, Some(Output::Json | Output::Ndjson)) => Style::Json,
            (None, None) => Style::Value {
                terminal: std::io::stdout().is_terminal(),
            },
            (None, Some(Output::Table | Output::Wide)) => Style::Line { colour: false },
            (None, Some(_)) => {
                return Err(Failure::usage("records have no such form")
                    .hint("give -o json, -o table or -f FORMAT"));
            }
        };
        self.read(context, style)
    }

    fn read(self, context: &Context, style: Style) -> Result<(), Failure> {
        let from: Position = match (&self.from, &self.group) {
            (Some(text), _) => text.parse()?,
            (None, Some(_)) => Position::Committed,
            (None, None) => Position::Start,
        };
        if from == Position::Committed && self.group.is_none() {
            return Err(Failure::usage("--from committed needs a group").hint("add --group NAME"));
        }
        let until = self
            .until
            .as_deref()
            .map(str::parse::<Position>)
            .transpose()?;
        let grep = match &self.grep {
            Some(text) => Some(regex_lite::Regex::new(text).map_err(|e| {
                Failure::usage(format!("--grep {text:?} isn't a regular expression"))
                    .why(e.to_string())
            })?),
            None => None,
        };
        let mut client = context.client()?;
        interrupt::watch();
        let mut reading = Reading {
            out: std::io::BufWriter::with_capacity(1 << 16, std::io::stdout()),
            fetcher: Fetcher::new(),
            ends: BTreeMap::new(),
            done: BTreeMap::new(),
            line: Vec::new(),
            left: self.count.unwrap_or(u64::MAX),
            plan: &self,
            context,
            style,
            grep,
            until,
            from,
        };
        reading.fetcher.read_committed = self.read_committed;
        let ended = match &self.group {
            Some(group) => {
                let mut member = Member::new(group, &self.topics);
                let ended = reading.run_member(&mut client, &mut member, group);
                // The broker would find out by itself, later.
                let _ = member.leave(&mut client);
                ended
            }
            None => reading.run(&mut client),
        };
        reading.out.flush().map_err(|e| Failure::stdout(&e))?;
        ended
    }
}

struct Reading<'a> {
    plan: &'a Consume,
    context: &'a Context,
    style: Style,
    grep: Option<regex_lite::Regex>,
    from: Position,
    until: Option<Position>,
    fetcher: Fetcher,
    /// Where to stop in each partition that isn't there yet.
    ends: BTreeMap<(String, i32), i64>,
    /// What was read and not committed: the next offset of each partition.
    done: BTreeMap<(String, i32), i64>,
    left: u64,
    out: std::io::BufWriter<std::io::Stdout>,
    line: Vec<u8>,
}

impl Reading<'_> {
    /// Whether reading ends somewhere.
    fn bounded(&self) -> bool {
        self.plan.exit || self.until.is_some()
    }

    fn run(&mut self, client: &mut Client) -> Result<(), Failure> {
        for name in &self.plan.topics {
            let topic = client.topic(name, false)?;
            for partition in &self.plan.partition {
                if !topic
                    .partitions
                    .iter()
                    .any(|p| p.partition_index == *partition)
                {
                    return Err(Failure::new(
                        Exit::NotFound,
                        format!("topic {name:?} has no partition {partition}"),
                    )
                    .why(format!(
                        "it has partitions 0 to {}",
                        topic.partitions.len().saturating_sub(1)
                    )));
                }
            }
            let wanted =
                |p: i32| self.plan.partition.is_empty() || self.plan.partition.contains(&p);
            let bounds = bounds(client, name, &topic)?;
            let starts = resolve_within(client, name, &topic, self.from, &bounds)?;
            for p in topic
                .partitions
                .iter()
                .filter(|p| wanted(p.partition_index))
            {
                let index = p.partition_index;
                let start = starts.get(&index).copied().unwrap_or_default();
                if let (Position::Offset(asked), Some((first, end))) =
                    (self.from, bounds.get(&index))
                    && (asked < *first || asked > *end)
                {
                    return Err(Failure::new(
                        Exit::NotFound,
                        format!("topic {name:?}, partition {index} has no offset {asked}"),
                    )
                    .why(format!("it holds offsets {first} to {end}"))
                    .hint("give an offset within them, or start, end or a time"));
                }
                self.fetcher.add(name, index, p.leader_id, start);
            }
            self.find_ends(client, name, |p, start_of| {
                wanted(p).then(|| starts.get(&p).copied().unwrap_or(start_of))
            })?;
        }
        while self.left > 0 && !self.fetcher.is_empty() {
            if interrupt::asked() {
                return Err(Failure::silent(Exit::Interrupted));
            }
            let fetched = self.poll(client)?;
            self.write_all(fetched)?;
        }
        Ok(())
    }

    /// Reads; when the broker goes away, waits for it and reads on from the same place.
    fn poll(&mut self, client: &mut Client) -> Result<Vec<Fetched>, Failure> {
        let fetcher = &mut self.fetcher;
        client.insist(self.plan.reconnect, interrupt::asked, |client| {
            fetcher.poll(client, WAIT)
        })
    }

    /// Notes where each partition ends; one that is at its end already is read no more.
    fn find_ends(
        &mut self,
        client: &mut Client,
        name: &str,
        start: impl Fn(i32, i64) -> Option<i64>,
    ) -> Result<(), Failure> {
        if !self.bounded() {
            return Ok(());
        }
        let topic = client.topic(name, false)?;
        let ends = resolve(client, name, &topic, Position::End)?;
        let until = match self.until {
            Some(position) => resolve(client, name, &topic, position)?,
            None => ends.clone(),
        };
        for (partition, end) in until {
            let Some(start) = start(partition, 0) else {
                continue;
            };
            // Until a later offset than there is: without --exit it is waited for.
            let end = if self.plan.exit {
                end.min(ends.get(&partition).copied().unwrap_or(end))
            } else {
                end
            };
            if start >= end {
                self.fetcher.remove(name, partition);
            } else {
                self.ends.insert((name.to_owned(), partition), end);
            }
        }
        Ok(())
    }

    fn run_member(
        &mut self,
        client: &mut Client,
        member: &mut Member,
        group: &str,
    ) -> Result<(), Failure> {
        for name in &self.plan.topics {
            client.topic(name, false)?;
        }
        loop {
            client.insist(self.plan.reconnect, interrupt::asked, |client| {
                self.take_assignment(client, member, group)
            })?;
            if !self.run_assignment(client, member)? {
                return Ok(());
            }
        }
    }

    /// Joins, and goes to where the group stands in what it gets.
    fn take_assignment(
        &mut self,
        client: &mut Client,
        member: &mut Member,
        group: &str,
    ) -> Result<(), Failure> {
        let assignment = member.join(client, interrupt::asked)?;
        self.fetcher.clear();
        self.ends.clear();
        // What was read by an earlier assignment and couldn't be committed is read again, by whoever has it now.
        self.done.clear();
        for (name, partitions) in &assignment {
            let committed = committed(client, group, name, partitions)?;
            let topic = client.topic(name, false)?;
            let fallback = match self.from {
                Position::Committed => Position::Start,
                other => other,
            };
            let bounds = bounds(client, name, &topic)?;
            let starts = resolve_within(client, name, &topic, fallback, &bounds)?;
            let mut at = BTreeMap::new();
            for p in topic
                .partitions
                .iter()
                .filter(|p| partitions.contains(&p.partition_index))
            {
                let index = p.partition_index;
                let fallback = starts.get(&index).copied().unwrap_or_default();
                let start = match (committed.get(&index), bounds.get(&index)) {
                    // Retention was faster, or the topic is another one than it was.
                    (Some(offset), Some((start, end))) if !(start..=end).contains(&offset) => {
                        self.context.note(&format!(
                            "{name} partition {index} holds offsets {start} to {end} and no longer the committed \
                             {offset}; reading goes on at {fallback}"
                        ));
                        fallback
                    }
                    (Some(offset), _) => *offset,
                    (None, _) => fallback,
                };
                at.insert(index, start);
                self.fetcher.add(name, index, p.leader_id, start);
            }
            self.find_ends(client, name, |p, _| at.get(&p).copied())?;
        }
        Ok(())
    }

    /// Reads what was assigned. `true`: the group wants to be joined again.
    fn run_assignment(
        &mut self,
        client: &mut Client,
        member: &mut Member,
    ) -> Result<bool, Failure> {
        let mut last_commit = Instant::now();
        loop {
            // A broker that was away may have taken the member out meanwhile; the answer to the next request tells.
            let state = client.insist(self.plan.reconnect, interrupt::asked, |client| {
                member.heartbeat(client)
            })?;
            let ended = self.left == 0 || (self.bounded() && self.fetcher.is_empty());
            let interrupted = interrupt::asked();
            if ended
                || interrupted
                || state == MemberState::Rejoin
                || last_commit.elapsed() >= COMMIT
            {
                // What isn't written yet isn't read.
                self.out.flush().map_err(|e| Failure::stdout(&e))?;
                let patience = match interrupted {
                    true => Duration::ZERO,
                    false => self.plan.reconnect,
                };
                let done = std::mem::take(&mut self.done);
                let committed = client.insist(patience, interrupt::asked, |client| {
                    member.commit(client, &done)
                })?;
                last_commit = Instant::now();
                if interrupted {
                    return Err(Failure::silent(Exit::Interrupted));
                }
                if ended {
                    return Ok(false);
                }
                if state == MemberState::Rejoin || committed == MemberState::Rejoin {
                    return Ok(true);
                }
            }
            if self.fetcher.is_empty() {
                std::thread::sleep(WAIT);
                continue;
            }
            let fetched = self.poll(client)?;
            self.write_all(fetched)?;
        }
    }

    fn write_all(&mut self, fetched: Vec<Fetched>) -> Result<(), Failure> {
        for part in fetched {
            let at = (part.topic, part.partition);
            let end = self.ends.get(&at).copied();
            let mut next = part.next;
            for record in &part.records {
                let past = end.is_some_and(|end| record.offset.0 >= end);
                if past || self.left == 0 {
                    next = record.offset.0;
                    break;
                }
                let placed = Placed {
                    topic: &at.0,
                    partition: at.1,
                    record,
                };
                if self.matches(&placed) {
                    self.left -= 1;
                    self.write(&placed)?;
                }
            }
            if end.is_some_and(|end| next >= end) {
                self.ends.remove(&at);
                self.fetcher.remove(&at.0, at.1);
            }
            if self.plan.group.is_some() {
                self.done.insert(at, next);
            }
        }
        // A reader of a pipe sees what came, not when a buffer is full.
        self.out.flush().map_err(|e| Failure::stdout(&e))
    }

    fn matches(&self, placed: &Placed<'_>) -> bool {
        let key = self
            .plan
            .key
            .as_ref()
            .is_none_or(|k| placed.record.key.as_deref() == Some(k.as_bytes()));
        key && self.grep.as_ref().is_none_or(|regex| {
            placed
                .record
                .value
                .as_deref()
                .is_some_and(|v| regex.is_match(&String::from_utf8_lossy(v)))
        })
    }

    fn write(&mut self, placed: &Placed<'_>) -> Result<(), Failure> {
        let record = placed.record;
        self.line.clear();
        match &self.style {
            Style::Value { terminal: true } => {
                self.line
                    .extend(harmless(record.value.as_deref().unwrap_or_default()).bytes());
                self.line.push(b'\n');
            }
            Style::Value { terminal: false } => {
                self.line.extend(record.value.iter().flatten());
                self.line.push(b'\n');
            }
            Style::Json => {
                self.line.extend(to_json(placed).to_string().bytes());
                self.line.push(b'\n');
            }
            Style::Format(format) => format.write(placed, &mut self.line),
            Style::Line { colour } => {
                let (dim, key_colour, plain) = if *colour {
                    ("\x1b[2m", "\x1b[36m", "\x1b[0m")
                } else {
                    ("", "", "")
                };
                let key = record
                    .key
                    .as_deref()
                    .map_or_else(|| "-".to_owned(), harmless);
                let value = record
                    .value
                    .as_deref()
                    .map_or_else(|| "(tombstone)".to_owned(), harmless);
                let line = format!(
                    "{dim}{}/{}@{} {}{plain} {key_colour}{key}{plain} {value}\n",
                    placed.topic,
                    placed.partition,
                    record.offset,
                    time_text(record.timestamp)
                );
                self.line.extend(line.bytes());
            }
        }
        self.out
            .write_all(&self.line)
            .map_err(|e| Failure::stdout(&e))
    }
}

/// The committed offsets of a group in a topic; partitions without a commit are left out.
pub(super) fn committed(
    client: &mut Client,
    group: &str,
    topic: &str,
    partitions: &[i32],
) -> Result<BTreeMap<i32, i64>, Failure> {
    let all = committed_of(
        client,
        group,
        Some(&[(topic.to_owned(), partitions.to_vec())]),
    )?;
    Ok(all
        .into_iter()
        .map(|((_, partition), offset)| (partition, offset))
        .collect())
}

/// The committed offsets of a group; `None`: all.
pub(super) fn committed_of(
    client: &mut Client,
    group: &str,
    of: Option<&[(String, Vec<i32>)]>,
) -> Result<BTreeMap<(String, i32), i64>, Failure> {
    let coordinator = client.coordinator(group)?;
    let by_group = client
        .node(coordinator)?
        .version(riverlog_wire::messages::ApiKey::OffsetFetch)?
        >= 8;
    let request = if by_group {
        OffsetFetchRequest {
            groups: vec![OffsetFetchRequestGroup {
                group_id: group.to_owned(),
                member_epoch: -1,
                topics: of.map(|of| {
                    let topic =
                        |(name, partitions): &(String, Vec<i32>)| OffsetFetchRequestTopics {
                            name: name.clone(),
                            partition_indexes: partitions.clone(),
                            ..OffsetFetchRequestTopics::default()
                        };
                    of.iter().map(topic).collect()
                }),
                ..OffsetFetchRequestGroup::default()
            }],
            ..OffsetFetchRequest::default()
        }
    } else {
        OffsetFetchRequest {
            group_id: group.to_owned(),
            topics: of.map(|of| {
                let topic = |(name, partitions): &(String, Vec<i32>)| OffsetFetchRequestTopic {
                    name: name.clone(),
                    partition_indexes: partitions.clone(),
                };
                of.iter().map(topic).collect()
            }),
            ..OffsetFetchRequest::default()
        }
    };
    let response = client.ask_coordinator(group, &request, |r| {
        r.groups.first().map_or(r.error_code, |g| g.error_code)
    })?;
    let mut out = BTreeMap::new();
    let mut take = |topic: &str, partition: i32, offset: i64, code: ErrorCode| {
        if code != ErrorCode::NONE {
            return Err(Failure::kafka(
                format!("group {group:?}: the commits of topic {topic:?} can't be read"),
                code,
                None,
            ));
        }
        if offset >= 0 {
            out.insert((topic.to_owned(), partition), offset);
        }
        Ok(())
    };
    let code = response
        .groups
        .first()
        .map_or(response.error_code, |g| g.error_code);
    if code != ErrorCode::NONE {
        return Err(Failure::kafka(
            format!("group {group:?}: commits can't be read"),
            code,
            None,
        ));
    }
    for t in response.groups.iter().flat_map(|g| &g.topics) {
        for p in &t.partitions {
            take(&t.name, p.partition_index, p.committed_offset, p.error_code)?;
        }
    }
    for t in &response.topics {
        for p in &t.partitions {
            take(&t.name, p.partition_index, p.committed_offset, p.error_code)?;
        }
    }
    Ok(out)
}
