//! Locations: the checkout, the target directory and its folders.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::error::{Because, Failure, Outcome};
use crate::process::capture;

/// The triple of the freestanding guest.
pub const GUEST_TRIPLE: &str = "riscv64gc-unknown-none-elf";

/// Folder of the measurements' data, relative to the root.
pub const RESULTS: &str = "docs/results";

/// The paths to which all others are relative. All are absolute.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The folder with the root `Cargo.toml`.
    pub root: PathBuf,
    /// Cargo's target directory: `CARGO_TARGET_DIR`, or `target` under the root.
    pub target: PathBuf,
}

impl Workspace {
    /// Uses the paths that `./cops` exports, or determines them if xtask was started directly.
    pub fn locate() -> Outcome<Self> {
        let root = match std::env::var_os("COPS_ROOT") {
            Some(root) => PathBuf::from(root),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        };
        let root = root
            .canonicalize()
            .because(|| format!("cannot find the checkout at {}", root.display()))?;
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(target) => std::path::absolute(&target)
                .because(|| format!("CARGO_TARGET_DIR={} is no usable path", target.display()))?,
            None => root.join("target"),
        };
        Ok(Self { root, target })
    }

    /// Cargo's target directory for guest code; separate, so that a host build never waits for its
    /// lock.
    pub fn guest_target(&self) -> PathBuf {
        self.target.join("guest")
    }

    /// Finished guest artefacts: the vDSO, the kernel.
    pub fn image_folder(&self) -> PathBuf {
        self.target.join("guest-image")
    }

    /// Measurements and plots of `./cops run`.
    pub fn results_folder(&self) -> PathBuf {
        self.target.join("results")
    }

    /// `path` as it is shown: relative to the current folder if that is the root, absolute from
    /// elsewhere, so that it can be opened from where the command was given.
    pub fn shown<'p>(&self, path: &'p Path) -> std::path::Display<'p> {
        let is_at_root = std::env::current_dir().is_ok_and(|folder| folder == self.root);
        self.shown_from(path, is_at_root).display()
    }

    fn shown_from<'p>(&self, path: &'p Path, is_at_root: bool) -> &'p Path {
        if is_at_root { path.strip_prefix(&self.root).unwrap_or(path) } else { path }
    }

    /// A new folder for the files of one run; removed when the guard is dropped. A signal drops no
    /// guard, so this removes the folders of processes that no longer exist.
    pub fn scratch(&self) -> Outcome<Scratch> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let folders = self.target.join("scratch");
        remove_abandoned(&folders);
        let name = format!("{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let folder = folders.join(name);
        // Left by an earlier process with this number.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).because(|| format!("cannot make {}", folder.display()))?;
        Ok(Scratch { folder })
    }

    /// The commit of the checkout, with `-dirty` if it has changes that a measurement and its
    /// figures do not make. `unknown` if it is not a checkout.
    pub fn commit(&self) -> String {
        match described_commit(&self.root) {
            Ok(described) => described,
            // A minimal system has no git; the commit can still be read from the files.
            Err(_) => match commit_in(&self.root.join(".git")) {
                Some(commit) => format!("{commit:.12}, not checked for changes"),
                None => "unknown".to_owned(),
            },
        }
    }
}

/// The commit in `folder`, with `-dirty` if there are changes outside [`RESULTS`] and documents: a
/// measurement writes its data to the one and its figures into the others, and the next one still
/// measures the same code.
fn described_commit(folder: &Path) -> Outcome<String> {
    let commit = git(folder, &["rev-parse", "--short=12", "HEAD"])?;
    let outside_results = format!(":(exclude){RESULTS}");
    let outside = [".", &outside_results, ":(exclude)*.md"];
    let changes = git(folder, &[&["status", "--porcelain", "-uno", "--"], &outside[..]].concat())?;
    Ok(if changes.is_empty() { commit } else { format!("{commit}-dirty") })
}

/// The output of git for the repository in `folder`.
pub fn git(folder: &Path, arguments: &[&str]) -> Outcome<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(arguments);
    let result = capture(&mut command, None, |_| ())?;
    if result.succeeded() {
        Ok(result.stdout.trim().to_owned())
    } else {
        Err(Failure::new(format!("git {}: {}", arguments.join(" "), result.everything())))
    }
}

/// The commit that a repository's HEAD refers to.
fn commit_in(repository: &Path) -> Option<String> {
    let read = |name: &str| std::fs::read_to_string(repository.join(name)).ok();
    let head = read("HEAD")?;
    let Some(branch) = head.trim().strip_prefix("ref: ") else {
        return Some(head.trim().to_owned());
    };
    if let Some(commit) = read(branch) {
        return Some(commit.trim().to_owned());
    }
    let packed = read("packed-refs")?;
    packed.lines().find_map(|line| line.strip_suffix(branch)?.strip_suffix(' ').map(str::to_owned))
}

/// Removes the scratch folders of processes that no longer exist. Best effort: another process may
/// do the same at this moment.
fn remove_abandoned(folders: &Path) {
    for entry in std::fs::read_dir(folders).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split_once('-')?.0.parse().ok());
        // Without permission to signal it, it exists too.
        let is_gone = |pid| test_kill_process(pid) == Err(Errno::SRCH);
        if owner.and_then(Pid::from_raw).is_some_and(is_gone) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A folder that is removed when its owner is dropped.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: remaining files are under target/ and harmless.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Writes `bytes` to `path`, unless it already contains exactly these: an unchanged file keeps its
