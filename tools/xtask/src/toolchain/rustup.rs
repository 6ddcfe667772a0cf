//! The toolchain on `PATH`, if it has the guest's target or rustup can add it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use super::GuestToolchain;
use crate::error::{Because, Outcome};
use crate::interrupt;
use crate::process::find_program;
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

/// An attempt to add the target is abandoned if nothing is downloaded for this time: most likely
/// there is no network.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit of an attempt, even if the download progresses.
const LIMIT: Duration = Duration::from_secs(180);
/// A failed attempt is not repeated for this time.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// The toolchain on `PATH` if it can build for `triple`, after adding the target if necessary.
/// `None` if it cannot.
pub fn find(
    triple: &'static str,
    workspace: &Workspace,
    progress: Progress,
) -> Outcome<Option<GuestToolchain>> {
    let (Some(cargo), Some(rustc)) = (find_program("cargo"), find_program("rustc")) else {
        return Ok(None);
    };
    let Some(sysroot) = sysroot(&rustc) else { return Ok(None) };
    if !has_target(&sysroot, triple) && !add_target(workspace, &sysroot, triple, progress)? {
        return Ok(None);
    }
    let (Some(version), Some(host)) = (version_line(&rustc), host_triple(&rustc)) else {
        return Ok(None);
    };
    let rust_lld = sysroot.join("lib/rustlib").join(host).join("bin/rust-lld");
    let (linker, lld): (_, (PathBuf, &'static [&'static str])) = match find_program("ld.lld") {
        _ if rust_lld.exists() => (None, (rust_lld, &["-flavor", "gnu"])),
        Some(ld_lld) => (Some("ld.lld"), (ld_lld, &[])),
        None => return Ok(None),
    };
    Ok(Some(GuestToolchain {
        description: format!("{version} (with its {triple} target)"),
        triple,
        cargo_clippy: cargo.with_file_name("cargo-clippy"),
        cargo,
        environment: Vec::new(),
        build_std: false,
        linker,
        lld,
        clippy_needs: &[],
    }))
}

