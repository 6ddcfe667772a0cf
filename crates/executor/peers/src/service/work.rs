//! What a request computes: rounds of a mixing function, each of which needs the one before. The
//! answer shows that all were made.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// `rounds` rounds on from `state`.
pub fn mix(mut state: u64, rounds: u32) -> u64 {
    for _ in 0..rounds {
        state ^= state >> 31;
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x632b_e59b_d9b4_e019);
    }
    state
}

/// The answer to a request of so many slices.
pub fn checksum(seed: u64, rounds: u32, slices: u32) -> u64 {
    (0..slices).fold(seed, |state, _| mix(state, rounds))
}

/// Rounds that take about `duration` on this machine, at its best.
pub fn rounds_in(duration: Duration) -> u32 {
    const PROBE: u32 = 200_000;
    let probe = |_| {
        let start = Instant::now();
        black_box(mix(black_box(1), black_box(PROBE)));
        start.elapsed()
    };
    let fastest = (0..40).map(probe).min().unwrap_or_default();
    (f64::from(PROBE) * duration.as_secs_f64() / fastest.as_secs_f64().max(1e-9)).max(1.0) as u32
}
