//! `riverlog recover`: opens the folder of a stopped broker as a start would, and says what that found.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use parking_lot::Mutex;
use riverlog_host::{DriveError, Driver};
use riverlog_log::disk::SystemDisk;
use riverlog_node::{NodeSettings, Notice, StartError};
use riverlog_wire::ErrorCode;
use serde_json::{Value, json};

use super::Context;
use super::output::Table;
use crate::failure::{Exit, Failure};
use crate::serve::{folder_failure, start_failure};

/// The file that lets a start go on without what can't be read.
const ACCEPT: &str = "accept-loss";
/// How long groups may take to load.
const PATIENCE: Duration = Duration::from_secs(30);

/// Recovers the data folder of a stopped broker, and says what is damaged or lost.
#[derive(Clone, Debug, Args)]
pub(crate) struct Recover {
    /// The data folder
    #[arg(value_name = "DIR")]
    data: PathBuf,
    /// Go on without acknowledged records that can't be read any more, and say which
    #[arg(long)]
    accept_loss: bool,
    /// Don't ask
    #[arg(long)]
    yes: bool,
}

impl Recover {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        if !self.data.join("format").exists() && !self.data.join("wal").exists() {
            return Err(Failure::new(
                Exit::NotFound,
                format!("{} is no data folder", self.data.display()),
            )
            .why("it has neither the file format nor a write-ahead log")
            .hint("give the folder that the broker was started with (--data, log.dirs)"));
        }
        if self.accept_loss {
            context.confirm(
                self.yes,
                "going on without acknowledged records that can't be read",
                &self.data.display().to_string(),
            )?;
            std::fs::File::create(self.data.join(ACCEPT))
                .and_then(|file| file.sync_all())
                .map_err(|error| folder_failure(&error, &self.data))?;
        }
        let (driver, notices) = self.open()?;
        // Which groups can be read shows when they are loaded.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let listed = driver.call(false, |node, now, reply| node.groups(now, reply));
            let loading = Ok(Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS));
            if listed != loading || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        driver
            .close()
            .map_err(|error| start_failure(&error, &self.data))?;
        if self.accept_loss {
            // Nothing was lost: then nothing may be later, without being asked again.
            let _ = std::fs::remove_file(self.data.join(ACCEPT));
        }
        let mut table = Table::new(
            "recover",
            &["finding", "topic", "partition", "from", "to", "detail"],
        );
        for notice in &*notices.lock() {
            rows(notice, &mut table);
        }
        let sound = table.is_empty();
        table.print(context.output)?;
        if sound {
            context.note(&format!("{} is sound", self.data.display()));
            return Ok(());
        }
        Err(Failure::silent(Exit::Finding))
    }

    fn open(&self) -> Result<Opened, Failure> {
        let mut settings = NodeSettings::default();
        loop {
            let disk =
                SystemDisk::open(&self.data).map_err(|error| folder_failure(&error, &self.data))?;
            let notices = Arc::new(Mutex::new(Vec::new()));
            let told = Arc::clone(&notices);
            let opened =
                Driver::start_telling(Arc::new(disk), settings.clone(), 1, move |notice| {
                    told.lock().push(notice);
                });
            match opened {
                Ok(driver) => return Ok((driver, notices)),
                // Whose it is, the folder knows best.
                Err(DriveError::Start(StartError::OtherNode { found, .. }))
                    if settings.broker != found =>
                {
                    settings.broker = found;
                }
                Err(error) => {
                    let failure = start_failure(&error, &self.data);
                    return Err(match error.is_damage() && !self.accept_loss {
                        true => failure.hint(
                            "restore the folder from a backup; where there is none, `riverlog recover --accept-loss` goes on with what can be read and says what is lost",
                        ),
                        false => failure,
                    });
                }
            }
        }
    }
}

type Opened = (Arc<Driver>, Arc<Mutex<Vec<Notice>>>);

fn rows(notice: &Notice, table: &mut Table) {
    let mut row =
        |finding: &str, topic: Value, partition: Value, range: [Value; 2], detail: String| {
            let [from, to] = range;
            table.row(vec![
                json!(finding),
                topic,
                partition,
                from,
                to,
                json!(detail),
            ]);
        };
    let nothing = || [Value::Null, Value::Null];
    match notice {
        Notice::LossAccepted { reason, lost } => {
            row("loss", Value::Null, Value::Null, nothing(), reason.clone());
            for one in lost {
                row(
                    "lost",
                    json!(one.topic),
                    json!(one.partition),
                    [json!(one.from.0), json!(one.to.0)],
                    "these records were there and are gone; send them again".to_owned(),
                );
            }
        }
        Notice::Damaged(damage) => row(
            "damaged",
            json!(damage.topic),
            json!(damage.partition),
            [json!(damage.from.0), json!(damage.to.0)],
            format!("{}: {}", damage.path, damage.reason),
        ),
        Notice::NotOpened {
            topic,
            partition,
            reason,
        } => row(
            "not opened",
            json!(topic),
            json!(partition),
            nothing(),
            reason.clone(),
        ),
        Notice::CoordinatorUnavailable {
            topic,
            partition,
            reason,
        } => row(
            "unavailable",
            json!(topic),
            json!(partition),
            nothing(),
            reason.clone(),
        ),
        Notice::DiskFull => row(
            "disk full",
            Value::Null,
            Value::Null,
            nothing(),
            "there is no room for writes".to_owned(),
        ),
        Notice::DiskFailed { error } => row(
            "disk failed",
            Value::Null,
            Value::Null,
            nothing(),
            error.to_string(),
        ),
        _ => {}
    }
}
