//! Images of `mkfs.ext4`, and the judgement of `e2fsck`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file for one image; removed when dropped.
pub struct File(pub PathBuf);

impl File {
    pub fn new(bytes: &[u8]) -> File {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("{}-{}.img", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, bytes).unwrap();
        File(path)
    }

    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A program of the Debian package e2fsprogs; its folder is not in every user's path.
pub fn tool(name: &str) -> Command {
    let full = PathBuf::from("/usr/sbin").join(name);
    Command::new(if full.exists() { full } else { PathBuf::from(name) })
}

/// A new file system of `size` bytes.
pub fn make(size: usize, options: &str) -> Vec<u8> {
    let file = File::new(b"");
    std::fs::File::options().write(true).open(&file.0).unwrap().set_len(size as u64).unwrap();
    let mut mkfs = tool("mkfs.ext4");
    mkfs.args(["-q", "-F"]).args(options.split_whitespace()).arg(&file.0);
    let output = mkfs.output().expect("mkfs.ext4 of the package e2fsprogs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    file.bytes()
}

/// The kinds of images that the tests use: name, size, options.
pub const IMAGES: [(&str, usize, &str); 4] = [
    ("Debian", 12 << 20, "-b 4096 -J size=4 -I 256"),
    ("short blocks", 8 << 20, "-b 1024 -J size=1 -g 2048"),
    ("no checksums", 8 << 20, "-b 2048 -J size=2 -O ^metadata_csum,^dir_index -g 2048"),
    (
        "32 bits",
        6 << 20,
        "-b 1024 -J size=1 -O ^metadata_csum,^64bit,^flex_bg,^resize_inode -I 128",
    ),
];

/// What `e2fsck` said: the exit code and the lines that ask for something.
pub struct Verdict {
    pub code: i32,
    pub output: String,
}

impl Verdict {
    fn of(mut command: Command) -> Verdict {
        let output = command.output().expect("e2fsck of the package e2fsprogs");
        Verdict {
            code: output.status.code().unwrap_or(-1),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
        }
    }

    /// Questions, but for those about what could be smaller.
    pub fn complaints(&self) -> Vec<&str> {
        self.output
            .lines()
            .filter(|line| line.contains("? yes") || line.contains("? no"))
            .filter(|line| !line.contains("Optimize?"))
            .collect()
    }
}

/// Fails if `e2fsck -fn` finds anything.
pub fn must_be_clean(bytes: &[u8], context: &str) {
    let file = File::new(bytes);
    let mut command = tool("e2fsck");
    command.arg("-fn").arg(&file.0);
    let verdict = Verdict::of(command);
    assert!(
        verdict.code == 0 || (verdict.code == 4 && only_optimisations(&verdict)),
        "{context}: e2fsck -fn: {}\n{}",
        verdict.code,
        verdict.output
    );
}

/// Whether all that `e2fsck` asked is whether to make trees smaller.
fn only_optimisations(verdict: &Verdict) -> bool {
    verdict.output.contains("Optimize?") && verdict.complaints().is_empty()
}

/// Replays the journal with `e2fsck -fy` and returns the image. Fails if there was anything else to
/// repair.
pub fn repaired(bytes: &[u8], context: &str) -> Vec<u8> {
    let file = File::new(bytes);
    let mut command = tool("e2fsck");
    command.arg("-fy").arg(&file.0);
    let verdict = Verdict::of(command);
    assert!(
        matches!(verdict.code, 0 | 1) && verdict.complaints().is_empty(),
        "{context}: e2fsck -fy: {}\n{}",
        verdict.code,
        verdict.output
    );
    file.bytes()
}
