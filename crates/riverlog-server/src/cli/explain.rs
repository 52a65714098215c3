//! `riverlog explain`: what an error code or an exit code means.

use clap::Args;
use riverlog_wire::ErrorCode;
use serde_json::json;

use super::Context;
use super::output::Table;
use crate::failure::{EXITS, Exit, Failure, nearest};

/// Says what an error code or an exit code means.
#[derive(Clone, Debug, Args)]
pub(crate) struct Explain {
    /// A number (3, E3), a name (UNKNOWN_TOPIC_OR_PARTITION) or an exit code (exit 4); all when left out
    #[arg(value_name = "CODE", allow_hyphen_values = true)]
    code: Vec<String>,
}

impl Explain {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let mut table = Table::new("explain", &["name", "code", "retriable", "meaning"]);
        let mut code = |code: ErrorCode| {
            table.row(vec![
                json!(code.name()),
                json!(code.0),
                json!(code.retriable()),
                json!(code.message()),
            ]);
        };
        let asked = self.code.join(" ");
        match asked.as_str() {
            "" => {
                ErrorCode::all().for_each(&mut code);
                for (exit, meaning) in EXITS {
                    table.row(exit_row(*exit, meaning));
                }
            }
            text => {
                let lower = text.to_lowercase().replace(['-', ' '], "_");
                if let Some(number) = lower.strip_prefix("exit") {
                    let number = number.trim_start_matches('_');
                    let found = EXITS
                        .iter()
                        .find(|(exit, _)| (*exit as u8).to_string() == number);
                    match found {
                        Some((exit, meaning)) => table.row(exit_row(*exit, meaning)),
                        None => {
                            return Err(Failure::new(
                                Exit::NotFound,
                                format!("{text:?} is no exit code of riverlog"),
                            )
                            .hint("`riverlog explain` lists all codes"));
                        }
                    }
                } else if let Ok(number) = text.trim_start_matches(['E', 'e']).parse::<i16>() {
                    let found = ErrorCode::all()
                        .find(|c| c.0 == number)
                        .ok_or_else(|| unknown(text))?;
                    code(found);
                } else {
                    let found = ErrorCode::all().find(|c| c.name().eq_ignore_ascii_case(&lower));
                    code(found.ok_or_else(|| unknown(text))?);
                }
            }
        }
        table.print(context.output)
    }
}

fn exit_row(exit: Exit, meaning: &str) -> Vec<serde_json::Value> {
    vec![
        json!(format!("exit{}", exit as u8)),
        json!(exit as u8),
        json!(exit == Exit::Timeout || exit == Exit::Unreachable),
        json!(meaning),
    ]
}

fn unknown(text: &str) -> Failure {
    let failure = Failure::new(
        Exit::NotFound,
        format!("{text:?} is no error code of Kafka 4.4"),
    );
    match nearest(text, ErrorCode::all().map(ErrorCode::name)) {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None => failure.hint("`riverlog explain` lists all codes"),
    }
}
