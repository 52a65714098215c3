//! Producers and consumers over links that stand still and break, with a server that is killed and loses its power; the checker judges
//! what they saw.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use riverlog_checker::{Event, What, place};
use riverlog_log::disk::Random;
use riverlog_wire::ErrorCode;
use tokio::time::sleep;

use super::client::{Link, fetch, produce, refused, values};
use super::http::{HttpLink, Member, Once};
use super::{SERVER, Story, bounded};

const TOPIC: &str = "t";
const PARTITIONS: i32 = 2;
const GROUP: &str = "g";
/// Of the group, over HTTP.
const MEMBERS: usize = 2;
/// Polls without a record after which a member sees the end, once no more is to come.
const QUIET: usize = 8;
const PRODUCERS: usize = WAYS.len();
/// How each of them sends.
const WAYS: [Way; 4] = [Way::Kafka, Way::Kafka, Way::Key, Way::Sequence];
/// Batches of each.
const BATCHES: usize = 60;
/// Troubles before all is healed.
const TROUBLES: usize = 12;

/// What everyone did and was told.
#[derive(Clone, Default)]
struct History(Arc<Mutex<Vec<Event>>>);

fn time() -> u64 {
    let passed = turmoil::sim_elapsed().unwrap_or_default();
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
}

impl History {
    fn note(&self, at: u64, client: &str, what: What) {
        self.0.lock().push(Event {
            at,
            client: client.to_owned(),
            what,
        });
    }
}

/// What the story waits for.
#[derive(Clone, Default)]
struct Progress(Arc<Mutex<Done>>);

#[derive(Default)]
struct Done {
    made: bool,
    healed: bool,
    producers: usize,
    members: usize,
}

