//! The classic group: who was given what in which generation.

use std::collections::BTreeMap;

use crate::model::Violation;

/// The group, and the topic that it reads.
pub(crate) const GROUP: &str = "classic";
/// Partitions that its leader deals out.
pub(crate) const PARTITIONS: i32 = 6;

/// What is known of the group.
#[derive(Debug, Default)]
pub(crate) struct ClassicGroup {
    /// By generation and partition: which client was given it.
    owners: BTreeMap<(i32, i32), usize>,
    /// What clients hold at the moment, and of which generation.
    held: BTreeMap<usize, (i32, Vec<i32>)>,
    /// The last offset that was sent.
    sent: i64,
}

impl ClassicGroup {
    /// An assignment reached a client.
    pub(crate) fn given(
        &mut self,
        client: usize,
        generation: i32,
        partitions: Vec<i32>,
    ) -> Result<(), Violation> {
        for partition in &partitions {
            let owner = self.owners.entry((generation, *partition));
            let owner = *owner.or_insert(client);
            if owner != client {
                return Err(Violation::new(
                    "a partition has one owner in a generation",
                    format!("{partition} in {generation}: {owner} and {client}"),
                ));
            }
        }
        self.held.insert(client, (generation, partitions));
        Ok(())
    }

    /// A client holds nothing any more.
    pub(crate) fn given_up(&mut self, client: usize) {
        self.held.remove(&client);
    }

    /// Whether all partitions are held by clients of this generation.
    pub(crate) fn is_whole(&self, generation: i32) -> bool {
        let of_it = self.held.values().filter(|(g, _)| *g == generation);
        of_it.map(|(_, partitions)| partitions.len()).sum::<usize>() == PARTITIONS as usize
    }

    /// The next offset to commit; no two commits have the same.
    pub(crate) fn next(&mut self) -> i64 {
        self.sent += 1;
        self.sent
    }
}
