//! Topic patterns, judged by the server (KIP-848): RE2 syntax, and the whole name must match.

use regex_lite::{Regex, RegexBuilder};

/// Bytes of a compiled pattern. Matching takes time in proportion to it, for each topic there is, and patterns come from
/// anybody; a legal topic name has 249 characters, so honest patterns are far below.
const SIZE_LIMIT: usize = 32 << 10;

/// A pattern that matches whole names.
#[derive(Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// `None` when it is broken or too large. Topic names are ASCII, so Unicode classes (`\p{…}`) are not known.
    pub(crate) fn new(text: &str) -> Option<Pattern> {
        // First on its own: "a)|(b" is broken, but would be whole between our parentheses.
        let compile = |text: &str| RegexBuilder::new(text).size_limit(SIZE_LIMIT).build().ok();
        compile(text)?;
        compile(&format!("^(?:{text})$")).map(Pattern)
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        let orders = Pattern::new("orders-(eu|us)").unwrap();
        assert!(orders.matches("orders-eu"));
        assert!(!orders.matches("orders-eu2"));
        assert!(!orders.matches("my-orders-eu"));
        let either = Pattern::new("a|ab").unwrap();
        assert!(either.matches("a") && either.matches("ab"));
        assert!(!either.matches("abc"));
        assert!(Pattern::new("").unwrap().matches(""));
        assert!(!Pattern::new("").unwrap().matches("a"));
        assert!(Pattern::new("(?i)ORDERS").unwrap().matches("orders"));
    }

    #[test]
    fn a_broken_or_huge_pattern_is_refused() {
        for text in ["[", "a)|(b", "(?P<n", "*", "a{2,1}", "((a{100}){100}){100}"] {
            assert!(Pattern::new(text).is_none(), "{text}");
        }
    }
}
