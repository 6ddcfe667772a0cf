//! Memory that devices read and write: the kernel's part of the virtio crate's interface.

use crate::machine::layout;
use crate::mm::frames;
use core::ptr::NonNull;
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

/// Devices access physical memory without translation, and caches are coherent.
#[derive(Debug)]
pub struct DirectMemory;

// SAFETY: blocks come from the frame allocator, which hands out each one once; addresses are
// translated by the direct map, which covers all RAM and devices.
unsafe impl Hal for DirectMemory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let order = frames::order_for(pages * frames::FRAME_BYTES);
        // The virtio crate treats address 0 as "no memory".
        let Ok(physical) = frames::allocate_block(order) else { return (0, NonNull::dangling()) };
        let memory =
            NonNull::new(layout::direct(physical)).expect("the direct map is not at address 0");
        // SAFETY: `allocate_block` has just returned this block of at least that many pages, so no
        // other reference to it exists, and the direct map covers it.
        unsafe { memory.write_bytes(0, pages * frames::FRAME_BYTES) };
        (physical as PhysAddr, memory)
    }

    unsafe fn dma_dealloc(physical: PhysAddr, _: NonNull<u8>, pages: usize) -> i32 {
        // SAFETY: by the trait's contract the block came from `dma_alloc` with the same number of
        // pages, so the order is the same, and the device no longer uses it.
        unsafe {
            frames::free_block(physical as usize, frames::order_for(pages * frames::FRAME_BYTES))
        };
        0
    }

    unsafe fn mmio_phys_to_virt(physical: PhysAddr, _: usize) -> NonNull<u8> {
        NonNull::new(layout::direct(physical as usize)).expect("the direct map is not at address 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        // Buffers given to devices are in the direct map (not, for example, on a stack).
        layout::physical_of(buffer.cast::<u8>().as_ptr() as usize) as PhysAddr
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

/// Buffers of equal size for a queue, in one block that is never freed.
pub struct Buffers {
    start: *mut u8,
    count: usize,
    bytes: usize,
}

// SAFETY: the block belongs to this value alone, and no part of it depends on the hart.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Allocates `count` zeroed buffers of `bytes` bytes; `None` if there is no memory.
    pub fn allocate(count: usize, bytes: usize) -> Option<Self> {
        let total = count.checked_mul(bytes)?;
        let start = layout::direct(frames::allocate_block(frames::order_for(total)).ok()?);
        // SAFETY: `allocate_block` has just returned this block of at least `total` bytes, so no
        // other reference to it exists, and the direct map covers it.
        unsafe { start.write_bytes(0, total) };
        Some(Self { start, count, bytes })
    }

    /// Number of buffers.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Size of each.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of buffer `index` for devices.
    pub fn physical(&self, index: usize) -> PhysAddr {
        layout::physical_of(self.start as usize + index * self.bytes) as PhysAddr
    }

    /// Buffer `index`.
    ///
    /// # Safety
    /// No device and no other reference uses the buffer during the lifetime of the result.
    ///
    /// # Panics
    /// If there is no such buffer.
    pub unsafe fn get(&self, index: usize) -> &'static mut [u8] {
        assert!(index < self.count);
        // SAFETY: `index < count`, so the buffer is within the block, which is never freed; by this
        // function's contract the reference is exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.start.add(index * self.bytes), self.bytes) }
    }
}
