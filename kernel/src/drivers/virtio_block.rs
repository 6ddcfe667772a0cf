//! The disk: virtio-blk over MMIO, legacy or modern.
//!
//! The device has at most [`REQUESTS_MAX`] requests at a time. Each has a number below that, a
//! *slot*, and its own [`Memory`], which the caller gives away with the request and gets back with
//! the result. So memory that the device may access cannot be reached from anywhere else.
//!
//! On an interrupt, the caller must call [`VirtioBlock::acknowledge`], then
//! [`VirtioBlock::finished`] until it returns `None`, and then complete the line.

use super::interrupt::Line;
use super::virtio_memory::{Buffers, DirectMemory};
use super::virtio_mmio::{self, Device};
use alloc::boxed::Box;
use cops_fallible::{List, try_box};
use virtio_drivers::Error;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::mmio::MmioTransport;
use virtio_drivers::transport::{DeviceType, Transport};

/// Requests of calls that the device can have at a time.
pub const CALLS_MAX: usize = 32;
/// The same of the kernel's own coroutines.
pub const DIRECT_MAX: usize = 10;
/// Requests that the device can have at a time: the first [`CALLS_MAX`] slots are for calls.
pub const REQUESTS_MAX: usize = CALLS_MAX + DIRECT_MAX;
/// Unit of positions and lengths.
pub const SECTOR_BYTES: usize = 512;
/// Maximum number of bytes that a request of a call transfers.
pub const TRANSFER_BYTES_MAX: usize = 20 * 1024;
/// The same of a coroutine of the kernel.
pub const DIRECT_BYTES_MAX: usize = 64 * 1024;

/// Descriptors: three for each request (header, data, status), rounded up to a power of two.
const QUEUE_SIZE: usize = 128;
const _: () = assert!(QUEUE_SIZE >= 3 * REQUESTS_MAX);
const QUEUE: u16 = 0;

const HEADER_BYTES: usize = 16;
/// The data begin at this offset of a request's memory, after the header and the status.
const DATA_START: usize = SECTOR_BYTES;

/// Values of the first word of the header.
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
/// The status of a request that has succeeded.
const STATUS_OK: u8 = 0;
/// The status before the device writes one.
const STATUS_NONE: u8 = 0xff;

bitflags::bitflags! {
    /// The features that the driver supports. As for the network card, EVENT_IDX is not among them.
    #[derive(Clone, Copy, Debug)]
    struct Features: u64 {
        /// The device cannot be written.
        const READ_ONLY = 1 << 5;
        /// The device has a cache and a command that empties it.
        const FLUSH = 1 << 9;
        /// A modern device.
        const VERSION_1 = 1 << 32;
    }
}

type Queue = VirtQueue<DirectMemory, QUEUE_SIZE>;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Read so many bytes from this sector on.
    Read { sector: u64, bytes: usize },
    /// Write so many bytes from this sector on.
    Write { sector: u64, bytes: usize },
    /// Make all completed writes durable.
    Flush,
}

/// The device reported an error, or has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed;

/// The memory of one request.
pub struct Memory(&'static mut [u8]);

impl Memory {
    /// The data: [`TRANSFER_BYTES_MAX`] bytes, or [`DIRECT_BYTES_MAX`].
    pub fn data(&mut self) -> &mut [u8] {
        &mut self.0[DATA_START..]
    }

    /// Whether it has room for so many bytes of data.
    fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.0.len() - DATA_START
    }

    /// The header, the data of `length` bytes, and the status.
    fn parts(&mut self, length: usize) -> (&mut [u8], &mut [u8], &mut [u8]) {
        let (before, data) = self.0.split_at_mut(DATA_START);
        let (header, status) = before.split_at_mut(HEADER_BYTES);
        (header, &mut data[..length], &mut status[..1])
    }
}

/// A request that the device has.
struct Given {
    command: Command,
    memory: Memory,
    token: u16,
}

/// A disk.
pub struct VirtioBlock {
    transport: MmioTransport<'static>,
    queue: Box<Queue>,
    given: [Option<Given>; REQUESTS_MAX],
    sectors: u64,
    features: Features,
}

/// A disk that has been found: the device, its interrupt, and the memory of its requests.
pub struct Found {
    pub device: VirtioBlock,
    pub line: Line,
    /// [`REQUESTS_MAX`] of them.
    pub memory: List<Memory>,
}

impl VirtioBlock {
    /// Opens the first disk in the device tree that works and has an interrupt. To be called once.
    pub fn probe() -> Option<Found> {
        virtio_mmio::devices(DeviceType::Block).find_map(
            |Device { transport, address, interrupt, .. }| {
                let line = Line::new(interrupt?);
                let opened = Self::open(transport).and_then(|device| {
                    let memory = request_memory().ok_or(Error::DmaError)?;
                    Ok(Found { device, line, memory })
                });
                opened.inspect_err(|error| log::error!("disk at {address:#x}: {error}")).ok()
            },
        )
    }

