//! The network card: virtio-net over MMIO, legacy or modern.
//!
//! The driver has two halves that share only registers, so two coroutines can use them on two
//! harts. The receiver keeps all its buffers with the device and lends each frame to the driver in
//! place. The transmitter copies a frame into one of its own buffers and publishes it with its
//! batch ([`Transmitter::flush`]); its user notifies the device. It reclaims sent buffers when it
//! needs them, without an interrupt, unless the queue is full.
//!
//! On an interrupt, the driver must call [`Receiver::acknowledge`], then [`Receiver::receive`]
//! until there are no more frames and [`Receiver::enable_interrupts`] says so, too, and then
//! complete the line.

use super::interrupt::Line;
use super::virtio_memory::Buffers;
use super::virtio_mmio::{self, Device, Doorbell};
pub use super::virtio_queue::Returned;
use super::virtio_queue::{EVENT_INDEX, FixedQueue, QUEUE_SIZE};
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
        /// One notification and one interrupt for a burst.
        const EVENT_INDEX = EVENT_INDEX;
        /// A modern device.
        const VERSION_1 = 1 << 32;
    }
}

/// A network card, ready for use.
pub struct VirtioNet {
    pub receiver: Receiver,
    pub transmitter: Transmitter,
    pub notifier: Notifier,
    hardware_address: [u8; 6],
    interrupt: Option<usize>,
}

/// Tells the card that frames to be sent have been published.
#[derive(Clone, Copy)]
pub struct Notifier {
    doorbell: Doorbell,
}

impl Notifier {
    /// Notifies the card. Any hart may do so at any time, and so may interrupt handlers.
    pub fn notify(self) {
        self.doorbell.notify(TRANSMIT_QUEUE);
    }
}

impl VirtioNet {
    /// Opens the first network card in the device tree that works.
    pub fn probe() -> Option<Self> {
        virtio_mmio::devices(DeviceType::Network).find_map(|found| {
            let Device { transport, doorbell, address, interrupt } = found;
            Self::open(transport, doorbell, interrupt)
                .inspect_err(|error| log::error!("network card at {address:#x}: {error}"))
                .ok()
        })
    }

    fn open(
        mut transport: MmioTransport<'static>,
        doorbell: Doorbell,
        interrupt: Option<usize>,
    ) -> Result<Self, Error> {
        let features = transport.begin_init(Features::all());
        let hardware_address =
            transport.read_consistent(|| transport.read_config_space::<[u8; 6]>(0))?;
        let buffers = || Buffers::allocate(QUEUE_SIZE, BUFFER_BYTES).ok_or(Error::DmaError);
        let (received, sent) = (buffers()?, buffers()?);
        let event_index = features.contains(Features::EVENT_INDEX);
        let mut queue = |index, buffers, device_writes| {
            FixedQueue::new(&mut transport, index, buffers, device_writes, event_index)
        };
        let receive_queue = queue(RECEIVE_QUEUE, &received, true)?;
        let transmit_queue = queue(TRANSMIT_QUEUE, &sent, false)?;
        transport.finish_init();
        let header_bytes =
            if features.contains(Features::VERSION_1) { HEADER_BYTES } else { HEADER_BYTES_LEGACY };
        let receiver = Receiver::new(transport, doorbell, receive_queue, received, header_bytes);
        let notifier = Notifier { doorbell };
        let transmitter = Transmitter::new(notifier, transmit_queue, sent, header_bytes);
        Ok(Self { receiver, transmitter, notifier, hardware_address, interrupt })
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
    /// Not used any more; the device is reset when it is dropped.
    _transport: MmioTransport<'static>,
    doorbell: Doorbell,
    queue: FixedQueue,
    buffers: Buffers,
    header_bytes: usize,
}

impl Receiver {
    fn new(
        transport: MmioTransport<'static>,
        doorbell: Doorbell,
        mut queue: FixedQueue,
        buffers: Buffers,
        header_bytes: usize,
    ) -> Self {
        for number in 0..QUEUE_SIZE as u16 {
            queue.offer(number);
        }
        let mut receiver = Self { _transport: transport, doorbell, queue, buffers, header_bytes };
        receiver.publish();
        receiver
    }

    /// Withdraws the card's interrupt request, so that its next request is a new one. Must be
    /// called before [`Receiver::receive`].
    pub fn acknowledge(&mut self) {
        self.doorbell.acknowledge_interrupt();
    }

    /// Passes at most `limit` received frames to `take`, and returns how many. Fewer than `limit`
    /// means that there are no more. Frames do not interrupt from now on.
    pub fn receive(&mut self, limit: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        let mut count = 0;
        self.queue.disable_interrupts();
        while count < limit {
            let Some((number, written)) = self.queue.take() else { break };
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

    /// The next frame interrupts. Returns whether one has come meanwhile: it does not.
    #[must_use]
    pub fn enable_interrupts(&mut self) -> bool {
        self.queue.enable_interrupts(self.doorbell)
    }

    /// For looking whether a frame has come: if the count is not [`Self::received`].
    pub fn arrived(&self) -> Returned {
        self.queue.returned()
    }

    /// The number of frames that were ever received, modulo 2^16.
    pub fn received(&self) -> u16 {
        self.queue.taken()
    }

    /// Gives the offered buffers to the device.
    fn publish(&mut self) {
        if self.queue.publish() {
            self.doorbell.notify(RECEIVE_QUEUE);
        }
    }
}

/// All buffers are with the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// The transmitting half.
pub struct Transmitter {
    notifier: Notifier,
    queue: FixedQueue,
    buffers: Buffers,
    /// The buffers that are not with the device: the first `free_count` elements.
    free: [u16; QUEUE_SIZE],
    free_count: usize,
    header_bytes: usize,
    /// Frames were added that the device cannot see yet.
    unpublished: bool,
}

impl Transmitter {
    fn new(
        notifier: Notifier,
        mut queue: FixedQueue,
        buffers: Buffers,
        header_bytes: usize,
    ) -> Self {
        queue.disable_interrupts();
        Self {
            notifier,
            queue,
            buffers,
            free: core::array::from_fn(|index| index as u16),
            free_count: QUEUE_SIZE,
            header_bytes,
            unpublished: false,
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
            let _ = self.flush();
            // Also if a notification is still owed, which nothing but this wait would hurry.
            self.notifier.notify();
            // Frames that were sent between the check and the request do not interrupt.
            if !self.queue.enable_interrupts(self.notifier.doorbell) {
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
        self.unpublished = true;
        Ok(())
    }

    /// Publishes the frames added since the last time. Returns whether the device wants to be
    /// notified: until then it may not look at them, nor at those published later.
    #[must_use]
    pub fn flush(&mut self) -> bool {
        core::mem::take(&mut self.unpublished) && self.queue.publish()
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
