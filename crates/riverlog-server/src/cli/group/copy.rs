//! `riverlog group copy`: gives one group the commits of another.

use clap::Args;

use super::describe::described;
use super::reset::{Commits, commit, moved};
use crate::cli::Context;
use crate::cli::consume::committed_of;
use crate::failure::{Exit, Failure};

#[derive(Clone, Debug, Args)]
pub(crate) struct Copy {
    /// Whose commits
    #[arg(value_name = "FROM")]
    from: String,
    /// Who gets them; a new group, or one without members
    #[arg(value_name = "TO")]
    to: String,
    /// These topics only
    #[arg(short, long, value_name = "TOPIC")]
    topic: Vec<String>,
    /// Don't ask
    #[arg(short, long)]
    yes: bool,
    /// Say what would change
    #[arg(long)]
    dry_run: bool,
}

impl Copy {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        if self.from == self.to {
            return Err(Failure::usage("a group has its own commits already")
                .hint("give the name of another group"));
        }
        let mut client = context.client()?;
        // Says so when there is no such group.
        described(&mut client, &self.from)?;
        let commits: Commits = committed_of(&mut client, &self.from, None)?
            .into_iter()
            .filter(|((topic, _), _)| self.topic.is_empty() || self.topic.contains(topic))
            .collect();
        if commits.is_empty() {
            return Err(Failure::new(
                Exit::NotFound,
                format!("group {:?} has no such commits", self.from),
            )
            .hint("`riverlog group lag` shows what it has"));
        }
        let before = committed_of(&mut client, &self.to, None)?;
        if !self.dry_run {
            if !before.is_empty() {
                context.confirm(
                    self.yes,
                    &format!("overwriting commits of group {:?}", self.to),
                    &self.to,
                )?;
            }
            commit(&mut client, &self.to, &commits)?;
        }
        moved("group.copy", &before, commits, self.dry_run).print(context.output)
    }
}
