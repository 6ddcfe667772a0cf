//! The root image: a USTAR archive that QEMU puts into the guest's memory.
//!
//! `bin/*` are the programs, `etc/init` is the command line of the first process (its arguments,
//! each ended by a NUL byte), and `boot/kernel.sym` names the kernel's functions. The archive
//! depends only on its content: it is sorted and has no times or owners. Files of a page and more
//! begin at a page of the archive, so the kernel can map them where they are (decision 71): what is
//! left out before them is an extended header with a comment, which readers of archives pass over.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::busybox;
use crate::error::{Because, Failure, Outcome};

/// Maximum length of a path in a USTAR header without a prefix. The format can split longer paths,
/// but a reader without support for that would silently use another name.
const LONGEST_PATH: usize = 100;
/// Maximum depth of folders that `add_folder` follows; it ends a loop of links.
const DEEPEST: usize = 32;

/// The unit of an archive.
const BLOCK_BYTES: usize = 512;
/// A page of the guest in blocks.
const PAGE_BLOCKS: usize = 4096 / BLOCK_BYTES;

/// The files of an image, by path without a leading slash. A file that is added replaces an earlier
/// one with the same path.
#[derive(Debug, Default)]
pub struct RootImage {
    files: BTreeMap<String, File>,
}

#[derive(Debug)]
struct File {
    /// The contents; the target of a symbolic link.
    bytes: Vec<u8>,
    mode: u32,
    is_link: bool,
}

impl RootImage {
    /// Adds a file with these bytes. `mode` contains the permission bits.
    pub fn add(&mut self, path: &str, bytes: Vec<u8>, mode: u32) -> Outcome<()> {
        let is_clean = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        if !is_clean {
            return Err(Failure::new(format!("{path:?} is no path inside the root image")));
        }
        if path.len() > LONGEST_PATH {
            return Err(Failure::new(format!("the path {path:?} is {} bytes long", path.len()))
                .advise(format!(
                    "a path in the root image has at most {LONGEST_PATH} bytes; use shorter names"
                )));
        }
        self.files.insert(path.to_owned(), File { bytes, mode, is_link: false });
        Ok(())
    }

    /// Adds a symbolic link, unless there is a file with this path.
    pub fn add_link(&mut self, path: &str, target: &str) -> Outcome<()> {
        if !self.files.contains_key(path) {
            self.add(path, target.as_bytes().to_vec(), 0o777)?;
            if let Some(link) = self.files.get_mut(path) {
                link.is_link = true;
            }
        }
        Ok(())
    }

    /// Adds busybox as `bin/busybox`, links for its applets that are not programs in `bin` already,
    /// and the names of the only user.
    pub fn add_busybox(&mut self, program: &Path) -> Outcome<()> {
        self.add_file(program, "bin/busybox")?;
        let bytes =
            std::fs::read(program).because(|| format!("cannot read {}", program.display()))?;
        for applet in busybox::applets(&bytes) {
            self.add_link(&format!("bin/{applet}"), "busybox")?;
        }
        self.add("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n".to_vec(), 0o644)?;
        self.add("etc/group", b"root:x:0:\n".to_vec(), 0o644)
    }

    /// Adds a file of the host.
    pub fn add_file(&mut self, file: &Path, path: &str) -> Outcome<()> {
        let cannot = || format!("cannot add {} to the root image", file.display());
        let mode = std::fs::metadata(file).because(cannot)?.permissions().mode() & 0o777;
        self.add(path, std::fs::read(file).because(cannot)?, mode)
    }

    /// Adds all files below a folder of the host, with the same paths below the image's root. Links
    /// are followed.
    pub fn add_folder(&mut self, folder: &Path) -> Outcome<()> {
        self.add_below(folder, "", 0)
    }

