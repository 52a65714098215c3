//! What an application's topology needs: which topics must be there, which the broker makes, and how many tasks follow.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::super::records::{CopartitionGroup, StreamsTopology, Subtopology, TopicInfo};

/// `MISSING_SOURCE_TOPICS` of KIP-1071.
pub const STATUS_MISSING_SOURCE_TOPICS: i8 = 1;
/// `INCORRECTLY_PARTITIONED_TOPICS`.
pub const STATUS_INCORRECTLY_PARTITIONED_TOPICS: i8 = 2;
/// `MISSING_INTERNAL_TOPICS`.
pub const STATUS_MISSING_INTERNAL_TOPICS: i8 = 3;

/// Names that a status spells out; the rest is a number.
const NAMES: usize = 10;

/// A topology whose topics fit together.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Configured {
    /// Tasks and more, by subtopology.
    pub subtopologies: BTreeMap<String, ConfiguredSubtopology>,
    /// Internal topics that are not there yet, in order of name. While there are any, no task can run.
    pub missing: Vec<TopicInfo>,
}

/// What is known of a subtopology once its topics are.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ConfiguredSubtopology {
    /// One for each partition of its largest source.
    pub tasks: i32,
    /// It keeps state, which standby tasks follow.
    pub stateful: bool,
    /// Internal topics with their partitions, by name: repartition topics that it reads, and changelogs.
    pub internal: BTreeMap<String, i32>,
}

/// Why a topology can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// For now: the group waits, and members are told this status.
    Waits(i8, String),
    /// For good: it asks for what can't be.
    Impossible(String),
}

/// Fits a topology to the topics that are there. `partitions` tells how many a topic has; `None`: there is none.
pub fn configure(
    topology: &StreamsTopology,
    partitions: &dyn Fn(&str) -> Option<i32>,
) -> Result<Configured, Misfit> {
    let missing: BTreeSet<&str> = topology
        .subtopologies
        .iter()
        .flat_map(|s| &s.source_topics)
        .map(String::as_str)
        .filter(|topic| partitions(topic).is_none())
        .collect();
    if !missing.is_empty() {
        return Err(Misfit::Waits(
            STATUS_MISSING_SOURCE_TOPICS,
            format!(
                "source topics are missing: {}; create them",
                names(missing.iter().copied())
            ),
        ));
    }
    let mut fit = Fit {
        topology,
        partitions,
        decided: BTreeMap::new(),
    };
    fit.repartition()?;
    fit.copartition()?;
    fit.changelogs();
    fit.configured()
}

/// The topology that a client describes, in the order in which it is kept: clients may list the same in any order.
pub fn normalized(mut topology: StreamsTopology) -> StreamsTopology {
    for subtopology in &mut topology.subtopologies {
        let sources = sort(&mut subtopology.source_topics, |s| s.clone());
        let patterns = sort(&mut subtopology.source_topic_regex, |s| s.clone());
        let repartition = sort(&mut subtopology.repartition_sources, |t| t.name.clone());
        subtopology.changelogs.sort_by(|a, b| a.name.cmp(&b.name));
        subtopology.repartition_sinks.sort();
        for group in &mut subtopology.copartition_groups {
            moved(&mut group.source_topics, &sources);
            moved(&mut group.source_topic_regex, &patterns);
            moved(&mut group.repartition_sources, &repartition);
        }
        subtopology.copartition_groups.sort_by(|a, b| {
            let key = |g: &CopartitionGroup| {
                (
                    g.source_topics.clone(),
                    g.source_topic_regex.clone(),
                    g.repartition_sources.clone(),
                )
            };
            key(a).cmp(&key(b))
        });
        let internal = subtopology.changelogs.iter_mut();
        for topic in internal.chain(&mut subtopology.repartition_sources) {
            topic.configs.sort();
        }
    }
    topology.subtopologies.sort_by(|a, b| a.id.cmp(&b.id));
    topology
}

/// Sorts, and says where each went.
fn sort<T, K: Ord>(items: &mut Vec<T>, key: impl Fn(&T) -> K) -> Vec<usize> {
    let mut order: Vec<(usize, T)> = std::mem::take(items).into_iter().enumerate().collect();
    order.sort_by_key(|(_, item)| key(item));
    let mut went = vec![0; order.len()];
    for (to, (from, item)) in order.into_iter().enumerate() {
        if let Some(place) = went.get_mut(from) {
            *place = to;
        }
        items.push(item);
    }
    went
}

