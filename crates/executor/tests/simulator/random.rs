//! Pseudo-random numbers that are the same on every machine: splitmix64, and integers only.

pub use super::common::random::Random;

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// The time to the next event of a process without memory (Poisson, in steps of `mean` / 256):
    /// one toss in 256 succeeds. No logarithm: its last digit depends on the C library.
    pub fn interval(&mut self, mean_nanos: u64) -> u64 {
        let mut steps = 1;
        while self.below(256) != 0 {
            steps += 1;
        }
        steps * mean_nanos / 256
    }
}
