//! Share groups: each record is accepted once, and what nobody takes is put aside.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use krafka::Record;
use krafka::admin::NewTopic;
use krafka::consumer::IsolationLevel;
use krafka::share_consumer::{AcknowledgementMode, ShareConsumer};
use riverlog_compat_harness::{Outcome, Until, same};

use crate::{Cases, text};

const POLL: Duration = Duration::from_millis(200);
const COUNT: usize = 1_000;

/// What the members have made of each record, by its number.
#[derive(Default)]
struct Shared {
    accepted: BTreeMap<usize, usize>,
    rejected: BTreeSet<usize>,
}

impl Shared {
    fn is_whole(&self) -> bool {
        self.accepted.len() + self.rejected.len() >= COUNT
    }
}

impl Cases {
    async fn sharing(&self, group: &str, topic: &str) -> Outcome<ShareConsumer> {
        let member = self
            .kafka
            .share_consumer(group)
            .acknowledgement_mode(AcknowledgementMode::Explicit)
            .max_poll_records(50)
            .build()
            .await?;
        member.subscribe([topic]).await?;
        Ok(member)
    }

    /// Takes records until all are done with; `leaves`: goes with the first ones in hand.
    async fn share(
        &self,
        group: &str,
        topic: &str,
        leaves: bool,
        shared: &RefCell<Shared>,
    ) -> Outcome {
        let member = self.sharing(group, topic).await?;
        while !shared.borrow().is_whole() {
            let records = member.poll(POLL).await?;
            if leaves && !records.is_empty() {
                break;
            }
            let (mut accepted, mut rejected) = (Vec::new(), Vec::new());
            for record in &records {
                let n: usize = text(&record.value).parse()?;
                if n % 10 == 0 && record.delivery_count == Some(1) {
                    member.release(record)?;
                } else if n % 97 == 1 {
                    member.reject(record)?;
                    rejected.push(n);
                } else {
                    member.ack(record)?;
                    accepted.push(n);
                }
            }
            for (_, outcome) in member.commit().await? {
                outcome?;
            }
            let mut shared = shared.borrow_mut();
            for n in accepted {
                *shared.accepted.entry(n).or_default() += 1;
            }
            shared.rejected.extend(rejected);
        }
        Ok(member.close().await?)
    }

    pub(crate) async fn share_group(&self) -> Outcome {
        let topic = format!("{}-share", self.prefix);
        let group = format!("{}-shared", self.prefix);
        self.create(&topic, 4).await?;
        self.configure(&group, &[("share.auto.offset.reset", "earliest")])
            .await?;
        let record = |n: usize| Record::new(&topic, n.to_string()).partition((n % 4) as i32);
        self.produce((0..COUNT).map(record).collect()).await?;
        let shared = RefCell::new(Shared::default());
        let (a, b, c) = tokio::join!(
            self.share(&group, &topic, true, &shared),
            self.share(&group, &topic, false, &shared),
            self.share(&group, &topic, false, &shared),
        );
        a?;
        b?;
        c?;
        let shared = shared.into_inner();
        let expected = (0..COUNT).filter(|n| n % 97 == 1).collect();
        same(&shared.rejected, &expected, "rejected")?;
        same(shared.accepted.len(), COUNT - expected.len(), "accepted")?;
        let twice = shared.accepted.values().filter(|times| **times > 1).count();
        same(twice, 0, "accepted more than once")?;
        let late = self.sharing(&group, &topic).await?;
        for _ in 0..5 {
            same(late.poll(POLL).await?.len(), 0, "what comes again")?;
        }
        Ok(late.close().await?)
    }

    /// What a member rejects, and what is given back too often, is found in a topic of its own, with where it was.
    pub(crate) async fn dead_letters(&self) -> Outcome {
        let topic = format!("{}-letters", self.prefix);
        let group = format!("{}-letters-group", self.prefix);
        let letters = format!("dlq.{}", self.prefix);
        self.create(&topic, 1).await?;
        let allowed = NewTopic::new(&letters, 1, 1)?;
        let allowed = allowed.with_config("errors.deadletterqueue.group.enable", "true");
        self.create_with(allowed).await?;
        let settings = [
            ("share.auto.offset.reset", "earliest"),
            ("errors.deadletterqueue.topic.name", &letters),
            ("errors.deadletterqueue.copy.record.enable", "true"),
            ("share.delivery.count.limit", "2"),
        ];
        self.configure(&group, &settings).await?;
        let record = |n: usize| Record::new(&topic, n.to_string()).partition(0);
        self.produce((0..6).map(record).collect()).await?;
        // 0 and 3 are rejected, 1 and 4 given back each time, 2 and 5 accepted.
        let mut times: BTreeMap<usize, usize> = BTreeMap::new();
        let member = self.sharing(&group, &topic).await?;
        let until = Until::new("six records, two of them twice");
        while times.values().sum::<usize>() < 8 {
            until.check()?;
            for record in &member.poll(POLL).await? {
                let n: usize = text(&record.value).parse()?;
                *times.entry(n).or_default() += 1;
                match n % 3 {
                    0 => member.reject(record)?,
                    1 => member.release(record)?,
                    _ => member.ack(record)?,
                }
            }
            for (_, outcome) in member.commit().await? {
                outcome?;
            }
        }
        member.close().await?;
        let expected = BTreeMap::from([(0, 1), (1, 2), (2, 1), (3, 1), (4, 2), (5, 1)]);
        same(times, expected, "how often each came")?;
        let mut found = Vec::new();
        for letter in self
            .read(&letters, 4, 0, IsolationLevel::ReadUncommitted)
            .await?
        {
            let said = |name: &str| {
                let name = format!("__dlq.errors.{name}");
                letter.header_str(&name).unwrap_or_default().to_owned()
            };
            found.push(format!(
                "{} {} {}@{} {} {}",
                text(&letter.value),
                said("topic") == topic,
                said("partition"),
                said("offset"),
                said("group") == group,
                said("delivery.count"),
            ));
        }
        found.sort();
        let expected = [
            "0 true 0@0 true 1",
            "1 true 0@1 true 2",
            "3 true 0@3 true 1",
            "4 true 0@4 true 2",
        ];
        same(found, expected.map(str::to_owned).to_vec(), "letters")
    }
}
