//! Numbers that differ from boot to boot: seeds for hash tables and sequence numbers, not for keys.
//!
//! SplitMix64 (Steele, Lea, Flood 2014) over a counter that started from the clock, stirred with
//! the clock at every call.
//! May touch: the clock.

use core::sync::atomic::{AtomicU64, Ordering::*};

use crate::arch;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

static STATE: AtomicU64 = AtomicU64::new(0);

/// Stirs `seed` in.
pub fn seed(seed: u64) {
    STATE.fetch_xor(seed, Relaxed);
}

/// The next number.
pub fn next() -> u64 {
    let mut z = STATE.fetch_add(STEP, Relaxed).wrapping_add(STEP) ^ arch::now_ticks();
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Sixteen of them as bytes.
pub fn bytes() -> [u8; 16] {
    (u128::from(next()) << 64 | u128::from(next())).to_le_bytes()
}
