//! Devices, as the device tree describes them.
//!
//! `device_tree` knows what there is, `interrupt` brings a device's interrupt to the
//! coroutine that drives it, `uart` and `console` are the way to the people, `virtio_net` to
//! the network, `power` is the way out. Interrupt handlers do no device work: they wake.
#![allow(unsafe_code)]

pub mod console;
pub mod device_tree;
pub mod fixed_list;
pub mod interrupt;
mod multiplexer;
pub mod power;
mod ring;
mod uart;
mod virtio_memory;
pub mod virtio_net;
