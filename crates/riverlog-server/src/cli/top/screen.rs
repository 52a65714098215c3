//! What is drawn: lines of text, whatever they are drawn on.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::look::Shown;
use crate::cli::output::one_line;
use crate::cli::values::time_text;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Strong,
    Soft,
    Bad,
}

/// A line, no wider than the screen.
pub(super) type Line = (Style, String);

/// Which rows come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Topics by records a second, groups by lag.
    #[default]
    Busy,
    /// Topics by size, groups by what they read.
    Large,
    Name,
}

impl Order {
    pub(super) fn next(self) -> Order {
        match self {
            Order::Busy => Order::Large,
            Order::Large => Order::Name,
            Order::Name => Order::Busy,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Order::Busy => "busiest first",
            Order::Large => "largest first",
            Order::Name => "by name",
        }
    }
}

/// What has the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// Some of everything.
    #[default]
    All,
    Topics,
    Groups,
    Brokers,
}

/// How it is looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) part: Part,
    pub(super) order: Order,
    /// Rows that are passed over.
    pub(super) skip: usize,
    pub(super) paused: bool,
    /// What went wrong at the last look.
    pub(super) trouble: Option<String>,
}

/// A column: its heading, and whether its values are numbers.
type Column = (&'static str, bool);

const TOPICS: &[Column] = &[
    ("TOPIC", false),
    ("PARTITIONS", true),
    ("RECORDS/S", true),
    ("BYTES/S", true),
    ("RECORDS", true),
    ("SIZE", true),
    ("STATE", false),
];
const GROUPS: &[Column] = &[
    ("GROUP", false),
    ("STATE", false),
    ("TOPICS", true),
    ("LAG", true),
    ("READ/S", true),
    ("CAUGHT UP IN", true),
];
const BROKERS: &[Column] = &[
    ("BROKER", false),
    ("ADDRESS", false),
    ("RACK", false),
    ("LEADS", true),
    ("REPLICAS", true),
    ("SIZE", true),
    ("BYTES/S", true),
];
const KEYS: &str = "q quit  tab one list  s order  space pause  arrows scroll";

/// The lines of a screen of `width` and `height`; with no height as many as there are.
pub(super) fn lines(shown: &Shown, view: &View, width: usize, height: Option<usize>) -> Vec<Line> {
    let mut out = head(shown, view);
    let foot = usize::from(height.is_some());
    let room = height.map(|height| height.saturating_sub(out.len() + foot));
    let topics = || topics(shown, view.order);
    let groups = || groups(shown, view.order);
    let brokers = || brokers(shown);
    let more = shown.groups_total.saturating_sub(shown.groups.len());
    let note = match more {
        0 => String::new(),
        n => format!("  {n} more groups aren't looked at"),
    };
    match view.part {
        Part::All => {
            let tables = [
                (TOPICS, topics(), ""),
                (GROUPS, groups(), note.as_str()),
                (BROKERS, brokers(), ""),
            ];
            let wanted = tables.each_ref().map(|(_, rows, _)| rows.len());
            let shares = shares(room, wanted);
            for ((columns, rows, note), share) in tables.into_iter().zip(shares) {
                out.push((Style::Plain, String::new()));
                table(&mut out, columns, &rows, 0, share);
                if !note.is_empty() {
                    out.push((Style::Soft, note.to_owned()));
                }
            }
        }
        part => {
            let (columns, rows) = match part {
                Part::Groups => (GROUPS, groups()),
                Part::Brokers => (BROKERS, brokers()),
                _ => (TOPICS, topics()),
            };
            let room = room.map_or(rows.len(), |room| room.saturating_sub(2));
            // The last page stays full.
            let skip = view.skip.min(rows.len().saturating_sub(room));
            out.push((Style::Plain, String::new()));
            table(&mut out, columns, &rows, skip, room);
        }
    }
    if let Some(height) = height {
        out.truncate(height.saturating_sub(1));
        out.resize(height.saturating_sub(1), (Style::Plain, String::new()));
        out.push((Style::Soft, format!("{KEYS}  ({})", view.order.name())));
    }
    for (_, line) in &mut out {
        cut(line, width);
    }
    out
}

fn head(shown: &Shown, view: &View) -> Vec<Line> {
    let partitions: usize = shown.topics.iter().map(|t| t.partitions).sum();
    let mut out = vec![
        (
            Style::Strong,
            format!(
                "riverlog top  {}  cluster {}{}",
                time_text(shown.at),
                one_line(&shown.cluster_id),
                if view.paused { "  paused" } else { "" }
            ),
        ),
        (
            Style::Plain,
            format!(
                "{}, {}, {}, {}",
                plural(shown.brokers.len(), "broker"),
                plural(shown.topics.len(), "topic"),
                plural(partitions, "partition"),
                plural(shown.groups_total, "group")
            ),
        ),
        (
            Style::Plain,
            format!(
                "in {} records/s, {}/s; read {} records/s; lag {}",
                rate(shown.records_in),
                bytes(shown.bytes_in),
                rate(shown.read),
                count(shown.lag)
            ),
        ),
    ];
    if shown.offline + shown.under_replicated > 0 {
        out.push((
            Style::Bad,
            format!(
                "partitions: {} offline, {} under-replicated",
                shown.offline, shown.under_replicated
            ),
        ));
    }
    if let Some(trouble) = &view.trouble {
        out.push((Style::Bad, one_line(trouble)));
    }
    out
}

/// Rows for each of three tables, each with a line above and a heading: what one doesn't need the others get.
fn shares(room: Option<usize>, wanted: [usize; 3]) -> [usize; 3] {
    let Some(room) = room else { return wanted };
    let mut left = room.saturating_sub(2 * wanted.len());
    let mut shares = [0; 3];
    while left > 0 && shares != wanted {
        for (share, wanted) in shares.iter_mut().zip(wanted) {
            if *share < wanted && left > 0 {
                *share += 1;
                left -= 1;
            }
        }
    }
    shares
}

type Row = (Style, Vec<String>);

fn topics(shown: &Shown, order: Order) -> Vec<Row> {
    let mut rows: Vec<_> = shown.topics.iter().collect();
    match order {
        Order::Name => {}
        Order::Busy => rows.sort_by(|a, b| {
            let pace = |r: Option<f64>| r.unwrap_or(-1.0);
            pace(b.records_in).total_cmp(&pace(a.records_in))
        }),
        Order::Large => rows.sort_by_key(|t| std::cmp::Reverse(t.size_bytes)),
    }
    let row = |t: &super::look::TopicRow| {
        let (style, state) = match (t.offline, t.under_replicated) {
            (0, 0) => (Style::Plain, String::new()),
            (0, n) => (Style::Bad, format!("{n} under-replicated")),
            (n, _) => (Style::Bad, format!("{n} offline")),
        };
        let cells = vec![
            one_line(&t.topic),
            t.partitions.to_string(),
            rate(t.records_in),
            bytes(t.bytes_in),
            count(t.records),
            bytes(t.size_bytes.map(|n| n as f64)),
            state,
        ];
        (style, cells)
    };
    rows.into_iter().map(row).collect()
}

fn groups(shown: &Shown, order: Order) -> Vec<Row> {
    let mut rows: Vec<_> = shown.groups.iter().collect();
    match order {
        Order::Name => {}
        Order::Busy => rows.sort_by_key(|g| std::cmp::Reverse(g.lag)),
        Order::Large => rows.sort_by(|a, b| {
            let pace = |r: Option<f64>| r.unwrap_or(-1.0);
            pace(b.read).total_cmp(&pace(a.read))
        }),
    }
    let row = |g: &super::look::GroupRow| {
        let caught_up = match g.caught_up_in {
            Some(seconds) if g.lag > 0 => span(seconds),
            _ => "-".to_owned(),
        };
        let cells = vec![
            one_line(&g.group),
            one_line(&g.state),
            g.topics.to_string(),
            count(g.lag),
            rate(g.read),
            caught_up,
        ];
        (Style::Plain, cells)
    };
    rows.into_iter().map(row).collect()
}

fn brokers(shown: &Shown) -> Vec<Row> {
    let row = |b: &super::look::BrokerRow| {
        let cells = vec![
            b.broker.to_string(),
            one_line(&b.address),
            b.rack.as_deref().map_or("-".to_owned(), one_line),
            b.leads.to_string(),
            b.replicas.to_string(),
            bytes(b.size_bytes.map(|n| n as f64)),
            bytes(b.bytes_in),
        ];
        (Style::Plain, cells)
    };
    shown.brokers.iter().map(row).collect()
}

/// Appends a heading and some rows; a column is as wide as what is shown of it.
fn table(out: &mut Vec<Line>, columns: &[Column], rows: &[Row], skip: usize, most: usize) {
    let rows: Vec<&Row> = rows.iter().skip(skip).take(most).collect();
    let mut widths: Vec<usize> = columns.iter().map(|(name, _)| name.len()).collect();
    for (_, cells) in &rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.width());
        }
    }
    // A name may be longer than everything else together.
    if let Some(name) = widths.first_mut() {
        *name = (*name).min(48);
    }
    let line = |cells: &[&str]| {
        let mut line = String::new();
        for ((cell, width), (_, number)) in cells.iter().zip(&widths).zip(columns) {
            let mut cell = (*cell).to_owned();
            cut(&mut cell, *width);
            let blanks = " ".repeat(width.saturating_sub(cell.width()));
            if *number {
                line.push_str(&blanks);
                line.push_str(&cell);
            } else {
                line.push_str(&cell);
                line.push_str(&blanks);
            }
            line.push_str("  ");
        }
        line.trim_end().to_owned()
    };
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    out.push((Style::Soft, line(&names)));
    for (style, cells) in rows {
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        out.push((*style, line(&cells)));
    }
}