    fn add_below(&mut self, folder: &Path, prefix: &str, depth: usize) -> Outcome<()> {
        if depth > DEEPEST {
            return Err(Failure::new(format!(
                "{} is more than {DEEPEST} folders deep",
                folder.display()
            ))
            .advise("is there a link that leads back to a folder above it?"));
        }
        let cannot = || format!("cannot read the folder {}", folder.display());
        for entry in std::fs::read_dir(folder).because(cannot)? {
            let entry = entry.because(cannot)?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| {
                Failure::new(format!("{} is not UTF-8", entry.path().display()))
                    .advise("rename it, or leave it out")
            })?;
            let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
            let kind = std::fs::metadata(entry.path())
                .because(|| format!("cannot read {}", entry.path().display()))?;
            if kind.is_dir() {
                self.add_below(&entry.path(), &path, depth + 1)?;
            } else if kind.is_file() {
                self.add_file(&entry.path(), &path)?;
            } else {
                return Err(Failure::new(format!(
                    "{} is neither file nor folder",
                    entry.path().display()
                ))
                .advise("only those can be in a root image"));
            }
        }
        Ok(())
    }

    /// Sets the program and arguments that the kernel runs as process 1.
    pub fn set_init(&mut self, argv: &[String]) -> Outcome<()> {
        let program = argv.first().map(String::as_str).unwrap_or_default();
        if !self.files.contains_key(program.trim_start_matches('/')) {
            return Err(Failure::new(format!("there is no {program:?} in the root image"))
                .advise(format!("there are: {}", self.programs().join(" "))));
        }
        let mut bytes = Vec::new();
        for argument in argv {
            if argument.contains('\0') {
                return Err(Failure::new(format!(
                    "the argument {argument:?} has a NUL byte in it"
                )));
            }
            bytes.extend_from_slice(argument.as_bytes());
            bytes.push(0);
        }
        self.add("etc/init", bytes, 0o644)
    }

    fn programs(&self) -> Vec<String> {
        self.files
            .keys()
            .filter(|path| path.starts_with("bin/"))
            .map(|path| format!("/{path}"))
            .collect()
    }

    /// Writes the archive.
    pub fn write(&self, to: &Path) -> Outcome<()> {
        let cannot = || format!("cannot write the root image {}", to.display());
        let mut archive = tar::Builder::new(Vec::new());
        for (path, file) in &self.files {
            let mut header = tar::Header::new_ustar();
            header.set_path(path).because(cannot)?;
            header.set_size(if file.is_link { 0 } else { file.bytes.len() as u64 });
            header.set_mode(file.mode);
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            if file.is_link {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_link_name_literal(&file.bytes).because(cannot)?;
            } else {
                header.set_entry_type(tar::EntryType::Regular);
            }
            header.set_cksum();
            let bytes = if file.is_link { &[][..] } else { file.bytes.as_slice() };
            if bytes.len() >= PAGE_BLOCKS * BLOCK_BYTES {
                align_next(&mut archive).because(cannot)?;
            }
            archive.append(&header, bytes).because(cannot)?;
        }
        std::fs::write(to, archive.into_inner().because(cannot)?).because(cannot)
    }
}

