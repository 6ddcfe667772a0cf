//! Another scheduler image in the place of the built one, in a copy of the kernel's file (decision
//! 57).

use std::ops::Range;
use std::path::Path;

use object::LittleEndian as Endian;
use object::elf;
use object::read::elf::{FileHeader, SectionHeader};

use crate::build::vdso;
use crate::error::{Because, Failure, Outcome};
use crate::workspace::Workspace;

/// The section of the kernel's file that has the image.
const SECTION: &[u8] = b".vdso";

/// Writes a copy of the kernel with the image of this file, a shared object, to `output`.
///
/// # Errors
/// If the image is not one that the kernel could boot with, or is too large.
pub fn replace(workspace: &Workspace, kernel: &Path, file: &Path, output: &Path) -> Outcome<()> {
    let object = std::fs::read(file).because(|| format!("cannot read {}", file.display()))?;
    let image = image(workspace, file, &object)?;
    let bytes = std::fs::read(kernel).because(|| format!("cannot read {}", kernel.display()))?;
    let bytes = with_image(bytes, image)?;
    std::fs::write(output, bytes).because(|| format!("cannot write {}", output.display()))
}

/// What is booted of a file with these bytes.
fn image<'o>(workspace: &Workspace, file: &Path, object: &'o [u8]) -> Outcome<&'o [u8]> {
    let refused = |why: String| {
        let example = vdso::first_come(workspace);
        Failure::new(format!("{} is no scheduler image: {why}", file.display())).advise(format!(
            "each build makes one, {}; crates/vdso/README.md says how to link another one",
            workspace.shown(&example)
        ))
    };
    let faults = vdso::faults(workspace, object).map_err(|failure| refused(failure.to_string()))?;
    if !faults.is_empty() {
        return Err(refused(faults.join("\n  ")));
    }
    vdso::loaded_part(object).map_err(|failure| refused(failure.to_string()))
}

/// The kernel's file with another image.
fn with_image(mut kernel: Vec<u8>, image: &[u8]) -> Outcome<Vec<u8>> {
    let room = section(&kernel)?;
    let place = kernel
        .get_mut(room)
        .ok_or_else(|| Failure::new("the kernel's image section lies outside of its file"))?;
    let Some((begin, rest)) = place.split_at_mut_checked(image.len()) else {
        return Err(Failure::new(format!(
            "the scheduler image has {} bytes, and the kernel has room for {}",
            image.len(),
            place.len()
        )));
    };
    begin.copy_from_slice(image);
    rest.fill(0);
    Ok(kernel)
}

/// Where the image is in the kernel's file.
fn section(kernel: &[u8]) -> Outcome<Range<usize>> {
    let unsound = || "the kernel is no sound ELF file".to_owned();
    let header = elf::FileHeader64::<Endian>::parse(kernel).because(unsound)?;
    let sections = header.sections(Endian, kernel).because(unsound)?;
    let found = sections
        .iter()
        .find(|section| sections.section_name(Endian, section).is_ok_and(|name| name == SECTION))
        .and_then(|section| section.file_range(Endian));
    let (start, length) = found.ok_or_else(|| Failure::new("the kernel has no section .vdso"))?;
    let start = usize::try_from(start).because(unsound)?;
    let length = usize::try_from(length).because(unsound)?;
    Ok(start..start.saturating_add(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_scheduler_is_named_and_so_is_one_that_is() {
        let workspace = Workspace::locate().unwrap();
        let kernel = Path::new("/nonexistent");
        let file = workspace.root.join("Cargo.toml");
        let failure = replace(&workspace, kernel, &file, kernel).unwrap_err().to_string();
        let expected = format!("{} is no scheduler image: it is no sound ELF", file.display());
        assert!(failure.starts_with(&expected), "{failure}");
        assert!(failure.contains("guest-image/cops-vdso-fifo.so"), "{failure}");
        // An ELF file of the host.
        let file = std::env::current_exe().unwrap();
        let failure = replace(&workspace, kernel, &file, kernel).unwrap_err().to_string();
        assert!(failure.contains("image: it is no shared object for RISC-V"), "{failure}");
    }
}
