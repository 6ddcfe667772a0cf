//! Checks that the vDSO image is position-independent, stateless and read-only. It runs in the
//! kernel and in every process at different addresses, and is never writable.
//!
//! The checks use what a loader uses: program headers and the dynamic section. The section headers
//! are used for one check, because a linker script can hide the fact: whether something writable
//! was put into the read-only segment.

use std::collections::BTreeSet;

use object::LittleEndian as Endian;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym};

use crate::error::{Because, Failure, Outcome};

type Header = elf::FileHeader64<Endian>;

const PAGE: u64 = 4096;

/// Dynamic tags that mean relocations, initialisers or other objects, with their names.
const FORBIDDEN_TAGS: [(elf::DynamicTag, &str); 14] = [
    (elf::DT_RELA, "DT_RELA: dynamic relocations"),
    (elf::DT_REL, "DT_REL: dynamic relocations"),
    (elf::DT_RELR, "DT_RELR: dynamic relocations"),
    (elf::DT_JMPREL, "DT_JMPREL: relocations of a procedure linkage table"),
    (elf::DT_PLTRELSZ, "DT_PLTRELSZ: relocations of a procedure linkage table"),
    (elf::DT_TEXTREL, "DT_TEXTREL: relocations in the text"),
    (elf::DT_NEEDED, "DT_NEEDED: another shared object"),
    (elf::DT_INIT, "DT_INIT: an initialiser"),
    (elf::DT_FINI, "DT_FINI: a finaliser"),
    (elf::DT_INIT_ARRAY, "DT_INIT_ARRAY: initialisers"),
    (elf::DT_FINI_ARRAY, "DT_FINI_ARRAY: finalisers"),
    (elf::DT_PREINIT_ARRAY, "DT_PREINIT_ARRAY: initialisers"),
    (elf::DT_RELASZ, "DT_RELASZ: dynamic relocations"),
    (elf::DT_RELSZ, "DT_RELSZ: dynamic relocations"),
];

/// All faults of the image. `exports` is the checked-in list. Faults and errors do not name the
/// image: the caller does.
pub fn violations(image: &[u8], exports: &BTreeSet<String>) -> Outcome<Vec<String>> {
    let no_elf = || "it is no sound ELF file".to_owned();
    let header = Header::parse(image).because(no_elf)?;
    let mut wrong = Vec::new();
    if header.e_machine.get(Endian) != elf::EM_RISCV || header.e_type.get(Endian) != elf::ET_DYN {
        // Nothing else that it has is to be compared.
        wrong.push("it is no shared object for RISC-V".to_owned());
        return Ok(wrong);
    }
    let segments = header.program_headers(Endian, image).because(no_elf)?;
    check_segments(segments, image.len() as u64, &mut wrong);
    check_sections(header, image, &mut wrong)?;
    match segments.iter().find_map(|segment| segment.dynamic(Endian, image).transpose()) {
        Some(entries) => check_dynamic(entries.because(no_elf)?, image, exports, &mut wrong)?,
        None => wrong.push("it has no dynamic section".to_owned()),
    }
    Ok(wrong)
}

/// The bytes of the loaded segment, which is all that is mapped.
pub fn loaded_part(object: &[u8]) -> Outcome<&[u8]> {
    let unsound = || "it is no sound ELF file".to_owned();
    let header = Header::parse(object).because(unsound)?;
    let segments = header.program_headers(Endian, object).because(unsound)?;
    let loaded = segments.iter().find(|segment| segment.p_type(Endian) == elf::PT_LOAD);
    let length = loaded.and_then(|segment| usize::try_from(segment.p_filesz(Endian)).ok());
    length
        .and_then(|length| object.get(..length))
        .ok_or_else(|| Failure::new("it has no loaded segment"))
}

/// What is wrong with the name by which a loader knows the image.
pub fn wrong_name(image: &[u8], expected: &str) -> Outcome<Option<String>> {
    let no_elf = || "it is no sound ELF file".to_owned();
    let header = Header::parse(image).because(no_elf)?;
    let segments = header.program_headers(Endian, image).because(no_elf)?;
    let entries = segments.iter().find_map(|segment| segment.dynamic(Endian, image).transpose());
    let entries = entries.transpose().because(no_elf)?.unwrap_or_default();
    let value = |tag: elf::DynamicTag| {
        entries.iter().find(|entry| entry.d_tag(Endian) == tag).map(|entry| entry.d_val(Endian))
    };
    let place = value(elf::DT_STRTAB).zip(value(elf::DT_SONAME));
    let start = place.and_then(|(strings, name)| usize::try_from(strings.checked_add(name)?).ok());
    let text = start.and_then(|start| image.get(start..)).unwrap_or_default();
    let name = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_it = name == expected.as_bytes();
    Ok((!is_it).then(|| format!("its name is {:?}, not {expected}", String::from_utf8_lossy(name))))
}

