//! Random numbers: for programs, for hash tables, for the network's ports and sequence numbers.
//!
//! The machine has one generator. It is seeded at boot from all available sources: the bytes that
//! the boot loader passes in the device tree (`rng-seed`), an entropy device (virtio-rng), and the
//! clocks. The sources are combined, so the seed is as good as the best of them. Without the first
//! two, only the clocks seed it: programs and the network still get random numbers (`getrandom`
//! neither fails nor waits), but people who know approximately when the machine was started can
//! find them by trial. The kernel logs this at boot. The lock is never taken by an interrupt
//! handler, and is held for at most 256 bytes and a new key.

use cops_algorithms::chance::Generator;
use cops_lock::Mutex;
use spin::Once;

use super::virtio_rng;
use crate::arch;
use crate::machine::device_tree;

/// Maximum number of bytes generated while the lock is held once.
pub const BYTES_MAX: usize = 256;
/// A seed with fewer bytes can be found by trial.
const SEED_BYTES_ENOUGH: usize = 16;

static GENERATOR: Once<Mutex<Generator>> = Once::new();

fn generator() -> &'static Mutex<Generator> {
    GENERATOR.call_once(|| Mutex::new(Generator::unseeded()))
}

/// Seeds the generator, also with the real time if a clock provides it. Logs the sources, or that
/// they are not sufficient.
pub fn seed(real_nanoseconds: Option<u64>) {
    let from_tree = device_tree::facts().random_seed;
    let from_device = virtio_rng::entropy();
    let mut generator = generator().lock();
    generator.absorb(from_tree);
    generator.absorb(&from_device.unwrap_or_default());
    generator.absorb(&real_nanoseconds.unwrap_or(0).to_le_bytes());
    generator.absorb(&arch::now_ticks().to_le_bytes());
    drop(generator);
    let has_tree = from_tree.len() >= SEED_BYTES_ENOUGH;
    match (has_tree, from_device.is_some()) {
        (true, true) => {
            log::info!("random numbers: seeded by the device tree and an entropy device")
        }
        (true, false) => log::info!("random numbers: seeded by the device tree"),
        (false, true) => log::info!("random numbers: seeded by an entropy device"),
        (false, false) => log::warn!(
            "random numbers: no seed in the device tree and no entropy device: they come from the clocks alone and \
             can be guessed"
        ),
    }
}

/// Fills `bytes`, at most [`BYTES_MAX`] of them.
pub fn fill(bytes: &mut [u8]) {
    debug_assert!(bytes.len() <= BYTES_MAX);
    generator().lock().fill(bytes, arch::now_ticks());
}

/// The next random number.
pub fn next() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
