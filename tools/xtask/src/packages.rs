//! Packages that the host must have besides Rust. They are installed where that is possible (Debian
//! family, root or sudo); otherwise the error names them. Does nothing if all are present.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use crate::error::{Failure, Outcome};
use crate::process::{capture, find_program, shown};
use crate::terminal::{Progress, Step};

/// Something that a command requires.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Its description for users of other systems.
    pub what: &'static str,
    /// Debian packages that contain it. Of each group the first existing one is installed, because
    /// names differ between releases.
    pub packages: &'static [&'static [&'static str]],
    pub is_present: fn() -> bool,
}

/// QEMU for RISC-V, with its firmware.
pub const QEMU: Need = Need {
    what: "QEMU 7.2 or newer: qemu-system-riscv64, with the OpenSBI firmware",
    packages: &[&["qemu-system-riscv", "qemu-system-misc"]],
    is_present: || {
        std::env::var_os("COPS_QEMU").is_some() || find_program("qemu-system-riscv64").is_some()
    },
};

/// QEMU for 32-bit RISC-V.
pub const QEMU_32: Need = Need {
    what: "qemu-system-riscv32",
    packages: &[&["qemu-system-riscv", "qemu-system-misc"]],
    is_present: || find_program("qemu-system-riscv32").is_some(),
};

/// A debugger for RISC-V.
pub const GDB: Need = Need {
    what: "gdb-multiarch (a gdb that knows riscv64)",
    packages: &[&["gdb-multiarch"]],
    is_present: || find_program("gdb-multiarch").is_some(),
};

/// Counts instructions on the host.
pub const VALGRIND: Need = Need {
    what: "valgrind",
    packages: &[&["valgrind"]],
    is_present: || find_program("valgrind").is_some(),
};

/// Makes, checks and takes apart ext4 images, for the tests of `cops-ext4`.
pub const E2FSPROGS: Need = Need {
    what: "mkfs.ext4, e2fsck and debugfs",
    packages: &[&["e2fsprogs"]],
    is_present: || {
        ["mkfs.ext4", "e2fsck", "debugfs"].iter().all(|program| {
            find_program(program).is_some() || Path::new("/usr/sbin").join(program).exists()
        })
    },
};

/// A C compiler for Linux on RISC-V, with the static C library.
pub const LINUX_GCC: Need = Need {
    what: "riscv64-linux-gnu-gcc with a static C library for riscv64",
    packages: &[&["gcc-riscv64-linux-gnu"], &["libc6-dev-riscv64-cross"]],
    is_present: || {
        find_program("riscv64-linux-gnu-gcc").is_some()
            && Path::new("/usr/riscv64-linux-gnu/lib/libc.a").exists()
    },
};

/// Runs programs for Linux on RISC-V on this host.
pub const QEMU_USER: Need = Need {
    what: "user-mode QEMU for riscv64: qemu-riscv64-static or qemu-riscv64",
    packages: &[&["qemu-user-static", "qemu-user"]],
    is_present: || qemu_user().is_some(),
};

/// User-mode QEMU for riscv64.
pub fn qemu_user() -> Option<std::path::PathBuf> {
    find_program("qemu-riscv64-static").or_else(|| find_program("qemu-riscv64"))
}

/// Debian's Rust with the library sources, for building for the guest without rustup (SPEC 1.3 b).
pub const DEBIAN_RUST: Need = Need {
    what: "Debian's Rust 1.95 or newer with its library sources, and the linker ld.lld",
    packages: &[&["rustc-web"], &["cargo-web"], &["rust-web-src"], &["lld"]],
    is_present: || {
        ["/usr/bin/rustc", "/usr/bin/cargo", "/usr/lib/rustlib/src/rust/library/core/Cargo.toml"]
            .iter()
            .all(|path| Path::new(path).exists())
            && find_program("ld.lld").is_some()
    },
};

/// Clippy for Debian's Rust.
pub const DEBIAN_CLIPPY: Need = Need {
    what: "clippy for Debian's Rust",
    packages: &[&["rust-web-clippy"]],
    is_present: || Path::new("/usr/bin/cargo-clippy").exists(),
};

