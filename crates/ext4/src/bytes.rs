//! Integers in byte slices. ext4 stores little-endian numbers, jbd2 big-endian ones.
//!
//! Nothing here panics: a read beyond the end returns 0, a write beyond the end changes nothing.
//! Positions are constants of the format within blocks of a known length, so neither happens
//! on a path that was written correctly; on a corrupted image it yields a value that the checks of
//! the caller refuse.

macro_rules! integers {
    ($($get:ident, $put:ident, $type:ty, $from:ident, $to:ident, $size:literal;)*) => {$(
        #[doc = concat!("The `", stringify!($type), "` at `at`.")]
        pub fn $get(bytes: &[u8], at: usize) -> $type {
            let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<$size>());
            found.map_or(0, |found| <$type>::$from(*found))
        }

        #[doc = concat!("Stores a `", stringify!($type), "` at `at`.")]
        pub fn $put(bytes: &mut [u8], at: usize, value: $type) {
            let place = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<$size>());
            if let Some(place) = place {
                *place = value.$to();
            }
        }
    )*};
}

integers! {
    u16_at, put_u16, u16, from_le_bytes, to_le_bytes, 2;
    u32_at, put_u32, u32, from_le_bytes, to_le_bytes, 4;
    be32_at, put_be32, u32, from_be_bytes, to_be_bytes, 4;
    be16_at, put_be16, u16, from_be_bytes, to_be_bytes, 2;
    be64_at, put_be64, u64, from_be_bytes, to_be_bytes, 8;
}

/// The bytes of `range`, or nothing if the slice is shorter.
pub fn part(bytes: &[u8], from: usize, length: usize) -> &[u8] {
    from.checked_add(length).and_then(|end| bytes.get(from..end)).unwrap_or(&[])
}

/// Copies `source` to `at` if it fits.
pub fn put_bytes(bytes: &mut [u8], at: usize, source: &[u8]) {
    let end = at.saturating_add(source.len());
    if let Some(place) = bytes.get_mut(at..end) {
        place.copy_from_slice(source);
    }
}

/// A 64-bit number of two 32-bit halves.
pub fn wide(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// A 32-bit number of two 16-bit halves.
pub fn pair(high: u16, low: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

/// The upper half.
pub fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

/// The lower half.
pub fn low(value: u64) -> u32 {
    value as u32
}

/// Whether bit `index` of a bitmap is set. Beyond the end every bit counts as set.
pub fn bit(bitmap: &[u8], index: u32) -> bool {
    bitmap.get(index as usize / 8).is_none_or(|byte| byte & 1 << (index % 8) != 0)
}

/// Sets or clears bit `index`.
pub fn set_bit(bitmap: &mut [u8], index: u32, value: bool) {
    if let Some(byte) = bitmap.get_mut(index as usize / 8) {
        let mask = 1 << (index % 8);
        *byte = if value { *byte | mask } else { *byte & !mask };
    }
}

/// The bytes of a bitmap with bits of `from..to`: for each its index, and which of its bits.
fn masks(from: u32, to: u32) -> impl Iterator<Item = (usize, u8)> {
    (from / 8..to.div_ceil(8)).map(move |byte| {
        let first = 0xFF_u8 << from.saturating_sub(8 * byte);
        let behind = 0xFF_u8.checked_shl(to - 8 * byte).unwrap_or(0);
        (byte as usize, first & !behind)
    })
}

/// Whether one of the bits `from..to` is `value`. Beyond the end every bit counts as set.
pub fn any_bit(bitmap: &[u8], from: u32, to: u32, value: bool) -> bool {
    masks(from, to).any(|(at, mask)| {
        let byte = bitmap.get(at).copied().unwrap_or(0xFF);
        let byte = if value { byte } else { !byte };
        byte & mask != 0
    })
}

/// Sets or clears the bits `from..to`.
pub fn set_bits(bitmap: &mut [u8], from: u32, to: u32, value: bool) {
    for (at, mask) in masks(from, to) {
        if let Some(byte) = bitmap.get_mut(at) {
            *byte = if value { *byte | mask } else { *byte & !mask };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_beyond_the_end_are_zero_and_not_stored() {
        let mut bytes = [1, 2, 3, 4, 5];
        assert_eq!(u32_at(&bytes, 0), 0x0403_0201);
        assert_eq!(be32_at(&bytes, 1), 0x0203_0405);
        assert_eq!(u32_at(&bytes, 2), 0);
        assert_eq!(u16_at(&bytes, usize::MAX), 0);
        put_u32(&mut bytes, 2, u32::MAX);
        assert_eq!(bytes, [1, 2, 3, 4, 5]);
        put_u16(&mut bytes, 3, 0x1234);
        assert_eq!(bytes, [1, 2, 3, 0x34, 0x12]);
        assert_eq!(part(&bytes, 4, 2), &[] as &[u8]);
    }

    #[test]
    fn ranges_of_bits_are_those_of_single_bits() {
        for from in 0..20 {
            for to in from..=24 {
                let (mut one, mut all) = ([0x5A_u8; 3], [0x5A_u8; 3]);
                let has = |value| (from..to).any(|index| bit(&[0x5A; 3], index) == value);
                assert_eq!(any_bit(&one, from, to, true), has(true), "{from}..{to}");
                assert_eq!(any_bit(&one, from, to, false), has(false), "{from}..{to}");
                for value in [true, false] {
                    (from..to).for_each(|index| set_bit(&mut one, index, value));
                    set_bits(&mut all, from, to, value);
                    assert_eq!(one, all, "{from}..{to}");
                }
            }
        }
        assert!(any_bit(&[0], 8, 9, true) && !any_bit(&[0], 8, 9, false));
    }

    #[test]
    fn bits_beyond_the_end_count_as_set() {
        let mut bitmap = [0_u8; 2];
        set_bit(&mut bitmap, 9, true);
        assert!(bit(&bitmap, 9) && !bit(&bitmap, 8) && bit(&bitmap, 16));
        set_bit(&mut bitmap, 9, false);
        assert_eq!(bitmap, [0, 0]);
    }
}