/// No wider than that; what is cut off shows.
fn cut(line: &mut String, width: usize) {
    if line.width() <= width {
        return;
    }
    let mut used = 0;
    let mut end = 0;
    for (at, c) in line.char_indices() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > width {
            break;
        }
        used += wide;
        end = at + c.len_utf8();
    }
    line.truncate(end);
    if width > 0 {
        line.push('…');
    }
}

fn scaled(n: f64) -> String {
    let mut n = n;
    for unit in ["", "k", "M", "G", "T"] {
        if n < 999.5 {
            return match (unit, n < 9.95) {
                ("", true) if n.fract() != 0.0 => format!("{n:.1}"),
                ("", _) => format!("{n:.0}"),
                (unit, true) => format!("{n:.1}{unit}"),
                (unit, false) => format!("{n:.0}{unit}"),
            };
        }
        n /= 1000.0;
    }
    format!("{n:.0}P")
}

fn rate(n: Option<f64>) -> String {
    n.map_or("-".to_owned(), scaled)
}

fn bytes(n: Option<f64>) -> String {
    n.map_or("-".to_owned(), |n| format!("{}B", scaled(n)))
}

fn count(n: i64) -> String {
    match n {
        0..10_000 => n.to_string(),
        n => scaled(n as f64),
    }
}