    fn open(mut transport: MmioTransport<'static>) -> Result<Self, Error> {
        let features = transport.begin_init(Features::all());
        let word = |offset| transport.read_config_space::<u32>(offset).map(u64::from);
        let sectors = transport.read_consistent(|| Ok(word(4)? << 32 | word(0)?))?;
        let queue = Queue::new(&mut transport, QUEUE, false, false)?;
        let queue = try_box(queue).map_err(|_| Error::DmaError)?;
        transport.finish_init();
        Ok(Self { transport, queue, given: [const { None }; REQUESTS_MAX], sectors, features })
    }

    /// The size of the disk, in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Whether it cannot be written.
    pub fn is_read_only(&self) -> bool {
        self.features.contains(Features::READ_ONLY)
    }

    /// Whether it has a cache, which [`Command::Flush`] empties. Without one, every completed write
    /// is durable.
    pub fn has_cache(&self) -> bool {
        self.features.contains(Features::FLUSH)
    }

    /// Gives a request to the device, under the number `slot`, which must not be in use.
    ///
    /// # Errors
    /// Returns the memory if the request is not possible.
    pub fn start(
        &mut self,
        slot: usize,
        command: Command,
        mut memory: Memory,
    ) -> Result<(), Memory> {
        let (kind, sector, bytes) = match command {
            Command::Read { sector, bytes } => (READ, sector, bytes),
            Command::Write { sector, bytes } => (WRITE, sector, bytes),
            Command::Flush => (FLUSH, 0, 0),
        };
        if !memory.has_room(bytes) || !matches!(self.given.get(slot), Some(None)) {
            return Err(memory);
        }
        let (header, data, status) = memory.parts(bytes);
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[4..8].fill(0);
        header[8..].copy_from_slice(&sector.to_le_bytes());
        status[0] = STATUS_NONE;
        // SAFETY: `memory` is stored in `given` below and not accessed until `finished` has popped
        // this token: the device alone accesses it in between. It is memory that is never freed.
        let added = unsafe {
            match command {
                Command::Read { .. } => self.queue.add(&[header], &mut [data, status]),
                Command::Write { .. } => self.queue.add(&[header, data], &mut [status]),
                Command::Flush => self.queue.add(&[header], &mut [status]),
            }
        };
        let Ok(token) = added else { return Err(memory) };
        self.given[slot] = Some(Given { command, memory, token });
        if self.queue.should_notify() {
            self.transport.notify(QUEUE);
        }
        Ok(())
    }

    /// Withdraws the device's interrupt request, so that its next request is a new one. Must be
    /// called before [`Self::finished`].
    pub fn acknowledge(&mut self) {
        self.transport.ack_interrupt();
    }

    /// Takes back a request that the device has finished: its number, its memory, and the result.
    pub fn finished(&mut self) -> Option<(usize, Memory, Result<(), Failed>)> {
        let token = self.queue.peek_used()?;
        // Only a faulty device returns a token that it has not been given.
        let slot = self
            .given
            .iter()
            .position(|given| given.as_ref().is_some_and(|given| given.token == token))?;
        let Given { command, mut memory, .. } = self.given[slot].take()?;
        let bytes = match command {
            Command::Read { bytes, .. } | Command::Write { bytes, .. } => bytes,
            Command::Flush => 0,
        };
        let (header, data, status) = memory.parts(bytes);
        // SAFETY: these are the parts of the memory that `start` added under this token.
        let popped = unsafe {
            match command {
                Command::Read { .. } => {
                    self.queue.pop_used(token, &[header], &mut [data, &mut *status])
                }
                Command::Write { .. } => {
                    self.queue.pop_used(token, &[header, data], &mut [&mut *status])
                }
                Command::Flush => self.queue.pop_used(token, &[header], &mut [&mut *status]),
            }
        };
        let succeeded = popped.is_ok() && status[0] == STATUS_OK;
        Some((slot, memory, if succeeded { Ok(()) } else { Err(Failed) }))
    }
}

/// Memory for all requests; `None` if there is not enough.
fn request_memory() -> Option<List<Memory>> {
    let mut memory = List::try_with_capacity(REQUESTS_MAX).ok()?;
    for (count, bytes) in [(CALLS_MAX, TRANSFER_BYTES_MAX), (DIRECT_MAX, DIRECT_BYTES_MAX)] {
        let buffers = Buffers::allocate(count, DATA_START + bytes)?;
        for index in 0..count {
            // SAFETY: each buffer is taken once, and the owner of the block does not outlive this
            // function; the block itself is never freed.
            memory.try_push(Memory(unsafe { buffers.get(index) })).ok()?;
        }
    }
    Some(memory)
}
