//! The main job against the server: one load by kcat, one by `riverlog produce`, a group of three confluent-kafka consumers, of
//! which one dies without a word, and a broker that is killed in the middle of each load.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::broker::{Broker, Kind, Spec, riverlog_binary, terminate};
use crate::place::{self, Scratch};
use crate::run::{self, program};
use crate::tools::{self, Tool};

const TOPIC: &str = "flights";
const GROUP: &str = "airports";
const PARTITIONS: usize = 6;

/// How long one load may take, and the group to have read all, on a busy small machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Both loads with `keyed` (`CARRIER<tab>JSON` lines), everything checked.
pub(super) fn main_job(keyed: &Path) -> Result<()> {
    tools::ensure(&[Tool::Kcat])?;
    let requirements = place::root().join("tests/compat/python/requirements.txt");
    let python = tools::python_env("compat-python", &requirements)?;
    let riverlog = riverlog_binary(false)?;
    let mut scratch = Scratch::new("flights")?;
    let lines = fs::read_to_string(keyed)?;
    let lines: Vec<&str> = lines.lines().collect();
    let spec = Spec::new(Kind::Riverlog, scratch.path())?;
    let job = Job {
        spec,
        riverlog,
        python,
        dir: scratch.path().to_owned(),
    };
    let result = job.run(&lines);
    if result.is_err() {
        scratch.keep();
        eprintln!("xtask: what is left of it is in {}", job.dir.display());
    }
    result
}

struct Job {
    spec: Spec,
    riverlog: PathBuf,
    python: PathBuf,
    dir: PathBuf,
}

