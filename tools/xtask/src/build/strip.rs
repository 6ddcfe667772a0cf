//! Removes from programs what the guest does not load: symbols and line tables stay on the host,
//! where the debugger reads them.

use object::LittleEndian as Endian;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::error::{Because, Failure, Outcome};

type Header = elf::FileHeader64<Endian>;

/// Positions in the ELF header of the section headers' offset (`e_shoff`), and of their size,
/// number and name index (from `e_shentsize` on).
const SECTIONS_OFFSET: std::ops::Range<usize> = 40..48;
const SECTIONS_SHAPE: std::ops::Range<usize> = 58..64;

/// The file up to the end of its last segment, without section headers.
pub fn stripped(file: &[u8]) -> Outcome<Vec<u8>> {
    let unsound = || "a program is no sound ELF file".to_owned();
    let header = Header::parse(file).because(unsound)?;
    let segments = header.program_headers(Endian, file).because(unsound)?;
    let headers_end = header.e_phoff.get(Endian) + size_of_val(segments) as u64;
    let ends = segments
        .iter()
        .map(|segment| segment.p_offset(Endian).saturating_add(segment.p_filesz(Endian)));
    let end = usize::try_from(ends.max().unwrap_or_default().max(headers_end)).because(unsound)?;
    let mut kept = file.get(..end).ok_or_else(|| Failure::new(unsound()))?.to_vec();
    for field in [SECTIONS_OFFSET, SECTIONS_SHAPE] {
        kept.get_mut(field).ok_or_else(|| Failure::new(unsound()))?.fill(0);
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 64-bit little-endian file with one segment of these bytes, followed by bytes that are not
    /// loaded.
    fn program(segment: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[32] = 64; // e_phoff
        file[40] = 200; // e_shoff
        file[52] = 64; // e_ehsize
        file[54] = 56; // e_phentsize
        file[56] = 1; // e_phnum
        file[58] = 64; // e_shentsize
        file[64] = 1; // PT_LOAD
        file[64 + 8] = 120; // p_offset
        file[64 + 32] = u8::try_from(segment.len()).unwrap(); // p_filesz
        file.extend_from_slice(segment);
        file.extend_from_slice(&[0xaa; 500]);
        file
    }

    #[test]
    fn what_is_loaded_stays_and_the_rest_goes() {
        let kept = stripped(&program(b"code")).unwrap();
        assert_eq!(&kept[120..], b"code");
        let header = Header::parse(&*kept).unwrap();
        assert_eq!((header.e_shoff.get(Endian), header.e_phnum.get(Endian)), (0, 1));
        assert_eq!(stripped(&kept).unwrap(), kept, "twice is as once");
    }

    #[test]
    fn a_segment_outside_of_the_file_is_an_error() {
        let mut file = program(b"code");
        file[64 + 32 + 7] = 0xff;
        assert!(stripped(&file).is_err());
        assert!(stripped(b"#!/bin/sh").is_err());
    }
}
