//! `riverlog generate`: dashboards and rules for what `/metrics` says.

use std::io::Write;
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use crate::failure::{Exit, Failure};

const RULES: &str = include_str!("../../monitoring/riverlog-rules.yml");
const DASHBOARDS: &[(Dashboard, &str, &str)] = &[
    (
        Dashboard::Overview,
        "grafana-overview.json",
        include_str!("../../monitoring/grafana-overview.json"),
    ),
    (
        Dashboard::Topics,
        "grafana-topics.json",
        include_str!("../../monitoring/grafana-topics.json"),
    ),
    (
        Dashboard::Groups,
        "grafana-groups.json",
        include_str!("../../monitoring/grafana-groups.json"),
    ),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dashboard {
    Overview,
    Topics,
    Groups,
}

/// Writes files for other tools.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Generate {
    /// A Grafana dashboard to standard output, or all of them into a folder
    Grafana {
        /// Which
        #[arg(value_enum, default_value = "overview")]
        dashboard: Dashboard,
        /// Folder for all of them
        #[arg(long, value_name = "DIR")]
        all: Option<PathBuf>,
    },
    /// Alerts and recording rules for Prometheus
    PrometheusRules,
}

impl Generate {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Generate::PrometheusRules => print(RULES),
            Generate::Grafana {
                all: Some(folder), ..
            } => {
                for (_, name, text) in DASHBOARDS {
                    let path = folder.join(name);
                    std::fs::write(&path, text).map_err(|error| {
                        Failure::new(
                            Exit::Finding,
                            format!("{} can't be written", path.display()),
                        )
                        .why(error.to_string())
                        .hint("make the folder first")
                    })?;
                }
                Ok(())
            }
            Generate::Grafana { dashboard, .. } => {
                let found = DASHBOARDS.iter().find(|(which, ..)| *which == dashboard);
                print(found.map_or("", |(_, _, text)| text))
            }
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|e| Failure::stdout(&e))
}
