//! Debian's kernel of Linux for riscv64, to which COPS is compared, with the modules that it needs
//! for a disk with ext4 and for a network card: fetched once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::debian::Archive;
use crate::error::{Because, Failure, Outcome};
use crate::repository::files_below;
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

/// Depends on the package of the current version.
const PACKAGE: &str = "linux-image-riscv64";
const PREFIX: &str = "linux-image-";
/// The packages into which later releases divide that one.
const PARTS: [&str; 2] = ["linux-binary-", "linux-modules-"];
/// How the name of the kernel's file in `boot` begins, before its version.
const FILE: &str = "vmlinux-";
/// Its name in later releases, in the folder of the version's modules.
const FILE_WITH_MODULES: &str = "vmlinuz";
/// Where the folders with the modules of a version are.
const MODULE_FOLDERS: [&str; 2] = ["usr/lib/modules", "lib/modules"];
/// The modules for a disk with ext4, besides those that these name as their dependencies: ext4
/// finds its checksum by the name of an algorithm.
const MODULES: [&str; 4] = ["virtio_mmio", "virtio_blk", "crc32c_generic", "ext4"];
/// Those for a network card.
const NETWORK_MODULES: [&str; 2] = ["virtio_mmio", "virtio_net"];
/// The folders of both below that of the kernel.
const FOLDERS: [(&str, &[&str]); 2] =
    [("modules", &MODULES), ("network-modules", &NETWORK_MODULES)];

/// A kernel that QEMU can boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinuxKernel {
    pub image: PathBuf,
    /// As `uname -r` has it.
    pub version: String,
    /// The files of its modules for a disk with ext4, in the order in which they are loaded, which
    /// is that of their names.
    pub modules: Vec<PathBuf>,
    /// The same for a network card.
    pub network_modules: Vec<PathBuf>,
}

/// The kernel, if it has been fetched.
fn found(folder: &Path) -> Option<LinuxKernel> {
    let image = folder.join("Image");
    let version = std::fs::read_to_string(folder.join("version")).ok()?;
    let [modules, network_modules] =
        FOLDERS.map(|(name, _)| files_below(&folder.join(name), |_| true).unwrap_or_default());
    let is_whole = image.is_file() && modules.len() >= MODULES.len() && !network_modules.is_empty();
    is_whole.then_some(LinuxKernel { image, version, modules, network_modules })
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
    // Its modules, few of which are used, are most of the package.
    let name = "fetching Linux of Debian for riscv64 (over 100 MB)";
    let mut step = Step::begin(progress, name);
    let archive = Archive::open(&folder, &mut step)?;
    let package = archive.dependency(PACKAGE, PREFIX, &mut step)?.ok_or_else(|| {
        let release = archive.release();
        Failure::new(format!("{PACKAGE} of Debian {release} depends on no {PREFIX}*"))
    })?;
    let root = archive.unpack(&package, &mut step)?;
    for prefix in PARTS {
        if let Some(part) = archive.dependency(&package, prefix, &mut step)? {
            archive.unpack(&part, &mut step)?;
        }
    }
    let (file, version) = kernel_in(&root)?;
    let write = |name: &str| format!("cannot write {}", folder.join(name).display());
    std::fs::write(folder.join("version"), &version).because(|| write("version"))?;
    for (place, wanted) in FOLDERS {
        std::fs::create_dir_all(folder.join(place)).because(|| write(place))?;
        for (index, (name, contents)) in modules_of(&root, &version, wanted)?.iter().enumerate() {
            let name = format!("{place}/{index:02}-{name}.ko");
            std::fs::write(folder.join(&name), contents).because(|| write(&name))?;
        }
    }
    let image = folder.join("Image");
    // Renamed last: the kernel is there if everything succeeded.
    std::fs::rename(&file, &image).because(|| write("Image"))?;
    archive.close();
    step.done();
    found(&folder).ok_or_else(|| Failure::new(format!("{} is incomplete", folder.display())))
}

/// Names and contents of the wanted modules and their dependencies in the files of the package,
/// each behind its dependencies.
fn modules_of(package: &Path, version: &str, wanted: &[&str]) -> Outcome<Vec<(String, Vec<u8>)>> {
    let places = MODULE_FOLDERS.map(|place| package.join(place).join(version));
    let place = places.iter().find(|place| place.is_dir()).ok_or_else(|| {
        Failure::new(format!("the package of Linux {version} contains no modules"))
    })?;
    let files = files_below(place, |path| module_name(path).is_some())?;
    let files: BTreeMap<String, PathBuf> =
        files.into_iter().filter_map(|file| Some((module_name(&file)?, file))).collect();
    let mut loaded = Vec::new();
    for name in wanted {
        add_module(name, &files, &mut loaded)?;
    }
    Ok(loaded)
}

/// Adds a module behind its dependencies. A name without a file is a part of the kernel itself.
fn add_module(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    loaded: &mut Vec<(String, Vec<u8>)>,
) -> Outcome<()> {
    let Some(file) = files.get(name) else { return Ok(()) };
    if loaded.iter().any(|(known, _)| known == name) {
        return Ok(());
    }
    let contents = decompressed(file)?;
    for dependency in dependencies(&contents) {
        add_module(&dependency, files, loaded)?;
    }
    loaded.push((name.to_owned(), contents));
    Ok(())
}