async fn until(progress: &Progress, holds: impl Fn(&Done) -> bool) {
    while !holds(&progress.0.lock()) {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Through which door records come, and what keeps them from being stored twice.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Kafka's protocol: an idempotent producer.
    Kafka,
    /// HTTP: a key of its own for each request.
    Key,
    /// HTTP: an idempotent producer.
    Sequence,
}

/// A connection of a producer, and what it is known as.
enum Sender {
    Kafka(Link, (i64, i16)),
    Http(HttpLink, Once),
}

impl Sender {
    async fn open(way: Way, seed: u64, most: usize) -> Sender {
        match way {
            Way::Kafka => {
                let mut link = Link::open_patiently(seed, most).await;
                loop {
                    match link.init_producer().await {
                        Ok(known) => return Sender::Kafka(link, known),
                        Err(_) => link = Link::open_patiently(seed, most).await,
                    }
                }
            }
            Way::Key => Sender::Http(HttpLink::open_patiently().await, Once::Key),
            Way::Sequence => {
                let mut link = HttpLink::open_patiently().await;
                let once = Once::sequence(&mut link).await;
                Sender::Http(link, once)
            }
        }
    }
}

/// Sends batch after batch, the same one until it is answered: over a new connection when the old one is lost.
async fn producer(number: usize, seed: u64, most: usize, history: History, progress: Progress) {
    until(&progress, |done| done.made).await;
    let name = format!("producer-{number}");
    let partition = number as i32 % PARTITIONS;
    let open = What::Open {
        idempotent: true,
        retries: true,
        group: None,
        read_committed: false,
    };
    history.note(time(), &name, open);
    let mut sender = Sender::open(WAYS[number], seed, most).await;
    let mut sequence = 0;
    for batch in 0..BATCHES {
        let records: Vec<String> = (0..1 + batch % 3)
            .map(|n| format!("{name}-{batch}-{n}-{}", "x".repeat(batch * 7 % 400)))
            .collect();
        let there = place(TOPIC, partition);
        for value in &records {
            let (place, value) = (there.clone(), value.clone());
            history.note(
                time(),
                &name,
                What::Send {
                    place,
                    value,
                    txn: None,
                },
            );
        }
        let base = match &mut sender {
            Sender::Kafka(link, (id, epoch)) => {
                let refs: Vec<&str> = records.iter().map(String::as_str).collect();
                let from = Some((*id, *epoch, sequence));
                let batch_bytes = produce(TOPIC, partition, from, &refs);
                loop {
                    match link.produce(&batch_bytes).await {
                        Ok(stored) if stored.error_code == ErrorCode::NONE => {
                            break stored.base_offset;
                        }
                        Ok(stored) => {
                            refused(stored.error_code);
                            sleep(Duration::from_millis(50)).await;
                        }
                        Err(_) => *link = Link::open_patiently(seed ^ batch as u64, most).await,
                    }
                }
            }
            Sender::Http(link, once) => {
                let name = format!("{name}-{batch}");
                let place = (TOPIC, partition);
                once.publish(link, place, &name, sequence, &records).await
            }
        };
        sequence += records.len() as i32;
        for (offset, value) in (base..).zip(records) {
            let place = there.clone();
            history.note(
                time(),
                &name,
                What::Ack {
                    place,
                    value,
                    offset,
                },
            );
        }
        sleep(Duration::from_millis(30)).await;
    }
    history.note(time(), &name, What::Close);
    progress.0.lock().producers += 1;
}

/// Reads a partition from its start until there is nothing more to come.
async fn consumer(partition: i32, seed: u64, most: usize, history: History, progress: Progress) {
    until(&progress, |done| done.made).await;
    let name = format!("consumer-{partition}");
    let there = place(TOPIC, partition);
    let places = vec![there.clone()];
    history.note(time(), &name, What::Assign { places });
    let mut link = Link::open_patiently(seed, most).await;
    let mut at = 0;
    loop {
        let finished = progress.0.lock().producers == PRODUCERS;
        let since = time();
        let wait = Duration::from_millis(300);
        let part = match link.fetch(&fetch(TOPIC, partition, at, wait)).await {
            Ok(part) => part,
            Err(_) => {
                link = Link::open_patiently(seed ^ at as u64, most).await;
                continue;
            }
        };
        if part.error_code != ErrorCode::NONE {
            refused(part.error_code);
            sleep(Duration::from_millis(50)).await;
            continue;
        }
        let got = values(&part, at);
        let nothing = got.is_empty();
        at = got.last().map_or(at, |(offset, _)| offset + 1);
        let records = got
            .into_iter()
            .map(|(offset, value)| (there.clone(), offset, value))
            .collect();
        history.note(
            time(),
            &name,
            What::Poll {
                since,
                records,
                txn: None,
            },
        );
        if finished && nothing {
            break;
        }
    }
    history.note(time(), &name, What::Close);
}

/// Polls and commits what it has got, and goes at times, to come back as another. What it hands out begins where the group has committed.
async fn member(number: usize, history: History, progress: Progress) {
    until(&progress, |done| done.made).await;
    let name = format!("member-{number}");
    let note = |what| history.note(time(), &name, what);
    note(What::Open {
        idempotent: false,
        retries: false,
        group: Some(GROUP.to_owned()),
        read_committed: true,
    });
    let mut polls = 0;
    let mut quiet = 0;
    while quiet < QUIET {
        let (mut member, mut holds) = Member::join(GROUP, TOPIC).await;
        let assign = |holds: &[i32]| What::Assign {
            places: holds.iter().map(|p| place(TOPIC, *p)).collect(),
        };
        note(assign(&holds));
        while quiet < QUIET {
            let since = time();
            let Some(polled) = member.poll().await else {
                break;
            };
            let seen: Vec<i32> = polled.records.iter().map(|(p, ..)| *p).collect();
            if !polled.records.is_empty() {
                let records = polled.records.iter();
                let records =
                    records.map(|(p, offset, value)| (place(TOPIC, *p), *offset, value.clone()));
                note(What::Poll {
                    since,
                    records: records.collect(),
                    txn: None,
                });
            }
            for partition in 0..PARTITIONS {
                let last = polled.records.iter().rev().find(|(p, ..)| *p == partition);
                let Some((_, last, _)) = last else { continue };
                let (place, offset) = (place(TOPIC, partition), last + 1);
                note(What::Committing {
                    group: GROUP.to_owned(),
                    place: place.clone(),
                    offset,
                });
                let stored = member.commit(TOPIC, partition, offset).await;
                note(What::Committed {
                    group: GROUP.to_owned(),
                    place,
                    offset,
                    stored,
                });
            }
            if polled.holds != holds {
                holds = polled.holds;
                note(assign(&holds));
            }
            let done = progress.0.lock().producers == PRODUCERS && progress.0.lock().healed;
            quiet = if done && seen.is_empty() {
                quiet + 1
            } else {
                0
            };
            polls += 1;
            if polls % 37 == 0 {
                break;
            }
        }
        note(assign(&[]));
        member.leave().await;
    }
    let last = {
        let mut done = progress.0.lock();
        done.members += 1;
        done.members == MEMBERS
    };
    if last {
        let group = GROUP.to_owned();
        note(What::Drained { group });
    }
    note(What::Close);
}

/// Makes the topic, and in the end reads everything.
async fn auditor(seed: u64, history: History, progress: Progress) -> turmoil::Result {
    let mut link = Link::open_patiently(seed, 4_000).await;
    link.create(TOPIC, PARTITIONS).await?;
    progress.0.lock().made = true;
    until(&progress, |done| {
        done.healed && done.producers == PRODUCERS && done.members == MEMBERS
    })
    .await;
    for partition in 0..PARTITIONS {
        let whole = loop {
            let mut link = Link::open_patiently(seed, 4_000).await;
            match read_whole(&mut link, partition).await {
                Ok(whole) => break whole,
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        };
        history.note(time(), "auditor", whole);
    }
    Ok(())
}

async fn read_whole(link: &mut Link, partition: i32) -> std::io::Result<What> {
    let since = time();
    let start = link.bound(TOPIC, partition, -2).await?;
    let end = link.bound(TOPIC, partition, -1).await?;
    let (mut at, mut records) = (start, Vec::new());
    while at < end {
        let asked = fetch(TOPIC, partition, at, Duration::from_secs(1));
        let part = link.fetch(&asked).await?;
        if part.error_code != ErrorCode::NONE {
            return Err(refused(part.error_code));
        }
        let got = values(&part, at);
        at = got.last().map_or(at, |(offset, _)| offset + 1);
        records.extend(got);
    }
    Ok(What::Whole {
        since,
        place: place(TOPIC, partition),
        start,
        end,
        records,
        read_committed: false,
    })
}

/// What ends a trouble.
type Heal = Box<dyn FnOnce(&mut turmoil::Sim<'static>)>;

/// Who may be cut off.
const CUT_OFF: [&str; 8] = [
    "producer-0",
    "producer-1",
    "producer-2",
    "producer-3",
    "consumer-0",
    "consumer-1",
    "member-0",
    "member-1",
];

/// Plays one seed; the history that comes of it.
fn play(seed: u64) -> Vec<Event> {
    let begun = Instant::now();
    let mut random = Random::new(seed);
    let most = [1 + random.below(30) as usize, 200, 1_460, 8_000][random.below(4) as usize];
    let mut story = Story::with(seed, most, |builder| {
        builder.tcp_capacity(4_096);
    });
    let (history, progress) = (History::default(), Progress::default());
    for number in 0..PRODUCERS {
        let (h, p) = (history.clone(), progress.clone());
        story.client(&format!("producer-{number}"), async move |_| {
            producer(number, seed, most, h, p).await;
            Ok(())
        });
    }
    for partition in 0..PARTITIONS {
        let (h, p) = (history.clone(), progress.clone());
        story.client(&format!("consumer-{partition}"), async move |_| {
            consumer(partition, seed, most, h, p).await;
            Ok(())
        });
    }
    for number in 0..MEMBERS {
        let (h, p) = (history.clone(), progress.clone());
        story.client(&format!("member-{number}"), async move |_| {
            member(number, h, p).await;
            Ok(())
        });
    }
    let (h, p) = (history.clone(), progress.clone());
    story.client("auditor", move |_| auditor(seed, h, p));

    let note = |sim: &turmoil::Sim<'_>, what| {
        let at = u64::try_from(sim.elapsed().as_nanos()).unwrap_or(u64::MAX);
        history.note(at, "story", what);
    };
    let mut next = Duration::from_millis(200);
    let mut troubles = 0;
    // What ends the trouble that is on.
    let mut heal: Option<Heal> = None;
    loop {
        let over = story.sim.step().expect("every client plays its part");
        bounded(begun);
        if over {
            break;
        }
        if story.sim.elapsed() < next || troubles > TROUBLES || !progress.0.lock().made {
            continue;
        }
        if let Some(heal) = heal.take() {
            heal(&mut story.sim);
            next = story.sim.elapsed() + Duration::from_millis(50 + random.below(300));
            continue;
        }
        troubles += 1;
        if troubles > TROUBLES {
            note(&story.sim, What::Healed);
            progress.0.lock().healed = true;
            continue;
        }
        let cut_off = CUT_OFF[random.below(CUT_OFF.len() as u64) as usize];
        let words;
        match random.below(5) {
            0 => {
                words = format!("{cut_off} is held");
                story.sim.hold(cut_off, SERVER);
                heal = Some(Box::new(move |sim| sim.release(cut_off, SERVER)));
            }
            1 => {
                words = format!("{cut_off} is cut off");
                story.sim.partition(cut_off, SERVER);
                heal = Some(Box::new(move |sim| sim.repair(cut_off, SERVER)));
            }
            kind => {
                let power_cut = kind < 4;
                words = format!("the server dies, power cut {power_cut}");
                // A machine without power says nothing; the end of a process closes its connections.
                for name in CUT_OFF.iter().chain(&["auditor"]).filter(|_| power_cut) {
                    story.sim.partition(*name, SERVER);
                }
                story.sim.crash(SERVER);
                story.machine.died(power_cut);
                heal = Some(Box::new(move |sim| {
                    for name in CUT_OFF.iter().chain(&["auditor"]).filter(|_| power_cut) {
                        sim.repair(*name, SERVER);
                    }
                    sim.bounce(SERVER);
                }));
            }
        }
        note(&story.sim, What::Fault { what: words });
        next = story.sim.elapsed() + Duration::from_millis(50 + random.below(400));
    }
    std::mem::take(&mut *history.0.lock())
}

#[test]
fn whatever_becomes_of_links_and_server_what_was_acknowledged_is_there_once() {
    for seed in 1..=8 {
        let report = riverlog_checker::check(&play(seed));
        assert!(report.anomalies.is_empty(), "seed {seed}: {report}");
        assert_eq!(report.counts.faults, TROUBLES, "seed {seed}: {report}");
        let values: usize = (0..BATCHES).map(|batch| 1 + batch % 3).sum();
        assert_eq!(report.counts.acknowledged, PRODUCERS * values);
        assert!(report.counts.read >= 2 * PRODUCERS * values);
    }
}