impl Job {
    fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.spec.port)
    }

    fn run(&self, lines: &[&str]) -> Result<()> {
        let mut broker = self.spec.start(false)?;
        let count = PARTITIONS.to_string();
        self.command(&["topic", "create", TOPIC, "-p", &count])?;
        let mut members: Vec<Child> = (0..3).map(|n| self.member(n)).collect::<Result<_>>()?;

        // All of them share the load, however slowly they start.
        for n in 0..3 {
            self.wait_for_line(n, "assign ")?;
        }

        // -E: it waits for a broker that is away, as every other client does by itself.
        let kcat = ["-P", "-E", "-b", &self.bootstrap(), "-t", TOPIC, "-K", "\t"];
        let mut first = Command::new("kcat");
        first.args(kcat);
        first.args([
            "-X",
            "enable.idempotence=true",
            "-X",
            "partitioner=murmur2_random",
        ]);
        // One of the three dies without a word half-way, the broker a moment later.
        broker = self.load(first, 1, lines, broker, &mut || {
            // What it hands over is something that it has begun.
            self.wait_for_line(0, "commit ")?;
            members[0].kill()?;
            members[0].wait()?;
            Ok(())
        })?;
        println!(
            "kcat: {} flights in spite of a killed broker and a killed consumer",
            lines.len()
        );

        let mut second = Command::new(&self.riverlog);
        second.args(["-b", &self.bootstrap(), "produce", TOPIC, "-K", "\t"]);
        broker = self.load(second, 2, lines, broker, &mut || Ok(()))?;
        println!(
            "riverlog produce: {} flights in spite of a killed broker",
            lines.len()
        );

        self.wait_for_group()?;
        for member in &mut members[1..] {
            terminate(member.id());
            let ended = run::wait(member, PATIENCE)?;
            if !ended.is_some_and(|status| status.success()) {
                return Err(format!(
                    "a consumer ended with {ended:?}; see its log in {}",
                    self.dir.display()
                )
                .into());
            }
        }
        let ends = self.check_log(lines)?;
        self.check_members(&ends)?;
        drop(broker);
        Ok(())
    }

    /// A `riverlog` command that must succeed; what it wrote.
    fn command(&self, words: &[&str]) -> Result<String> {
        program(&self.riverlog)
            .args(["-b", &self.bootstrap(), "--timeout", "60s"])
            .args(words)
            .output()
    }

    fn member_log(&self, n: usize) -> PathBuf {
        self.dir.join(format!("member-{n}.log"))
    }

    fn member(&self, n: usize) -> Result<Child> {
        let script = place::root().join("tests/compat/python/flights.py");
        program(&self.python)
            .arg("-B")
            .arg(script)
            .args([&self.bootstrap(), TOPIC, GROUP])
            .arg(self.member_log(n))
            .spawn_logged(&self.dir.join(format!("member-{n}.out")), false)
    }

    /// Gives a producer all lines, marked with the number of the load; kills the broker while it is busy with them, and starts it
    /// again.
    fn load(
        &self,
        mut producer: Command,
        load: u32,
        lines: &[&str],
        broker: Broker,
        half_way: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Broker> {
        let out = fs::File::create(self.dir.join(format!("load-{load}.out")))?;
        let mut child = producer
            .stdin(Stdio::piped())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()?;
        let mut input = child.stdin.take().ok_or("a producer without input")?;
        let (first, second) = lines.split_at(lines.len() / 2);
        let mut give = |some: &[&str]| -> Result<()> {
            let mut text = String::new();
            for line in some {
                let marked = line.replacen('{', &format!("{{\"load\":{load},"), 1);
                text.push_str(&marked);
                text.push('\n');
            }
            Ok(input.write_all(text.as_bytes())?)
        };
        give(first)?;
        half_way()?;
        broker.kill()?;
        // What is in flight now has lost its broker; the rest comes while there is none.
        let restarted = {
            let spec = &self.spec;
            std::thread::scope(|scope| -> Result<Broker> {
                let starting = scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(500));
                    spec.start(false).map_err(|e| e.to_string())
                });
                give(second)?;
                let started = starting
                    .join()
                    .map_err(|_| "starting the broker again failed")?;
                Ok(started?)
            })?
        };
        drop(input);
        match run::wait(&mut child, PATIENCE)? {
            Some(status) if status.success() => Ok(restarted),
            Some(status) => Err(format!("the producer of load {load}: {status}").into()),
            None => {
                child.kill()?;
                child.wait()?;
                Err(format!("the producer of load {load} didn't end in {PATIENCE:?}").into())
            }
        }
    }

    /// Waits until a member has written such a line into its log.
    fn wait_for_line(&self, n: usize, kind: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let log = fs::read_to_string(self.member_log(n)).unwrap_or_default();
            if log.lines().any(|line| line.starts_with(kind)) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(format!("member {n} wrote no {kind:?} in {PATIENCE:?}").into())
    }

    fn wait_for_group(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let words = [
                "-b",
                &self.bootstrap(),
                "group",
                "lag",
                GROUP,
                "--max",
                "0",
                "-o",
                "json",
            ];
            let lag = program(&self.riverlog).args(words).outcome()?;
            if lag.ok() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!("the group has not read all:\n{}", lag.stdout).into());
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Every flight of both loads is in the log once, the flights of a carrier in their order and in one partition. Returns where
    /// the partitions end.
    fn check_log(&self, lines: &[&str]) -> Result<Vec<u64>> {
        let all = self.dir.join("all.tsv");
        let out = fs::File::create(&all)?;
        let mut reading = Command::new(&self.riverlog)
            .args([
                "-b",
                &self.bootstrap(),
                "consume",
                TOPIC,
                "--from",
                "start",
                "-e",
            ])
            .args(["-f", "%p\t%o\t%k\t%s\n"])
            .stdout(out)
            .spawn()?;
        let ended = run::wait(&mut reading, PATIENCE)?;
        if !ended.is_some_and(|status| status.success()) {
            return Err(format!("the log can't be read: {ended:?}").into());
        }
        let wanted: Vec<(&str, u64)> = lines
            .iter()
            .map(|line| flight(line).ok_or_else(|| format!("no flight: {line}")))
            .collect::<std::result::Result<_, _>>()?;
        let mut per_carrier: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (carrier, id) in wanted {
            per_carrier.entry(carrier).or_default().push(id);
        }
        let mut got: BTreeMap<(String, u32), Vec<u64>> = BTreeMap::new();
        let mut place: BTreeMap<String, usize> = BTreeMap::new();
        let mut ends = vec![0; PARTITIONS];
        for line in BufReader::new(fs::File::open(&all)?).lines() {
            let line = line?;
            let mut fields = line.splitn(3, '\t');
            let (p, o, rest) = (fields.next(), fields.next(), fields.next());
            let (Some(p), Some(o), Some(rest)) = (p, o, rest) else {
                return Err(format!("not a record: {line}").into());
            };
            let (p, o): (usize, u64) = (p.parse()?, o.parse()?);
            let end = ends.get_mut(p).ok_or("a partition too many")?;
            if *end != o {
                return Err(format!("partition {p} goes from offset {end} to {o}").into());
            }
            *end += 1;
            let (carrier, id) = flight(rest).ok_or_else(|| format!("not a flight: {rest}"))?;
            let load = number(rest, "\"load\":").ok_or_else(|| format!("of no load: {rest}"))?;
            let known = *place.entry(carrier.to_owned()).or_insert(p);
            if known != p {
                return Err(format!("carrier {carrier} is in partitions {known} and {p}").into());
            }
            let key = (carrier.to_owned(), u32::try_from(load)?);
            got.entry(key).or_default().push(id);
        }
        for (carrier, ids) in &per_carrier {
            for load in [1, 2] {
                let there = got
                    .remove(&((*carrier).to_owned(), load))
                    .unwrap_or_default();
                if there != *ids {
                    let first = there.iter().zip(ids).position(|(a, b)| a != b);
                    return Err(format!(
                        "carrier {carrier}, load {load}: {} flights in the log of {}, the first that is wrong is number {first:?}",
                        there.len(),
                        ids.len()
                    )
                    .into());
                }
            }
        }
        if let Some((key, _)) = got.first_key_value() {
            return Err(format!("the log has flights that nobody sent: {key:?}").into());
        }
        println!(
            "log: {} records, each once, {} carriers in order",
            ends.iter().sum::<u64>(),
            per_carrier.len()
        );
        Ok(ends)
    }

    /// Together the members have read every record, and each went on at the group's last commit.
    fn check_members(&self, ends: &[u64]) -> Result<()> {
        let mut read: Vec<Vec<bool>> = ends
            .iter()
            .map(|end| Ok(vec![false; usize::try_from(*end)?]))
            .collect::<Result<_>>()?;
        let (mut taken_over, mut twice) = (0, 0);
        for n in 0..3 {
            // What a member was given and has read nothing of yet: where it must begin.
            let mut begins: BTreeMap<usize, u64> = BTreeMap::new();
            let text = fs::read_to_string(self.member_log(n))?;
            // The member that was killed may have been in the middle of a line.
            let whole = text.rfind('\n').map_or(0, |at| at + 1);
            for line in text.get(..whole).unwrap_or_default().lines() {
                let mut words = line.split(' ');
                let kind = words.next().unwrap_or_default();
                if !matches!(kind, "assign" | "read") {
                    continue;
                }
                let p: usize = words.next().unwrap_or_default().parse()?;
                let offset: u64 = words.next().unwrap_or_default().parse()?;
                if kind == "assign" {
                    begins.insert(p, offset);
                    taken_over += u64::from(offset > 0);
                    continue;
                }
                if let Some(begin) = begins.remove(&p)
                    && begin != offset
                {
                    return Err(format!(
                        "member {n} was given partition {p} committed at {begin} and began at {offset}"
                    )
                    .into());
                }
                let at = read
                    .get_mut(p)
                    .and_then(|of| of.get_mut(usize::try_from(offset).ok()?));
                let at =
                    at.ok_or_else(|| format!("member {n} read offset {offset} of partition {p}"))?;
                twice += u64::from(std::mem::replace(at, true));
            }
        }
        for (p, of) in read.iter().enumerate() {
            if let Some(missed) = of.iter().position(|read| !read) {
                return Err(format!("nobody read offset {missed} of partition {p}").into());
            }
        }
        if taken_over == 0 {
            return Err("no partition was taken over by another member".into());
        }
        println!(
            "group: everything read, {twice} records twice, {taken_over} partitions taken over at their commits"
        );
        Ok(())
    }
}

/// Carrier and id of a line with a key.
fn flight(line: &str) -> Option<(&str, u64)> {
    let (carrier, json) = line.split_once('\t')?;
    Some((carrier, number(json, "\"id\":")?))
}

fn number(json: &str, name: &str) -> Option<u64> {
    let rest = json.split_once(name)?.1;
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest.get(..digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flight_is_known_by_carrier_and_id() {
        let line = "UA\t{\"load\":2,\"id\":17,\"carrier\":\"UA\",\"flight\":1}";
        assert_eq!(flight(line), Some(("UA", 17)));
        assert_eq!(number(line, "\"load\":"), Some(2));
        assert_eq!(flight("UA {}"), None);
    }
}
