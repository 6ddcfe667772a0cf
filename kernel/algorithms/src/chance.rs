//! The generator behind the kernel's random numbers: ChaCha20 with a key that is replaced after
//! every use.
//!
//! Absorbed bytes are mixed into the key and cannot be recovered from it. So adding a seed of any
//! quality to a good one leaves the key good. After every use the generator draws its next key from
//! itself: an attacker that learns today's key cannot compute earlier output.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};

const KEY_BYTES: usize = 32;

/// A stream of random bytes. Its output is as unpredictable as the bytes it has absorbed.
pub struct Generator(ChaCha20Rng);

impl Generator {
    /// A generator that has absorbed nothing. Its output is predictable.
    pub fn unseeded() -> Generator {
        Generator(ChaCha20Rng::from_seed([0; KEY_BYTES]))
    }

    /// Mixes all of `seed` into the key, 32 bytes at a time.
    pub fn absorb(&mut self, seed: &[u8]) {
        for chunk in seed.chunks(KEY_BYTES) {
            let mut key = [0; KEY_BYTES];
            self.0.fill_bytes(&mut key);
            for (place, byte) in key.iter_mut().zip(chunk) {
                *place ^= byte;
            }
            self.0 = ChaCha20Rng::from_seed(key);
        }
    }

    /// Fills `bytes`, then replaces the key by one that also depends on `now`.
    pub fn fill(&mut self, bytes: &mut [u8], now: u64) {
        self.0.fill_bytes(bytes);
        self.absorb(&now.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: &[u8]) -> [u8; 16] {
        let mut generator = Generator::unseeded();
        generator.absorb(seed);
        let mut bytes = [0; 16];
        generator.fill(&mut bytes, 0);
        bytes
    }

    #[test]
    fn every_bit_of_a_seed_counts() {
        for length in [1, 8, 31, 32, 33, 64, 100] {
            let seed = [0x5a; 100];
            let seed = &seed[..length];
            assert_eq!(first(seed), first(seed), "the same seed");
            for bit in 0..8 * length {
                let mut other = [0; 100];
                other[..length].copy_from_slice(seed);
                other[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(first(&other[..length]), first(seed), "bit {bit} of {length} bytes");
            }
        }
    }

    #[test]
    fn what_is_absorbed_later_replaces_nothing() {
        let after = |seed: u8| {
            let mut generator = Generator::unseeded();
            generator.absorb(&[seed; 32]);
            generator.absorb(&[0; 32]);
            let mut bytes = [0; 16];
            generator.fill(&mut bytes, 0);
            bytes
        };
        assert_ne!(after(1), after(2));
    }

    #[test]
    fn the_clock_and_each_use_change_the_key() {
        let second = |now| {
            let mut generator = Generator::unseeded();
            let mut bytes = [[0; 32]; 2];
            generator.fill(&mut bytes[0], now);
            generator.fill(&mut bytes[1], now);
            bytes
        };
        let (at_5, at_6) = (second(5), second(6));
        assert_eq!(at_5[0], at_6[0], "the clock is mixed in after the bytes are drawn");
        assert_ne!(at_5[1], at_6[1]);
        assert_ne!(at_5[0], at_5[1]);
        // The first key would continue the stream with these bytes.
        let mut stream = [0; 64];
        Generator::unseeded().fill(&mut stream, 5);
        assert_eq!(stream[..32], at_5[0]);
        assert_ne!(stream[32..], at_5[1]);
    }

    #[test]
    fn any_length_is_filled() {
        let mut generator = Generator::unseeded();
        generator.fill(&mut [], 0);
        let mut bytes = [0; 256];
        generator.fill(&mut bytes, 0);
        assert!(bytes.chunks(16).all(|chunk| chunk != [0; 16]), "{bytes:?}");
    }
}
