//! Which records are wanted: what a search and a tail look for.

use memchr::memmem::Finder;
use riverlog_wire::batch::RecordView;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::query::Query;

/// As a request says it; a record must have all that is given.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Where {
    /// Bytes that stand in the key, the value, or a header.
    contains: Option<String>,
    key_eq: Option<String>,
    key_contains: Option<String>,
    value_contains: Option<String>,
    /// A header's name, or `name=value`.
    header: Option<String>,
}

impl Where {
    pub(super) fn of_query(query: &mut Query) -> Where {
        Where {
            contains: query.text("contains"),
            key_eq: query.text("key_eq"),
            key_contains: query.text("key_contains"),
            value_contains: query.text("value_contains"),
            header: query.text("header"),
        }
    }
}

/// Ready to look at records.
#[derive(Debug)]
pub(super) struct Wanted {
    contains: Option<Finder<'static>>,
    key_eq: Option<String>,
    key_contains: Option<Finder<'static>>,
    value_contains: Option<Finder<'static>>,
    header: Option<(String, Option<String>)>,
}

impl Wanted {
    pub(super) fn new(what: Where) -> Wanted {
        let finder = |text: Option<String>| text.map(|text| Finder::new(&text).into_owned());
        Wanted {
            contains: finder(what.contains),
            key_eq: what.key_eq,
            key_contains: finder(what.key_contains),
            value_contains: finder(what.value_contains),
            header: what.header.map(|text| match text.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (text, None),
            }),
        }
    }

    pub(super) fn fits(&self, record: &RecordView) -> bool {
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let within = |finder: &Option<Finder<'_>>, bytes: Option<&[u8]>| match finder {
            None => true,
            Some(finder) => bytes.is_some_and(|bytes| finder.find(bytes).is_some()),
        };
        let equal = self.key_eq.as_ref();
        equal.is_none_or(|text| key == Some(text.as_bytes()))
            && within(&self.key_contains, key)
            && within(&self.value_contains, value)
            && self.anywhere(record)
            && self.in_header(record)
    }

    fn anywhere(&self, record: &RecordView) -> bool {
        let Some(finder) = &self.contains else {
            return true;
        };
        let found = |bytes: &[u8]| finder.find(bytes).is_some();
        record.key.as_deref().is_some_and(found)
            || record.value.as_deref().is_some_and(found)
            || record
                .headers
                .refs()
                .iter()
                .any(|(name, value)| found(name) || value.is_some_and(found))
    }

    fn in_header(&self, record: &RecordView) -> bool {
        let Some((wanted, text)) = &self.header else {
            return true;
        };
        record.headers.refs().iter().any(|(name, value)| {
            let fits = |text: &String| value.is_some_and(|value| value == text.as_bytes());
            name == wanted.as_bytes() && text.as_ref().is_none_or(fits)
        })
    }
}
