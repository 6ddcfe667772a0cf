//! Just enough ELF to find the dynamic symbols of the scheduler image: one loadable segment that starts at
//! file offset 0, one dynamic segment, a System V hash table.

const PROGRAM_HEADER_LOAD: u32 = 1;
const PROGRAM_HEADER_DYNAMIC: u32 = 2;
const DYNAMIC_HASH: u64 = 4;
const DYNAMIC_STRINGS: u64 = 5;
const DYNAMIC_SYMBOLS: u64 = 6;
const SYMBOL_BYTES: usize = 24;
const FILE_HEADER_BYTES: usize = 64;

/// Little-endian fields of an image, none outside of it.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    fn u16(self, at: usize) -> Option<usize> {
        self.array(at).map(|bytes| u16::from_le_bytes(bytes) as usize)
    }

    fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// The NUL-terminated string at `at`, without its end.
    fn string(self, at: usize) -> Option<&'a [u8]> {
        let rest = self.0.get(at..)?;
        rest.get(..rest.iter().position(|&byte| byte == 0)?)
    }
}

/// The symbol table of an image.
pub(super) struct DynamicSymbols<'a> {
    image: Bytes<'a>,
    symbols: usize,
    strings: usize,
    count: usize,
}

impl<'a> DynamicSymbols<'a> {
    /// # Safety
    ///
    /// `image` points to an ELF file header and, if that is well-formed, to all that its loadable segment
    /// covers, readable and unchanging during `'a`.
    #[allow(unsafe_code)]
    pub unsafe fn of(image: *const u8) -> Option<DynamicSymbols<'a>> {
        // SAFETY: the caller's promise about the header.
        let header = Bytes(unsafe { ::core::slice::from_raw_parts(image, FILE_HEADER_BYTES) });
        if header.array(0)? != *b"\x7fELF\x02\x01" {
            return None;
        }
        let table = header.u64(32)? as usize;
        let entry_bytes = header.u16(54)?;
        let entries = header.u16(56)?;
        let table_end = table.checked_add(entry_bytes.checked_mul(entries)?)?;
        // SAFETY: program headers follow the file header in the loadable segment.
        let headers = Bytes(unsafe { ::core::slice::from_raw_parts(image, table_end) });
        let find = |wanted| {
            let mut all = (0..entries).map(|entry| table + entry * entry_bytes);
            all.find(|&at| headers.u32(at) == Some(wanted))
        };
        let load = find(PROGRAM_HEADER_LOAD)?;
        let dynamic = find(PROGRAM_HEADER_DYNAMIC)?;
        let (offset, address) = (headers.u64(load + 8)?, headers.u64(load + 16)?);
        if offset != 0 || address != 0 {
            return None;
        }
        let bytes = headers.u64(load + 32)? as usize;
        // SAFETY: the caller's promise about the segment, which starts at the file header.
        let image = Bytes(unsafe { ::core::slice::from_raw_parts(image, bytes) });
        Self::in_image(image, headers.u64(dynamic + 16)? as usize)
    }

    fn in_image(image: Bytes<'a>, dynamic: usize) -> Option<DynamicSymbols<'a>> {
        let (mut symbols, mut strings, mut hash) = (None, None, None);
        let mut at = dynamic;
        loop {
            let value = image.u64(at.checked_add(8)?)? as usize;
            match image.u64(at)? {
                0 => break,
                DYNAMIC_HASH => hash = Some(value),
                DYNAMIC_STRINGS => strings = Some(value),
                DYNAMIC_SYMBOLS => symbols = Some(value),
                _ => {}
            }
            at += 16;
        }
        // The second word of the hash table is the number of symbols.
        let count = image.u32(hash?.checked_add(4)?)? as usize;
        Some(DynamicSymbols { image, symbols: symbols?, strings: strings?, count })
    }

    /// The offset in the image of the defined symbol `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        (0..self.count).find_map(|number| {
            let at = self.symbols.checked_add(number.checked_mul(SYMBOL_BYTES)?)?;
            let string = self.strings.checked_add(self.image.u32(at)? as usize)?;
            let (section, value) = (self.image.u16(at.checked_add(6)?)?, self.image.u64(at.checked_add(8)?)?);
            let found = section != 0 && self.image.string(string)? == name.as_bytes();
            found.then_some(value as usize).filter(|&value| value < self.image.0.len())
        })
    }
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