fn output_of(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn sysroot(rustc: &Path) -> Option<PathBuf> {
    output_of(Command::new(rustc).args(["--print", "sysroot"])).map(PathBuf::from)
}

fn host_triple(rustc: &Path) -> Option<String> {
    let verbose = output_of(Command::new(rustc).arg("-vV"))?;
    verbose.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

/// The output of `rustc --version`.
pub fn version_line(rustc: &Path) -> Option<String> {
    output_of(Command::new(rustc).arg("--version"))
}

/// Whether the target's library is complete. An interrupted addition leaves files that are not in
/// rustup's list of components.
fn has_target(sysroot: &Path, triple: &str) -> bool {
    let rustlib = sysroot.join("lib/rustlib");
    let Ok(files) = std::fs::read_dir(rustlib.join(triple).join("lib")) else { return false };
    let names: Vec<String> =
        files.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    let is_complete = ["libcore-", "liballoc-", "libcompiler_builtins-"]
        .iter()
        .all(|prefix| names.iter().any(|name| name.starts_with(prefix) && name.ends_with(".rlib")));
    let component = format!("rust-std-{triple}");
    is_complete
        && match std::fs::read_to_string(rustlib.join("components")) {
            Ok(components) => components.lines().any(|line| line == component),
            // Not installed by an installer that keeps a list (but by a distribution's package).
            Err(_) => true,
        }
}

/// Lets rustup add the target to the toolchain of `sysroot`. Quick and quiet if that is not
/// possible.
fn add_target(
    workspace: &Workspace,
    sysroot: &Path,
    triple: &str,
    progress: Progress,
) -> Outcome<bool> {
    let Some(rustup) = find_program("rustup") else { return Ok(false) };
    let (Some(home), Some(toolchain)) = (rustup_home(sysroot), sysroot.file_name()) else {
        return Ok(false);
    };
    let memory = workspace.target.join(format!("rustup-offline-{}-{triple}", toolchain.display()));
    if is_recent(&memory) {
        return Ok(false);
    }
    let mut step = Step::begin(progress, format!("rustup target add {triple}"));
    let mut child = Command::new(rustup)
        .args(["target", "add", "--toolchain"])
        .arg(toolchain)
        .arg(triple)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .because(|| "cannot start rustup".into())?;
    let guard = interrupt::guard(&child);
    let downloads = home.join("downloads");
    let started = Instant::now();
    let mut downloaded = 0;
    let mut give_up = started + PATIENCE;
    let succeeded = loop {
        if let Some(status) = child.try_wait().because(|| "cannot wait for rustup".into())? {
            break status.success();
        }
        let now = Instant::now();
        let size = folder_size(&downloads);
        if size > downloaded {
            downloaded = size;
            give_up = (now + PATIENCE).min(started + LIMIT);
        }
        if now >= give_up {
            // Both fail only if it has just ended.
            let _ = child.kill();
            let _ = child.wait();
            break false;
        }
        step.detail(&format!("{} KiB", downloaded / 1024));
        std::thread::sleep(Duration::from_millis(50));
    };
    drop(guard);
    let succeeded = succeeded && has_target(sysroot, triple);
    if succeeded {
        step.done();
    } else {
        let note =
            format!("rustup target add {triple} failed; remove this file to have it tried again\n");
        crate::workspace::write_if_changed(&memory, note.as_bytes())?;
    }
    Ok(succeeded)
}

/// Rustup's home, if this sysroot is one of its toolchains: `HOME/toolchains/NAME`.
fn rustup_home(sysroot: &Path) -> Option<PathBuf> {
    let toolchains = sysroot.parent()?;
    (toolchains.file_name()? == "toolchains").then(|| toolchains.parent().map(Path::to_owned))?
}

fn is_recent(path: &Path) -> bool {
    let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| {
        SystemTime::now().duration_since(modified).is_ok_and(|age| age < REMEMBERED)
    })
}

fn folder_size(folder: &Path) -> u64 {
    let Ok(files) = std::fs::read_dir(folder) else { return 0 };
    files.flatten().filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::GUEST_TRIPLE;

    /// A sysroot with these files under lib/rustlib.
    fn sysroot_with(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let sysroot = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        for (path, content) in files {
            let path = sysroot.join("lib/rustlib").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        sysroot
    }

    const LIBRARIES: [(&str, &str); 3] = [
        ("riscv64gc-unknown-none-elf/lib/libcore-1.rlib", ""),
        ("riscv64gc-unknown-none-elf/lib/liballoc-1.rlib", ""),
        ("riscv64gc-unknown-none-elf/lib/libcompiler_builtins-1.rlib", ""),
    ];

    #[test]
    fn a_target_is_there_when_it_is_complete_and_registered() {
        let complete = sysroot_with("complete", &LIBRARIES);
        assert!(has_target(&complete, GUEST_TRIPLE));
        let registered =
            [&LIBRARIES[..], &[("components", "cargo-x\nrust-std-riscv64gc-unknown-none-elf\n")]]
                .concat();
        let registered = sysroot_with("registered", &registered);
        assert!(has_target(&registered, GUEST_TRIPLE));
        let cut_short = [&LIBRARIES[..], &[("components", "cargo-x\n")]].concat();
        let cut_short = sysroot_with("cut-short", &cut_short);
        assert!(!has_target(&cut_short, GUEST_TRIPLE));
        let partial = sysroot_with("partial", &LIBRARIES[..1]);
        assert!(!has_target(&partial, GUEST_TRIPLE));
        assert!(!has_target(Path::new("/nonexistent"), GUEST_TRIPLE));
        for folder in [complete, registered, cut_short, partial] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn only_rustups_own_toolchains_have_its_home() {
        assert_eq!(
            rustup_home(Path::new("/h/.rustup/toolchains/stable-x")),
            Some("/h/.rustup".into())
        );
        assert_eq!(rustup_home(Path::new("/usr")), None);
    }

    #[test]
    fn a_failure_is_remembered_for_a_day() {
        let file = std::env::temp_dir().join(format!("xtask-memory-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        assert!(is_recent(&file));
        std::fs::File::open(&file).unwrap().set_modified(SystemTime::now() - REMEMBERED).unwrap();
        assert!(!is_recent(&file));
        std::fs::remove_file(&file).unwrap();
        assert!(!is_recent(&file));
    }
}
