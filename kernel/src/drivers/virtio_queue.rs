//! A split queue of which each descriptor belongs to one buffer for ever.
//!
//! The queue of the virtio crate takes any buffers: it allocates descriptors, writes and checks
//! their addresses, and fences for each chain. A network card has the same buffers all the time.
//! Here a buffer is named by the number of its descriptor, which is written once. So to offer a
//! buffer is to store its number, and all that was offered is published at once.
//!
//! All of the memory that is shared with the device is atomic, and everything that is read from it
//! is masked: a faulty device can mix up frames, and nothing else.

use super::virtio_memory::{Buffers, DirectMemory};
use super::virtio_mmio::Doorbell;
use cops_algorithms::event_index::Writer;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use virtio_drivers::transport::Transport;
use virtio_drivers::{BufferDirection, Error, Hal, PAGE_SIZE};

/// Descriptors of a queue, and so the number of its buffers. A power of two.
pub const QUEUE_SIZE: usize = 256;
const MASK: u16 = QUEUE_SIZE as u16 - 1;

/// Flag of a descriptor: the device writes.
const DEVICE_WRITES: u16 = 2;
/// Flag of a ring: its reader wants no notification. Without [`EVENT_INDEX`].
const NO_NOTIFICATION: u16 = 1;

/// The feature of a device that each side says which buffer it wants to be notified of (virtio 1.2,
/// section 2.7.10).
pub const EVENT_INDEX: u64 = 1 << 29;

/// A buffer (virtio 1.2, section 2.7.5).
#[repr(C)]
struct Descriptor {
    address: AtomicU64,
    length: AtomicU32,
    flags: AtomicU16,
    next: AtomicU16,
}

/// What the driver offers.
#[repr(C)]
struct AvailableRing {
    flags: AtomicU16,
    index: AtomicU16,
    ring: [AtomicU16; QUEUE_SIZE],
    /// With event indices: the device interrupts when it returns the buffer with this index.
    used_event: AtomicU16,
}

#[repr(C)]
struct UsedElement {
    number: AtomicU32,
    length: AtomicU32,
}

/// What the device returns. On a page of its own, as legacy devices require.
#[repr(C, align(4096))]
struct UsedRing {
    flags: AtomicU16,
    index: AtomicU16,
    ring: [UsedElement; QUEUE_SIZE],
    /// With event indices: the device wants to be notified of the buffer with this index.
    available_event: AtomicU16,
}

/// The memory that is shared with the device. All zero at first.
#[repr(C)]
struct Rings {
    descriptors: [Descriptor; QUEUE_SIZE],
    available: AvailableRing,
    used: UsedRing,
}

const _: () = assert!(size_of::<Descriptor>() == 16 && size_of::<UsedElement>() == 8);
const _: () = assert!(core::mem::offset_of!(Rings, available) == 16 * QUEUE_SIZE);
const _: () = assert!(core::mem::offset_of!(Rings, used).is_multiple_of(PAGE_SIZE));

/// How many buffers a device has returned, for a look at any time and on any hart.
#[derive(Clone, Copy)]
pub struct Returned {
    rings: &'static Rings,
}

impl Returned {
    /// The number of buffers that were ever returned, modulo 2^16.
    #[inline]
    pub fn count(self) -> u16 {
        self.rings.used.index.load(Ordering::Relaxed)
    }
}

/// A queue and its place in both rings.
pub struct FixedQueue {
    rings: &'static Rings,
    /// Number of buffers offered, and number taken back, both modulo 2^16.
    offered: u16,
    taken: u16,
    /// Whether the device is to be notified, if the feature [`EVENT_INDEX`] was negotiated.
    event_index: Option<Writer>,
}

impl FixedQueue {
    /// Queue `index` of a device, of which descriptor `n` belongs to buffer `n`.
    ///
    /// # Errors
    /// If the device has no such queue of this size, or without memory.
    pub fn new(
        transport: &mut impl Transport,
        index: u16,
        buffers: &Buffers,
        device_writes: bool,
        event_index: bool,
    ) -> Result<Self, Error> {
        if transport.queue_used(index) {
            return Err(Error::AlreadyUsed);
        }
        if transport.max_queue_size(index) < QUEUE_SIZE as u32 || buffers.count() != QUEUE_SIZE {
            return Err(Error::InvalidParam);
        }
        let pages = size_of::<Rings>().div_ceil(PAGE_SIZE);
        let (physical, memory) = DirectMemory::dma_alloc(pages, BufferDirection::Both);
        if physical == 0 {
            return Err(Error::DmaError);
        }
        // SAFETY: `dma_alloc` has just returned these pages, which are zeroed, aligned to a page
        // and never freed. All of it is atomic, so it does not matter that the device writes, too.
        let rings: &'static Rings = unsafe { memory.cast::<Rings>().as_ref() };
        for (number, descriptor) in rings.descriptors.iter().enumerate() {
            descriptor.address.store(buffers.physical(number), Ordering::Relaxed);
            descriptor.length.store(buffers.bytes() as u32, Ordering::Relaxed);
            let flags = if device_writes { DEVICE_WRITES } else { 0 };
            descriptor.flags.store(flags, Ordering::Relaxed);
        }
        let at = |offset: usize| physical + offset as u64;
        transport.queue_set(
            index,
            QUEUE_SIZE as u32,
            physical,
            at(core::mem::offset_of!(Rings, available)),
            at(core::mem::offset_of!(Rings, used)),
        );
        let event_index = event_index.then(Writer::default);
        Ok(Self { rings, offered: 0, taken: 0, event_index })
    }

