//! The network card: virtio-net over MMIO, legacy or modern.
//!
//! The driver has two halves that share only registers, so two coroutines can use them on two
//! harts. The receiver keeps all its buffers with the device and lends each frame to the driver in
//! place. The transmitter copies a frame into one of its own buffers and publishes it with its
//! batch ([`Transmitter::flush`]); its user notifies the device. It reclaims sent buffers when it
//! needs them, without an interrupt, unless the queue is full.
//!
//! A card that can divide long segments of TCP, and join those that it receives, does so
//! (segmentation offload, decision 75). A frame then has up to 64 KiB, in several buffers; the
//! receiver copies those together.
//!
//! On an interrupt, the driver must call [`Receiver::acknowledge`], then [`Receiver::receive`]
//! until there are no more frames and [`Receiver::enable_interrupts`] says so, too, and then
//! complete the line.

use super::interrupt::Line;
use super::virtio_memory::Buffers;
use super::virtio_mmio::{self, Device, Doorbell};
pub use super::virtio_queue::Returned;
use super::virtio_queue::{EVENT_INDEX, FixedQueue, QUEUE_SIZE};
use cops_algorithms::joined_frame::JoinedFrame;
use cops_algorithms::virtio_net_header::{self, Received};
use cops_fallible::List;
use virtio_drivers::Error;
use virtio_drivers::transport::mmio::MmioTransport;
use virtio_drivers::transport::{DeviceType, Transport};

const RECEIVE_QUEUE: u16 = 0;
const TRANSMIT_QUEUE: u16 = 1;

/// Size of a buffer for a frame and the header before it.
const BUFFER_BYTES: usize = 2048;
/// The same for frames that the card divides.
const LONG_BUFFER_BYTES: usize = 4096;
/// Ethernet header and payload, without the checksum.
pub const MAXIMUM_FRAME_BYTES: usize = 1514;

bitflags::bitflags! {
    /// The features that the driver supports.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Features: u64 {
        /// The device completes checksums of frames that it sends (`VIRTIO_NET_F_CSUM`).
        const COMPLETES_CHECKSUMS = 1 << 0;
        /// It may leave checksums of received frames to the driver (`VIRTIO_NET_F_GUEST_CSUM`).
        const LEAVES_CHECKSUMS = 1 << 1;
        /// The device has a MAC address.
        const MAC = 1 << 5;
        /// It joins received segments of TCP over IPv4, or does not divide those of its host
        /// (`VIRTIO_NET_F_GUEST_TSO4`).
        const JOINS_TCP4 = 1 << 7;
        /// It divides long segments of TCP over IPv4 (`VIRTIO_NET_F_HOST_TSO4`).
        const DIVIDES_TCP4 = 1 << 11;
        /// A received frame may fill several buffers (`VIRTIO_NET_F_MRG_RXBUF`).
        const SEVERAL_BUFFERS = 1 << 15;
        /// Header and frame may share a descriptor; implied by `VERSION_1`.
        const ANY_LAYOUT = 1 << 27;
        /// One notification and one interrupt for a burst.
        const EVENT_INDEX = EVENT_INDEX;
        /// A modern device.
        const VERSION_1 = 1 << 32;

        /// What long received frames need.
        const RECEIVES_LONG =
            Self::LEAVES_CHECKSUMS.bits() | Self::JOINS_TCP4.bits() | Self::SEVERAL_BUFFERS.bits();
        /// What long frames to be sent need.
        const SENDS_LONG = Self::COMPLETES_CHECKSUMS.bits() | Self::DIVIDES_TCP4.bits();
    }
}

