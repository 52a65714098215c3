//! Where things lie: the workspace, its `target`, and the cache for what the registries bring.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::run::program;

/// The workspace root, absolute.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// Cargo's target folder (`CARGO_TARGET_DIR` is honoured).
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The folder `name` inside `${RIVERLOG_CACHE:-~/.cache/riverlog}`, made if needed. What lies there can be
/// deleted at any time: every user brings what it needs anew.
pub(crate) fn cache(name: &str) -> Result<PathBuf> {
    let base = match std::env::var_os("RIVERLOG_CACHE") {
        Some(dir) => std::path::absolute(dir)?,
        None => {
            let home = std::env::var_os("HOME").ok_or("neither RIVERLOG_CACHE nor HOME is set")?;
            PathBuf::from(home).join(".cache/riverlog")
        }
    };
    let dir = base.join(name);
    fs::create_dir_all(&dir).map_err(|e| format!("can't make {}: {e}", dir.display()))?;
    Ok(dir)
}

/// Fills the cache folder `name` with `fill(folder)` unless it was filled for the same `recipe` before.
///
/// The recipe (pinned versions, a lock file) is kept in the folder once `fill` succeeded; another recipe
/// empties the folder first. Two processes at once: the second waits for the first.
pub(crate) fn cached(
    name: &str,
    recipe: &str,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let parent = cache("")?;
    let lock_file = parent.join(format!("{}.lock", name.replace('/', "-")));
    let lock = fs::File::create(&lock_file)?;
    lock.lock()?;
    let dir = parent.join(name);
    let stamp = dir.join(".recipe");
    if fs::read_to_string(&stamp).is_ok_and(|kept| kept == recipe) {
        return Ok(dir);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    fill(&dir)?;
    fs::write(&stamp, recipe)?;
    Ok(dir)
}

/// A number that changes with the commit and can be had again from it: what is drawn at random in CI begins there.
pub(crate) fn commit_number() -> Result<u32> {
    let id = program("git")
        .dir(root())
        .args(["rev-parse", "--short=7", "HEAD"])
        .output()?;
    let digits = id
        .trim()
        .get(..7)
        .ok_or("a commit id of less than 7 digits")?;
    Ok(u32::from_str_radix(digits, 16)?)
}

/// A folder of this process below `target/xtask`, empty; removed when dropped unless kept.
pub(crate) struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Makes `target/xtask/NAME-PID`.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let path = target()
            .join("xtask")
            .join(format!("{name}-{}", std::process::id()));
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        Ok(Self { path, keep: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the folder for a look, after a failure say.
    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            // What can't be removed lies below `target`: it harms nobody.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace_manifest() {
        let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn a_commit_has_one_number() {
        assert_eq!(commit_number().unwrap(), commit_number().unwrap());
    }

    #[test]
    fn a_scratch_folder_goes_away_unless_kept() {
        let path = Scratch::new("place-test-a").unwrap().path().to_path_buf();
        assert!(!path.exists());
        let mut kept = Scratch::new("place-test-b").unwrap();
        kept.keep();
        let path = kept.path().to_path_buf();
        drop(kept);
        assert!(path.exists());
        fs::remove_dir_all(path).unwrap();
    }
}
