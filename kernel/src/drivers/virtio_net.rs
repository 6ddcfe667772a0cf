//! The network card: virtio-net over MMIO, legacy or modern.
//!
//! The driver has two halves that share only the notification register, so two coroutines can use
//! them on two harts. The receiver keeps all its buffers with the device and lends each frame to
//! the driver in place. The transmitter copies a frame into one of its own buffers and notifies the
//! device once per batch ([`Transmitter::flush`]). It reclaims sent buffers when it needs them,
//! without an interrupt, unless the queue is full.
//!
//! On an interrupt, the driver must call [`Receiver::acknowledge`], then [`Receiver::receive`]
//! until there are no more frames, and then complete the line.

use super::interrupt::Line;
use super::virtio_memory::Buffers;
use super::virtio_mmio::{self, Device};
use super::virtio_queue::{FixedQueue, QUEUE_SIZE};
use alloc::sync::Arc;
use cops_fallible::try_arc;
use spin::Mutex;
use virtio_drivers::Error;
use virtio_drivers::transport::mmio::MmioTransport;
use virtio_drivers::transport::{DeviceType, Transport};

const RECEIVE_QUEUE: u16 = 0;
const TRANSMIT_QUEUE: u16 = 1;

/// Size of a buffer for a frame and the header before it.
const BUFFER_BYTES: usize = 2048;
/// Ethernet header and payload, without the checksum.
pub const MAXIMUM_FRAME_BYTES: usize = 1514;

/// Size of the header of every frame. No offload is negotiated, so the header is all zero when
/// sending. Legacy devices omit the count of merged buffers at its end.
const HEADER_BYTES_LEGACY: usize = 10;
const HEADER_BYTES: usize = 12;

bitflags::bitflags! {
    /// The features that the driver supports.
    #[derive(Clone, Copy, Debug)]
    struct Features: u64 {
        /// The device has a MAC address.
        const MAC = 1 << 5;
        /// Header and frame may share a descriptor; implied by `VERSION_1`.
        const ANY_LAYOUT = 1 << 27;
        /// A modern device.
        const VERSION_1 = 1 << 32;
    }
}

/// A network card, ready for use.
pub struct VirtioNet {
    pub receiver: Receiver,
    pub transmitter: Transmitter,
    hardware_address: [u8; 6],
    interrupt: Option<usize>,
}

/// The device's registers, for notifications and interrupts. The lock is held for one register
/// access.
type SharedTransport = Arc<Mutex<MmioTransport<'static>>>;

impl VirtioNet {
    /// Opens the first network card in the device tree that works.
    pub fn probe() -> Option<Self> {
        virtio_mmio::devices(DeviceType::Network).find_map(|found| {
            let Device { transport, address, interrupt } = found;
            Self::open(transport, interrupt)
                .inspect_err(|error| log::error!("network card at {address:#x}: {error}"))
                .ok()
        })
    }

    fn open(
        mut transport: MmioTransport<'static>,
        interrupt: Option<usize>,
    ) -> Result<Self, Error> {
        let features = transport.begin_init(Features::all());
        let hardware_address =
            transport.read_consistent(|| transport.read_config_space::<[u8; 6]>(0))?;
        let buffers = || Buffers::allocate(QUEUE_SIZE, BUFFER_BYTES).ok_or(Error::DmaError);
        let (received, sent) = (buffers()?, buffers()?);
        let receive_queue = FixedQueue::new(&mut transport, RECEIVE_QUEUE, &received, true)?;
        let transmit_queue = FixedQueue::new(&mut transport, TRANSMIT_QUEUE, &sent, false)?;
        transport.finish_init();
        let header_bytes =
            if features.contains(Features::VERSION_1) { HEADER_BYTES } else { HEADER_BYTES_LEGACY };
        let transport = try_arc(Mutex::new(transport)).map_err(|_| Error::DmaError)?;
        let receiver = Receiver::new(transport.clone(), receive_queue, received, header_bytes);
        let transmitter = Transmitter::new(transport, transmit_queue, sent, header_bytes);
        Ok(Self { receiver, transmitter, hardware_address, interrupt })
    }

    /// The card's MAC address.
    pub fn hardware_address(&self) -> [u8; 6] {
        self.hardware_address
    }

    /// The card's interrupt line; `None` if the device tree names none, in which case it must be
    /// polled.
    pub fn line(&self) -> Option<Line> {
        self.interrupt.map(Line::new)
    }
}

/// The receiving half.
pub struct Receiver {
    transport: SharedTransport,
    queue: FixedQueue,
    buffers: Buffers,
    header_bytes: usize,
}

