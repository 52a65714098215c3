//! `riverlog group watch`: how a group gets on, a line a moment.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::describe::described;
use super::lag::{Row, rows};
use crate::cli::output::Table;
use crate::cli::values::{duration, now_ms, time_text};
use crate::cli::{Context, interrupt};
use crate::failure::Failure;

/// How soon a wait notices Ctrl-C.
const NAP: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, Args)]
pub(crate) struct Watch {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,
    /// From one look to the next
    #[arg(short, long, default_value = "1s", value_parser = duration)]
    interval: Duration,
    /// Looks, then end; on until Ctrl-C without
    #[arg(short, long, value_name = "N")]
    count: Option<u32>,
}

/// What all partitions come to.
#[derive(Clone, Copy, Default)]
struct Sums {
    committed: i64,
    end: i64,
    lag: i64,
    behind: f64,
}

impl Sums {
    fn of(rows: &[Row], now: i64) -> Sums {
        let mut sums = Sums::default();
        for row in rows {
            if let (Some(committed), Some((_, end)), Some(lag)) =
                (row.committed, row.bounds, row.lag())
            {
                sums.committed += committed;
                sums.end += end;
                sums.lag += lag;
                sums.behind = sums.behind.max(row.behind(now).unwrap_or(0.0));
            }
        }
        sums
    }
}

impl Watch {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        interrupt::watch();
        let mut client = context.client()?;
        let mut before: Option<(Instant, Sums)> = None;
        let mut looks = 0;
        while !interrupt::asked() {
            let described = described(&mut client, &self.group)?;
            let rows = rows(&mut client, &self.group, &described)?;
            let (at, now) = (Instant::now(), now_ms());
            let sums = Sums::of(&rows, now);
            let rates = before.map(|(then, old)| {
                let seconds = at.duration_since(then).as_secs_f64().max(0.001);
                let rate = |new: i64, old: i64| (new - old) as f64 / seconds;
                (rate(sums.end, old.end), rate(sums.committed, old.committed))
            });
            let catches_up = rates.and_then(|(written, read)| match sums.lag {
                0 => Some(0.0),
                lag => (read > written).then(|| lag as f64 / (read - written)),
            });
            let mut table = Table::new(
                "group.watch",
                &[
                    "time",
                    "state",
                    "members",
                    "lag",
                    "seconds",
                    "written_a_second",
                    "read_a_second",
                    "caught_up_in",
                ],
            );
            table.row(vec![
                json!(time_text(now)),
                json!(described.state),
                json!(described.members.len()),
                json!(sums.lag),
                json!(sums.behind),
                json!(rates.map(|(written, _)| written.round())),
                json!(rates.map(|(_, read)| read.round())),
                json!(catches_up.map(f64::round)),
            ]);
            table.print_on(context.output, before.is_none())?;
            before = Some((at, sums));
            looks += 1;
            if self.count.is_some_and(|count| looks >= count) {
                return Ok(());
            }
            let next = at + self.interval;
            while Instant::now() < next && !interrupt::asked() {
                std::thread::sleep(NAP.min(next.saturating_duration_since(Instant::now())));
            }
        }
        Ok(())
    }
}
