//! Memory that devices read and write: what the virtio crate asks of the kernel.

use crate::mm::{frames, layout};
use core::ptr::NonNull;
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

/// Devices see physical memory as it is: no translation, caches coherent.
#[derive(Debug)]
pub struct DirectMemory;

// SAFETY: blocks come from the frame allocator, which gives each away once; addresses are
// translated by the direct map, which covers all RAM and devices.
unsafe impl Hal for DirectMemory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let order = frames::order_for(pages * frames::FRAME_BYTES);
        // Address 0 is the crate's word for "no memory".
        let Ok(physical) = frames::allocate_block(order) else { return (0, NonNull::dangling()) };
        let memory = NonNull::new(layout::direct(physical)).expect("the direct map is not at address 0");
        // SAFETY: a fresh block of at least that many pages.
        unsafe { memory.write_bytes(0, pages * frames::FRAME_BYTES) };
        (physical as PhysAddr, memory)
    }

    unsafe fn dma_dealloc(physical: PhysAddr, _: NonNull<u8>, pages: usize) -> i32 {
        // SAFETY: by contract from `dma_alloc` with as many pages.
        unsafe { frames::free_block(physical as usize, frames::order_for(pages * frames::FRAME_BYTES)) };
        0
    }

    unsafe fn mmio_phys_to_virt(physical: PhysAddr, _: usize) -> NonNull<u8> {
        NonNull::new(layout::direct(physical as usize)).expect("the direct map is not at address 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        // Buffers given to devices lie in the direct map (not, for example, on a stack).
        layout::physical_of(buffer.cast::<u8>().as_ptr() as usize) as PhysAddr
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

/// Equal buffers for a queue, in one block that is never given back.
pub struct Buffers {
    start: *mut u8,
    count: usize,
    bytes: usize,
}

// SAFETY: the block belongs to the value.
unsafe impl Send for Buffers {}

impl Buffers {
    /// `count` buffers of `bytes` bytes, zeroed; `None` without memory.
    pub fn allocate(count: usize, bytes: usize) -> Option<Self> {
        let total = count.checked_mul(bytes)?;
        let start = layout::direct(frames::allocate_block(frames::order_for(total)).ok()?);
        // SAFETY: a fresh block of at least that size.
        unsafe { start.write_bytes(0, total) };
        Some(Self { start, count, bytes })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Buffer `index`.
    ///
    /// # Safety
    /// No device and no other reference uses it while the answer lives.
    ///
    /// # Panics
    /// If there are not so many.
    pub unsafe fn get(&self, index: usize) -> &'static mut [u8] {
        assert!(index < self.count);
        // SAFETY: within the block, which lives for ever; exclusive by contract.
        unsafe { core::slice::from_raw_parts_mut(self.start.add(index * self.bytes), self.bytes) }
    }
}
