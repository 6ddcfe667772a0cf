//! Devices, as the device tree describes them.
//!
//! `device_tree` knows what there is, `interrupt` brings a device's interrupt to the
//! coroutine that drives it, `uart` and `console` are the way to the people, `virtio_net` to
//! the network, `rtc` tells which moment it is, `power` is the way out. Interrupt handlers do no device work: they wake.
//!
//! The modules that touch registers or memory of devices are marked.

pub mod console;
#[allow(unsafe_code)]
pub mod device_tree;
pub mod fixed_list;
pub mod interrupt;
mod multiplexer;
#[allow(unsafe_code)]
pub mod power;
#[allow(unsafe_code)]
pub mod rtc;
#[allow(unsafe_code)]
mod uart;
#[allow(unsafe_code)]
mod virtio_memory;
#[allow(unsafe_code)]
pub mod virtio_net;
