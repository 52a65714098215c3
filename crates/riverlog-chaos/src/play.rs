//! A drill from its beginning to its end, in a folder of its own.

use std::fs;
use std::path::Path;
use std::time::Instant;

use riverlog_checker::Event;

use crate::{Failure, Options, Result, broken, disk};

/// What a drill is played on.
pub(crate) trait Played {
    /// What it has to tell besides the checker.
    fn notes(&self) -> &[String];
    /// What it has done itself.
    fn events(&self) -> &[Event];
}

/// Plays a drill to its end and judges it. What it has left behind stays where it failed, or where that is asked for.
pub(crate) fn play<S: Played>(
    name: &str,
    options: &Options,
    set: impl FnOnce(&Path) -> Result<S>,
    run: impl FnOnce(&mut S) -> Result<String>,
) -> Result<String> {
    fs::create_dir_all(&options.work)?;
    let work = options.work.canonicalize()?;
    disk::sweep(&work);
    let folder = work.join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let started = Instant::now();
    let mut stage = match set(&folder) {
        Ok(stage) => stage,
        Err(failure) => {
            fs::remove_dir_all(&folder)?;
            return Err(failure);
        }
    };
    let played = run(&mut stage);
    let own = fs::File::create(folder.join("drill.jsonl"))?;
    riverlog_checker::write(own, stage.events())?;
    let notes = stage.notes().join(", ");
    drop(stage);
    match played {
        Ok(report) => {
            if !options.keep {
                fs::remove_dir_all(&folder)?;
            }
            let seconds = started.elapsed().as_secs_f64();
            Ok(format!("{notes}; {report}; {seconds:.0} s"))
        }
        Err(Failure::Lacks(why)) => {
            fs::remove_dir_all(&folder)?;
            Err(Failure::Lacks(why))
        }
        Err(Failure::Broken(why)) => broken(format!(
            "{notes}; {why}\nlogs and histories are in {}",
            folder.display()
        )),
    }
}
