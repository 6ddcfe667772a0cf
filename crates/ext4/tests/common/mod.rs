//! What the tests share: a disk in memory that can lose power, images, `e2fsck`, a model.
#![allow(dead_code)]

pub mod device;
pub mod image;
pub mod model;
pub mod script;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use cops_ext4::Time;

/// Polls a future until it is finished. Everything below it is ready at once or asks to be polled
/// again.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100_000_000_u64 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
    panic!("the future does not end");
}

/// Polls a future once, and drops it if it is not finished. Returns whether it is.
pub fn poll_once<T>(future: impl Future<Output = T>) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

pub const fn at(seconds: i64) -> Time {
    Time { seconds, nanoseconds: 0 }
}

/// Random numbers, the same for the same seed (xorshift64*).
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..4).for_each(|_| {
            random.next();
        });
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// How often a test repeats: a factor that `COPS_EXT4_ROUNDS` sets for a long run.
pub fn rounds(usual: u64) -> u64 {
    let factor = std::env::var("COPS_EXT4_ROUNDS").ok().and_then(|text| text.parse::<u64>().ok());
    usual * factor.unwrap_or(1)
}
