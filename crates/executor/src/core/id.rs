//! Coroutine ids: generation, executor number and slot index in one word that is never zero.

use ::core::fmt;
use ::core::num::NonZeroU64;

/// Names one coroutine for ever: a slot that is used again gets another generation, so a late wake
/// cannot reach a stranger.
///
/// Bits: generation 63..32 (from 1), executor number 31..24, slot index 23..0 (from 1).
///
/// Where pointers have 32 bits, so has the data of a waker, which is an id: there generations end
/// at 2^20 - 1, indices at 2^12 - 1, and executor numbers, without the feature `std`, at 3. The
/// layout above is the same. A slot is never used again when its generations are used up, so the
/// statements above hold there too.
///
/// ```
/// use cops_executor::CoroutineId;
/// let id = CoroutineId::from_raw(3 << 32 | 42).unwrap();
/// assert_eq!((id.generation(), id.executor(), id.index()), (3, 0, 42));
/// assert_eq!(CoroutineId::from_raw(42), None, "generations begin at 1");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CoroutineId(NonZeroU64);

const _: () = assert!(size_of::<Option<CoroutineId>>() == 8);

/// Whether an id fits into a pointer as it is; otherwise its parts are limited to those of a
/// [`Compact`].
const FITS_POINTER: bool = usize::BITS >= u64::BITS;

/// Bits of the slot index that are used. Three equal parts of it lead through the slab.
pub(crate) const INDEX_BITS: u32 = if FITS_POINTER { 24 } else { Compact::INDEX_BITS };
/// All indices are below this.
pub(crate) const INDEX_LIMIT: u32 = 1 << INDEX_BITS;
/// The last generation of a slot: with it, the slot is retired.
pub(crate) const LAST_GENERATION: u32 =
    if FITS_POINTER { u32::MAX } else { Compact::LAST_GENERATION };
/// The highest number of an executor.
#[cfg(feature = "static-tasks")]
pub(crate) const LAST_EXECUTOR: u8 =
    if FITS_POINTER || cfg!(feature = "std") { u8::MAX } else { 3 };

impl CoroutineId {
    /// The id with these bits, or `None` if no coroutine can ever have it (generation 0: in
    /// particular 0, which stands for "none" wherever an id is optional).
    ///
    /// Any other value is harmless wherever an id is taken: it refers to a coroutine or to none.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::CoroutineId;
    /// assert_eq!(CoroutineId::from_raw(0), None);
    /// assert_eq!(CoroutineId::from_raw(1 << 32 | 5).map(CoroutineId::index), Some(5));
    /// ```
    pub const fn from_raw(raw: u64) -> Option<CoroutineId> {
        if raw >> 32 == 0 {
            return None;
        }
        match NonZeroU64::new(raw) {
            Some(raw) => Some(CoroutineId(raw)),
            None => None,
        }
    }

    /// The bits of the id; never zero.
    ///
    /// ```
    /// # use cops_executor::CoroutineId;
    /// let id = CoroutineId::from_raw(7 << 32 | 5).unwrap();
    /// assert_eq!(id.raw(), 0x7_0000_0005);
    /// ```
    pub const fn raw(self) -> u64 {
        self.0.get()
    }

    /// How often the slot has been used, counting this coroutine.
    ///
    /// ```
    /// # use cops_executor::CoroutineId;
    /// assert_eq!(CoroutineId::from_raw(7 << 32 | 5).unwrap().generation(), 7);
    /// ```
    pub const fn generation(self) -> u32 {
        (self.raw() >> 32) as u32
    }

    /// The number of the executor that the coroutine belongs to.
    ///
    /// ```
    /// # use cops_executor::CoroutineId;
    /// assert_eq!(CoroutineId::from_raw(7 << 32 | 2 << 24 | 5).unwrap().executor(), 2);
    /// ```
    pub const fn executor(self) -> u8 {
        (self.raw() >> 24) as u8
    }

    /// The index of the coroutine's slot in its executor.
    ///
    /// ```
    /// # use cops_executor::CoroutineId;
    /// assert_eq!(CoroutineId::from_raw(7 << 32 | 2 << 24 | 5).unwrap().index(), 5);
    /// ```
    pub const fn index(self) -> u32 {
        (self.raw() as u32) & 0x00ff_ffff
    }
}

/// An id in 32 bits: generation 31..12, slot index 11..0. The number of the executor is kept
/// elsewhere.
///
/// Twelve bits for the index and not fewer, because how many coroutines there are at once is a hard
/// limit, while twenty bits of generation cost one slot of memory for each million coroutines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(target_pointer_width = "64", allow(dead_code))]
pub(crate) struct Compact(pub u32);

#[cfg_attr(target_pointer_width = "64", allow(dead_code))]
impl Compact {
    const INDEX_BITS: u32 = 12;
    const INDEX_MASK: u32 = (1 << Self::INDEX_BITS) - 1;
    const LAST_GENERATION: u32 = u32::MAX >> Self::INDEX_BITS;

    /// From the bits of an id with parts within the limits.
    #[inline(always)]
    pub const fn of(raw: u64) -> Compact {
        Compact((raw >> 32 << Self::INDEX_BITS) as u32 | raw as u32 & Self::INDEX_MASK)
    }

    /// The bits of the id, of an executor of this number.
    #[inline(always)]
    pub const fn raw(self, executor: u8) -> u64 {
        let generation = (self.0 >> Self::INDEX_BITS) as u64;
        generation << 32 | (executor as u64) << 24 | (self.0 & Self::INDEX_MASK) as u64
    }
}

impl fmt::Debug for CoroutineId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CoroutineId({}:{}.{})", self.executor(), self.index(), self.generation())
    }
}

impl fmt::Display for CoroutineId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}.{}", self.executor(), self.index(), self.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_the_round_trip() {
        let id = CoroutineId::from_raw(u64::MAX).unwrap();
        assert_eq!((id.generation(), id.executor(), id.index()), (u32::MAX, 255, (1 << 24) - 1));
        let id = CoroutineId::from_raw(3 << 32 | 7 << 24 | 42).unwrap();
        assert_eq!((id.generation(), id.executor(), id.index()), (3, 7, 42));
        assert_eq!(CoroutineId::from_raw(id.raw()), Some(id));
    }

    #[test]
    fn the_compact_form_holds_all_within_its_limits_and_nothing_else() {
        for generation in [1, 2, 0x8_0000, Compact::LAST_GENERATION] {
            for index in [1, 15, 16, (1 << Compact::INDEX_BITS) - 1] {
                let raw = (generation as u64) << 32 | 7 << 24 | index;
                assert_eq!(Compact::of(raw).raw(7), raw);
            }
        }
        // One more of either is another id's form: that is why there are limits.
        assert_eq!(Compact::of(((Compact::LAST_GENERATION + 1) as u64) << 32 | 1).raw(0), 1);
        assert_eq!(CoroutineId::from_raw(Compact(u32::MAX >> 20).raw(0)), None);
        // Any bits are accepted, as an id or as none: a waker's data may be anything.
        assert_eq!(Compact::of(Compact(u32::MAX).raw(255)), Compact(u32::MAX));
    }

    #[test]
    fn generation_zero_is_no_coroutine() {
        assert_eq!(CoroutineId::from_raw(0), None);
        assert_eq!(CoroutineId::from_raw(u32::MAX as u64), None);
    }
}