/// The name of the module in a file; `None` if it is no module.
fn module_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let (name, ending) = name.split_once('.')?;
    // The kernel makes no difference between the two characters.
    matches!(ending, "ko" | "ko.xz").then(|| name.replace('-', "_"))
}

/// The contents of a module's file, which may be compressed.
fn decompressed(file: &Path) -> Outcome<Vec<u8>> {
    if file.extension().is_some_and(|ending| ending == "ko") {
        return std::fs::read(file).because(|| format!("cannot read {}", file.display()));
    }
    let output = Command::new("xz").arg("-dc").arg(file).stderr(Stdio::inherit()).output();
    let output = output.because(|| "cannot start xz, of Debian's package xz-utils".to_owned())?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(Failure::new(format!("xz cannot decompress {}", file.display())))
    }
}

/// The names of the modules that a module needs: a text in it, behind a zero.
fn dependencies(module: &[u8]) -> Vec<String> {
    const BEFORE: &[u8] = b"\0depends=";
    let begin = module.windows(BEFORE.len()).position(|window| window == BEFORE);
    let rest = begin.and_then(|begin| module.get(begin + BEFORE.len()..)).unwrap_or_default();
    let text = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    let names = text.split(|byte| *byte == b',').filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).replace('-', "_")).collect()
}

/// The kernel's file among the files of its packages, and its version.
fn kernel_in(root: &Path) -> Outcome<(PathBuf, String)> {
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let boot = root.join("boot");
    for name in names(&boot) {
        if let Some(version) = name.strip_prefix(FILE) {
            return Ok((boot.join(&name), version.to_owned()));
        }
    }
    for folder in MODULE_FOLDERS.map(|folder| root.join(folder)) {
        for version in names(&folder) {
            let file = folder.join(&version).join(FILE_WITH_MODULES);
            if file.is_file() {
                return Ok((file, version));
            }
        }
    }
    Err(Failure::new(format!("{} contains no kernel", root.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_found_with_its_version() {
        let root = std::env::temp_dir().join(format!("xtask-kernel-{}", std::process::id()));
        let (boot, modules) = (root.join("boot"), root.join("usr/lib/modules/7.2"));
        for folder in [&boot, &modules] {
            std::fs::create_dir_all(folder).unwrap();
        }
        assert!(kernel_in(&root).is_err());
        std::fs::write(modules.join("vmlinuz"), "").unwrap();
        assert_eq!(kernel_in(&root).unwrap(), (modules.join("vmlinuz"), "7.2".to_owned()));
        for name in ["System.map-6.1", "config-6.1", "vmlinux-6.1"] {
            std::fs::write(boot.join(name), "").unwrap();
        }
        assert_eq!(kernel_in(&root).unwrap(), (boot.join("vmlinux-6.1"), "6.1".to_owned()));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_kernel_without_its_version_is_fetched_again() {
        let folder = std::env::temp_dir().join(format!("xtask-image-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("Image"), "").unwrap();
        assert_eq!(found(&folder), None);
        std::fs::write(folder.join("version"), "6.1").unwrap();
        assert_eq!(found(&folder), None);
        std::fs::create_dir(folder.join("modules")).unwrap();
        for name in ["03-d.ko", "01-b.ko", "00-a.ko", "02-c.ko"] {
            std::fs::write(folder.join("modules").join(name), "").unwrap();
        }
        assert_eq!(found(&folder), None, "without modules for a network card");
        std::fs::create_dir(folder.join("network-modules")).unwrap();
        std::fs::write(folder.join("network-modules/00-net.ko"), "").unwrap();
        let kernel = found(&folder).unwrap();
        assert_eq!(kernel.network_modules.len(), 1);
        assert_eq!(kernel.version, "6.1");
        assert!(kernel.modules[0].ends_with("00-a.ko") && kernel.modules[3].ends_with("03-d.ko"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn modules_come_behind_their_dependencies() {
        let package = std::env::temp_dir().join(format!("xtask-modules-{}", std::process::id()));
        let place = package.join("usr/lib/modules/6.1/kernel");
        std::fs::create_dir_all(&place).unwrap();
        assert!(modules_of(&package, "6.2", &MODULES).is_err());
        for (name, depends) in [
            ("ext4", "jbd2,mbcache,built-in"),
            ("jbd2", "crc-x"),
            ("crc-x", ""),
            ("mbcache", ""),
            ("virtio_blk", ""),
            ("unused", "jbd2"),
        ] {
            let contents = format!("\x7fELF\0license=GPL\0depends={depends}\0name={name}\0");
            std::fs::write(place.join(format!("{name}.ko")), contents).unwrap();
        }
        std::fs::write(place.join("ext4.txt"), "").unwrap();
        let modules = modules_of(&package, "6.1", &MODULES).unwrap();
        let names: Vec<&str> = modules.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["virtio_blk", "crc_x", "jbd2", "mbcache", "ext4"]);
        std::fs::remove_dir_all(package).unwrap();
    }

    #[test]
    fn dependencies_are_a_text_behind_a_zero() {
        assert_eq!(dependencies(b"x\0depends=a-b,c\0y"), ["a_b", "c"]);
        assert_eq!(dependencies(b"x\0depends=\0y"), [""; 0]);
        assert_eq!(dependencies(b"softdepends=a\0"), [""; 0]);
    }
}