impl Features {
    /// Without those of which others are missing that they need.
    fn consistent(mut self) -> Self {
        for together in [Self::RECEIVES_LONG, Self::SENDS_LONG] {
            if !self.contains(together) {
                self.remove(together);
            }
        }
        self
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
    /// Opens the first network card in the device tree that works. Received frames that are longer
    /// than `longest` bytes become empty ones; it is not less than [`MAXIMUM_FRAME_BYTES`].
    pub fn probe(longest: usize) -> Option<Self> {
        virtio_mmio::devices(DeviceType::Network).find_map(|found| {
            let Device { transport, doorbell, address, interrupt } = found;
            Self::open(transport, doorbell, interrupt, longest)
                .inspect_err(|error| log::error!("network card at {address:#x}: {error}"))
                .ok()
        })
    }

    fn open(
        mut transport: MmioTransport<'static>,
        doorbell: Doorbell,
        interrupt: Option<usize>,
        longest: usize,
    ) -> Result<Self, Error> {
        let mut features = transport.begin_init(Features::all());
        if features != features.consistent() {
            features = transport.begin_init(features.consistent());
        }
        let hardware_address =
            transport.read_consistent(|| transport.read_config_space::<[u8; 6]>(0))?;
        let divides = features.contains(Features::SENDS_LONG);
        let buffers = |bytes| Buffers::allocate(QUEUE_SIZE, bytes).ok_or(Error::DmaError);
        let received = buffers(BUFFER_BYTES)?;
        let sent = buffers(if divides { LONG_BUFFER_BYTES } else { BUFFER_BYTES })?;
        let mut long = List::new();
        if features.contains(Features::RECEIVES_LONG) {
            long.try_resize(longest, 0).map_err(|_| Error::DmaError)?;
        }
        let event_index = features.contains(Features::EVENT_INDEX);
        let mut queue = |index, buffers, device_writes| {
            FixedQueue::new(&mut transport, index, buffers, device_writes, event_index)
        };
        let receive_queue = queue(RECEIVE_QUEUE, &received, true)?;
        let transmit_queue = queue(TRANSMIT_QUEUE, &sent, false)?;
        transport.finish_init();
        let has_count = features.intersects(Features::VERSION_1 | Features::SEVERAL_BUFFERS);
        let header_bytes =
            if has_count { virtio_net_header::BYTES } else { virtio_net_header::BYTES_LEGACY };
        let receiver = Receiver {
            _transport: transport,
            doorbell,
            queue: receive_queue,
            buffers: received,
            header_bytes,
            long,
        };
        let receiver = receiver.start();
        let notifier = Notifier { doorbell };
        let transmitter = Transmitter::new(notifier, transmit_queue, sent, header_bytes, divides);
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

/// What [`Receiver::receive`] has passed on.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Whether there was a frame.
    pub some: bool,
    /// Whether it has stopped before there were no more: then there may be others.
    pub more: bool,
}

/// The receiving half.
pub struct Receiver {
    /// Not used any more; the device is reset when it is dropped.
    _transport: MmioTransport<'static>,
    doorbell: Doorbell,
    queue: FixedQueue,
    buffers: Buffers,
    header_bytes: usize,
    /// A frame of several buffers; empty if there are none.
    long: List<u8>,
}

impl Receiver {
    /// Gives all buffers to the device.
    fn start(mut self) -> Self {
        for number in 0..QUEUE_SIZE as u16 {
            self.queue.offer(number);
        }
        self.publish();
        self
    }

    /// Withdraws the card's interrupt request, so that its next request is a new one. Must be
    /// called before [`Receiver::receive`].
    pub fn acknowledge(&mut self) {
        self.doorbell.acknowledge_interrupt();
    }

    /// Passes received frames to `take`: at most `limit`, and as long as it returns `true`. Frames
    /// do not interrupt from now on.
    pub fn receive(
        &mut self,
        limit: usize,
        mut take: impl FnMut(&mut [u8], Received) -> bool,
    ) -> Taken {
        let Self { queue, buffers, header_bytes, long, .. } = self;
        let mut count = 0;
        let mut takes_more = true;
        let mut is_empty = false;
        queue.disable_interrupts();
        while takes_more && count < limit {
            let first = with_next(queue, buffers, |buffer| {
                let (header, frame) = buffer.split_at_mut_checked(*header_bytes)?;
                let header = Received::parse(header);
                if header.buffers == 1 {
                    takes_more = take(frame, header);
                    return None;
                }
                let mut joined = JoinedFrame::new(long);
                joined.append(frame);
                Some((header, joined))
            });
            let Some(first) = first else {
                is_empty = true;
                break;
            };
            count += 1;
            if let Some((header, joined)) = first {
                // What is too long is passed on as an empty frame, which is counted as malformed.
                takes_more = take(join(queue, buffers, joined, header.buffers - 1), header);
            }
        }
        if count > 0 {
            self.publish();
        }
        Taken { some: count > 0, more: !is_empty }
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

/// Takes the next buffer that the device has returned, passes what the device has written to
/// `use_it`, and offers the buffer again. `None` if there is no such buffer.
#[inline(always)]
fn with_next<R>(
    queue: &mut FixedQueue,
    buffers: &Buffers,
    use_it: impl FnOnce(&mut [u8]) -> R,
) -> Option<R> {
    let (number, written) = queue.take()?;
    // SAFETY: the used ring says that the device has returned this buffer. It is offered again only
    // below, after its last use; if a faulty device returns it twice, it is used twice in turn.
    let buffer = unsafe { buffers.get(usize::from(number)) };
    let result = use_it(&mut buffer[..written.min(BUFFER_BYTES)]);
    queue.offer(number);
    Some(result)
}

/// Appends the next `rest` buffers to the frame that has begun, and returns it.
#[inline(never)]
fn join<'a>(
    queue: &mut FixedQueue,
    buffers: &Buffers,
    mut joined: JoinedFrame<'a>,
    rest: u16,
) -> &'a mut [u8] {
    for _ in 0..rest {
        // Also if it does not fit: the buffer is offered again.
        if with_next(queue, buffers, |part| joined.append(part)).is_none() {
            joined.cut_short();
            break;
        }
    }
    joined.frame()
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
    /// Whether the device divides long segments. Otherwise all headers are zero and stay it.
    divides: bool,
    /// Frames were added that the device cannot see yet.
    unpublished: bool,
}

impl Transmitter {
    fn new(
        notifier: Notifier,
        mut queue: FixedQueue,
        buffers: Buffers,
        header_bytes: usize,
        divides: bool,
    ) -> Self {
        queue.disable_interrupts();
        Self {
            notifier,
            queue,
            buffers,
            free: core::array::from_fn(|index| index as u16),
            free_count: QUEUE_SIZE,
            header_bytes,
            divides,
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
        if length > MAXIMUM_FRAME_BYTES {
            return Err(Full);
        }
        self.transmit_with([0; _], length, fill)
    }

    /// Maximum length of a frame that the device divides; 0 if it does not.
    pub fn divided_frame_length(&self) -> usize {
        if self.divides { LONG_BUFFER_BYTES - self.header_bytes } else { 0 }
    }

    /// Sends a frame with a long segment of TCP over IPv4, which the device divides into segments
    /// with at most `segment_bytes` bytes of its data; otherwise as [`Transmitter::transmit`].
    ///
    /// # Errors
    /// [`Full`], also for frames longer than [`Transmitter::divided_frame_length`].
    pub fn transmit_divided(
        &mut self,
        length: usize,
        segment_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Full> {
        if length > self.divided_frame_length() {
            return Err(Full);
        }
        let segment_bytes = u16::try_from(segment_bytes).unwrap_or(u16::MAX);
        self.transmit_with(virtio_net_header::divided(segment_bytes), length, fill)
    }

    #[inline(always)]
    fn transmit_with(
        &mut self,
        header: [u8; virtio_net_header::BYTES_LEGACY],
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Full> {
        if length == 0 || !self.has_room() {
            return Err(Full);
        }
        let number = self.free[self.free_count - 1];
        // SAFETY: a buffer in `free` is not with the device and has no other reference.
        let buffer = unsafe { self.buffers.get(usize::from(number)) };
        if self.divides {
            buffer[..header.len()].copy_from_slice(&header);
        }
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
