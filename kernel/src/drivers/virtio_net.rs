//! The network card: virtio-net over MMIO, of the legacy or the modern kind.
//!
//! Two halves that share nothing but the doorbell, so that two coroutines can use them on
//! two harts. The receiver keeps every buffer it has with the device and lends the driver
//! each frame in place. The transmitter copies a frame into a buffer of its own and rings
//! the doorbell once per batch ([`Transmitter::flush`]); buffers the device has sent come
//! back when they are needed, without an interrupt, unless the queue is full.
//!
//! The driver's part: on an interrupt [`Receiver::acknowledge`], [`Receiver::receive`] until
//! it gives nothing, then complete the line.

use super::device_tree;
use super::interrupt::Line;
use super::virtio_memory::{Buffers, DirectMemory};
use crate::mm::layout;
use alloc::boxed::Box;
use alloc::sync::Arc;
use cops_fallible::{try_arc, try_box};
use core::ptr::NonNull;
use spin::Mutex;
use virtio_drivers::Error;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::mmio::MmioTransport;
use virtio_drivers::transport::{DeviceType, Transport};

/// Descriptors per queue, and so frames in flight per direction.
const QUEUE_SIZE: usize = 256;
const RECEIVE_QUEUE: u16 = 0;
const TRANSMIT_QUEUE: u16 = 1;

/// Room for a frame and the header before it.
const BUFFER_BYTES: usize = 2048;
/// Ethernet header and payload, without the checksum.
pub const MAXIMUM_FRAME_BYTES: usize = 1514;

/// The header of every frame: no offload is negotiated, so it is all zero when sending. It
/// ends with a count of merged buffers that old devices leave out.
const HEADER_BYTES_LEGACY: usize = 10;
const HEADER_BYTES: usize = 12;

bitflags::bitflags! {
    /// The features we can use. (The ring's EVENT_IDX is left out: the queue's test whether
    /// to notify is wrong when the index wraps.)
    #[derive(Clone, Copy, Debug)]
    struct Features: u64 {
        /// The device knows its address.
        const MAC = 1 << 5;
        /// Header and frame may share a descriptor; always so with `VERSION_1`.
        const ANY_LAYOUT = 1 << 27;
        /// A modern device.
        const VERSION_1 = 1 << 32;
    }
}

type Queue = VirtQueue<DirectMemory, QUEUE_SIZE>;

/// A network card, ready for use.
pub struct VirtioNet {
    pub receiver: Receiver,
    pub transmitter: Transmitter,
    hardware_address: [u8; 6],
    interrupt: Option<usize>,
}

/// The device's registers, for notifications and interrupts. Held for one register access.
type SharedTransport = Arc<Mutex<MmioTransport<'static>>>;

impl VirtioNet {
    /// Opens the first network card the device tree names, if there is one that works.
    pub fn probe() -> Option<Self> {
        device_tree::facts().virtio.iter().find_map(|place| {
            let header = NonNull::new(layout::direct(place.registers.start))?.cast();
            // SAFETY: a virtio region by the tree, mapped for ever; no other driver touches
            // the places of network cards, and this is called once.
            let transport = unsafe { MmioTransport::new(header, place.registers.len()) }.ok()?;
            if transport.device_type() != DeviceType::Network {
                return None;
            }
            match Self::open(transport, place.interrupt) {
                Ok(device) => Some(device),
                Err(error) => {
                    log::error!("network card at {:#x}: {error}", place.registers.start);
                    None
                }
            }
        })
    }

    fn open(mut transport: MmioTransport<'static>, interrupt: Option<usize>) -> Result<Self, Error> {
        let features = transport.begin_init(Features::all());
        let hardware_address = transport.read_consistent(|| transport.read_config_space::<[u8; 6]>(0))?;
        let receive_queue = Queue::new(&mut transport, RECEIVE_QUEUE, false, false)?;
        let transmit_queue = Queue::new(&mut transport, TRANSMIT_QUEUE, false, false)?;
        transport.finish_init();
        let header_bytes =
            if features.contains(Features::VERSION_1) { HEADER_BYTES } else { HEADER_BYTES_LEGACY };
        let transport = try_arc(Mutex::new(transport)).map_err(|_| Error::DmaError)?;
        let receiver = Receiver::new(transport.clone(), receive_queue, header_bytes)?;
        let transmitter = Transmitter::new(transport, transmit_queue, header_bytes)?;
        Ok(Self { receiver, transmitter, hardware_address, interrupt })
    }

    /// The card's Ethernet address.
    pub fn hardware_address(&self) -> [u8; 6] {
        self.hardware_address
    }

    /// The card's interrupt, `None` if the tree names none: then it must be polled.
    pub fn line(&self) -> Option<Line> {
        self.interrupt.map(Line::new)
    }
}

/// Which buffer a descriptor stands for. All chains have one descriptor, whose number is the
/// queue's token.
type BufferOfToken = [u16; QUEUE_SIZE];

/// Frames that come in.
pub struct Receiver {
    transport: SharedTransport,
    queue: Box<Queue>,
    buffers: Buffers,
    buffer_of_token: BufferOfToken,
    header_bytes: usize,
}

impl Receiver {
    fn new(transport: SharedTransport, queue: Queue, header_bytes: usize) -> Result<Self, Error> {
        let buffers = Buffers::allocate(QUEUE_SIZE, BUFFER_BYTES).ok_or(Error::DmaError)?;
        let mut receiver = Self {
            transport,
            queue: try_box(queue).map_err(|_| Error::DmaError)?,
            buffers,
            buffer_of_token: [0; QUEUE_SIZE],
            header_bytes,
        };
        for index in 0..receiver.buffers.count() {
            receiver.offer(index)?;
        }
        receiver.notify();
        Ok(receiver)
    }

