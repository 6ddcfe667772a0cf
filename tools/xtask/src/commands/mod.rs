//! One module per command of `./cops`, and the preparation of a boot that they share.

pub mod bench;
pub mod build;
pub mod check;
pub mod clean;
pub mod debug;
pub mod exec;
pub mod fuzz;
pub mod profile;
pub mod report;
pub mod run;
pub mod serve;
pub mod shell;
pub mod top;
pub mod trace;

use std::path::{Path, PathBuf};
use std::thread;

use crate::build::Guest;
use crate::cli::{Idle, Machine};
use crate::error::{Because, Failure, Outcome};
use crate::packages;
use crate::qemu::command::{Boot, Disk, Network};
use crate::qemu::version::Qemu;
use crate::scheduler;
use crate::terminal::Progress;
use crate::toolchain::GuestToolchain;
use crate::workspace::{Scratch, Workspace};

/// An environment variable. If it is set, the guest is taken as it was built last. `./cops test`
/// sets it for the commands that it starts, which would otherwise wait for every other cargo of the
/// user: cargo's package cache has one lock.
pub const AS_BUILT: &str = "COPS_AS_BUILT";

/// A built guest, and a QEMU to boot it.
#[derive(Debug)]
pub struct Prepared {
    pub qemu: Qemu,
    pub guest: Guest,
    /// Debian's busybox, for boots that are to have it.
    pub busybox: Option<PathBuf>,
    /// The scheduler that is booted in place of the built one.
    pub scheduler: Option<PathBuf>,
    /// Contains the root images of this process.
    scratch: Scratch,
}

impl Prepared {
    /// Installs missing packages, finds the tools and builds the guest.
    pub fn new(workspace: &Workspace, progress: Progress) -> Outcome<Self> {
        packages::ensure(&[packages::QEMU], progress)?;
        let qemu = Qemu::find()?;
        let guest = if std::env::var_os(AS_BUILT).is_some() {
            Guest::as_built(workspace)?
        } else {
            Guest::build(workspace, &GuestToolchain::find(workspace, progress)?, progress)?
        };
        Ok(Self { qemu, guest, busybox: None, scheduler: None, scratch: workspace.scratch()? })
    }

    /// Boots this scheduler in place of the built one, if there is one.
    ///
    /// # Errors
    /// If it is not one that could be booted.
    pub fn with_scheduler(mut self, workspace: &Workspace, file: Option<&Path>) -> Outcome<Self> {
        if let Some(file) = file {
            let kernel = self.scratch.file("kernel");
            scheduler::replace(workspace, &self.guest.kernel, file, &kernel)?;
            self.guest.kernel = kernel;
            self.guest.vdso.object = file.to_owned();
            self.scheduler = Some(file.to_owned());
        }
        Ok(self)
    }

    /// A file of this process with this name, which does not exist yet.
    pub fn scratch_file(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    /// A boot that runs `argv` as process 1, with the files of the `added` folders in the root
    /// image.
    pub fn boot(&self, machine: &Machine, argv: &[String], added: &[PathBuf]) -> Outcome<Boot> {
        // Stages of `./cops test` boot on threads of their own.
        let root_image = self.scratch.file(&format!("root-{:?}.tar", thread::current().id()));
        let busybox = self.busybox.as_deref();
        self.guest.root_image(argv, added, busybox)?.write(&root_image)?;
        // Standard error is for the program and for errors, unless more is requested.
        let level = if machine.verbose { "info" } else { "warn" };
        let mut boot_arguments = vec!["console=mux".to_owned(), format!("loglevel={level}")];
        if machine.idle == Idle::Poll {
            boot_arguments.push("idle=poll".to_owned());
        }
        Ok(Boot {
            kernel: self.guest.kernel.clone(),
            root_image,
            cpu: "rv64",
            harts: machine.smp,
            memory: machine.mem.clone(),
            network: Network::User(Vec::new()),
            disk: None,
            boot_arguments,
            count_instructions: None,
            clock_shift: 0,
            has_slow_harts: false,
            seed: 1,
            gdb_port: None,
            plugin: None,
        })
    }
}

/// Makes the contents of a disk of which programs know each word: it is the word's position.
pub fn disk_of_positions(file: &Path, bytes: u64) -> Outcome<()> {
    let words = (0..bytes).step_by(8).flat_map(u64::to_le_bytes).collect::<Vec<_>>();
    std::fs::write(file, words).because(|| format!("cannot write {}", file.display()))
}

/// The disk with the contents of this file.
///
/// # Errors
/// If it is not a file of whole sectors.
pub fn disk_image(file: &Path) -> Outcome<Disk> {
    let shown = file.display();
    let wrong = match std::fs::metadata(file) {
        Err(error) => format!("no disk {shown}: {error}"),
        Ok(found) if !found.is_file() => format!("{shown} is no file, so it is no disk"),
        Ok(found) if found.len() == 0 || found.len() % SECTOR_BYTES != 0 => {
            format!("{shown} has {} bytes, not whole sectors of {SECTOR_BYTES}", found.len())
        }
        Ok(_) => return Ok(Disk { file: file.to_path_buf(), requests_per_second: None }),
    };
    Err(Failure::new(wrong).advise("make a disk with: truncate -s 64M FILE"))
}

/// Unit of a disk's size.
const SECTOR_BYTES: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_a_file_of_whole_sectors() {
        let folder = std::env::temp_dir().join(format!("xtask-disk-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("disk");
        assert!(disk_image(&file).unwrap_err().to_string().contains("no disk"));
        for (bytes, fault) in [(0, "0 bytes"), (511, "511 bytes"), (1023, "1023 bytes")] {
            std::fs::write(&file, vec![0; bytes]).unwrap();
            assert!(disk_image(&file).unwrap_err().to_string().contains(fault));
        }
        disk_of_positions(&file, 1024).unwrap();
        assert_eq!(disk_image(&file).unwrap().file, file);
        assert!(disk_image(&folder).unwrap_err().to_string().contains("is no file"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
