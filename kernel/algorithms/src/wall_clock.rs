//! Real time, from a real-time clock that was read once and a monotonic clock.

/// Joins the two 32-bit registers of a clock, the low one read first. `None` for 0, which means
/// that the clock does not run.
pub fn joined(low: u32, high: u32) -> Option<u64> {
    Some(u64::from(high) << 32 | u64::from(low)).filter(|&nanoseconds| nanoseconds != 0)
}

/// The real time at which the monotonic clock was 0, given the values of both clocks at one moment.
pub fn epoch(real: Option<u64>, monotonic: u64) -> u64 {
    // Without a real-time clock, real time begins together with the monotonic clock.
    real.map_or(0, |real| real.saturating_sub(monotonic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_joined_low_and_high() {
        assert_eq!(joined(0x89ab_cdef, 0x0123_4567), Some(0x0123_4567_89ab_cdef));
        assert_eq!(joined(u32::MAX, 0), Some(0xffff_ffff));
        assert_eq!(joined(0, 1), Some(1 << 32));
        assert_eq!(joined(0, 0), None);
    }

    #[test]
    fn epoch_and_monotonic_time_add_up_to_real_time() {
        let (real, monotonic) = (1_700_000_000_000_000_000, 250_000_000);
        assert_eq!(epoch(Some(real), monotonic) + monotonic, real);
        assert_eq!(epoch(None, monotonic), 0);
        assert_eq!(epoch(Some(5), 6), 0, "a clock that is behind its own machine");
    }
}
