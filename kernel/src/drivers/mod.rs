//! Devices, as described by the device tree.
//!
//! - `interrupt`: brings a device's interrupt to the coroutine that drives it.
//! - `uart`, `console`: the serial port and the console; `emergency`: the console after a panic.
//! - `virtio_mmio` finds virtio devices; `virtio_memory` is their memory; `virtio_queue` is a queue
//!   with fixed buffers.
//! - `virtio_block`: the disk.
//! - `virtio_net`: the network card.
//! - `virtio_rng`: the entropy device.
//! - `rtc`: the real-time clock.
//! - `random`: random numbers.
//! - `power`: powers the machine off.
//!
//! Interrupt handlers do no device work; they only wake coroutines. Only the modules that access
//! registers or memory of devices allow `unsafe`.

pub mod console;
pub mod emergency;
pub mod interrupt;
#[allow(unsafe_code)]
pub mod power;
pub mod random;
#[allow(unsafe_code)]
pub mod rtc;
#[allow(unsafe_code)]
mod uart;
#[allow(unsafe_code)]
pub mod virtio_block;
#[allow(unsafe_code)]
mod virtio_memory;
#[allow(unsafe_code)]
mod virtio_mmio;
#[allow(unsafe_code)]
pub mod virtio_net;
#[allow(unsafe_code)]
mod virtio_queue;
#[allow(unsafe_code)]
pub mod virtio_rng;
