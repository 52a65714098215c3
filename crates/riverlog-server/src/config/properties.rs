//! The syntax of Java's `.properties` files, and of TOML with the same keys nested.

/// `(line, key, value)` of each entry, in order.
pub(super) fn parse(text: &str) -> Vec<(usize, String, String)> {
    let mut out = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let mut logical = line.trim_start().to_owned();
        if logical.is_empty() || logical.starts_with(['#', '!']) {
            continue;
        }
        // An odd number of backslashes at its end: the next line belongs to it.
        while logical.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1 {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(next.trim_start()),
                None => break,
            }
        }
        let (key, value) = split(&logical);
        out.push((number + 1, unescape(key), unescape(value)));
    }
    out
}

/// At the first `=`, `:` or blank that isn't escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == '=' || c == ':' || c.is_whitespace() {
            let (key, rest) = line.split_at(at);
            let rest = rest.trim_start();
            let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
            return (key, rest.trim_start());
        }
    }
    (line, "")
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let hex: String = chars.by_ref().take(4).collect();
                let code = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                out.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

/// The leaves of a TOML table: nested names joined by dots, lists by commas.
pub(super) fn flatten(prefix: &str, value: &toml::Value, out: &mut Vec<(String, String)>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                let path = if prefix.is_empty() {
                    name.clone()
                } else {
                    format!("{prefix}.{name}")
                };
                flatten(&path, value, out);
            }
        }
        other => out.push((prefix.to_owned(), words(other))),
    }
}

fn words(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_as_java_reads_them() {
        let text = "# a comment\n! another\n\na=1\nb : 2\nc 3\n  d = x\\\n     y\ne\\ f=\\u0041\\tz\ng\npath=c:\\\\x=y\n";
        let got: Vec<(usize, String, String)> = parse(text);
        let got: Vec<(usize, &str, &str)> = got
            .iter()
            .map(|(n, k, v)| (*n, k.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            got,
            [
                (4, "a", "1"),
                (5, "b", "2"),
                (6, "c", "3"),
                (7, "d", "xy"),
                (9, "e f", "A\tz"),
                (10, "g", ""),
                (11, "path", "c:\\x=y"),
            ]
        );
    }

    #[test]
    fn toml_keys_nest() {
        let value: toml::Value =
            toml::from_str("num.partitions = 3\n[log]\ndirs = [\"a\", \"b\"]\nretention.ms = -1\n")
                .unwrap();
        let mut out = Vec::new();
        flatten("", &value, &mut out);
        out.sort();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            out,
            [
                pair("log.dirs", "a,b"),
                pair("log.retention.ms", "-1"),
                pair("num.partitions", "3")
            ]
        );
    }
}
