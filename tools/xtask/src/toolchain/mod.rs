//! Chooses the Rust toolchain for the freestanding guest (SPEC 1.3), and for programs for Linux:
//! rustup's if it has the target or can add it, otherwise Debian's.

mod debian;
mod rustup;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Failure, Outcome};
use crate::packages::{self, Need};
use crate::terminal::Progress;
use crate::workspace::{GUEST_TRIPLE, Workspace};

/// What COPS asks of a hart beyond RV64GC (decision 25); the kernel checks it at boot.
const HART_FEATURES: &str = "+zba,+zbb,+zbs,+unaligned-scalar-mem,+relax";

/// A Rust toolchain that can build for the guest.
#[derive(Debug, Clone)]
pub struct GuestToolchain {
    /// For messages and for the record: `rustc 1.95.0 (rustup, with its riscv64gc target)`.
    pub description: String,
    /// The target triple.
    triple: &'static str,
    cargo: PathBuf,
    cargo_clippy: PathBuf,
    /// Environment variables of every cargo that is run.
    environment: Vec<(&'static str, OsString)>,
    /// Whether the libraries of Rust must be built from their sources.
    build_std: bool,
    /// The linker to pass to rustc; `None` if rustc has its own.
    linker: Option<&'static str>,
    /// LLVM's linker as a program with its first arguments, to link the vDSO without rustc.
    pub lld: (PathBuf, &'static [&'static str]),
    /// Additional packages that clippy needs.
    clippy_needs: &'static [Need],
}

impl GuestToolchain {
    /// Finds a toolchain, in the order of SPEC 1.3. Installs Debian's if there is no other.
    /// `COPS_GUEST_TOOLCHAIN` set to `rustup` or `debian` overrides the choice.
    pub fn find(workspace: &Workspace, progress: Progress) -> Outcome<Self> {
        Self::find_for(GUEST_TRIPLE, workspace, progress)
    }

    /// Like `find`, for another target.
    pub fn find_for(
        triple: &'static str,
        workspace: &Workspace,
        progress: Progress,
    ) -> Outcome<Self> {
        let wanted = std::env::var("COPS_GUEST_TOOLCHAIN").unwrap_or_default();
        if !["", "rustup", "debian"].contains(&wanted.as_str()) {
            return Err(Failure::new(format!("COPS_GUEST_TOOLCHAIN={wanted} is no toolchain"))
                .advise("give rustup or debian"));
        }
        if wanted != "debian"
            && let Some(found) = rustup::find(triple, workspace, progress)?
        {
            return Ok(found);
        }
        if wanted != "rustup" && packages::is_debian_family() {
            packages::ensure(&[packages::DEBIAN_RUST], progress)?;
            return debian::find(triple);
        }
        Err(Failure::new(format!("no Rust here can build for {triple}"))
            .advise(format!("with a network: rustup target add {triple}")))
    }

    /// `cargo SUBCOMMAND` for the guest, with the flags of all guest crates and `rustflags`. Its
    /// output goes to `target`.
    pub fn cargo(
        &self,
        subcommand: &str,
        workspace: &Workspace,
        target: PathBuf,
        rustflags: &[String],
    ) -> Command {
        let mut command = Command::new(&self.cargo);
        command.arg(subcommand);
        self.configure(&mut command, workspace, target, rustflags);
        command
    }

    /// `cargo SUBCOMMAND --release` in `folder`, a workspace of its own, which defines its own
    /// linking. Its output goes to `target`.
    pub fn cargo_in(&self, folder: &Path, subcommand: &str, target: PathBuf) -> Command {
        let mut command = Command::new(&self.cargo);
        command.args([subcommand, "--release", "--locked"]).current_dir(folder);
        self.configure_target(&mut command, target, self.linker_flag().as_slice());
        command
    }

    /// `cargo SUBCOMMAND --release` in `folder`, a workspace of its own, for a static program for
    /// Linux. Its output goes to `target`. Needs [`packages::LINUX_GCC`].
    pub fn cargo_for_linux(&self, folder: &Path, subcommand: &str, target: PathBuf) -> Command {
        let mut command = Command::new(&self.cargo);
        command.args([subcommand, "--release", "--locked"]).current_dir(folder);
        // For the same harts as the programs of COPS, with which some are compared.
        let features = format!("-Ctarget-feature=+crt-static,{HART_FEATURES}");
        let flags = ["-Clinker=riscv64-linux-gnu-gcc".to_owned(), features];
        self.configure_target(&mut command, target, &flags);
        command
    }

    /// `cargo clippy` for the guest. Installs clippy if it is Debian's and missing.
    pub fn clippy(&self, workspace: &Workspace, progress: Progress) -> Outcome<Command> {
        packages::ensure(self.clippy_needs, progress)?;
        // Called by its path, because `cargo clippy` would take the first cargo-clippy on PATH,
        // which may be another toolchain's.
        let mut command = Command::new(&self.cargo_clippy);
        command.arg("clippy").env("CARGO", &self.cargo);
        self.configure(&mut command, workspace, workspace.guest_target(), &[]);
        Ok(command)
    }

    fn configure(
        &self,
        command: &mut Command,
        workspace: &Workspace,
        target: PathBuf,
        rustflags: &[String],
    ) {
        let mut flags = vec![
            // For a panic's backtrace.
            "-Cforce-frame-pointers=yes".to_owned(),
            format!("-Ctarget-feature={HART_FEATURES}"),
        ];
        flags.extend(self.linker_flag());
        flags.extend_from_slice(rustflags);
        command.args(["--profile", "guest"]).current_dir(&workspace.root);
        self.configure_target(command, target, &flags);
    }

    fn linker_flag(&self) -> Option<String> {
        self.linker.map(|linker| format!("-Clinker={linker}"))
    }

    fn configure_target(&self, command: &mut Command, target: PathBuf, flags: &[String]) {
        command.args(["--target", self.triple]);
        if self.build_std {
            let is_freestanding = self.triple.ends_with("-none-elf");
            // A package's profile chooses one of the two ways to panic; neither brings the other.
            let hosted = "std,panic_unwind,panic_abort";
            let libraries = if is_freestanding { "core,alloc" } else { hosted };
            command.arg(format!("-Zbuild-std={libraries}"));
        }
        command
            .env("CARGO_TARGET_DIR", target)
            // 0x1f separates the flags, because they may contain spaces.
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
            .env_remove("RUSTFLAGS")
            .env("CARGO_TERM_PROGRESS_WHEN", "never")
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
    }
}