/// Places that are none stay as they are, and are found to be so later.
fn moved(places: &mut [i16], went: &[usize]) {
    for place in places.iter_mut() {
        let to = usize::try_from(*place).ok().and_then(|at| went.get(at));
        if let Some(to) = to.and_then(|to| i16::try_from(*to).ok()) {
            *place = to;
        }
    }
    places.sort_unstable();
}

/// What is wrong with a topology by itself, whatever topics there are.
pub fn check(topology: &StreamsTopology) -> Result<(), String> {
    let mut ids = BTreeSet::new();
    for subtopology in &topology.subtopologies {
        let id = &subtopology.id;
        if !ids.insert(id) {
            return Err(format!("subtopology {id} is there twice"));
        }
        if let Some(topic) = subtopology.changelogs.iter().find(|t| t.partitions != 0) {
            return Err(format!(
                "changelog topic {} must leave its number of partitions open, but asks for {}",
                topic.name, topic.partitions
            ));
        }
        if let Some(topic) = subtopology
            .repartition_sources
            .iter()
            .find(|t| t.partitions < 0)
        {
            return Err(format!(
                "repartition topic {} asks for {} partitions; 0 leaves the number open",
                topic.name, topic.partitions
            ));
        }
        if subtopology.source_topics.is_empty() && subtopology.repartition_sources.is_empty() {
            return Err(format!("subtopology {id} has no source topics"));
        }
        let within = |places: &[i16], len: usize| {
            let mut places = places.iter();
            places.all(|at| usize::try_from(*at).is_ok_and(|at| at < len))
        };
        let fits = |group: &CopartitionGroup| {
            within(&group.source_topics, subtopology.source_topics.len())
                && within(
                    &group.source_topic_regex,
                    subtopology.source_topic_regex.len(),
                )
                && within(
                    &group.repartition_sources,
                    subtopology.repartition_sources.len(),
                )
        };
        if !subtopology.copartition_groups.iter().all(fits) {
            return Err(format!(
                "a copartition group of subtopology {id} names a topic that isn't one of its sources"
            ));
        }
    }
    Ok(())
}

fn names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(NAMES);
    let mut text = names.take(NAMES).collect::<Vec<_>>().join(", ");
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}

fn counts(counts: &BTreeMap<&str, i32>) -> String {
    let each: Vec<String> = counts
        .iter()
        .take(NAMES)
        .map(|(topic, count)| format!("{topic} has {count}"))
        .collect();
    each.join(", ")
}

/// All that a subtopology reads, but patterns.
pub(super) fn sources(subtopology: &Subtopology) -> impl Iterator<Item = &str> {
    let repartition = subtopology.repartition_sources.iter().map(|t| &*t.name);
    subtopology
        .source_topics
        .iter()
        .map(String::as_str)
        .chain(repartition)
}

struct Fit<'a> {
    topology: &'a StreamsTopology,
    partitions: &'a dyn Fn(&str) -> Option<i32>,
    /// How many partitions internal topics are to have.
    decided: BTreeMap<&'a str, i32>,
}

impl<'a> Fit<'a> {
    /// A topic's partitions: those that it is to have, or those that it has.
    fn count(&self, topic: &str) -> Option<i32> {
        let decided = self.decided.get(topic).copied();
        decided.or_else(|| (self.partitions)(topic))
    }

