//! Groups of the classic and of the newer protocol, and one that moves between them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use krafka::Record;
use krafka::consumer::{
    AutoOffsetReset, Consumer, ConsumerRecord, GroupProtocol, PartitionAssignmentStrategy,
};
use tokio::task::JoinHandle;

use riverlog_compat_harness::{Outcome, Until, same};

use crate::{Cases, connect, text};

const POLL: Duration = Duration::from_millis(500);
const FETCH_WAIT: Duration = Duration::from_millis(100);

/// A group, what it reads, and how.
pub(crate) struct How {
    group: String,
    topic: String,
    protocol: GroupProtocol,
    strategy: PartitionAssignmentStrategy,
}

impl How {
    pub(crate) fn classic(cases: &Cases) -> How {
        How {
            group: format!("{}-group", cases.prefix),
            topic: format!("{}-g", cases.prefix),
            protocol: GroupProtocol::Classic,
            strategy: PartitionAssignmentStrategy::Range,
        }
    }

    /// KIP-848: the broker assigns, and says how often to call.
    pub(crate) fn consumer(cases: &Cases) -> How {
        How {
            group: format!("{}-group-848", cases.prefix),
            topic: format!("{}-g-848", cases.prefix),
            protocol: GroupProtocol::Consumer,
            ..How::classic(cases)
        }
    }
}

/// A member that reads until it is stopped. Each has a task of its own: one that joins waits for the others to join too, whatever it was asked
/// to wait.
struct Member {
    consumer: Arc<Consumer>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<krafka::Result<()>>,
}

impl Member {
    fn start(consumer: Consumer, got: &Arc<Mutex<Vec<ConsumerRecord>>>) -> Member {
        let consumer = Arc::new(consumer);
        let stop = Arc::new(AtomicBool::new(false));
        let (reader, stopped, got) = (consumer.clone(), stop.clone(), got.clone());
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                let records = reader.poll(POLL).await?;
                got.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend(records);
            }
            Ok(())
        });
        Member {
            consumer,
            stop,
            task,
        }
    }

    /// Commits what it has read, and leaves.
    async fn leave(mut self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        (&mut self.task).await??;
        self.consumer.commit().await?;
        Ok(self.consumer.close().await?)
    }
}

impl Drop for Member {
    /// What went wrong with one case is nothing to the next.
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Members, and what they have read.
#[derive(Default)]
struct Members {
    members: Vec<Member>,
    got: Arc<Mutex<Vec<ConsumerRecord>>>,
}

impl Members {
    /// Whether they have so many partitions each.
    async fn spread(&mut self, sizes: &[usize]) -> Outcome<bool> {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut held = Vec::new();
        for member in &mut self.members {
            if member.task.is_finished() {
                (&mut member.task).await??;
            }
            let assignment = member.consumer.assignment().await;
            held.push(assignment.values().map(Vec::len).sum::<usize>());
        }
        held.sort_unstable();
        Ok(held == sizes)
    }

    async fn until(&mut self, what: &str, sizes: &[usize]) -> Outcome {
        let until = Until::new(what);
        while !self.spread(sizes).await? {
            until.check()?;
        }
        Ok(())
    }

    async fn leave(self) -> Outcome {
        for member in self.members {
            member.leave().await?;
        }
        Ok(())
    }

    fn numbers(&self) -> Vec<i32> {
        let got = self.got.lock().unwrap_or_else(PoisonError::into_inner);
        let values = got.iter().map(|record| text(&record.value));
        values.filter_map(|value| value.parse().ok()).collect()
    }
}

impl Cases {
    async fn member(&self, how: &How) -> Outcome<Consumer> {
        // With a connection of its own: a join that waits for the others would hold them up on one that they share.
        let member = connect(&self.bootstrap)
            .await?
            .consumer(&how.group)
            .auto_offset_reset(AutoOffsetReset::Earliest)
            .enable_auto_commit(false)
            .fetch_max_wait(FETCH_WAIT)
            .group_protocol(how.protocol);
        // The newer protocol has the broker say how often to call, and who gets what.
        let member = match how.protocol {
            GroupProtocol::Classic => member
                .session_timeout(Duration::from_secs(6))
                .heartbeat_interval(Duration::from_millis(300))
                .partition_assignment_strategy(how.strategy),
            _ => member,
        };
        let member = member.build().await?;
        member.subscribe([&how.topic]).await?;
        Ok(member)
    }

    async fn produce_numbers(&self, topic: &str, from: i32, to: i32) -> Outcome {
        let record = |n: i32| Record::new(topic, n.to_string()).key("k").partition(n % 4);
        self.produce((from..to).map(record).collect()).await
    }

    async fn joins(&self, all: &mut Members, how: &How) -> Outcome {
        let member = self.member(how).await?;
        all.members.push(Member::start(member, &all.got));
        Ok(())
    }

