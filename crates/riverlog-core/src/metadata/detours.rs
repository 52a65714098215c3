//! Which nodes don't answer what they are asked, and by way of whom they may be asked all the same.
//!
//! Two nodes that don't hear each other stay members for as long as both hear the controller: neither is silent for it, so nobody takes
//! over from one what only the other can't reach. What they ask each other then goes by way of the controller, once. A question that goes
//! round goes directly as well, and so does its answer: the nodes need not know which direction is cut, nor notice that it is whole again. So only
//! what does no harm when it comes twice, late or out of order may go round.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::BrokerId;

use super::MetadataImage;

/// After this time without an answer a question is put again, and round.
pub const UNANSWERED: Duration = Duration::from_secs(1);

/// For how long the questions to a node, and the answers to it, go round as well, after one that wasn't answered or came round.
const ROUND_FOR: Duration = Duration::from_secs(10);

/// What may go round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roundabout {
    /// Something that the other node is to answer.
    Question,
    /// The answer.
    Answer,
}

/// What one node knows of its ways to the others. Holds members only.
#[derive(Clone, Debug, Default)]
pub struct Detours {
    /// Until when what is asked of a node goes round.
    questions: BTreeMap<BrokerId, Duration>,
    /// Until when what a node is answered goes round.
    answers: BTreeMap<BrokerId, Duration>,
}

impl Detours {
    /// A node hasn't answered a question within [`UNANSWERED`]: it may not have heard it, or not be heard.
    pub fn unanswered(&mut self, node: BrokerId, image: &MetadataImage, now: Duration) {
        enter(&mut self.questions, node, image, now);
    }

    /// A question of another node has come round: that one may not hear what it is told directly.
    pub fn asked_round(&mut self, node: BrokerId, image: &MetadataImage, now: Duration) {
        enter(&mut self.answers, node, image, now);
    }

    /// By way of whom something goes as well; `None`: it goes directly, and nowhere else.
    ///
    /// - `controller`: the node that this one takes for it. Who isn't fenced is heard by it.
    pub fn way_round(
        &self,
        me: BrokerId,
        to: BrokerId,
        what: Roundabout,
        controller: Option<BrokerId>,
        now: Duration,
    ) -> Option<BrokerId> {
        let (until, forgotten) = match what {
            Roundabout::Question => (&self.questions, Mutant::QuestionsNotRound),
            Roundabout::Answer => (&self.answers, Mutant::AnswersNotRound),
        };
        let goes = until.get(&to).is_some_and(|until| now < *until) && !active(forgotten);
        let by = controller.filter(|by| goes && *by != me && *by != to);
        if by.is_some() {
            sometimes(match what {
                Roundabout::Question => Mark::AskedRound,
                Roundabout::Answer => Mark::AnsweredRound,
            });
        }
        by
    }

    /// Whether something that `from` has sent by way of `by` for `to` may be taken on: by the one in between, or by the one that is meant. All
    /// three are different members, so that nothing comes back to where it was.
    pub fn may_pass(from: BrokerId, by: BrokerId, to: BrokerId, image: &MetadataImage) -> bool {
        let all = [from, by, to];
        from != by && by != to && from != to && all.iter().all(|n| image.brokers.contains_key(n))
    }
}

fn enter(
    entries: &mut BTreeMap<BrokerId, Duration>,
    node: BrokerId,
    image: &MetadataImage,
    now: Duration,
) {
    entries.retain(|node, until| now < *until && image.brokers.contains_key(node));
    if image.brokers.contains_key(&node) {
        entries.insert(node, now.saturating_add(ROUND_FOR));
    }
}
