//! Debian's kernel of Linux for riscv64, to which COPS is compared: fetched once.

use std::path::{Path, PathBuf};

use crate::debian::{Archive, RELEASE};
use crate::error::{Because, Failure, Outcome};
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

/// Depends on the package of the current version.
const PACKAGE: &str = "linux-image-riscv64";
const PREFIX: &str = "linux-image-";
/// How the name of the kernel's file begins, before its version.
const FILE: &str = "vmlinux-";

/// A kernel that QEMU can boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinuxKernel {
    pub image: PathBuf,
    /// As `uname -r` has it.
    pub version: String,
}

/// The kernel, if it has been fetched.
fn found(folder: &Path) -> Option<LinuxKernel> {
    let image = folder.join("Image");
    let version = std::fs::read_to_string(folder.join("version")).ok()?;
    image.is_file().then_some(LinuxKernel { image, version })
}

/// The kernel, which is fetched if it is not there.
///
/// # Errors
/// If this is not Debian, or the mirror cannot be reached or does not have it.
pub fn ensure(workspace: &Workspace, progress: Progress) -> Outcome<LinuxKernel> {
    let folder = workspace.target.join("linux-kernel");
    if let Some(kernel) = found(&folder) {
        return Ok(kernel);
    }
    // Its modules, which are not used, are most of the package.
    let name = format!("fetching Linux of Debian {RELEASE} for riscv64 (over 100 MB)");
    let mut step = Step::begin(progress, name);
    let archive = Archive::open(&folder, &mut step)?;
    let package = archive.dependency(PACKAGE, PREFIX, &mut step)?;
    let unpacked = archive.unpack(&package, &mut step)?;
    let (file, version) = kernel_in(&unpacked.root.join("boot"))?;
    let write = |name: &str| format!("cannot write {}", folder.join(name).display());
    std::fs::write(folder.join("version"), &version).because(|| write("version"))?;
    let image = folder.join("Image");
    // Renamed last: the kernel is there if everything succeeded.
    std::fs::rename(&file, &image).because(|| write("Image"))?;
    let _ = std::fs::remove_file(&unpacked.package);
    archive.close();
    step.done();
    Ok(LinuxKernel { image, version })
}

/// The kernel's file in the folder `boot` of a package, and its version.
fn kernel_in(boot: &Path) -> Outcome<(PathBuf, String)> {
    let entries = std::fs::read_dir(boot).because(|| format!("cannot read {}", boot.display()))?;
    for entry in entries.flatten() {
        if let Some(version) = entry.file_name().to_string_lossy().strip_prefix(FILE) {
            return Ok((entry.path(), version.to_owned()));
        }
    }
    Err(Failure::new(format!("{} contains no {FILE}*", boot.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_found_with_its_version() {
        let boot = std::env::temp_dir().join(format!("xtask-kernel-{}", std::process::id()));
        std::fs::create_dir_all(&boot).unwrap();
        assert!(kernel_in(&boot).is_err());
        for name in ["System.map-6.1", "config-6.1", "vmlinux-6.1"] {
            std::fs::write(boot.join(name), "").unwrap();
        }
        assert_eq!(kernel_in(&boot).unwrap(), (boot.join("vmlinux-6.1"), "6.1".to_owned()));
        std::fs::remove_dir_all(boot).unwrap();
    }

    #[test]
    fn a_kernel_without_its_version_is_fetched_again() {
        let folder = std::env::temp_dir().join(format!("xtask-image-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("Image"), "").unwrap();
        assert_eq!(found(&folder), None);
        std::fs::write(folder.join("version"), "6.1").unwrap();
        assert_eq!(found(&folder).unwrap().version, "6.1");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
