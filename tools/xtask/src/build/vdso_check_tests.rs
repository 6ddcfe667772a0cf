//! Each test damages a valid small image in one way. Exactly the check for that fault must detect
//! it.

use super::*;

const SYMTAB: usize = 0x400;
const STRTAB: usize = 0x500;
const HASH: usize = 0x600;
const DYNAMIC: usize = 0x700;
const SECTIONS: usize = 0x900;
const NAMES: usize = 0xa00;
const LENGTH: usize = 0x1000;
const STRINGS: &[u8] = b"\0cops_run\0cops_wake\0";

/// A shared object with one segment, two exports and one section.
struct Image(Vec<u8>);

impl Image {
    fn sound() -> Self {
        let mut image = Self(vec![0; LENGTH]);
        image.header();
        image.segment(0, elf::PT_LOAD, elf::PF_R | elf::PF_X, 0, LENGTH);
        image.segment(1, elf::PT_DYNAMIC, elf::PF_R, DYNAMIC, 0x100);
        image.segment(2, elf::PT_GNU_STACK, elf::PF_R | elf::PF_W, 0, 0);
        image.symbol(1, 1, 1);
        image.symbol(2, 10, 1);
        image.put(STRTAB, STRINGS);
        // One bucket, three symbols.
        image.put(HASH, &1u32.to_le_bytes());
        image.put(HASH + 4, &3u32.to_le_bytes());
        let tags = [
            (elf::DT_SYMTAB, SYMTAB),
            (elf::DT_STRTAB, STRTAB),
            (elf::DT_STRSZ, STRINGS.len()),
            (elf::DT_HASH, HASH),
            (elf::DT_NULL, 0),
        ];
        for (index, (tag, value)) in tags.into_iter().enumerate() {
            image.tag(index, tag, value);
        }
        image.section(1, elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0);
        image.put(NAMES, b"\0.text\0");
        image.section(2, 0);
        image
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn header(&mut self) {
        self.put(0, b"\x7fELF\x02\x01\x01");
        self.put(16, &elf::ET_DYN.0.to_le_bytes());
        self.put(18, &elf::EM_RISCV.0.to_le_bytes());
        self.put(20, &1u32.to_le_bytes());
        self.put(32, &64u64.to_le_bytes());
        self.put(40, &(SECTIONS as u64).to_le_bytes());
        self.put(52, &64u16.to_le_bytes());
        // Three program headers of 56 bytes, three section headers of 64, names in the last.
        for (at, value) in [(54, 56u16), (56, 3), (58, 64), (60, 3), (62, 2)] {
            self.put(at, &value.to_le_bytes());
        }
    }

    fn segment(
        &mut self,
        index: usize,
        kind: elf::ProgramType,
        flags: elf::ProgramFlags,
        start: usize,
        length: usize,
    ) {
        let at = 64 + 56 * index;
        self.put(at, &kind.0.to_le_bytes());
        self.put(at + 4, &flags.0.to_le_bytes());
        for (field, value) in
            [(8, start), (16, start), (24, start), (32, length), (40, length), (48, 0x1000)]
        {
            self.put(at + field, &(value as u64).to_le_bytes());
        }
    }

    fn symbol(&mut self, index: usize, name: u32, section: u16) {
        let at = SYMTAB + 24 * index;
        self.put(at, &name.to_le_bytes());
        self.put(at + 4, &[0x12]); // global function
        self.put(at + 6, &section.to_le_bytes());
    }

    fn tag(&mut self, index: usize, tag: elf::DynamicTag, value: usize) {
        self.put(DYNAMIC + 16 * index, &tag.0.to_le_bytes());
        self.put(DYNAMIC + 16 * index + 8, &(value as u64).to_le_bytes());
    }

    fn section(&mut self, index: usize, flags: u64) {
        let at = SECTIONS + 64 * index;
        let is_names = index == 2;
        self.put(at, &1u32.to_le_bytes());
        self.put(at + 4, &(if is_names { 3u32 } else { 1 }).to_le_bytes());
        self.put(at + 8, &flags.to_le_bytes());
        self.put(at + 24, &(if is_names { NAMES as u64 } else { 0x300 }).to_le_bytes());
        self.put(at + 32, &(if is_names { 7u64 } else { 16 }).to_le_bytes());
    }

    fn violations(&self) -> Vec<String> {
        let exports = ["cops_run", "cops_wake"].map(str::to_owned).into();
        violations(&self.0, &exports).unwrap()
    }
}

/// Damages a valid image and checks that there is exactly one complaint, which contains these
/// words.
#[track_caller]
fn complains(spoil: impl FnOnce(&mut Image), words: &str) {
    let mut image = Image::sound();
    spoil(&mut image);
    let found = image.violations();
    assert!(
        found.len() == 1 && found[0].contains(words),
        "{found:?} is not one complaint about {words:?}"
    );
}

#[test]
fn a_sound_image_passes() {
    assert_eq!(Image::sound().violations(), Vec::<String>::new());
}

#[test]
fn only_the_loaded_segment_is_embedded() {
    let mut image = Image::sound();
    image.segment(0, elf::PT_LOAD, elf::PF_R | elf::PF_X, 0, 0x800);
    assert_eq!(loaded_part(&image.0).unwrap(), &image.0[..0x800]);
    image.segment(0, elf::PT_LOAD, elf::PF_R | elf::PF_X, 0, LENGTH + 1);
    assert!(loaded_part(&image.0).is_err());
}

#[test]
fn another_machine_or_kind_of_file() {
    complains(
        |image| image.put(18, &elf::EM_X86_64.0.to_le_bytes()),
        "no shared object for RISC-V",
    );
    complains(|image| image.put(16, &elf::ET_EXEC.0.to_le_bytes()), "no shared object for RISC-V");
}

#[test]
fn a_writable_segment() {
    complains(|image| image.segment(0, elf::PT_LOAD, elf::PF_R | elf::PF_W, 0, LENGTH), "writable");
    complains(
        |image| image.segment(1, elf::PT_DYNAMIC, elf::PF_R | elf::PF_W, DYNAMIC, 0x100),
        "writable",
    );
}

#[test]
fn a_second_or_displaced_or_growing_segment() {
    complains(|image| image.segment(2, elf::PT_LOAD, elf::PF_R, 0, LENGTH), "2 loaded segments");
    complains(|image| image.put(64 + 16, &0x1000u64.to_le_bytes()), "not at 0");
    complains(|image| image.put(64 + 40, &0x2000u64.to_le_bytes()), "in memory");
    complains(|image| image.put(64 + 48, &16u64.to_le_bytes()), "not to a page");
}

#[test]
fn thread_local_data() {
    complains(|image| image.segment(2, elf::PT_TLS, elf::PF_R, 0, 8), "thread-local");
}

#[test]
fn writable_data_hidden_in_the_segment() {
    complains(|image| image.section(1, elf::SHF_ALLOC.0 | elf::SHF_WRITE.0), "writable data");
}

#[test]
fn every_forbidden_tag() {
    for (tag, meaning) in FORBIDDEN_TAGS {
        complains(
            |image| {
                image.tag(4, tag, 8);
                image.tag(5, elf::DT_NULL, 0);
            },
            meaning,
        );
    }
}

#[test]
fn an_undefined_symbol() {
    let mut image = Image::sound();
    image.symbol(2, 10, 0);
    let found = image.violations();
    assert_eq!(
        found,
        ["symbol cops_wake is undefined", "it does not export cops_wake, which is in exports.txt"]
    );
}

#[test]
fn exports_more_or_fewer_than_listed() {
    let image = Image::sound();
    let found = |exports: &[&str]| {
        let exports = exports.iter().map(|name| (*name).to_owned()).collect();
        violations(&image.0, &exports).unwrap()
    };
    assert_eq!(found(&["cops_run"]), ["it exports cops_wake, which is not in exports.txt"]);
    assert_eq!(
        found(&["cops_run", "cops_wake", "cops_spawn"]),
        ["it does not export cops_spawn, which is in exports.txt"]
    );
}

#[test]
fn tables_outside_of_the_file_are_an_error_and_no_panic() {
    for index in 0..4 {
        let mut image = Image::sound();
        image.put(DYNAMIC + 16 * index + 8, &u64::MAX.to_le_bytes());
        let outcome = violations(&image.0, &BTreeSet::new());
        assert!(outcome.is_err() || !outcome.unwrap().is_empty());
    }
}