/// Sees to it that the contents of the next file begin at a page of the archive.
fn align_next(archive: &mut tar::Builder<Vec<u8>>) -> std::io::Result<()> {
    let written = archive.get_ref().len() / BLOCK_BYTES;
    // The file's header comes first.
    if (written + 1).is_multiple_of(PAGE_BLOCKS) {
        return Ok(());
    }
    // As does that of the comment, which has at least a block.
    let blocks = PAGE_BLOCKS - (written + 2) % PAGE_BLOCKS;
    let bytes = blocks * BLOCK_BYTES;
    let start = format!("{bytes} comment=");
    let comment = format!("{start:.<width$}\n", width = bytes - 1);
    let mut header = tar::Header::new_ustar();
    header.set_path("pad")?;
    header.set_entry_type(tar::EntryType::XHeader);
    header.set_size(bytes as u64);
    header.set_mtime(0);
    header.set_cksum();
    archive.append(&header, comment.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn scratch(name: &str) -> std::path::PathBuf {
        let folder =
            std::env::temp_dir().join(format!("xtask-image-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// The contents of the archive as a reader gets them.
    fn listing(image: &RootImage, folder: &Path) -> Vec<(String, u32, Vec<u8>)> {
        let path = folder.join("image.tar");
        image.write(&path).unwrap();
        let mut archive = tar::Archive::new(std::fs::File::open(path).unwrap());
        let entry = |entry: std::io::Result<tar::Entry<'_, std::fs::File>>| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            assert!(entry.header().as_ustar().is_some());
            (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap(), bytes)
        };
        archive.entries().unwrap().map(entry).collect()
    }

    #[test]
    fn an_image_holds_programs_init_and_added_files_sorted() {
        let folder = scratch("whole");
        let added = folder.join("added");
        std::fs::create_dir_all(added.join("data/deep")).unwrap();
        std::fs::write(added.join("data/deep/file"), "content").unwrap();
        let mut image = RootImage::default();
        image.add("bin/hello", b"ELF".to_vec(), 0o755).unwrap();
        image.add_folder(&added).unwrap();
        image.set_init(&["/bin/hello".into(), "a b".into(), String::new()]).unwrap();
        let expected = [
            ("bin/hello".to_owned(), 0o755, b"ELF".to_vec()),
            ("data/deep/file".to_owned(), 0o644, b"content".to_vec()),
            ("etc/init".to_owned(), 0o644, b"/bin/hello\0a b\0\0".to_vec()),
        ];
        assert_eq!(listing(&image, &folder), expected);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn files_of_a_page_begin_at_a_page() {
        let folder = scratch("pages");
        let mut image = RootImage::default();
        // Whatever is before them.
        let sizes = [0_u64, 1, 512, 513, 4095, 4096, 4097, 9000, 40_000, 100, 8192, 12_288, 5000];
        for (number, size) in (0_u8..).zip(sizes) {
            let contents =
                (0..size).map(|at| (at as u8).wrapping_mul(31).wrapping_add(number)).collect();
            image.add(&format!("file {number:02}"), contents, 0o644).unwrap();
        }
        let path = folder.join("image.tar");
        image.write(&path).unwrap();
        let mut archive = tar::Archive::new(std::fs::File::open(path).unwrap());
        let places = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.size(), entry.raw_file_position())
        });
        let places: Vec<_> = places.collect();
        assert_eq!(places.iter().map(|place| place.0).collect::<Vec<_>>(), sizes);
        let is_aligned = |&(size, at): &(u64, u64)| size < 4096 || at.is_multiple_of(4096);
        assert!(places.iter().all(is_aligned), "{places:?}");
        assert_eq!(listing(&image, &folder).len(), sizes.len());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_added_later_replaces_the_first() {
        let folder = scratch("replace");
        let mut image = RootImage::default();
        image.add("a", b"1".to_vec(), 0o644).unwrap();
        image.add("a", b"2".to_vec(), 0o644).unwrap();
        assert_eq!(listing(&image, &folder), [("a".to_owned(), 0o644, b"2".to_vec())]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn links_replace_no_program() {
        let folder = scratch("links");
        let busybox = folder.join("busybox");
        std::fs::write(&busybox, b"ELF [\0[[\0ls\0ps\0\0").unwrap();
        let mut image = RootImage::default();
        image.add("bin/ps", b"own".to_vec(), 0o755).unwrap();
        image.add_busybox(&busybox).unwrap();
        let path = folder.join("image.tar");
        image.write(&path).unwrap();
        let mut archive = tar::Archive::new(std::fs::File::open(path).unwrap());
        let links = archive.entries().unwrap().map(Result::unwrap).filter_map(|entry| {
            let target = entry.link_name().unwrap()?.display().to_string();
            Some((entry.path().unwrap().display().to_string(), target))
        });
        let expected = ["bin/[", "bin/[[", "bin/ls"].map(|path| (path.into(), "busybox".into()));
        assert_eq!(links.collect::<Vec<_>>(), expected);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn bad_paths_and_arguments_are_refused() {
        let mut image = RootImage::default();
        for path in ["", "/abs", "a//b", "../up", "a/./b", "a/"] {
            assert!(image.add(path, vec![], 0o644).is_err(), "{path:?}");
        }
        assert!(image.add(&"x".repeat(100), vec![], 0o644).is_ok());
        assert!(image.add(&"x".repeat(101), vec![], 0o644).is_err());
        image.add("bin/there", vec![], 0o755).unwrap();
        assert!(
            image
                .set_init(&["/bin/missing".into()])
                .unwrap_err()
                .to_string()
                .contains("/bin/there")
        );
        assert!(image.set_init(&["/bin/there".into(), "nul\0".into()]).is_err());
        assert!(image.set_init(&[]).is_err());
    }

    #[test]
    fn a_loop_of_links_ends_in_an_error() {
        let folder = scratch("loop");
        std::os::unix::fs::symlink(&folder, folder.join("again")).unwrap();
        assert!(RootImage::default().add_folder(&folder).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