    /// Offers the first `length` bytes of a buffer of which the device reads.
    pub fn offer_bytes(&mut self, number: u16, length: usize) {
        let descriptor = &self.rings.descriptors[usize::from(number & MASK)];
        descriptor.length.store(length as u32, Ordering::Relaxed);
        self.offer(number);
    }

    /// Offers a buffer. The device may see it from now on, and sees it once [`publish`] was called.
    ///
    /// [`publish`]: Self::publish
    pub fn offer(&mut self, number: u16) {
        let slot = &self.rings.available.ring[usize::from(self.offered & MASK)];
        slot.store(number & MASK, Ordering::Relaxed);
        self.offered = self.offered.wrapping_add(1);
    }

    /// Publishes all that was offered. Returns whether the device wants to be notified.
    pub fn publish(&mut self) -> bool {
        // The device reads the index first: it sees what was written before.
        self.rings.available.index.store(self.offered, Ordering::Release);
        // The device publishes that it wants notifications, and then looks at the index: one of the
        // two sees the other's store.
        fence(Ordering::SeqCst);
        let used = &self.rings.used;
        if let Some(writer) = &mut self.event_index {
            let event = used.available_event.load(Ordering::Relaxed);
            writer.must_notify(event, self.offered, QUEUE_SIZE as u16)
        } else {
            used.flags.load(Ordering::Relaxed) & NO_NOTIFICATION == 0
        }
    }

    /// Takes back a buffer: its number, and the number of bytes that the device has written.
    pub fn take(&mut self) -> Option<(u16, usize)> {
        if !self.has_used() {
            return None;
        }
        let element = &self.rings.used.ring[usize::from(self.taken & MASK)];
        self.taken = self.taken.wrapping_add(1);
        let number = element.number.load(Ordering::Relaxed) as u16 & MASK;
        Some((number, element.length.load(Ordering::Relaxed) as usize))
    }

    /// Whether there is a buffer to take back. What the device did before is then visible.
    fn has_used(&self) -> bool {
        self.rings.used.index.load(Ordering::Acquire) != self.taken
    }

    /// For looking whether there is a buffer to take back: if the count is not [`Self::taken`].
    pub fn returned(&self) -> Returned {
        Returned { rings: self.rings }
    }

    /// The number of buffers that were ever taken back, modulo 2^16.
    pub fn taken(&self) -> u16 {
        self.taken
    }

    /// Asks the device not to interrupt when it returns a buffer. It may still do so.
    pub fn disable_interrupts(&mut self) {
        let available = &self.rings.available;
        if self.event_index.is_some() {
            // The index that was passed last is the one that is passed again latest: after 65,536
            // buffers.
            available.used_event.store(self.taken.wrapping_sub(1), Ordering::Relaxed);
        } else {
            available.flags.store(NO_NOTIFICATION, Ordering::Relaxed);
        }
    }

    /// Asks the device to interrupt when it returns a buffer: with event indices for the next one
    /// only, otherwise for each one. Returns whether it has returned one meanwhile: that does not
    /// interrupt.
    ///
    /// The device looks only once at the request for a buffer, so the store and the load must not
    /// change places. QEMU before 8.1 does not translate fences for a single hart: an access to a
    /// register of the device is one there, too.
    pub fn enable_interrupts(&mut self, doorbell: Doorbell) -> bool {
        let available = &self.rings.available;
        if self.event_index.is_some() {
            available.used_event.store(self.taken, Ordering::Relaxed);
        } else {
            available.flags.store(0, Ordering::Relaxed);
        }
        // The device publishes a buffer, and then looks at the request: one of the two sees the
        // other's store.
        fence(Ordering::SeqCst);
        doorbell.order_accesses();
        self.has_used()
    }
}
