//! `riverlog cluster elect`.

use std::collections::BTreeMap;

use clap::Args;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::ElectLeadersRequest;
use riverlog_wire::messages::elect_leaders_request::TopicPartitions;
use riverlog_wire::messages::metadata_response::{MetadataResponse, MetadataResponsePartition};
use serde_json::json;

use super::Context;
use crate::cli::output::Table;
use crate::client::Client;
use crate::failure::{Exit, Failure};

/// Election types by Kafka's numbers.
const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

/// Makes the first replica of each partition its leader again.
#[derive(Clone, Debug, Args)]
pub(crate) struct Elect {
    /// Only partitions of this topic
    #[arg(short, long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only this partition of it
    #[arg(short, long, requires = "topic", value_name = "N")]
    partition: Option<i32>,
    /// Where nobody leads: whichever replica is up, though it may lack records that were acknowledged. They are lost then
    #[arg(long)]
    unclean: bool,
    /// Don't ask
    #[arg(long)]
    yes: bool,
}

impl Elect {
    pub(super) fn run(
        self,
        client: &mut Client,
        metadata: &MetadataResponse,
        context: &Context,
    ) -> Result<(), Failure> {
        let wanted = self.wanted(metadata)?;
        if wanted.is_empty() {
            context.note("no partition needs it");
            return Ok(());
        }
        let count: usize = wanted.values().map(Vec::len).sum();
        if self.unclean {
            let what = format!(
                "{count} partitions are led by whichever replica is up, and lose what that one lacks"
            );
            context.confirm(self.yes, &what, "unclean")?;
        }
        let topics = wanted.into_iter();
        let answer = client.ask(&ElectLeadersRequest {
            election_type: if self.unclean { UNCLEAN } else { PREFERRED },
            topic_partitions: Some(
                topics
                    .map(|(topic, partitions)| TopicPartitions { topic, partitions })
                    .collect(),
            ),
            timeout_ms: client.timeout_ms(),
        })?;
        if answer.error_code != ErrorCode::NONE {
            return Err(Failure::kafka(
                "nothing was elected",
                answer.error_code,
                None,
            ));
        }
        let mut table = Table::new("cluster.elect", &["topic", "partition", "result"]);
        let mut failed = 0;
        for topic in answer.replica_election_results {
            for p in topic.partition_result {
                let result = match p.error_code {
                    ErrorCode::NONE => "elected".to_owned(),
                    code => {
                        failed += 1;
                        let words = p.error_message.unwrap_or_default();
                        format!("{}: {words}", code.name())
                    }
                };
                table.row(vec![
                    json!(topic.topic),
                    json!(p.partition_id),
                    json!(result),
                ]);
            }
        }
        table.print(context.output)?;
        match failed {
            0 => Ok(()),
            n if n == count => Err(Failure::silent(Exit::Finding)),
            _ => Err(Failure::silent(Exit::Partial)),
        }
    }

    /// Those that an election could change; all that are named.
    fn wanted(&self, metadata: &MetadataResponse) -> Result<BTreeMap<String, Vec<i32>>, Failure> {
        let mut wanted = BTreeMap::new();
        let named = |name: &str| self.topic.as_deref().is_none_or(|topic| topic == name);
        if let Some(topic) = &self.topic
            && !metadata
                .topics
                .iter()
                .any(|t| t.name.as_ref() == Some(topic))
        {
            return Err(
                Failure::new(Exit::NotFound, format!("there is no topic {topic:?}"))
                    .hint("`riverlog topic list` shows all"),
            );
        }
        let needs = |p: &MetadataResponsePartition| match (self.partition, self.unclean) {
            (Some(index), _) => p.partition_index == index,
            (None, true) => p.leader_id < 0,
            (None, false) => p.replica_nodes.first() != Some(&p.leader_id),
        };
        for topic in &metadata.topics {
            let name = topic.name.clone().unwrap_or_default();
            let of = topic.partitions.iter().filter(|p| needs(p));
            let mut of: Vec<i32> = of.map(|p| p.partition_index).collect();
            of.sort_unstable();
            if named(&name) && !of.is_empty() {
                wanted.insert(name, of);
            }
        }
        if let (true, Some(index)) = (wanted.is_empty(), self.partition) {
            let topic = self.topic.as_deref().unwrap_or_default();
            return Err(Failure::new(
                Exit::NotFound,
                format!("topic {topic:?} has no partition {index}"),
            ));
        }
        Ok(wanted)
    }
}
