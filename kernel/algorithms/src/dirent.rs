//! Records of directory entries, as Linux's `getdents64` returns them.

use cops_abi::syscall::NAME_BYTES_MAX;

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

/// Checks the records that a file system's server returns. Returns the place of the last one;
/// `None` if one of them is wrong: its length, its place, which is at least `first_place`, or its
/// name, which is empty, too long, `.` or `..`, or contains a slash.
pub fn last_place(mut bytes: &[u8], first_place: u64) -> Option<u64> {
    let mut last = None;
    while !bytes.is_empty() {
        let number = |at: usize| {
            bytes
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map(|word| u64::from_le_bytes(*word))
        };
        let place = number(8).filter(|&place| i64::try_from(place).is_ok())?;
        let length = usize::from(number(16)? as u16);
        let (record, rest) = bytes.split_at_checked(length)?;
        let name = record.get(HEADER_BYTES..)?.split(|&byte| byte == 0).next()?;
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && !name.contains(&b'/')
            && name != b"."
            && name != b"..";
        // With its zero, and not longer than necessary.
        let expected = (HEADER_BYTES + name.len() + 1).next_multiple_of(8);
        if place < first_place || !is_name || length != expected {
            return None;
        }
        (last, bytes) = (Some(place), rest);
    }
    last
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

    fn records(records: &[(u64, &str)]) -> ([u8; 1024], usize) {
        let (mut bytes, mut used) = ([0; 1024], 0);
        for &(place, name) in records {
            let record = Record { number: 7, place, name, kind: mode::REGULAR };
            used += put(&mut bytes[used..], &record).unwrap();
        }
        (bytes, used)
    }

    #[test]
    fn records_of_a_server_are_checked() {
        let check = |list: &[(u64, &str)]| {
            let (bytes, used) = records(list);
            last_place(&bytes[..used], 2)
        };
        let longest = core::str::from_utf8(&[b'x'; 255]).unwrap();
        let too_long = core::str::from_utf8(&[b'x'; 256]).unwrap();
        assert_eq!(check(&[(2, "a"), (9, "bcd"), (5, longest)]), Some(5));
        assert_eq!(check(&[]), None);
        for name in ["", ".", "..", "a/b", "/", too_long] {
            assert_eq!(check(&[(2, "a"), (3, name)]), None, "{name:?}");
        }
        for place in [0, 1, 1 << 63, u64::MAX] {
            assert_eq!(check(&[(place, "a")]), None, "{place}");
        }
        let (good, used) = records(&[(2, "a"), (3, "bcdefg")]);
        // A length that is too small, too large, or leads behind the end.
        for (at, value) in [(16, 0), (16, 16), (16, 32), (17, 1), (24 + 16, 40), (24 + 16, 24)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(last_place(&bad[..used], 2), None, "{value} at {at}");
        }
        for cut in 1..used {
            if cut != 24 {
                assert_eq!(last_place(&good[..cut], 2), None, "{cut} bytes");
            }
        }
        // Without a zero at the end.
        let mut bad = good;
        bad[19..24].fill(b'x');
        assert_eq!(last_place(&bad[..24], 2), None);
    }
}
