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

/// Writes a copy of the kernel with this image, a shared object, to `output`.
///
/// # Errors
/// If the image is not one that the kernel could boot with, or is too large.
pub fn replace(workspace: &Workspace, kernel: &Path, object: &[u8], output: &Path) -> Outcome<()> {
    let faults = vdso::faults(workspace, object)?;
    if !faults.is_empty() {
        return Err(Failure::new(format!(
            "this is no scheduler image:\n  {}",
            faults.join("\n  ")
        ))
        .advise(
            "crates/vdso-fifo is an example of one, and crates/vdso/README.md says how to link it",
        ));
    }
    let bytes = std::fs::read(kernel).because(|| format!("cannot read {}", kernel.display()))?;
    let bytes = with_image(bytes, vdso::loaded_part(object)?)?;
    std::fs::write(output, bytes).because(|| format!("cannot write {}", output.display()))
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
