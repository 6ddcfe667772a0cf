//! Just enough ELF to find the dynamic symbols of the scheduler image: one loadable segment that
//! starts at file offset 0, one dynamic segment, a System V hash table.

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

impl Bytes<'_> {
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

    /// Whether the NUL-terminated string at `at` is `wanted`. Looks no further than that is long.
    fn has_string(self, at: usize, wanted: &[u8]) -> bool {
        let rest = self.0.get(at..).and_then(|rest| rest.strip_prefix(wanted));
        rest.and_then(<[u8]>::first) == Some(&0)
    }
}

/// The symbol table of an image.
pub(super) struct DynamicSymbols<'a> {
    image: Bytes<'a>,
    symbols: usize,
    strings: usize,
    count: usize,
}

/// Where things are, as the program headers say.
struct Segments {
    loaded_bytes: usize,
    dynamic: usize,
}

/// What the program headers cover, from the start of the file on.
fn headers_end(header: Bytes<'_>) -> Option<usize> {
    if header.array(0)? != *b"\x7fELF\x02\x01" {
        return None;
    }
    let table_bytes = header.u16(54)?.checked_mul(header.u16(56)?)?;
    (header.u64(32)? as usize).checked_add(table_bytes)
}

fn segments(headers: Bytes<'_>) -> Option<Segments> {
    let (table, entry_bytes, entries) =
        (headers.u64(32)? as usize, headers.u16(54)?, headers.u16(56)?);
    let find = |wanted| {
        let entry = (0..entries).filter_map(|entry| table.checked_add(entry * entry_bytes));
        entry
            .filter_map(|at| headers.0.get(at..))
            .map(Bytes)
            .find(|entry| entry.u32(0) == Some(wanted))
    };
    let load = find(PROGRAM_HEADER_LOAD)?;
    let dynamic = find(PROGRAM_HEADER_DYNAMIC)?;
    if load.u64(8)? != 0 || load.u64(16)? != 0 {
        return None;
    }
    Some(Segments { loaded_bytes: load.u64(32)? as usize, dynamic: dynamic.u64(16)? as usize })
}

impl<'a> DynamicSymbols<'a> {
    /// # Safety
    ///
    /// `image` points to an ELF file header and, if that is well-formed, to all that its loadable
    /// segment covers, readable and unchanging during `'a`.
    #[allow(unsafe_code)]
    pub unsafe fn of(image: *const u8) -> Option<DynamicSymbols<'a>> {
        // SAFETY: by this function's contract a whole file header is readable there and does not
        // change during `'a`.
        let header = Bytes(unsafe { ::core::slice::from_raw_parts(image, FILE_HEADER_BYTES) });
        let end = headers_end(header)?;
        // SAFETY: program headers follow the file header in the loadable segment.
        let headers = Bytes(unsafe { ::core::slice::from_raw_parts(image, end) });
        let loaded_bytes = segments(headers)?.loaded_bytes;
        // SAFETY: the caller's promise about the segment, which starts at the file header.
        Self::in_bytes(unsafe { ::core::slice::from_raw_parts(image, loaded_bytes) })
    }

    /// As `of`, of a slice that may hold anything: nothing outside of it is read, and the time is
    /// bounded by its length.
    pub fn in_bytes(image: &'a [u8]) -> Option<DynamicSymbols<'a>> {
        let image = Bytes(image);
        headers_end(image)?;
        let (mut symbols, mut strings, mut hash) = (None, None, None);
        let mut at = segments(image)?.dynamic;
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
        // The second word of the hash table is the number of symbols; there are no more than have
        // room.
        let symbols = symbols?;
        let room = image.0.len().saturating_sub(symbols) / SYMBOL_BYTES;
        let count = (image.u32(hash?.checked_add(4)?)? as usize).min(room);
        Some(DynamicSymbols { image, symbols, strings: strings?, count })
    }

    /// The offset in the image of the defined symbol `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        (0..self.count).find_map(|number| {
            let at = self.symbols.checked_add(number.checked_mul(SYMBOL_BYTES)?)?;
            let string = self.strings.checked_add(self.image.u32(at)? as usize)?;
            let (section, value) =
                (self.image.u16(at.checked_add(6)?)?, self.image.u64(at.checked_add(8)?)?);
            let found = section != 0 && self.image.has_string(string, name.as_bytes());
            found.then_some(value as usize).filter(|&value| value < self.image.0.len())
        })
    }
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
