//! The path of a request: cut at slashes and at the verb before anything is decoded, so that a name may hold any character.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::problem::Problem;

/// A path below `/v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Decoded.
    pub(crate) segments: Vec<String>,
    /// What follows the last colon of the last segment, as in `/v1/groups/g:reset`.
    pub(crate) verb: Option<String>,
}

/// What may follow a name behind a colon. Any other colon is part of the name.
const VERBS: &[&str] = &["reset", "commit", "abort"];

/// What a path segment may hold as it is (RFC 3986, unreserved).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A name as a segment of a path, or as a value of a query.
pub(crate) fn encode(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
}

pub(crate) fn decode(raw: &str) -> Result<String, Problem> {
    match percent_decode_str(raw).decode_utf8() {
        Ok(name) => Ok(name.into_owned()),
        Err(_) => Err(Problem::bad_request(format!(
            "{raw:?} isn't UTF-8 once its percent signs are decoded"
        ))),
    }
}

impl Target {
    /// Of the path behind `/v1/`, as it came.
    pub(crate) fn parse(path: &str) -> Result<Target, Problem> {
        let (path, verb) = match path.rsplit_once(':') {
            Some((path, verb)) if VERBS.contains(&verb) => (path, Some(verb.to_owned())),
            _ => (path, None),
        };
        let segments = path
            .split('/')
            .map(decode)
            .collect::<Result<Vec<_>, Problem>>()?;
        Ok(Target { segments, verb })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> (Vec<String>, Option<String>) {
        let target = Target::parse(path).unwrap();
        (target.segments, target.verb)
    }

    #[test]
    fn names_keep_their_slashes_colons_and_percent_signs() {
        assert_eq!(
            parse("groups/a%2Fb%3Areset"),
            (vec!["groups".into(), "a/b:reset".into()], None)
        );
        assert_eq!(
            parse("groups/a%3Ab:reset"),
            (
                vec!["groups".into(), "a:b".into()],
                Some("reset".to_owned())
            )
        );
        assert_eq!(parse("a:b:c"), (vec!["a:b:c".into()], None));
        for name in ["a/b", "100%", "ü:x", "..", "a b?c#d"] {
            let path = format!("groups/{}", encode(name));
            assert_eq!(parse(&path), (vec!["groups".into(), name.into()], None));
        }
        assert!(Target::parse("groups/%ff").is_err());
    }
}
