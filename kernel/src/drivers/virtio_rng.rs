//! The entropy device: virtio-rng over MMIO, asked once, at boot.
//!
//! A device that has nothing to give may keep a request for as long as it likes. The boot waits for
//! a tenth of a second, then resets the device, which ends the request, and does without.

use super::virtio_memory::{Buffers, DirectMemory};
use super::virtio_mmio::{self, Device};
use crate::arch;
use virtio_drivers::Error;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::mmio::MmioTransport;
use virtio_drivers::transport::{DeviceStatus, DeviceType, Transport};

/// Bytes that one request asks for: as many as the generator's key has.
pub const BYTES: usize = 32;
/// How long the boot waits for the device.
const PATIENCE_MILLISECONDS: u64 = 100;
const QUEUE_SIZE: usize = 2;

bitflags::bitflags! {
    /// The features that are of use here.
    #[derive(Clone, Copy, Debug)]
    struct Features: u64 {
        /// A modern device.
        const VERSION_1 = 1 << 32;
    }
}

type Queue = VirtQueue<DirectMemory, QUEUE_SIZE>;

/// Random bytes of the first entropy device that the device tree names and that answers. To be
/// called once.
pub fn entropy() -> Option<[u8; BYTES]> {
    virtio_mmio::devices(DeviceType::EntropySource).find_map(
        |Device { transport, address, .. }| {
            ask(transport)
                .inspect_err(|error| log::warn!("entropy device at {address:#x}: {error}"))
                .ok()
        },
    )
}

fn ask(mut transport: MmioTransport<'static>) -> Result<[u8; BYTES], Error> {
    transport.begin_init(Features::VERSION_1);
    let mut queue = Queue::new(&mut transport, 0, false, false)?;
    transport.finish_init();
    let answer = request(&mut transport, &mut queue);
    // The device forgets the queue's memory before that is freed.
    transport.set_status(DeviceStatus::empty());
    answer
}

fn request(
    transport: &mut MmioTransport<'static>,
    queue: &mut Queue,
) -> Result<[u8; BYTES], Error> {
    let buffers = Buffers::allocate(1, BYTES).ok_or(Error::DmaError)?;
    // SAFETY: the only reference to the only buffer; the device has it from `add` to `pop_used`.
    let buffer = unsafe { buffers.get(0) };
    // SAFETY: the buffer is not touched before `pop_used`, or ever again if the device does not
    // answer.
    let token = unsafe { queue.add(&[], &mut [&mut *buffer])? };
    transport.notify(0);
    let deadline_ticks =
        arch::now_ticks() + arch::ticks_per_second() * PATIENCE_MILLISECONDS / 1000;
    while !queue.can_pop() {
        if arch::now_ticks() > deadline_ticks {
            return Err(Error::NotReady);
        }
        core::hint::spin_loop();
    }
    // SAFETY: the buffer that was added with this token.
    let count = unsafe { queue.pop_used(token, &[], &mut [&mut *buffer])? };
    let mut bytes = [0; BYTES];
    bytes.copy_from_slice(buffer);
    // Fewer would be fewer than the caller counts with.
    if count as usize == BYTES { Ok(bytes) } else { Err(Error::IoError) }
}
