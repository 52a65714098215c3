//! A disk that can lose its power: an ext4 image on a loop device.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::system::{has, is_root, run, until};
use crate::{Failure, Result};

/// An image and where it is mounted. Unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) file: PathBuf,
    pub(crate) mount: PathBuf,
    python: PathBuf,
}

/// `EXT4_IOC_SHUTDOWN` with `NOLOGFLUSH`: from now on every call fails, and what was not synced is gone at the next mount.
const SHUTDOWN: &str = "import fcntl, os, struct, sys; \
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// What mounting needs; an error that names it.
pub(crate) fn needs() -> Result<()> {
    if !is_root() {
        return Err(Failure::Lacks(
            "needs root, to mount an image of ext4: run it as root".into(),
        ));
    }
    for program in ["mkfs.ext4", "mount", "umount", "losetup"] {
        if !has(program) {
            return Err(Failure::Lacks(format!(
                "needs {program} (packages e2fsprogs and mount)"
            )));
        }
    }
    if !Path::new("/dev/loop-control").exists() {
        return Err(Failure::Lacks(
            "needs loop devices, which this kernel or container doesn't have".into(),
        ));
    }
    Ok(())
}

impl Image {
    /// Makes an image of `mib` MiB in `folder` and mounts it.
    pub(crate) fn new(folder: &Path, mib: u64, python: &Path) -> Result<Image> {
        needs()?;
        let image = Image {
            file: folder.join("disk.img"),
            mount: folder.join("disk"),
            python: python.to_owned(),
        };
        fs::create_dir_all(&image.mount)?;
        fs::File::create(&image.file)?.set_len(mib << 20)?;
        // All of the file system's own blocks at the beginning: what lies at the end belongs to files.
        let options = [
            "-q",
            "-F",
            "-m",
            "0",
            "-E",
            "packed_meta_blocks=1,lazy_itable_init=0",
        ];
        let file = image.file.display().to_string();
        run("mkfs.ext4", &[&options[..], &[file.as_str()]].concat())?;
        image.mount()?;
        Ok(image)
    }

    pub(crate) fn mount(&self) -> Result<()> {
        let (file, mount) = (self.file.display(), self.mount.display());
        let mounted = run(
            "mount",
            &["-o", "loop", &file.to_string(), &mount.to_string()],
        );
        match mounted {
            Ok(_) => Ok(()),
            Err(Failure::Broken(why) | Failure::Lacks(why)) => Err(Failure::Lacks(format!(
                "an image can't be mounted here: {why}"
            ))),
        }
    }

    /// Whoever used it has ended.
    pub(crate) fn unmount(&self) -> Result<()> {
        let mut last = Ok(());
        // A process that was killed in a call of the disk may hold it for a moment.
        let done = until(Duration::from_secs(20), || {
            last = run("umount", &[&self.mount]).map(drop);
            last.is_ok()
        });
        if done { Ok(()) } else { last }
    }

    /// The disk is gone, at once, with all that was not synced.
    pub(crate) fn shut_down(&self) -> Result<()> {
        let python = self.python.display().to_string();
        let mount = self.mount.display().to_string();
        match run(&python, &["-c", SHUTDOWN, &mount]) {
            Ok(_) => Ok(()),
            Err(Failure::Broken(why) | Failure::Lacks(why)) => Err(Failure::Lacks(format!(
                "needs a kernel whose ext4 has the shutdown ioctl: {why}"
            ))),
        }
    }

    /// `MAJOR:MINOR` of its loop device.
    pub(crate) fn device(&self) -> Result<String> {
        let device = rustix::fs::stat(&self.mount)?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(format!("{major}:{minor}"))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if is_mounted(&self.mount) && self.unmount().is_err() {
            eprintln!("riverlog-chaos: {} is still mounted", self.mount.display());
        }
    }
}

fn is_mounted(mount: &Path) -> bool {
    mounts().iter().any(|path| path == mount)
}

fn mounts() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let second = |line: &str| Some(PathBuf::from(line.split(' ').nth(1)?));
    text.lines().filter_map(second).collect()
}

/// Unmounts and removes what runs left below `work` that were killed: folders are named after the process that made them.
pub(crate) fn sweep(work: &Path) {
    let Ok(entries) = fs::read_dir(work) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.rsplit_once('-')?.1.parse::<u32>().ok());
        let Some(pid) = pid else { continue };
        if Path::new(&format!("/proc/{pid}")).exists() {
            continue;
        }
        // Of a server alone, or of each of several nodes.
        for place in ["", "1", "2", "3"].map(|node| entry.path().join(node)) {
            let mount = place.join("disk");
            if is_mounted(&mount) && run("umount", &[&mount]).is_ok() {
                // What stays is for whoever looks why that run was killed.
                let _ = fs::remove_file(place.join("disk.img"));
            }
        }
    }
}