    /// A repartition topic has as many partitions as it asks for; or as it has already; or as the largest source of those that
    /// write to it.
    fn repartition(&mut self) -> Result<(), Misfit> {
        let mut open = BTreeSet::new();
        for topic in self
            .topology
            .subtopologies
            .iter()
            .flat_map(|s| &s.repartition_sources)
        {
            match (topic.partitions, (self.partitions)(&topic.name)) {
                (0, None) => {
                    open.insert(topic.name.as_str());
                }
                (0, Some(count)) => {
                    self.decided.insert(&topic.name, count);
                }
                (count, _) => {
                    self.decided.insert(&topic.name, count);
                }
            }
        }
        while !open.is_empty() {
            let mut found = Vec::new();
            let mut partly = Vec::new();
            for topic in &open {
                let writers = self.topology.subtopologies.iter();
                let mut feeding = writers
                    .filter(|s| s.repartition_sinks.iter().any(|sink| sink == topic))
                    .flat_map(sources)
                    .peekable();
                if feeding.peek().is_none() {
                    return Err(Misfit::Impossible(format!(
                        "repartition topic {topic} is read, but no subtopology writes to it"
                    )));
                }
                // One that is fed by another open topic waits for it, but not for ever: they may feed each other.
                let feeding = feeding.filter(|source| source != topic);
                let (waits, counted): (Vec<&str>, Vec<&str>) =
                    feeding.partition(|source| open.contains(source));
                let count = counted.into_iter().filter_map(|s| self.count(s)).max();
                if let Some(count) = count {
                    let known = if waits.is_empty() {
                        &mut found
                    } else {
                        &mut partly
                    };
                    known.push((*topic, count));
                }
            }
            if found.is_empty() {
                found = partly;
            }
            if found.is_empty() {
                return Err(Misfit::Impossible(format!(
                    "the partitions of repartition topics that feed each other can't be told: {}; give one of them a number",
                    names(open.iter().copied())
                )));
            }
            for (topic, count) in found {
                open.remove(topic);
                self.decided.insert(topic, count);
            }
        }
        Ok(())
    }

    /// Sources that are joined have as many partitions as each other; repartition topics that are free to follow do.
    fn copartition(&mut self) -> Result<(), Misfit> {
        for subtopology in &self.topology.subtopologies {
            for group in &subtopology.copartition_groups {
                self.copartition_group(subtopology, group)?;
            }
        }
        Ok(())
    }

    fn copartition_group(
        &mut self,
        subtopology: &'a Subtopology,
        group: &CopartitionGroup,
    ) -> Result<(), Misfit> {
        fn at<'b, T>(all: &'b [T], places: &[i16]) -> Vec<&'b T> {
            let places = places.iter().filter_map(|at| usize::try_from(*at).ok());
            places.filter_map(|at| all.get(at)).collect()
        }
        let external = at(&subtopology.source_topics, &group.source_topics);
        let internal = at(&subtopology.repartition_sources, &group.repartition_sources);
        let is_fixed = |topic: &TopicInfo| topic.partitions != 0;
        let must: BTreeMap<&str, i32> = match external.is_empty() {
            false => {
                let counts = external
                    .iter()
                    .filter_map(|topic| Some((topic.as_str(), self.count(topic)?)));
                counts.collect()
            }
            true => {
                let fixed = internal.iter().filter(|t| is_fixed(t));
                fixed.map(|t| (t.name.as_str(), t.partitions)).collect()
            }
        };
        let mut numbers = must.values();
        let first = numbers.next().copied();
        if numbers.any(|count| Some(*count) != first) {
            return Err(Misfit::Waits(
                STATUS_INCORRECTLY_PARTITIONED_TOPICS,
                format!(
                    "topics that are joined must have as many partitions as each other, but {}",
                    counts(&must)
                ),
            ));
        }
        let largest = internal.iter().filter_map(|t| self.count(&t.name)).max();
        let Some(count) = first.or(largest) else {
            return Ok(());
        };
        for topic in internal {
            if is_fixed(topic) && topic.partitions != count {
                return Err(Misfit::Waits(
                    STATUS_INCORRECTLY_PARTITIONED_TOPICS,
                    format!(
                        "repartition topic {} asks for {} partitions, but the sources that it is joined with have {count}",
                        topic.name, topic.partitions
                    ),
                ));
            }
            self.decided.insert(&topic.name, count);
        }
        Ok(())
    }

    /// A changelog has a partition for each task.
    fn changelogs(&mut self) {
        for subtopology in &self.topology.subtopologies {
            let tasks = self.tasks(subtopology);
            for topic in &subtopology.changelogs {
                // A source can be its own changelog.
                if !subtopology.source_topics.contains(&topic.name) {
                    self.decided.insert(&topic.name, tasks);
                }
            }
        }
    }

    fn tasks(&self, subtopology: &Subtopology) -> i32 {
        let counts = sources(subtopology).filter_map(|topic| self.count(topic));
        counts.max().unwrap_or(0)
    }

    fn configured(self) -> Result<Configured, Misfit> {
        let mut configured = Configured::default();
        let mut missing = BTreeMap::new();
        for subtopology in &self.topology.subtopologies {
            let mut internal = BTreeMap::new();
            for topic in subtopology
                .repartition_sources
                .iter()
                .chain(&subtopology.changelogs)
            {
                let Some(wanted) = self.decided.get(&*topic.name).copied() else {
                    continue;
                };
                internal.insert(topic.name.clone(), wanted);
                match (self.partitions)(&topic.name) {
                    Some(found) if found != wanted => {
                        return Err(Misfit::Waits(
                            STATUS_INCORRECTLY_PARTITIONED_TOPICS,
                            format!(
                                "topic {} has {found} partitions, but must have {wanted}; delete it, or reset the application",
                                topic.name
                            ),
                        ));
                    }
                    Some(_) => {}
                    None => {
                        let topic = TopicInfo {
                            partitions: wanted,
                            ..topic.clone()
                        };
                        missing.insert(topic.name.clone(), topic);
                    }
                }
            }
            configured.subtopologies.insert(
                subtopology.id.clone(),
                ConfiguredSubtopology {
                    tasks: self.tasks(subtopology),
                    stateful: !subtopology.changelogs.is_empty(),
                    internal,
                },
            );
        }
        configured.missing = missing.into_values().collect();
        Ok(configured)
    }
}