    /// Withdraws the card's interrupt request, for what it asks for next to be a new one. To
    /// be called before [`Receiver::receive`].
    pub fn acknowledge(&mut self) {
        self.transport.lock().ack_interrupt();
    }

    /// Hands at most `limit` frames that have come in to `take`, and returns how many. Fewer
    /// than `limit` means that there are no more, and that the next one interrupts.
    pub fn receive(&mut self, limit: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        let mut count = 0;
        let mut offered = false;
        self.queue.set_dev_notify(false);
        while count < limit {
            let Some(token) = self.queue.peek_used() else {
                self.queue.set_dev_notify(true);
                // What came between the look and the request for an interrupt has none.
                core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
                if self.queue.can_pop() {
                    self.queue.set_dev_notify(false);
                    continue;
                }
                break;
            };
            // A token out of range would be the device's fault; the queue's own check panics.
            let index = usize::from(self.buffer_of_token[usize::from(token) % QUEUE_SIZE]);
            // SAFETY: the device has given this buffer back, and nobody else has it.
            let buffer = unsafe { self.buffers.get(index) };
            // SAFETY: the buffer is the one that was added under this token.
            let Ok(written) = (unsafe { self.queue.pop_used(token, &[], &mut [buffer]) }) else { break };
            let end = (written as usize).min(BUFFER_BYTES);
            if let Some(frame) = buffer.get_mut(self.header_bytes..end) {
                take(frame);
                count += 1;
            }
            if self.offer(index).is_err() {
                break;
            }
            offered = true;
        }
        if offered {
            self.notify();
        }
        count
    }

    /// Gives a buffer to the device.
    fn offer(&mut self, index: usize) -> Result<(), Error> {
        // SAFETY: the buffer is not used by anybody.
        let buffer = unsafe { self.buffers.get(index) };
        // SAFETY: it is not touched until its token comes back.
        let token = unsafe { self.queue.add(&[], &mut [buffer]) }?;
        self.buffer_of_token[usize::from(token)] = index as u16;
        Ok(())
    }

    fn notify(&mut self) {
        if self.queue.should_notify() {
            self.transport.lock().notify(RECEIVE_QUEUE);
        }
    }
}

/// All buffers are with the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Frames that go out.
pub struct Transmitter {
    transport: SharedTransport,
    queue: Box<Queue>,
    buffers: Buffers,
    buffer_of_token: BufferOfToken,
    /// Buffers that are not with the device: the first `free_count`.
    free: [u16; QUEUE_SIZE],
    free_count: usize,
    header_bytes: usize,
    /// Frames were added that the device has not been told of.
    unannounced: bool,
}

impl Transmitter {
    fn new(transport: SharedTransport, mut queue: Queue, header_bytes: usize) -> Result<Self, Error> {
        let buffers = Buffers::allocate(QUEUE_SIZE, BUFFER_BYTES).ok_or(Error::DmaError)?;
        queue.set_dev_notify(false);
        let free_count = buffers.count();
        Ok(Self {
            transport,
            queue: try_box(queue).map_err(|_| Error::DmaError)?,
            buffers,
            buffer_of_token: [0; QUEUE_SIZE],
            free: core::array::from_fn(|index| index as u16),
            free_count,
            header_bytes,
            unannounced: false,
        })
    }

    /// Whether another frame fits. If not, the device is told to interrupt when it has sent
    /// one.
    pub fn has_room(&mut self) -> bool {
        if self.free_count == 0 {
            self.reclaim();
        }
        if self.free_count == 0 {
            self.flush();
            self.queue.set_dev_notify(true);
            core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
            // What was sent between the look and the request comes without an interrupt.
            self.reclaim();
        }
        if self.free_count > 0 {
            self.queue.set_dev_notify(false);
        }
        self.free_count > 0
    }

    /// Sends a frame of `length` bytes that `fill` writes, once [`Transmitter::flush`] is
    /// called. The bytes are zero or old ones when `fill` gets them.
    ///
    /// # Errors
    /// [`Full`], also for frames above [`MAXIMUM_FRAME_BYTES`]; `fill` was not called.
    pub fn transmit(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        if length == 0 || length > MAXIMUM_FRAME_BYTES || !self.has_room() {
            return Err(Full);
        }
        let index = self.free[self.free_count - 1];
        // SAFETY: free buffers are not used by anybody.
        let buffer = unsafe { self.buffers.get(usize::from(index)) };
        let buffer = &mut buffer[..self.header_bytes + length];
        let (header, frame) = buffer.split_at_mut(self.header_bytes);
        header.fill(0);
        fill(frame);
        // SAFETY: the buffer is not touched until its token comes back.
        let token = unsafe { self.queue.add(&[buffer], &mut []) }.map_err(|_| Full)?;
        self.free_count -= 1;
        self.buffer_of_token[usize::from(token)] = index;
        self.unannounced = true;
        Ok(())
    }

    /// Tells the device about the frames added since the last time.
    pub fn flush(&mut self) {
        if core::mem::take(&mut self.unannounced) && self.queue.should_notify() {
            self.transport.lock().notify(TRANSMIT_QUEUE);
        }
    }

    /// Takes back the buffers of frames the device has sent.
    fn reclaim(&mut self) {
        while let Some(token) = self.queue.peek_used() {
            let index = self.buffer_of_token[usize::from(token) % QUEUE_SIZE];
            // SAFETY: the device has given this buffer back. Its length does not matter to
            // the queue.
            let buffer = unsafe { self.buffers.get(usize::from(index)) };
            // SAFETY: the buffer is the one that was added under this token.
            if unsafe { self.queue.pop_used(token, &[buffer], &mut []) }.is_err() {
                return;
            }
            self.free[self.free_count] = index;
            self.free_count += 1;
        }
    }
}
