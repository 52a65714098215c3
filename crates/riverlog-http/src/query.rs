//! The query of a request: every name is known, and given once.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::path::decode;
use crate::problem::Problem;

/// What of a query hasn't been looked at yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    left: BTreeMap<String, String>,
    known: Vec<&'static str>,
}

impl Query {
    pub(crate) fn parse(raw: &str) -> Result<Query, Problem> {
        let mut left = BTreeMap::new();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // Forms write a space as a plus sign; a plus sign itself comes encoded.
            let (name, value) = (
                decode(&name.replace('+', " "))?,
                decode(&value.replace('+', " "))?,
            );
            if left.insert(name.clone(), value).is_some() {
                return Err(Problem::bad_request(format!(
                    "the query has {name:?} twice; give it once"
                )));
            }
        }
        Ok(Query {
            left,
            known: Vec::new(),
        })
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        self.left.remove(name)
    }

    pub(crate) fn number<T: FromStr + PartialOrd + std::fmt::Display>(
        &mut self,
        name: &'static str,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match text.parse::<T>() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(Problem::bad_request(format!(
                "{name} is {text:?}; give a number from {} to {}",
                range.start(),
                range.end()
            ))),
        }
    }

    /// `true`, `false`, or the name alone for true.
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, Problem> {
        match self.text(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(text) => Err(Problem::bad_request(format!(
                "{name} is {text:?}; give true or false"
            ))),
        }
    }

    /// One of some words, and what it stands for.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let found = choices.iter().find(|(word, _)| *word == text);
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        found.map(|(_, value)| Some(*value)).ok_or_else(|| {
            Problem::bad_request(format!(
                "{name} is {text:?}; give one of {}",
                words.join(", ")
            ))
        })
    }

    /// Nothing else may be there: a name that was mistyped changes what is asked for.
    pub(crate) fn done(self) -> Result<(), Problem> {
        let Some(name) = self.left.keys().next() else {
            return Ok(());
        };
        let near = self
            .known
            .iter()
            .map(|known| (strsim::damerau_levenshtein(known, name), *known))
            .filter(|(distance, _)| *distance <= 2)
            .min();
        let problem = Problem::bad_request(format!("the query's {name:?} isn't known here"));
        Err(match (near, self.known.as_slice()) {
            (Some((_, near)), _) => problem.hint(format!("did you mean {near}?")),
            (None, []) => problem.hint("this call takes no query"),
            (None, known) => problem.hint(format!("known are {}", known.join(", "))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_and_given_once() {
        let mut query =
            Query::parse("offset=time%3A2026-01-01T00%3A00%3A00%2B01%3A00&flag").unwrap();
        assert_eq!(
            query.text("offset").as_deref(),
            Some("time:2026-01-01T00:00:00+01:00")
        );
        assert!(query.flag("flag").unwrap());
        assert!(query.done().is_ok());
        assert!(Query::parse("a=1&a=2").is_err());
        let mut query = Query::parse("offest=1").unwrap();
        assert!(query.text("offset").is_none());
        let body = format!("{:?}", query.done().unwrap_err());
        assert!(body.contains("did you mean offset?"), "{body}");
        let mut query = Query::parse("n=11").unwrap();
        assert!(query.number("n", 1..=10).is_err());
    }
}
