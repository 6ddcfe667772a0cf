//! Records of directory entries, as Linux's `getdents64` returns them.

/// Bytes of a record before the name: two numbers of 8 bytes, the length, and the type.
const HEADER_BYTES: usize = 19;
/// The type of a directory.
const DIRECTORY: u8 = 4;
/// The type of a file.
const REGULAR: u8 = 8;

/// Puts the record of entry `number` at the start of `bytes`. Returns its length, a multiple of 8;
/// `None` if it does not fit.
pub fn put(bytes: &mut [u8], number: u64, name: &str, is_directory: bool) -> Option<usize> {
    let length = (HEADER_BYTES + name.len() + 1).next_multiple_of(8);
    let record = bytes.get_mut(..length)?;
    record.fill(0);
    record[0..8].copy_from_slice(&number.to_le_bytes());
    record[8..16].copy_from_slice(&number.to_le_bytes());
    record[16..18].copy_from_slice(&(length as u16).to_le_bytes());
    record[18] = if is_directory { DIRECTORY } else { REGULAR };
    record[HEADER_BYTES..HEADER_BYTES + name.len()].copy_from_slice(name.as_bytes());
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_laid_out_as_on_linux() {
        let mut bytes = [0xff; 40];
        // 19 bytes, the name and its zero: 24 bytes with 4 letters, 32 with 5.
        assert_eq!(put(&mut bytes, 3, "bin", true), Some(24));
        assert_eq!(bytes[..8], 3u64.to_le_bytes());
        assert_eq!(bytes[8..16], 3u64.to_le_bytes());
        assert_eq!(bytes[16..24], [24, 0, DIRECTORY, b'b', b'i', b'n', 0, 0]);
        assert_eq!(bytes[24], 0xff);
        assert_eq!(put(&mut bytes, 1, "abcd", false), Some(24));
        assert_eq!(put(&mut bytes, 1, "abcde", false), Some(32));
        assert_eq!((bytes[18], &bytes[19..32]), (REGULAR, &b"abcde\0\0\0\0\0\0\0\0"[..]));
    }

    #[test]
    fn a_record_that_does_not_fit_changes_nothing() {
        let mut bytes = [0xff; 23];
        assert_eq!(put(&mut bytes, 1, "abcd", false), None);
        assert_eq!(bytes, [0xff; 23]);
    }
}
