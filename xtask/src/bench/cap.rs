//! Brokers that may use a part of the machine only.

use std::fs;

use crate::Result;

/// A process that may use a share of a core, until this is dropped.
pub(super) struct Cap {
    group: std::path::PathBuf,
    pid: u32,
}

impl Cap {
    /// Of the CPU control groups, the older or the newer kind; for root.
    pub(super) fn new(pid: u32, core: f64) -> Result<Cap> {
        let root = std::path::Path::new("/sys/fs/cgroup");
        let newer = root.join("cgroup.controllers").exists();
        let parent = match newer {
            true => root.to_owned(),
            false => root.join("cpu"),
        };
        let group = parent.join(format!("riverlog-bench-{pid}"));
        let write = |file: &std::path::Path, text: &str| {
            fs::write(file, text).map_err(|e| {
                format!(
                    "{}: {e}; a share of a core needs root and CPU control groups",
                    file.display()
                )
            })
        };
        const PERIOD_US: f64 = 100_000.0;
        let quota = (PERIOD_US * core) as u64;
        if newer {
            write(&root.join("cgroup.subtree_control"), "+cpu")?;
        }
        fs::create_dir_all(&group)?;
        match newer {
            true => write(&group.join("cpu.max"), &format!("{quota} {PERIOD_US}"))?,
            false => {
                write(&group.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                write(&group.join("cpu.cfs_quota_us"), &quota.to_string())?;
            }
        }
        write(&group.join("cgroup.procs"), &pid.to_string())?;
        Ok(Cap { group, pid })
    }
}

impl Drop for Cap {
    fn drop(&mut self) {
        if let Some(parent) = self.group.parent() {
            // A process that has ended is in no group any more.
            let _ = fs::write(parent.join("cgroup.procs"), self.pid.to_string());
        }
        let _ = fs::remove_dir(&self.group);
    }
}
