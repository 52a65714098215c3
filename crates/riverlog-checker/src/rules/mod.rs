//! One file a family of promises; each rule looks at what is known and names what breaks it.

mod bounds;
mod commits;
mod polls;
mod progress;
mod sends;
mod transactions;

use crate::Anomaly;
use crate::known::Known;

type Rule = fn(&Known<'_>, &mut Vec<Anomaly>);

const RULES: &[Rule] = &[
    sends::lost,
    sends::inconsistent,
    sends::never_sent,
    sends::duplicate,
    sends::order,
    polls::order,
    polls::isolation,
    transactions::torn,
    transactions::circular,
    commits::lost,
    bounds::backwards,
    progress::unseen,
    progress::stuck,
];

pub(crate) fn all(known: &Known<'_>) -> Vec<Anomaly> {
    let mut found = Vec::new();
    for rule in RULES {
        rule(known, &mut found);
    }
    found
}
