//! CRC-32C as ext4 and jbd2 use it: the register is passed in and returned without inversion.

/// The tables of eight bytes at a time.
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0_u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut step = 0;
        while step < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0x82F6_3B78 } else { value >> 1 };
            step += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xFF) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// Continues the checksum `register` over `bytes`.
pub fn crc32c(mut register: u32, bytes: &[u8]) -> u32 {
    let of = |table: usize, byte: u32| TABLES[table][(byte & 0xFF) as usize];
    let (chunks, rest) = bytes.as_chunks::<8>();
    for &[a, b, c, d, e, f, g, h] in chunks {
        let first = register ^ u32::from_le_bytes([a, b, c, d]);
        let second = u32::from_le_bytes([e, f, g, h]);
        register = of(7, first)
            ^ of(6, first >> 8)
            ^ of(5, first >> 16)
            ^ of(4, first >> 24)
            ^ of(3, second)
            ^ of(2, second >> 8)
            ^ of(1, second >> 16)
            ^ of(0, second >> 24);
    }
    for byte in rest {
        register = register >> 8 ^ of(0, register ^ u32::from(*byte));
    }
    register
}

/// The checksum of `bytes` as if the `hole` bytes at `at` were zero: the place of the checksum.
pub fn crc32c_without(register: u32, bytes: &[u8], at: usize, hole: usize) -> u32 {
    const ZEROS: [u8; 4] = [0; 4];
    let (before, rest) = bytes.split_at(at.min(bytes.len()));
    let after = rest.get(hole..).unwrap_or(&[]);
    let hole = &ZEROS[..hole.min(4)];
    crc32c(crc32c(crc32c(register, before), hole), after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
    }

    #[test]
    fn the_hole_counts_as_zeros() {
        let with = crc32c_without(7, b"abcdEFGHijklmno", 4, 4);
        assert_eq!(with, crc32c(7, b"abcd\0\0\0\0ijklmno"));
    }
}
