//! How results are written: a table for people, tabs for pipes, JSON in an envelope with a version.

use std::io::{IsTerminal, Write};

use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// The form of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Columns for people.
    Table,
    /// More columns.
    Wide,
    /// One JSON document: kind, version, data.
    Json,
    /// One JSON object a line.
    Ndjson,
    /// As json, in YAML.
    Yaml,
    /// The first column alone.
    Name,
}

/// Version of the JSON envelope.
const ENVELOPE: u32 = 1;

/// Rows with named columns.
#[derive(Debug)]
pub(crate) struct Table {
    kind: &'static str,
    /// A name that begins with `+` is shown by `wide` and JSON only.
    columns: &'static [&'static str],
    rows: Vec<Vec<Value>>,
}

impl Table {
    pub(crate) fn new(kind: &'static str, columns: &'static [&'static str]) -> Table {
        Table {
            kind,
            columns,
            rows: Vec::new(),
        }
    }

    /// A row has a value for each column.
    pub(crate) fn row(&mut self, values: Vec<Value>) {
        debug_assert_eq!(values.len(), self.columns.len());
        self.rows.push(values);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes it to standard output.
    pub(crate) fn print(&self, output: Option<Output>) -> Result<(), Failure> {
        self.print_on(output, true)
    }

    /// Writes it to standard output; one of a row of tables goes on below the first without `heading`.
    pub(crate) fn print_on(&self, output: Option<Output>, heading: bool) -> Result<(), Failure> {
        let terminal = std::io::stdout().is_terminal();
        let mut text = self.text(output, terminal);
        let has_heading = match output {
            Some(Output::Table | Output::Wide) => true,
            None => terminal,
            Some(_) => false,
        };
        if has_heading && !heading {
            text = text
                .split_once('\n')
                .map_or(String::new(), |(_, rows)| rows.to_owned());
        }
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|e| Failure::stdout(&e))
    }

    fn text(&self, output: Option<Output>, terminal: bool) -> String {
        match output {
            Some(Output::Json) => format!("{:#}\n", self.envelope()),
            Some(Output::Yaml) => yaml_of(&self.envelope()),
            Some(Output::Ndjson) => self.objects().map(|o| format!("{o}\n")).collect(),
            Some(Output::Name) => self
                .rows
                .iter()
                .filter_map(|r| r.first())
                .map(|v| format!("{}\n", plain(v)))
                .collect(),
            Some(form @ (Output::Table | Output::Wide)) => self.table(form == Output::Wide),
            None if terminal => self.table(false),
            None => {
                let shown = self.shown(false);
                let line = |row: &Vec<Value>| {
                    shown
                        .iter()
                        .filter_map(|i| row.get(*i))
                        .map(plain)
                        .collect::<Vec<_>>()
                        .join("\t")
                        + "\n"
                };
                self.rows.iter().map(line).collect()
            }
        }
    }

    fn shown(&self, wide: bool) -> Vec<usize> {
        (0..self.columns.len())
            .filter(|i| wide || !self.columns[*i].starts_with('+'))
            .collect()
    }

    fn table(&self, wide: bool) -> String {
        let shown = self.shown(wide);
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        let heading = |i: &usize| {
            self.columns[*i]
                .trim_start_matches('+')
                .to_uppercase()
                .replace('_', " ")
        };
        table.set_header(shown.iter().map(heading));
        for row in &self.rows {
            table.add_row(shown.iter().filter_map(|i| row.get(*i)).map(plain));
        }
        let text = table.to_string();
        text.lines()
            .map(|line| {
                format!(
                    "{}\n",
                    line.trim_end().strip_prefix(' ').unwrap_or(line.trim_end())
                )
            })
            .collect()
    }

    fn objects(&self) -> impl Iterator<Item = Value> {
        self.rows.iter().map(|row| {
            let pairs = self
                .columns
                .iter()
                .zip(row)
                .map(|(name, value)| (name.trim_start_matches('+').to_owned(), value.clone()));
            Value::Object(pairs.collect::<Map<_, _>>())
        })
    }

    fn envelope(&self) -> Value {
        envelope(self.kind, &self.objects().collect())
    }
}

/// A document as programs get it.
pub(crate) fn envelope(kind: &str, data: &Value) -> Value {
    json!({ "kind": kind, "version": ENVELOPE, "data": data })
}

/// A document as YAML.
pub(crate) fn yaml_of(value: &Value) -> String {
    let mut out = String::new();
    yaml(value, 0, &mut out);
    out
}

/// A value in a cell.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        // Names are data: one row is one line, whatever they hold.
        Value::String(text) => one_line(text),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Control characters as escapes.
pub(crate) fn one_line(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    let shown = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(shown).collect()
}

fn yaml(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        out.push_str(&format!("{indent}{name}:\n"));
                        yaml(value, depth + 1, out);
                    }
                    Value::Array(inner) if !inner.is_empty() => {
                        out.push_str(&format!("{indent}{name}:\n"));
                        yaml(value, depth, out);
                    }
                    // A scalar of JSON is one of YAML.
                    scalar => out.push_str(&format!("{indent}{name}: {scalar}\n")),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                if matches!(item, Value::Object(o) if !o.is_empty()) {
                    let mut inner = String::new();
                    yaml(item, depth + 1, &mut inner);
                    let inner = inner
                        .strip_prefix(&"  ".repeat(depth + 1))
                        .unwrap_or(&inner);
                    out.push_str(&format!("{indent}- {inner}"));
                } else {
                    out.push_str(&format!("{indent}- {item}\n"));
                }
            }
        }
        scalar => out.push_str(&format!("{indent}{scalar}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("topic.list", &["name", "partitions", "+id"]);
        table.row(vec![json!("orders"), json!(3), json!("x")]);
        table.row(vec![json!("a"), json!(null), json!([1, 2])]);
        table
    }

    #[test]
    fn people_get_columns_and_pipes_get_tabs() {
        assert_eq!(
            table().text(None, true),
            "NAME    PARTITIONS\norders  3\na       -\n"
        );
        assert_eq!(table().text(None, false), "orders\t3\na\t-\n");
        assert_eq!(table().text(Some(Output::Name), true), "orders\na\n");
    }

    #[test]
    fn a_row_is_one_line_whatever_a_name_holds() {
        let mut table = Table::new("group.list", &["group", "state"]);
        table.row(vec![json!("a\nb\tc\u{1b}[31m"), json!("Empty")]);
        for (form, terminal) in [(None, false), (None, true), (Some(Output::Name), false)] {
            let text = table.text(form, terminal);
            assert!(text.contains(r"a\nb\tc\u{1b}[31m"), "{text}");
            let lines = if terminal { 2 } else { 1 };
            assert_eq!(text.lines().count(), lines, "{text}");
        }
    }

    #[test]
    fn programs_get_an_envelope() {
        let value: Value = serde_json::from_str(&table().text(Some(Output::Json), true)).unwrap();
        assert_eq!(value["kind"], "topic.list");
        assert_eq!(value["version"], 1);
        assert_eq!(value["data"][1]["id"], json!([1, 2]));
        let yaml = table().text(Some(Output::Yaml), true);
        assert_eq!(
            yaml,
            "data:\n- id: \"x\"\n  name: \"orders\"\n  partitions: 3\n- id:\n  - 1\n  - 2\n  name: \"a\"\n  partitions: null\nkind: \"topic.list\"\nversion: 1\n"
        );
        assert_eq!(table().text(Some(Output::Ndjson), false).lines().count(), 2);
    }
}
