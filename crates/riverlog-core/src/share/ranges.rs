//! Values by ranges of offsets.

use std::collections::BTreeMap;

/// Disjoint ranges of offsets with a value each. Neighbours with equal values are one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranges<V> {
    /// Last offset and value, by the first offset.
    by_first: BTreeMap<i64, (i64, V)>,
}

impl<V> Default for Ranges<V> {
    fn default() -> Self {
        Ranges {
            by_first: BTreeMap::new(),
        }
    }
}

impl<V: Clone + PartialEq> Ranges<V> {
    /// All, in order: first, last, value.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, i64, &V)> {
        self.by_first.iter().map(|(f, (l, v))| (*f, *l, v))
    }

    /// What lies in `first..=last`, cut to it, in order.
    pub(super) fn within(&self, first: i64, last: i64) -> impl Iterator<Item = (i64, i64, &V)> {
        let from = self.by_first.range(..=first).next_back();
        let from = from.map_or(first, |(f, _)| *f);
        // An empty range is one that nothing lies in.
        let until = last.max(from);
        let near = self.by_first.range(from..=until);
        near.filter(move |(f, (l, _))| first <= last && *l >= first && **f <= last)
            .map(move |(f, (l, v))| ((*f).max(first), (*l).min(last), v))
    }

    /// Takes out what lies in `first..=last`, cut to it.
    pub(super) fn take(&mut self, first: i64, last: i64) -> Vec<(i64, i64, V)> {
        let taken: Vec<(i64, i64, V)> = self
            .within(first, last)
            .map(|(f, l, v)| (f, l, v.clone()))
            .collect();
        for (f, l, _) in &taken {
            let Some((&from, (until, value))) = self.by_first.range(..=*f).next_back() else {
                continue;
            };
            let (until, value) = (*until, value.clone());
            self.by_first.remove(&from);
            if from < *f {
                self.by_first.insert(from, (*f - 1, value.clone()));
            }
            if until > *l {
                self.by_first.insert(*l + 1, (until, value));
            }
        }
        taken
    }

    /// Puts a range where there is none.
    pub(super) fn put(&mut self, mut first: i64, mut last: i64, value: V) {
        if let Some((&before, (end, same))) = self.by_first.range(..first).next_back()
            && end.checked_add(1) == Some(first)
            && *same == value
        {
            self.by_first.remove(&before);
            first = before;
        }
        if let Some(next) = last.checked_add(1)
            && let Some((end, same)) = self.by_first.get(&next)
            && *same == value
        {
            last = *end;
            self.by_first.remove(&next);
        }
        self.by_first.insert(first, (last, value));
    }

    /// The first range of all.
    pub(super) fn first(&self) -> Option<(i64, i64, &V)> {
        self.iter().next()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a value for each offset.
        #[test]
        fn ranges_say_what_single_offsets_say(
            steps in prop::collection::vec((0i64..40, 0i64..12, 0u8..3, any::<bool>()), 1..60)
        ) {
            let mut ranges = Ranges::default();
            let mut model: BTreeMap<i64, u8> = BTreeMap::new();
            for (first, len, value, put) in steps {
                let last = first + len;
                let taken = ranges.take(first, last);
                let mut was: BTreeMap<i64, u8> = BTreeMap::new();
                for (f, l, v) in taken {
                    prop_assert!(first <= f && f <= l && l <= last);
                    was.extend((f..=l).map(|at| (at, v)));
                }
                let expected: BTreeMap<i64, u8> =
                    model.range(first..=last).map(|(at, v)| (*at, *v)).collect();
                prop_assert_eq!(was, expected);
                model.retain(|at, _| !(first..=last).contains(at));
                if put {
                    ranges.put(first, last, value);
                    model.extend((first..=last).map(|at| (at, value)));
                }
                let mut flat = BTreeMap::new();
                let mut before: Option<(i64, u8)> = None;
                for (f, l, v) in ranges.iter() {
                    prop_assert!(before != Some((f - 1, *v)), "two neighbours are equal");
                    before = Some((l, *v));
                    flat.extend((f..=l).map(|at| (at, *v)));
                }
                prop_assert_eq!(&flat, &model);
                let mut seen = BTreeMap::new();
                for (f, l, v) in ranges.within(first, last) {
                    seen.extend((f..=l).map(|at| (at, *v)));
                }
                let near: BTreeMap<i64, u8> =
                    model.range(first..=last).map(|(at, v)| (*at, *v)).collect();
                prop_assert_eq!(seen, near);
            }
        }
    }
}