/// rustfmt for Debian's Rust.
pub const DEBIAN_RUSTFMT: Need = Need {
    what: "rustfmt for Debian's Rust",
    packages: &[&["rustfmt-web"]],
    is_present: || Path::new("/usr/bin/cargo-fmt").exists(),
};

/// Whether packages can be installed on this system.
pub fn is_debian_family() -> bool {
    find_program("apt-get").is_some()
}

/// Makes sure that all needs are met, or names what is missing.
pub fn ensure(needs: &[Need], progress: Progress) -> Outcome<()> {
    // Stages of `./cops test` come here at the same time; apt-get works for one.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _installing = INSTALLING.lock().unwrap();
    let missing: Vec<&Need> = needs.iter().filter(|need| !(need.is_present)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_debian_family() {
        return Err(Failure::new(format!("missing: {}", names(&missing)))
            .advise("this is not a Debian-family system, where ./cops could install it: please install it and run this again"));
    }
    install(&missing, progress)?;
    match missing.iter().find(|need| !(need.is_present)()) {
        None => Ok(()),
        Some(need) => Err(Failure::new(format!(
            "apt-get installed {}, but {} is still not there",
            package_names(need),
            need.what
        ))
        .advise(
            "is another version of it installed by hand? `apt-get install --reinstall` may help",
        )),
    }
}

fn names(needs: &[&Need]) -> String {
    needs.iter().map(|need| need.what).collect::<Vec<_>>().join("; ")
}

fn package_names(need: &Need) -> String {
    need.packages.iter().map(|group| group.join(" or ")).collect::<Vec<_>>().join(" ")
}

fn install(missing: &[&Need], progress: Progress) -> Outcome<()> {
    let by_hand = missing.iter().map(|need| package_names(need)).collect::<Vec<_>>().join(" ");
    let Some(prefix) = privilege() else {
        return Err(Failure::new(format!("missing: {}", names(missing)))
            .advise(format!("installing it needs root, or sudo: apt-get install {by_hand}")));
    };
    let mut step = Step::begin(progress, format!("installing {by_hand}"));
    // The package lists may be missing (a fresh system) or stale: update them, so that the
    // installation works at the first attempt.
    apt(prefix, &["update", "-q"], &mut step)?;
    let packages: Vec<&str> =
        missing.iter().flat_map(|need| need.packages).map(|group| available(group)).collect();
    // --no-remove: never remove installed packages (rustc-web conflicts with rustc and with
    // Debian's rustup).
    let mut arguments = vec!["install", "-y", "-q", "--no-remove", "--no-install-recommends"];
    arguments.extend(packages);
    apt(prefix, &arguments, &mut step)?;
    step.done();
    Ok(())
}

/// The first package of the group that apt knows; the last one if it knows none (apt-get then
/// reports it).
fn available(group: &[&'static str]) -> &'static str {
    let known = |name: &&&str| {
        Command::new("apt-cache")
            .args(["show", "--no-all-versions", name])
            .output()
            .is_ok_and(|output| output.status.success())
    };
    group.iter().find(known).or(group.last()).copied().unwrap_or_default()
}

/// The prefix of apt-get commands; `None` if installing is not permitted.
fn privilege() -> Option<&'static [&'static str]> {
    if rustix::process::geteuid().is_root() {
        Some(&[])
    } else if find_program("sudo").is_some() {
        Some(&["sudo"])
    } else {
        None
    }
}

fn apt(prefix: &[&str], arguments: &[&str], step: &mut Step) -> Outcome<()> {
    let mut words = prefix.to_vec();
    words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    words.extend(arguments);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    let captured = capture(&mut command, None, |line| step.detail(line))?;
    if captured.succeeded() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{}\n{} failed ({})",
        captured.everything().trim_end(),
        shown(&command),
        captured.ending()
    ))
    .advise("run it by hand, then this again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_installed() {
        let present = Need {
            what: "sh",
            packages: &[&["no-such-package"]],
            is_present: || find_program("sh").is_some(),
        };
        ensure(&[present], Progress::Transient).unwrap();
    }

    #[test]
    fn alternatives_are_named() {
        assert_eq!(package_names(&QEMU), "qemu-system-riscv or qemu-system-misc");
        assert_eq!(package_names(&DEBIAN_RUST), "rustc-web cargo-web rust-web-src lld");
    }
}
