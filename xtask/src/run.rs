//! Other programs, run with a time limit.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// A program to run: what [`Command`] takes, and a limit.
pub(crate) struct Run {
    command: Command,
    shown: String,
    limit: Duration,
}

/// What came of a run that was waited for.
pub(crate) struct Outcome {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// `None`: the limit was reached and the program was killed.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) took: Duration,
}

impl Outcome {
    pub(crate) fn ok(&self) -> bool {
        self.status.is_some_and(|s| s.success())
    }

    /// `exit status: 1`, or that the limit was reached.
    pub(crate) fn how_it_ended(&self) -> String {
        match self.status {
            Some(status) => status.to_string(),
            None => format!("killed after {:.0} s", self.took.as_secs_f64()),
        }
    }
}

/// Begins the description of a run. The limit is ten minutes unless [`Run::limit`] sets another.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Run {
    let shown = Path::new(name.as_ref())
        .file_name()
        .unwrap_or(name.as_ref())
        .to_string_lossy()
        .into_owned();
    let mut command = Command::new(name);
    command.stdin(Stdio::null());
    Run {
        command,
        shown,
        limit: Duration::from_secs(600),
    }
}

/// `cargo` as it was called, so that a toolchain override stays in force.
pub(crate) fn cargo() -> Run {
    let mut run = program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    run.command.current_dir(crate::place::root());
    run
}

impl Run {
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.shown.push(' ');
        self.shown.push_str(&arg.as_ref().to_string_lossy());
        self.command.arg(arg);
        self
    }

    pub(crate) fn args(self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        args.into_iter().fold(self, Run::arg)
    }

    pub(crate) fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    pub(crate) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// The same, started by another program; as it is without words.
    pub(crate) fn under(self, words: &[String]) -> Self {
        let Some((first, rest)) = words.split_first() else {
            return self;
        };
        let own = &self.command;
        let mut run = program(first).args(rest).arg(own.get_program());
        run = run.args(own.get_args());
        let set = own
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?)));
        run.command.envs(set);
        if let Some(dir) = own.get_current_dir() {
            run.command.current_dir(dir);
        }
        run.limit = self.limit;
        run
    }

    pub(crate) fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Starts it in the background, with pipes to and from it.
    pub(crate) fn spawn_piped(mut self) -> Result<Child> {
        let piped = self.command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = piped.spawn();
        Ok(child.map_err(|e| format!("can't start {}: {e}", self.shown))?)
    }

    /// Starts it in the background with its output in `log`; the caller ends it.
    ///
    /// It stays in this process's group, so Ctrl-C in a terminal reaches it too, unless `detached`.
    pub(crate) fn spawn_logged(mut self, log: &Path, detached: bool) -> Result<Child> {
        let out = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)?;
        if detached {
            self.command.process_group(0);
        }
        let child = self
            .command
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .map_err(|e| format!("can't start {}: {e}", self.shown))?;
        Ok(child)
    }

    /// Runs it with its output on ours. Fails unless it ends with 0 within the limit.
    pub(crate) fn shown_live(mut self) -> Result<()> {
        let mut child = self
            .command
            .spawn()
            .map_err(|e| format!("can't start {}: {e}", self.shown))?;
        match wait(&mut child, self.limit)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("{}: {status}", self.shown).into()),
            None => {
                child.kill()?;
                child.wait()?;
                let limit = self.limit.as_secs();
                Err(format!("{}: not done after {limit} s", self.shown).into())
            }
        }
    }

    /// Runs it to its end or to the limit and returns what it wrote, however it ended. At the limit the
    /// program and all it started are killed.
    pub(crate) fn outcome(mut self) -> Result<Outcome> {
        let start = Instant::now();
        let mut child = self
            .command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("can't start {}: {e}", self.shown))?;
        let stdout = drain(child.stdout.take());
        let stderr = drain(child.stderr.take());
        let status = wait(&mut child, self.limit)?;
        // Also after a normal end: a grandchild that keeps the pipe open would hold up the readers.
        kill_group(&child);
        if status.is_none() {
            child.wait()?;
        }
        Ok(Outcome {
            stdout: stdout.join().unwrap_or_default(),
            stderr: stderr.join().unwrap_or_default(),
            status,
            took: start.elapsed(),
        })
    }

    /// Like [`Run::outcome`], but anything other than exit 0 is an error that carries the end of the output.
    pub(crate) fn output(self) -> Result<String> {
        let shown = self.shown.clone();
        let out = self.outcome()?;
        if out.ok() {
            return Ok(out.stdout);
        }
        let both = format!("{}{}", out.stdout, out.stderr);
        let end = last_lines(&both, 20);
        Err(format!("{shown}: {}\n{end}", out.how_it_ended()).into())
    }
}

/// The last `n` lines of `text`.
pub(crate) fn last_lines(text: &str, n: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(n)..].join("\n")
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A pipe that breaks has given what it had.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits up to `limit`; `None` when the child still runs then.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Kills what is left of the group that `child` leads.
fn kill_group(child: &Child) {
    let pid = i32::try_from(child.id()).ok();
    if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
        // Nobody left is the usual case.
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_carries_the_end_of_what_a_failed_program_said() {
        let run = program("sh").args(["-c", "echo before; echo why >&2; exit 3"]);
        let error = run.output().unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.contains("why"), "{error}");
    }

    #[test]
    fn a_program_past_its_limit_is_killed_with_its_children() {
        let run = program("sh").args(["-c", "sleep 60 & echo $!; sleep 60"]);
        let out = run.limit(1).outcome().unwrap();
        assert!(out.status.is_none());
        assert!(out.took < Duration::from_secs(20));
        let child: u32 = out.stdout.trim().parse().unwrap();
        let alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        // A signal is sent, not waited for.
        let end = Instant::now() + Duration::from_secs(10);
        while alive() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!alive());
    }

    #[test]
    fn last_lines_takes_what_there_is() {
        assert_eq!(last_lines("a\nb\nc", 2), "b\nc");
        assert_eq!(last_lines("a", 5), "a");
    }
}
