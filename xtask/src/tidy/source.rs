//! Rust source with everything blanked that isn't code, so that a rule finds calls and not words.

/// `text` with comments, and the insides of strings and character literals, replaced by blanks. Lines stay
/// where they are.
pub(super) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skip(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        for &c in &chars[at..end] {
            out.push(if c == '\n' { '\n' } else { ' ' });
        }
        at = end;
    }
    out
}

/// Where the comment or literal that begins at `at` ends; `at` itself when none begins there.
fn skip(chars: &[char], at: usize) -> usize {
    let next = |n: usize| chars.get(at + n).copied();
    match (chars[at], next(1)) {
        ('/', Some('/')) => until(chars, at, |c| c == '\n'),
        ('/', Some('*')) => end_of_block_comment(chars, at),
        ('"', _) => end_of_string(chars, at + 1),
        ('r', Some('"' | '#')) if !in_word(chars, at) => end_of_raw_string(chars, at),
        // A character literal, unless it is a lifetime: `'a` has no second quote after one character.
        ('\'', Some('\\')) => until(chars, at + 3, |c| c == '\'') + 1,
        ('\'', Some(_)) if next(2) == Some('\'') => at + 3,
        _ => at,
    }
    .min(chars.len())
}

/// Whether the character before `at` belongs to the same word; the `b` and `c` of byte and C strings don't.
fn in_word(chars: &[char], at: usize) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    match at.checked_sub(1).map(|i| chars[i]) {
        Some('b' | 'c') => at.checked_sub(2).is_some_and(|i| word(chars[i])),
        Some(c) => word(c),
        None => false,
    }
}

fn until(chars: &[char], from: usize, stop: impl Fn(char) -> bool) -> usize {
    (from..chars.len())
        .find(|&i| stop(chars[i]))
        .unwrap_or(chars.len())
}

fn end_of_block_comment(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            break;
        }
    }
    i
}

fn end_of_string(chars: &[char], from: usize) -> usize {
    let mut i = from;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

fn end_of_raw_string(chars: &[char], at: usize) -> usize {
    let open = until(chars, at + 1, |c| c != '#');
    if chars.get(open) != Some(&'"') {
        // A raw identifier, `r#type`.
        return at;
    }
    let hashes = open - at - 1;
    let closes = |i: usize| {
        chars[i] == '"' && chars[i + 1..].iter().take_while(|&&c| c == '#').count() >= hashes
    };
    (open + 1..chars.len())
        .find(|&i| closes(i))
        .map_or(chars.len(), |i| i + 1 + hashes)
}

/// `code` (from [`code_only`]) with the items behind `#[cfg(test)]` blanked as well.
pub(super) fn without_tests(code: &str) -> String {
    let mut out: Vec<char> = code.chars().collect();
    let mark: Vec<char> = "#[cfg(test)]".chars().collect();
    let mut i = 0;
    while i + mark.len() <= out.len() {
        if out[i..i + mark.len()] != mark[..] {
            i += 1;
            continue;
        }
        let end = end_of_item(&out, i + mark.len());
        for c in &mut out[i..end] {
            if *c != '\n' {
                *c = ' ';
            }
        }
        i = end;
    }
    out.into_iter().collect()
}

/// The end of the item that begins at `from`: its `;`, or the brace that closes its first one.
fn end_of_item(chars: &[char], from: usize) -> usize {
    let mut depth = 0usize;
    for (i, &c) in chars.iter().enumerate().skip(from) {
        match c {
            ';' if depth == 0 => return i + 1,
            '{' => depth += 1,
            '}' if depth <= 1 => return i + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    chars.len()
}

/// Whether `code` holds `needle` at `at` as a whole word: no letter, digit or underscore touches it at an
/// end where it has one itself.
pub(super) fn whole_word(code: &str, at: usize, needle: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let before = code[..at].chars().next_back();
    let after = code[at + needle.len()..].chars().next();
    let touches = |inside: Option<char>, outside: Option<char>| {
        inside.is_some_and(word) && outside.is_some_and(word)
    };
    !touches(needle.chars().next(), before) && !touches(needle.chars().next_back(), after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked_and_lines_stay() {
        let code = code_only(
            "a(); // b()\n/* c()\n /* d() */ e() */ f(\"g()\", r#\"h(\"i\")\"#, b\"j\");\nk",
        );
        assert_eq!(code.lines().count(), 4);
        for gone in ["b()", "c()", "d()", "e()", "g()", "h(", "i", "j"] {
            assert!(!code.contains(gone), "{gone} in {code}");
        }
        for kept in ["a();", "f(", ");\nk"] {
            assert!(code.contains(kept), "{kept} not in {code}");
        }
    }

    #[test]
    fn lifetimes_raw_names_and_quotes_in_characters_are_told_apart() {
        let code = code_only("fn f<'a>(x: &'a str) { r#type('\"', '\\'', 'x'); g(\"\\\"\"); h() }");
        assert!(code.contains("fn f<'a>(x: &'a str) { r#type("), "{code}");
        assert!(code.ends_with("h() }"), "{code}");
        assert!(!code.contains('x') || !code.contains("'x'"), "{code}");
    }

    #[test]
    fn an_unclosed_literal_ends_with_the_file() {
        assert_eq!(code_only("a \"b").trim_end(), "a");
        assert_eq!(code_only("a r#\"b").trim_end(), "a");
        assert_eq!(code_only("a /* b").trim_end(), "a");
        assert_eq!(code_only("a '\\").trim_end(), "a");
    }

    #[test]
    fn test_items_go_and_what_follows_stays() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { c(); } }\nfn d() {}\n#[cfg(test)]\nuse e;\nf";
        let left = without_tests(code);
        assert!(left.contains("fn a()") && left.contains("fn d()") && left.ends_with('f'));
        assert!(!left.contains('b') && !left.contains('e'), "{left}");
        assert_eq!(left.lines().count(), code.lines().count());
    }

    #[test]
    fn a_word_inside_another_is_no_match() {
        let found = |code: &str, needle: &str| {
            code.match_indices(needle)
                .any(|(at, _)| whole_word(code, at, needle))
        };
        assert!(found("x::todo!(", "todo!("));
        assert!(!found("my_todo!(", "todo!("));
        assert!(!found("unsafe_code", "unsafe"));
        assert!(found("a.await;", ".await"));
    }
}
