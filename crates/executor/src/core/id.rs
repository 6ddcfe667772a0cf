//! Coroutine ids: generation, executor number and slot index in one word that is never zero.

use ::core::fmt;
use ::core::num::NonZeroU64;

/// Names one coroutine for ever: a slot that is used again gets another generation, so a late wake
/// cannot reach a stranger.
///
/// Bits: generation 63..32 (from 1), executor number 31..24, slot index 23..0 (from 1).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CoroutineId(NonZeroU64);

const _: () = assert!(size_of::<Option<CoroutineId>>() == 8);

/// Slots an executor can number: 24 bits of index.
pub(crate) const INDEX_LIMIT: u32 = 1 << 24;

impl CoroutineId {
    /// The id with these bits, or `None` if no coroutine can ever have it (generation 0: in particular 0,
    /// which stands for "none" wherever an id is optional).
    ///
    /// Any other value is harmless wherever an id is taken: it names a coroutine or nobody.
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
    pub const fn raw(self) -> u64 {
        self.0.get()
    }

    /// How often the slot has been used, counting this coroutine.
    pub const fn generation(self) -> u32 {
        (self.raw() >> 32) as u32
    }

    /// The number of the executor that the coroutine belongs to.
    pub const fn executor(self) -> u8 {
        (self.raw() >> 24) as u8
    }

    /// The index of the coroutine's slot in its executor.
    pub const fn index(self) -> u32 {
        (self.raw() as u32) & (INDEX_LIMIT - 1)
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
        assert_eq!((id.generation(), id.executor(), id.index()), (u32::MAX, 255, INDEX_LIMIT - 1));
        let id = CoroutineId::from_raw(3 << 32 | 7 << 24 | 42).unwrap();
        assert_eq!((id.generation(), id.executor(), id.index()), (3, 7, 42));
        assert_eq!(CoroutineId::from_raw(id.raw()), Some(id));
    }

    #[test]
    fn generation_zero_is_nobody() {
        assert_eq!(CoroutineId::from_raw(0), None);
        assert_eq!(CoroutineId::from_raw(u32::MAX as u64), None);
    }
}