fn plural(n: usize, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

fn span(seconds: f64) -> String {
    match seconds {
        s if s < 60.0 => format!("{s:.0}s"),
        s if s < 3600.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::look::tests::look;
    use super::*;

    fn shown() -> Shown {
        let begin = Instant::now();
        let (first, second) = (
            look(begin, 1_000, 0),
            look(begin + Duration::from_secs(2), 25_000, 600),
        );
        Shown::new(Some(&first), &second)
    }

    #[test]
    fn a_screen_is_as_large_as_the_terminal_and_no_larger() {
        for (width, height) in [(80, 24), (20, 5), (200, 60), (1, 1), (40, 12)] {
            for part in [Part::All, Part::Topics, Part::Groups, Part::Brokers] {
                let view = View {
                    part,
                    skip: 1_000,
                    ..View::default()
                };
                let lines = lines(&shown(), &view, width, Some(height));
                assert_eq!(lines.len(), height, "{width} {height} {part:?}");
                for (_, line) in &lines {
                    assert!(line.width() <= width, "{line:?}");
                }
            }
        }
    }

    #[test]
    fn the_busiest_come_first_and_numbers_stand_under_each_other() {
        let text: Vec<String> = lines(&shown(), &View::default(), 100, None)
            .into_iter()
            .map(|(_, line)| line)
            .collect();
        let expected = [
            "riverlog top  2026-01-01T00:00:00.000Z  cluster c",
            "1 broker, 2 topics, 6 partitions, 1 group",
            "in 12k records/s, 1.2MB/s; read 300 records/s; lag 24k",
            "",
            "TOPIC   PARTITIONS  RECORDS/S  BYTES/S  RECORDS   SIZE  STATE",
            "orders           3        12k    1.2MB      25k  2.5MB",
            "quiet            3          0       0B        7   700B",
            "",
            "GROUP    STATE   TOPICS  LAG  READ/S  CAUGHT UP IN",
            "billing  Stable       1  24k     300             -",
            "",
            "BROKER  ADDRESS         RACK  LEADS  REPLICAS   SIZE  BYTES/S",
            "1       localhost:9092  -         5         5  2.5MB    1.2MB",
        ];
        assert_eq!(text, expected);
        let view = View {
            order: Order::Name,
            part: Part::Topics,
            skip: 1,
            ..View::default()
        };
        let text = lines(&shown(), &view, 100, Some(8));
        // Three lines above, a blank one, the heading, two rows, the keys.
        assert!(text[5].1.starts_with("orders"), "{text:?}");
    }

    #[test]
    fn what_a_broker_says_draws_nothing_else() {
        let mut shown = shown();
        shown.groups[0].group = "a\u{1b}[2J\nb\u{4e2d}\u{6587}".to_owned();
        let lines = lines(&shown, &View::default(), 100, None);
        let row = lines.iter().find(|(_, l)| l.contains("Stable")).unwrap();
        assert!(row.1.starts_with(r"a\u{1b}[2J\nb中文  Stable"), "{row:?}");
    }

    #[test]
    fn what_one_table_does_not_need_the_others_get() {
        assert_eq!(shares(Some(26), [100, 2, 1]), [17, 2, 1]);
        assert_eq!(shares(Some(3), [100, 2, 1]), [0, 0, 0]);
        assert_eq!(shares(None, [100, 2, 1]), [100, 2, 1]);
    }

    #[test]
    fn numbers_are_short() {
        for (n, text) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (7.0, "7"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (12_345.0, "12k"),
            (9_949.0, "9.9k"),
            (2.5e9, "2.5G"),
        ] {
            assert_eq!(scaled(n), text);
        }
        assert_eq!(
            [span(12.0), span(600.0), span(7200.0)],
            ["12s", "10m", "2h"]
        );
    }
}
