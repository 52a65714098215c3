//! `riverlog completions` and `riverlog man`.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory};

use super::Cli;
use crate::failure::{Exit, Failure};

/// Writes completion for a shell to standard output.
#[derive(Clone, Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "riverlog", &mut script);
        std::io::stdout()
            .write_all(&script)
            .map_err(|e| Failure::stdout(&e))
    }
}

/// Writes manual pages: one to standard output, or all of them into a folder.
#[derive(Clone, Debug, Args)]
pub(crate) struct Man {
    /// Folder for a page of each command
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut command = Cli::command();
        command.build();
        match self.folder {
            Some(folder) => clap_mangen::generate_to(command, &folder).map_err(|error| {
                Failure::new(
                    Exit::Finding,
                    format!("manual pages can't be written to {}", folder.display()),
                )
                .why(error.to_string())
                .hint("make the folder first")
            }),
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(command)
                    .render(&mut page)
                    .and_then(|()| std::io::stdout().write_all(&page))
                    .map_err(|e| Failure::stdout(&e))
            }
        }
    }
}