/// time stamp, so that nothing that depends on it is rebuilt. Never leaves a partial file.
pub fn write_if_changed(path: &Path, bytes: &[u8]) -> Outcome<()> {
    if std::fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    replace(path, bytes)
}

/// Writes `bytes` to `path`. Another process that reads the file, or writes it at the same time,
/// finds a whole one. A pipe or a terminal is written to; a link remains one.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Outcome<()> {
    match path.canonicalize() {
        Ok(present) if present.is_file() => replace(&present, bytes),
        Ok(_) => std::fs::write(path, bytes).because(|| format!("cannot write {}", path.display())),
        Err(_) => replace(path, bytes),
    }
}

/// Puts a file with these bytes in the place of one that may be there.
fn replace(path: &Path, bytes: &[u8]) -> Outcome<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).because(|| format!("cannot make {}", folder.display()))?;
    }
    let partial = path.with_extension(format!("partial-{}", std::process::id()));
    std::fs::write(&partial, bytes).because(|| format!("cannot write {}", partial.display()))?;
    std::fs::rename(&partial, path).because(|| format!("cannot put {} in place", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_so_that_they_can_be_opened() {
        let workspace = Workspace { root: "/a/cops".into(), target: "/b".into() };
        let below = Path::new("/a/cops/target/results");
        assert_eq!(workspace.shown_from(below, true), Path::new("target/results"));
        assert_eq!(workspace.shown_from(below, false), below);
        assert_eq!(workspace.shown_from(Path::new("/b/results"), true), Path::new("/b/results"));
    }

    #[test]
    fn a_new_scratch_folder_replaces_those_of_processes_that_no_longer_exist() {
        let target = std::env::temp_dir().join(format!("xtask-scratch-{}", std::process::id()));
        let workspace = Workspace { root: target.clone(), target: target.clone() };
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let names = [
            format!("{}-3", child.id()),
            "1-0".to_owned(),
            "x-0".to_owned(),
            format!("{}-12345", std::process::id()),
        ];
        for name in &names {
            std::fs::create_dir_all(target.join("scratch").join(name).join("deep")).unwrap();
        }
        let scratch = workspace.scratch().unwrap();
        let remains = names.map(|name| target.join("scratch").join(name).exists());
        assert_eq!(remains, [false, true, true, true]);
        let folder = scratch.file("");
        assert!(folder.exists());
        drop(scratch);
        assert!(!folder.exists());
        std::fs::remove_dir_all(target).unwrap();
    }

    #[test]
    fn the_commit_is_found_without_git() {
        let folder = std::env::temp_dir().join(format!("xtask-commit-{}", std::process::id()));
        write_if_changed(&folder.join("HEAD"), b"ref: refs/heads/main\n").unwrap();
        assert_eq!(commit_in(&folder), None);
        write_if_changed(
            &folder.join("packed-refs"),
            b"# pack-refs\nabc refs/heads/other\ndef refs/heads/main\n",
        )
        .unwrap();
        assert_eq!(commit_in(&folder).as_deref(), Some("def"));
        write_if_changed(&folder.join("refs/heads/main"), b"0123\n").unwrap();
        assert_eq!(commit_in(&folder).as_deref(), Some("0123"));
        write_if_changed(&folder.join("HEAD"), b"4567\n").unwrap();
        assert_eq!(commit_in(&folder).as_deref(), Some("4567"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn data_and_documents_do_not_make_a_checkout_dirty() {
        let folder = std::env::temp_dir().join(format!("xtask-dirty-{}", std::process::id()));
        let write = |path: &str, text: &[u8]| write_if_changed(&folder.join(path), text).unwrap();
        let harmless = ["README.md", "docs/book/models.md", "docs/results/models.json"];
        for path in harmless.into_iter().chain(["code.rs"]) {
            write(path, b"before");
        }
        git(&folder, &["init", "-q"]).unwrap();
        git(&folder, &["add", "."]).unwrap();
        let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
        git(&folder, &[&author[..], &["commit", "-q", "-m", "one"]].concat()).unwrap();
        for path in harmless {
            write(path, b"after");
        }
        let clean = described_commit(&folder).unwrap();
        assert_eq!(clean.len(), 12, "{clean}");
        write("code.rs", b"after");
        assert_eq!(described_commit(&folder).unwrap(), format!("{clean}-dirty"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn readers_of_a_file_that_is_written_find_a_whole_one() {
        let folder = std::env::temp_dir().join(format!("xtask-whole-{}", std::process::id()));
        let (path, link) = (folder.join("deep/file"), folder.join("link"));
        write_whole(&path, b"the first text").unwrap();
        let mut reader = std::fs::File::open(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_whole(&link, b"second").unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "the first text");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        // It is no file, and stays what it is.
        write_whole(Path::new("/dev/null"), b"third").unwrap();
        assert!(!Path::new("/dev/null").is_file());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_unchanged_file_is_not_touched() {
        let folder = std::env::temp_dir().join(format!("xtask-write-{}", std::process::id()));
        let path = folder.join("deep/file");
        write_if_changed(&path, b"one").unwrap();
        let before = std::fs::metadata(&path).unwrap().modified().unwrap();
        write_if_changed(&path, b"one").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), before);
        write_if_changed(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