    pub(crate) async fn rebalance(&self, how: &How) -> Outcome {
        self.create(&how.topic, 4).await?;
        let mut all = Members::default();
        self.joins(&mut all, how).await?;
        all.until("all partitions for the first", &[4]).await?;
        self.joins(&mut all, how).await?;
        all.until("two partitions each", &[2, 2]).await?;
        self.produce_numbers(&how.topic, 0, 40).await?;
        let until = Until::new("40 records");
        while !all.spread(&[2, 2]).await? || all.numbers().len() < 40 {
            until.check()?;
        }
        let mut numbers = all.numbers();
        numbers.sort_unstable();
        same(numbers, (0..40).collect(), "records")?;
        if let Some(second) = all.members.pop() {
            second.leave().await?;
        }
        all.until("all partitions back", &[4]).await?;
        all.leave().await
    }

    pub(crate) async fn resumes(&self, how: &How) -> Outcome {
        let new = Record::new(&how.topic, "new").key("k").partition(1);
        self.produce(vec![new]).await?;
        let reader = self.member(how).await?;
        let until = Until::new("the new record");
        let mut found = Vec::new();
        while found.is_empty() {
            until.check()?;
            found.extend(reader.poll(POLL).await?);
        }
        // Of one that isn't a member yet the broker takes no question in its name.
        let all: Vec<(&str, i32)> = (0..4).map(|p| (how.topic.as_str(), p)).collect();
        let committed = reader.committed(&all).await?;
        let offsets: Vec<i64> = committed.values().map(|c| c.offset).collect();
        same(offsets, vec![10; 4], "committed offsets")?;
        reader.close().await?;
        let found = found
            .first()
            .map(|r| (r.partition, r.offset, text(&r.value)));
        same(found, Some((1, 10, "new".to_owned())), "record")
    }

    /// Two members, one after the other restarted with the newer protocol and then with the older one again, while records come.
    pub(crate) async fn moves(&self, cooperative: bool) -> Outcome {
        let kind = if cooperative { "-cooperative" } else { "" };
        let older = How {
            group: format!("{}-group-moves{kind}", self.prefix),
            topic: format!("{}-g-moves{kind}", self.prefix),
            protocol: GroupProtocol::Classic,
            strategy: match cooperative {
                true => PartitionAssignmentStrategy::CooperativeSticky,
                false => PartitionAssignmentStrategy::Range,
            },
        };
        let newer = How {
            group: older.group.clone(),
            topic: older.topic.clone(),
            protocol: GroupProtocol::Consumer,
            ..older
        };
        self.create(&older.topic, 4).await?;
        let mut all = Members::default();
        for _ in 0..2 {
            self.joins(&mut all, &older).await?;
        }
        let mut sent = 0;
        self.more(&mut all, &older.topic, &mut sent).await?;
        // The first in the row is always the one that has gone longest without a restart.
        for how in [&newer, &newer, &older, &older] {
            all.members.remove(0).leave().await?;
            self.joins(&mut all, how).await?;
            self.more(&mut all, &older.topic, &mut sent).await?;
        }
        // Who was given a partition without a commit reads again what the one before had read.
        let places: Vec<(&str, i32)> = (0..4).map(|p| (older.topic.as_str(), p)).collect();
        let until = Until::new("all committed");
        loop {
            all.spread(&[2, 2]).await?;
            for member in &all.members {
                member.consumer.commit().await?;
            }
            let committed = all.members[0].consumer.committed(&places).await?;
            if committed.len() == 4 && committed.values().all(|c| c.offset == 25) {
                break;
            }
            until.check()?;
        }
        all.leave().await
    }

    /// Twenty records more, and everyone has read what there is.
    async fn more(&self, all: &mut Members, topic: &str, sent: &mut i32) -> Outcome {
        self.produce_numbers(topic, *sent, *sent + 20).await?;
        *sent += 20;
        let until = Until::new(&format!("two partitions each, and {sent} records"));
        loop {
            let even = all.spread(&[2, 2]).await?;
            let read: BTreeSet<i32> = all.numbers().into_iter().collect();
            if even && read.len() as i32 == *sent {
                return Ok(());
            }
            until.check()?;
        }
    }

    pub(crate) async fn groups_listed(&self) -> Outcome {
        let group = format!("{}-group", self.prefix);
        let admin = self.kafka.admin();
        let mut listed = false;
        for (_, groups) in admin.list_consumer_groups(Default::default()).await? {
            listed |= groups?.iter().any(|g| g.group_id == group);
        }
        same(listed, true, "the group is listed")?;
        let described = admin.describe_consumer_groups([&group], Default::default());
        for (_, described) in described.await? {
            let described = described?;
            let found = (described.state.as_str(), described.members.len());
            same(found, ("Empty", 0), "state and members")?;
        }
        Ok(())
    }
}