fn check_segments(
    segments: &[elf::ProgramHeader64<Endian>],
    file_length: u64,
    wrong: &mut Vec<String>,
) {
    let loaded: Vec<_> =
        segments.iter().filter(|segment| segment.p_type(Endian) == elf::PT_LOAD).collect();
    match loaded[..] {
        [segment] => {
            let start = (segment.p_offset(Endian), segment.p_vaddr(Endian));
            let (in_file, in_memory) = (segment.p_filesz(Endian), segment.p_memsz(Endian));
            if start != (0, 0) {
                wrong.push(format!(
                    "its segment starts at offset {:#x}, address {:#x}, not at 0",
                    start.0, start.1
                ));
            }
            if in_file != in_memory || in_file > file_length {
                wrong.push(format!(
                    "its segment has {in_file} bytes in the file and {in_memory} in memory"
                ));
            }
            if segment.p_align(Endian) < PAGE {
                wrong.push(format!(
                    "its segment is aligned to {} bytes, not to a page",
                    segment.p_align(Endian)
                ));
            }
        }
        _ => wrong.push(format!("it has {} loaded segments, not one", loaded.len())),
    }
    for segment in segments {
        let kind = segment.p_type(Endian);
        // Not part of the image: describes the permissions of the stack.
        if kind != elf::PT_GNU_STACK && segment.p_flags(Endian).contains(elf::PF_W) {
            wrong.push(format!(
                "segment type {kind:#x} at {:#x} is writable",
                segment.p_vaddr(Endian)
            ));
        }
        if kind == elf::PT_TLS || kind == elf::PT_INTERP {
            wrong.push(format!(
                "it has a segment of type {kind:#x} (thread-local data or an interpreter)"
            ));
        }
    }
}

fn check_sections(header: &Header, image: &[u8], wrong: &mut Vec<String>) -> Outcome<()> {
    let unsound = || "its section headers are not sound".to_owned();
    let sections = header.sections(Endian, image).because(unsound)?;
    for section in sections.iter() {
        let flags = section.sh_flags(Endian);
        let is_writable = flags.contains(elf::SHF_ALLOC) && flags.contains(elf::SHF_WRITE);
        if is_writable && section.sh_size(Endian) > 0 {
            let name =
                String::from_utf8_lossy(sections.section_name(Endian, section).because(unsound)?);
            wrong.push(format!(
                "section {name} is writable data ({} bytes)",
                section.sh_size(Endian)
            ));
        }
    }
    Ok(())
}

fn check_dynamic(
    entries: &[elf::Dyn64<Endian>],
    image: &[u8],
    exports: &BTreeSet<String>,
    wrong: &mut Vec<String>,
) -> Outcome<()> {
    for entry in entries.iter().take_while(|entry| entry.d_tag(Endian) != elf::DT_NULL) {
        let (tag, value) = (entry.d_tag(Endian), entry.d_val(Endian));
        // A size of 0 is harmless; an address is judged by its size.
        let is_size = [elf::DT_RELASZ, elf::DT_RELSZ, elf::DT_PLTRELSZ].contains(&tag);
        if let Some((_, meaning)) = FORBIDDEN_TAGS
            .iter()
            .find(|(forbidden, _)| *forbidden == tag && !(is_size && value == 0))
        {
            wrong.push(format!("it has {meaning}"));
        }
    }
    let found = dynamic_symbols(entries, image)?;
    for name in &found.undefined {
        wrong.push(format!("symbol {name} is undefined"));
    }
    for name in found.defined.difference(exports) {
        wrong.push(format!("it exports {name}, which is not in exports.txt"));
    }
    for name in exports.difference(&found.defined) {
        wrong.push(format!("it does not export {name}, which is in exports.txt"));
    }
    Ok(())
}

struct DynamicSymbols {
    defined: BTreeSet<String>,
    undefined: BTreeSet<String>,
}

/// The dynamic symbols as a loader finds them: by DT_SYMTAB, DT_STRTAB and, for their number,
/// DT_HASH. Addresses are file offsets, because there is one segment at 0; any other case is
/// reported elsewhere.
fn dynamic_symbols(entries: &[elf::Dyn64<Endian>], image: &[u8]) -> Outcome<DynamicSymbols> {
    let value = |tag: elf::DynamicTag, name: &str| {
        let entry = entries.iter().find(|entry| entry.d_tag(Endian) == tag);
        entry
            .map(|entry| entry.d_val(Endian))
            .ok_or_else(|| Failure::new(format!("it has no {name}")))
    };
    let outside = |what: &str| Failure::new(format!("{what} lies outside of the file"));
    let from = |address: u64| usize::try_from(address).ok().and_then(|start| image.get(start..));

    let hash = from(value(elf::DT_HASH, "DT_HASH")?).ok_or_else(|| outside("DT_HASH"))?;
    let (hash, _) = object::pod::from_bytes::<elf::HashHeader<Endian>>(hash)
        .map_err(|()| outside("DT_HASH"))?;
    let count = hash.chain_count.get(Endian) as usize;
    let table = from(value(elf::DT_SYMTAB, "DT_SYMTAB")?).ok_or_else(|| outside("DT_SYMTAB"))?;
    let (symbols, _) = object::pod::slice_from_bytes::<elf::Sym64<Endian>>(table, count)
        .map_err(|()| outside("DT_SYMTAB"))?;
    let strings = value(elf::DT_STRTAB, "DT_STRTAB")?;
    let strings_end = strings.saturating_add(value(elf::DT_STRSZ, "DT_STRSZ")?);
    let strings = object::StringTable::new(image, strings, strings_end);

    let mut found = DynamicSymbols { defined: BTreeSet::new(), undefined: BTreeSet::new() };
    // The first symbol is the null symbol.
    for symbol in symbols.iter().skip(1) {
        let name = symbol.name(Endian, strings).map_err(|_| outside("a symbol's name"))?;
        let set =
            if symbol.is_undefined(Endian) { &mut found.undefined } else { &mut found.defined };
        set.insert(String::from_utf8_lossy(name).into_owned());
    }
    Ok(found)
}

#[cfg(test)]
#[path = "vdso_check_tests.rs"]
mod tests;