impl Receiver {
    fn new(
        transport: SharedTransport,
        mut queue: FixedQueue,
        buffers: Buffers,
        header_bytes: usize,
    ) -> Self {
        for number in 0..QUEUE_SIZE as u16 {
            queue.offer(number);
        }
        let mut receiver = Self { transport, queue, buffers, header_bytes };
        receiver.publish();
        receiver
    }

    /// Withdraws the card's interrupt request, so that its next request is a new one. Must be
    /// called before [`Receiver::receive`].
    pub fn acknowledge(&mut self) {
        self.transport.lock().ack_interrupt();
    }

    /// Passes at most `limit` received frames to `take`, and returns how many. Fewer than `limit`
    /// means that there are no more, and that the next frame interrupts.
    pub fn receive(&mut self, limit: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        let mut count = 0;
        self.queue.disable_interrupts();
        while count < limit {
            let Some((number, written)) = self.queue.take() else {
                if self.queue.enable_interrupts() {
                    self.queue.disable_interrupts();
                    continue;
                }
                break;
            };
            // SAFETY: the used ring says that the device has returned this buffer, and it is
            // offered again only below.
            let buffer = unsafe { self.buffers.get(usize::from(number)) };
            let end = written.min(BUFFER_BYTES);
            if let Some(frame) = buffer.get_mut(self.header_bytes..end) {
                take(frame);
            }
            self.queue.offer(number);
            count += 1;
        }
        if count > 0 {
            self.publish();
        }
        count
    }

    /// Gives the offered buffers to the device.
    fn publish(&mut self) {
        if self.queue.publish() {
            self.transport.lock().notify(RECEIVE_QUEUE);
        }
    }
}

/// All buffers are with the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// The transmitting half.
pub struct Transmitter {
    transport: SharedTransport,
    queue: FixedQueue,
    buffers: Buffers,
    /// The buffers that are not with the device: the first `free_count` elements.
    free: [u16; QUEUE_SIZE],
    free_count: usize,
    header_bytes: usize,
    /// Frames were added of which the device has not been notified.
    unannounced: bool,
}

impl Transmitter {
    fn new(
        transport: SharedTransport,
        mut queue: FixedQueue,
        buffers: Buffers,
        header_bytes: usize,
    ) -> Self {
        queue.disable_interrupts();
        Self {
            transport,
            queue,
            buffers,
            free: core::array::from_fn(|index| index as u16),
            free_count: QUEUE_SIZE,
            header_bytes,
            unannounced: false,
        }
    }

    /// Whether there is room for another frame. If not, the device will interrupt when it has sent
    /// one.
    pub fn has_room(&mut self) -> bool {
        self.free_count > 0 || self.make_room()
    }

    fn make_room(&mut self) -> bool {
        self.reclaim();
        if self.free_count == 0 {
            self.flush();
            // Frames that were sent between the check and the request do not interrupt.
            if !self.queue.enable_interrupts() {
                return false;
            }
            self.reclaim();
        }
        self.queue.disable_interrupts();
        self.free_count > 0
    }

    /// Sends a frame of `length` bytes that `fill` writes; the device gets it at
    /// [`Transmitter::flush`]. `fill` finds zeros or old bytes in the buffer.
    ///
    /// # Errors
    /// [`Full`], also for frames longer than [`MAXIMUM_FRAME_BYTES`]; `fill` was not called.
    pub fn transmit(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        if length == 0 || length > MAXIMUM_FRAME_BYTES || !self.has_room() {
            return Err(Full);
        }
        let number = self.free[self.free_count - 1];
        // SAFETY: a buffer in `free` is not with the device and has no other reference.
        let buffer = unsafe { self.buffers.get(usize::from(number)) };
        // The header is zero and stays it: nothing writes there.
        fill(&mut buffer[self.header_bytes..self.header_bytes + length]);
        self.free_count -= 1;
        self.queue.offer_bytes(number, self.header_bytes + length);
        self.unannounced = true;
        Ok(())
    }

    /// Gives the device the frames added since the last time.
    pub fn flush(&mut self) {
        if core::mem::take(&mut self.unannounced) && self.queue.publish() {
            self.transport.lock().notify(TRANSMIT_QUEUE);
        }
    }

    /// Reclaims the buffers of frames that the device has sent.
    fn reclaim(&mut self) {
        // A faulty device may return a buffer twice.
        while self.free_count < QUEUE_SIZE
            && let Some((number, _)) = self.queue.take()
        {
            self.free[self.free_count] = number;
            self.free_count += 1;
        }
    }
}