impl Configured {
    /// Whether tasks can run.
    pub fn is_ready(&self) -> bool {
        self.missing.is_empty()
    }

    /// What members are told while internal topics are missing.
    pub fn status(&self) -> Option<(i8, String)> {
        (!self.is_ready()).then(|| {
            let missing = self.missing.iter().map(|t| t.name.as_str());
            (
                STATUS_MISSING_INTERNAL_TOPICS,
                format!("internal topics are missing: {}", names(missing)),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, partitions: i32) -> TopicInfo {
        TopicInfo {
            name: name.to_owned(),
            partitions,
            ..TopicInfo::default()
        }
    }

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    fn sub(id: &str, sources: &[&str]) -> Subtopology {
        Subtopology {
            id: id.to_owned(),
            source_topics: strings(sources),
            ..Subtopology::default()
        }
    }

    fn fit(subtopologies: Vec<Subtopology>, topics: &[(&str, i32)]) -> Result<Configured, Misfit> {
        let topology = StreamsTopology {
            epoch: 0,
            subtopologies,
            description: None,
        };
        configure(&topology, &|name| {
            let found = topics.iter().find(|(topic, _)| *topic == name);
            found.map(|(_, count)| *count)
        })
    }

    fn missing(configured: &Configured) -> Vec<(&str, i32)> {
        let missing = configured.missing.iter();
        missing.map(|t| (t.name.as_str(), t.partitions)).collect()
    }

    /// Words → repartition topic → counts with a store.
    fn word_count() -> Vec<Subtopology> {
        let mut reads = sub("0", &["lines"]);
        reads.repartition_sinks = strings(&["by-word"]);
        let mut counts = sub("1", &[]);
        counts.repartition_sources = vec![topic("by-word", 0)];
        counts.changelogs = vec![topic("counts", 0)];
        vec![reads, counts]
    }

    #[test]
    fn a_missing_source_makes_the_group_wait() {
        let misfit = fit(word_count(), &[]).expect_err("no lines");
        assert_eq!(
            misfit,
            Misfit::Waits(
                STATUS_MISSING_SOURCE_TOPICS,
                "source topics are missing: lines; create them".to_owned()
            )
        );
    }

    #[test]
    fn internal_topics_get_the_partitions_of_what_feeds_them() {
        let configured = fit(word_count(), &[("lines", 3)]).expect("fits");
        assert_eq!(missing(&configured), [("by-word", 3), ("counts", 3)]);
        assert!(!configured.is_ready());
        let tasks = |id: &str| {
            let found = &configured.subtopologies[id];
            (found.tasks, found.stateful)
        };
        assert_eq!((tasks("0"), tasks("1")), ((3, false), (3, true)));
        let made = [("lines", 3), ("by-word", 3), ("counts", 3)];
        assert!(fit(word_count(), &made).expect("fits").is_ready());
    }

    #[test]
    fn a_repartition_topic_keeps_the_partitions_that_it_has() {
        let topics = [("lines", 3), ("by-word", 5)];
        let configured = fit(word_count(), &topics).expect("fits");
        assert_eq!(missing(&configured), [("counts", 5)]);
    }

    #[test]
    fn a_changelog_of_another_size_makes_the_group_wait() {
        let topics = [("lines", 3), ("counts", 2)];
        let misfit = fit(word_count(), &topics).expect_err("2 is not 3");
        assert!(
            matches!(misfit, Misfit::Waits(STATUS_INCORRECTLY_PARTITIONED_TOPICS, words)
                if words.starts_with("topic counts has 2 partitions, but must have 3"))
        );
    }

    #[test]
    fn joined_sources_have_as_many_partitions_as_each_other() {
        let mut join = sub("0", &["a", "b"]);
        join.repartition_sources = vec![topic("r", 0)];
        join.copartition_groups = vec![CopartitionGroup {
            source_topics: vec![0, 1],
            repartition_sources: vec![0],
            ..CopartitionGroup::default()
        }];
        let mut feeds = sub("1", &["c"]);
        feeds.repartition_sinks = strings(&["r"]);
        let all = || vec![join.clone(), feeds.clone()];
        let configured = fit(all(), &[("a", 4), ("b", 4), ("c", 9)]).expect("fits");
        assert_eq!(missing(&configured), [("r", 4)]);
        let misfit = fit(all(), &[("a", 4), ("b", 3), ("c", 9)]).expect_err("4 is not 3");
        assert_eq!(
            misfit,
            Misfit::Waits(
                STATUS_INCORRECTLY_PARTITIONED_TOPICS,
                "topics that are joined must have as many partitions as each other, but a has 4, b has 3"
                    .to_owned()
            )
        );
        let mut fixed = all();
        fixed[0].repartition_sources = vec![topic("r", 2)];
        let misfit = fit(fixed, &[("a", 4), ("b", 4), ("c", 9)]).expect_err("2 is not 4");
        assert!(matches!(
            misfit,
            Misfit::Waits(STATUS_INCORRECTLY_PARTITIONED_TOPICS, _)
        ));
    }

    #[test]
    fn joined_repartition_topics_take_the_larger_number() {
        let mut feeds = sub("0", &["a"]);
        feeds.repartition_sinks = strings(&["r"]);
        let mut more = sub("1", &["b"]);
        more.repartition_sinks = strings(&["s"]);
        let mut join = sub("2", &[]);
        join.repartition_sources = vec![topic("r", 0), topic("s", 0)];
        join.copartition_groups = vec![CopartitionGroup {
            repartition_sources: vec![0, 1],
            ..CopartitionGroup::default()
        }];
        let configured = fit(vec![feeds, more, join], &[("a", 2), ("b", 6)]).expect("fits");
        assert_eq!(missing(&configured), [("r", 6), ("s", 6)]);
    }

    #[test]
    fn repartition_topics_that_feed_each_other_can_t_be_counted() {
        let mut one = sub("0", &[]);
        one.repartition_sources = vec![topic("r", 0)];
        one.repartition_sinks = strings(&["s"]);
        let mut other = sub("1", &[]);
        other.repartition_sources = vec![topic("s", 0)];
        other.repartition_sinks = strings(&["r"]);
        let loops = fit(vec![one.clone(), other], &[]);
        assert!(matches!(loops, Err(Misfit::Impossible(_))), "{loops:?}");
        let unfed = fit(vec![one], &[]);
        assert!(matches!(unfed, Err(Misfit::Impossible(_))), "{unfed:?}");
    }

    #[test]
    fn the_same_topology_in_another_order_is_the_same() {
        let group = |places: &[i16]| CopartitionGroup {
            source_topics: places.to_vec(),
            ..CopartitionGroup::default()
        };
        let mut one = sub("0", &["a", "b", "c"]);
        one.copartition_groups = vec![group(&[0, 2])];
        let mut other = sub("0", &["c", "b", "a"]);
        other.copartition_groups = vec![group(&[0, 2])];
        let topology = |subtopologies| StreamsTopology {
            epoch: 0,
            subtopologies,
            description: None,
        };
        let last = || sub("1", &["d"]);
        let one = normalized(topology(vec![one, last()]));
        assert_eq!(one, normalized(topology(vec![last(), other.clone()])));
        other.copartition_groups = vec![group(&[0, 1])];
        assert_ne!(one, normalized(topology(vec![last(), other])));
    }
}
