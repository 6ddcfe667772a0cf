//! Records of directory entries, as Linux's `getdents64` returns them.

/// Bytes of a record before the name: two numbers of 8 bytes, the length, and the type.
const HEADER_BYTES: usize = 19;

/// An entry.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The node.
    pub number: u64,
    /// Where the listing goes on: behind this place.
    pub place: u64,
    /// The name.
    pub name: &'a str,
    /// The node's type, as in a status.
    pub kind: u32,
}

/// Puts a record at the start of `bytes`. Returns its length, a multiple of 8; `None` if it does
/// not fit.
pub fn put(bytes: &mut [u8], entry: &Record<'_>) -> Option<usize> {
    let Record { number, place, name, kind } = entry;
    let length = (HEADER_BYTES + name.len() + 1).next_multiple_of(8);
    let record = bytes.get_mut(..length)?;
    record.fill(0);
    record[0..8].copy_from_slice(&number.to_le_bytes());
    record[8..16].copy_from_slice(&place.to_le_bytes());
    record[16..18].copy_from_slice(&(length as u16).to_le_bytes());
    record[18] = (kind >> 12) as u8;
    record[HEADER_BYTES..HEADER_BYTES + name.len()].copy_from_slice(name.as_bytes());
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cops_abi::file::mode;

    #[test]
    fn a_record_is_laid_out_as_on_linux() {
        let mut bytes = [0xff; 40];
        let bin = Record { number: 3, place: 9, name: "bin", kind: mode::DIRECTORY };
        // 19 bytes, the name and its zero: 24 bytes with 4 letters, 32 with 5.
        assert_eq!(put(&mut bytes, &bin), Some(24));
        assert_eq!(bytes[..8], 3u64.to_le_bytes());
        assert_eq!(bytes[8..16], 9u64.to_le_bytes());
        assert_eq!(bytes[16..24], [24, 0, 4, b'b', b'i', b'n', 0, 0]);
        assert_eq!(bytes[24..], [0xff; 16]);
        let longer = |name| Record { name, kind: mode::REGULAR, ..bin };
        assert_eq!(put(&mut bytes, &longer("12345")), Some(32));
        assert_eq!(bytes[18], 8);
        assert_eq!(put(&mut bytes[..31], &longer("12345")), None);
        assert_eq!(put(&mut bytes, &longer("1234")), Some(24));
    }
}
