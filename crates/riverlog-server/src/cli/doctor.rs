//! `riverlog doctor`.

use clap::Subcommand;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::{ApiKey, MetadataRequest};
use serde_json::{Value, json};

use super::Context;
use super::output::Table;
use crate::client::{Link, addresses, place};
use crate::failure::{Exit, Failure};

/// Finds out what is wrong.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Doctor {
    /// Walk from the bootstrap address to each advertised one, and say which hop fails
    Connect,
}

impl Doctor {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Doctor::Connect => connect(context),
        }
    }
}

/// What was found at a hop.
fn found(table: &mut Table, hop: &str, at: &str, result: Result<String, &Failure>) {
    let (state, detail, hint) = match result {
        Ok(detail) => ("ok", detail, Value::Null),
        Err(failure) => {
            let detail = failure.reason().unwrap_or(failure.what()).to_owned();
            ("failed", detail, json!(failure.remedy()))
        }
    };
    table.row(vec![
        json!(hop),
        json!(at),
        json!(state),
        json!(detail),
        hint,
    ]);
}

fn connect(context: &Context) -> Result<(), Failure> {
    let mut table = Table::new(
        "doctor.connect",
        &["hop", "address", "state", "detail", "try"],
    );
    let mut bad = None;
    let mut first = None;
    for (host, port) in addresses(&context.brokers)? {
        let at = place(&host, port);
        match Link::open(&host, port, context.timeout, context.verbose) {
            Ok(link) => {
                found(
                    &mut table,
                    "bootstrap",
                    &at,
                    Ok(format!(
                        "serves {} kinds of requests",
                        link.versions().len()
                    )),
                );
                first.get_or_insert(link);
            }
            Err(failure) => {
                found(&mut table, "bootstrap", &at, Err(&failure));
                bad = Some(failure.exit);
            }
        }
    }
    let Some(mut link) = first else {
        table.print(context.output)?;
        return Err(Failure::silent(bad.unwrap_or(Exit::Unreachable)));
    };
    // No topic at all: brokers alone.
    let topics = if link.version(ApiKey::Metadata)? >= 1 {
        Some(Vec::new())
    } else {
        None
    };
    let metadata = link.ask(&MetadataRequest {
        topics,
        ..MetadataRequest::default()
    });
    match metadata {
        Ok(metadata) if metadata.error_code == ErrorCode::NONE => {
            let names: Vec<String> = metadata
                .brokers
                .iter()
                .map(|b| b.node_id.to_string())
                .collect();
            found(
                &mut table,
                "metadata",
                &link.place,
                Ok(format!("names brokers {}", names.join(", "))),
            );
            for broker in metadata.brokers {
                let hop = format!("broker {}", broker.node_id);
                let port = u16::try_from(broker.port).unwrap_or_default();
                let at = place(&broker.host, port);
                match Link::open(&broker.host, port, context.timeout, context.verbose) {
                    Ok(_) => found(
                        &mut table,
                        &hop,
                        &at,
                        Ok("answers at its advertised address".to_owned()),
                    ),
                    Err(failure) => {
                        let failure = Failure::new(failure.exit, failure.what())
                            .why(failure.reason().unwrap_or_default())
                            .hint("the broker tells clients an address that can't be reached from here: set advertised.listeners on it");
                        found(&mut table, &hop, &at, Err(&failure));
                        bad = Some(Exit::Finding);
                    }
                }
            }
        }
        Ok(metadata) => {
            let failure = Failure::kafka("metadata", metadata.error_code, None);
            found(&mut table, "metadata", &link.place, Err(&failure));
            bad = Some(failure.exit);
        }
        Err(failure) => {
            found(&mut table, "metadata", &link.place, Err(&failure));
            bad = Some(failure.exit);
        }
    }
    table.print(context.output)?;
    match bad {
        // One answering address is enough to work with; the others are findings.
        Some(_) => Err(Failure::silent(Exit::Finding)),
        None => Ok(()),
    }
}
