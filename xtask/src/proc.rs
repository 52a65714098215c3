//! What another process uses, read from `/proc`.

use std::fs;

use crate::Result;

/// The unit of times in `/proc`: Linux shows them in hundredths whatever its own tick is.
const TICKS_A_SECOND: f64 = 100.0;

/// CPU time (user and system) that process `pid` and its ended threads used so far, in seconds.
///
/// Resolution is one clock tick (10 ms), so measure over seconds.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_err(|e| format!("process {pid} can't be read: {e}"))?;
    let ticks = cpu_ticks(&stat).ok_or_else(|| format!("unexpected /proc/{pid}/stat: {stat}"))?;
    Ok(ticks as f64 / TICKS_A_SECOND)
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name in parentheses and may hold blanks and parentheses itself.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    // State is field 3; utime and stime are fields 14 and 15.
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Resident memory of process `pid` in KiB, and the most it ever was.
pub(crate) fn resident_kib(pid: u32) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .map_err(|e| format!("process {pid} can't be read: {e}"))?;
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find(|l| l.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    match (field("VmRSS:"), field("VmHWM:")) {
        (Some(now), Some(most)) => Ok((now, most)),
        _ => Err(format!("process {pid} has no memory left: it has ended").into()),
    }
}

/// The command line of process `pid`, words joined by blanks; `None` when there is no such process.
pub(crate) fn command_line(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_an_awkward_name() {
        let stat = "42 (a b) c)) S 1 2 3 4 5 6 7 8 9 10 70 7 0 0 20 0 1 0 100";
        assert_eq!(cpu_ticks(stat), Some(77));
    }

    #[test]
    fn this_process_has_memory_and_a_command_line() {
        let me = std::process::id();
        let (now, most) = resident_kib(me).unwrap();
        assert!(now > 0 && most >= now);
        assert!(command_line(me).unwrap().contains("xtask"));
        assert!(cpu_seconds(me).unwrap() >= 0.0);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(cpu_seconds(u32::MAX).is_err());
        assert!(resident_kib(u32::MAX).is_err());
        assert_eq!(command_line(u32::MAX), None);
    }
}
