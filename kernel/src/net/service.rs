//! The coroutines that drive the network: one for received frames, one for the stack's timers.
//!
//! Interrupts arrive through the device's line, which is disabled from the interrupt until the
//! device has no more frames. While all harts are busy, it stays disabled, and frames are looked
//! for (`sched::arrivals`). The service works in bounded portions and yields between them. On a
//! machine with one hart it has at most half of the time that programs could use (decision 73).

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::future::poll_fn;
use core::net::IpAddr;
use core::task::Poll;

use cops_abi::{Errno, Priority, bootargs};
use cops_algorithms::arrivals::{Busyness, Credit};
use cops_fallible::{List, try_arc, try_box};
use cops_net::{
    Clock, Configuration, DeviceFull, EthernetAddressing, FrameDevice, RandomSeeds, Stack,
};
use spin::Once;

use crate::arch;
use crate::counters::COUNTERS;
use crate::drivers::interrupt::Line;
use crate::drivers::random;
use crate::drivers::virtio_net::{MAXIMUM_FRAME_BYTES, Receiver, Transmitter, VirtioNet};
use crate::log;
use crate::machine::device_tree;
use crate::mm::frames;
use crate::sched::{self, arrivals, doorbell, timer};

/// Number of frames processed before the service yields to other coroutines of its priority: one
/// frame and its consequences take up to 12,000 instructions. The stack ends the batch earlier if
/// some take longer.
const FRAMES_PER_PORTION: usize = 4;

/// The size of each of the two buffers of a TCP connection.
const BUFFER_BYTES: usize = 4096;

/// The most TCP connections that there are.
const MOST_CONNECTIONS: usize = 65_536;

static STACK: Once<Arc<Stack>> = Once::new();

/// The transmitting half of the card, with the interface that the stack expects.
struct Card {
    hardware_address: [u8; 6],
    transmitter: Transmitter,
}

impl FrameDevice for Card {
    fn hardware_address(&self) -> [u8; 6] {
        self.hardware_address
    }
    fn has_room(&mut self) -> bool {
        self.transmitter.has_room()
    }
    fn transmit(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceFull> {
        self.transmitter.transmit(length, fill).map_err(|_| DeviceFull)
    }
    fn divided_frame_length(&self) -> usize {
        self.transmitter.divided_frame_length()
    }
    fn transmit_divided(
        &mut self,
        length: usize,
        segment_bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceFull> {
        self.transmitter.transmit_divided(length, segment_bytes, fill).map_err(|_| DeviceFull)
    }
    fn flush(&mut self) {
        if self.transmitter.flush() {
            doorbell::owe();
        }
    }
}

struct HartClock;

impl Clock for HartClock {
    fn now_microseconds(&self) -> u64 {
        timer::microseconds_from_ticks(arch::now_ticks())
    }
}

/// The stack.
///
/// # Errors
/// `ENETDOWN` before [`start`].
pub fn stack() -> Result<&'static Arc<Stack>, Errno> {
    STACK.get().ok_or(Errno::ENETDOWN)
}

/// The stack's counters; zeros before [`start`].
pub fn statistics() -> cops_net::Statistics {
    stack().map(|stack| stack.statistics()).unwrap_or_default()
}

/// Finds the device, sets up the stack and starts its services.
///
/// # Panics
/// Without memory for the stack, which can happen only at boot.
#[inline(never)]
pub fn start() {
    let ethernet = addressing(device_tree::facts().boot_arguments);
    let buffer_bytes = tcp_buffer_bytes();
    // Connections and their buffers use at most half of the memory, whatever arrives, unless the
    // boot argument says how many connections there may be.
    let given = boot_number("tcp-connections", (64, MOST_CONNECTIONS), MOST_CONNECTIONS);
    let half_bytes = frames::statistics().free / 2 * frames::FRAME_BYTES;
    let configuration = Configuration {
        ethernet,
        maximum_connections: given.unwrap_or(MOST_CONNECTIONS),
        maximum_connection_bytes: if given.is_some() { usize::MAX } else { half_bytes },
        receive_buffer_bytes: buffer_bytes,
        transmit_buffer_bytes: buffer_bytes,
        random_seeds: RandomSeeds {
            ports: random::next(),
            loopback: random::next(),
            ethernet: random::next(),
            tables: random::next(),
        },
        ..Configuration::default()
    };
    let (card, receiving) = find_card();
    let stack = STACK.call_once(|| {
        let clock = try_arc(HartClock).map_err(Into::into);
        match clock.and_then(|clock| Stack::new(configuration, clock, card)) {
            Ok(stack) => stack,
            Err(error) => panic!("no network stack: {error:?}"),
        }
    });
    match receiving {
        Some((line, receiver)) => spawn("net receive", receive(stack, line, receiver)),
        None => log::info!("no network card with an interrupt: loopback only"),
    }
    spawn("net timers", serve_timers(stack));
    spawn("net address", log_address(stack));
}

/// What transmits.
type Transmitting = Option<Box<dyn FrameDevice>>;
/// What receives, if it has an interrupt.
type Receiving = Option<(Line, Box<Receiver>)>;

/// The network card. Out of line: its queues have 8 KiB each and are made on the stack, where the
/// rest of the network needs room afterwards.
#[inline(never)]
fn find_card() -> (Transmitting, Receiving) {
    // A peer sends no more at once than there is room for, so no frame has to be longer.
    let longest = MAXIMUM_FRAME_BYTES + tcp_buffer_bytes();
    let Some(device) = VirtioNet::probe(longest) else { return (None, None) };
    let (hardware_address, line) = (device.hardware_address(), device.line());
    doorbell::install(device.notifier);
    arrivals::install(device.receiver.arrived());
    let card = try_box(Card { hardware_address, transmitter: device.transmitter });
    match (card, try_box(device.receiver)) {
        (Ok(card), Ok(receiver)) => (Some(card), line.map(|line| (line, receiver))),
        (Err(error), _) | (_, Err(error)) => {
            log::warn!("no network card: {error}");
            (None, None)
        }
    }
}

fn spawn(name: &str, future: impl Future<Output = ()> + Send + 'static) {
    sched::spawn_service(name, Priority::MOST_URGENT, future);
}

/// A boot argument that is a number from `least` to `most`; `None` if there is none. Another one is
/// reported, and means the nearest of these. `None`, too, if it is no number: `otherwise` is used.
fn boot_number(key: &str, bounds: (usize, usize), otherwise: usize) -> Option<usize> {
    let arguments = device_tree::facts().boot_arguments;
    bootargs::number(arguments, key, bounds, otherwise).unwrap_or_else(|wrong| {
        log::warn!("{wrong}");
        wrong.nearest
    })
}

/// The size of each of the two buffers of a TCP connection: [`BUFFER_BYTES`], unless the boot
/// argument `tcp-buffer` says otherwise.
pub fn tcp_buffer_bytes() -> usize {
    static BYTES: Once<usize> = Once::new();
    *BYTES.call_once(|| {
        boot_number("tcp-buffer", (1024, 65_536), BUFFER_BYTES).unwrap_or(BUFFER_BYTES)
    })
}

/// `ip=dhcp` or `ip=ADDRESS/PREFIX[,GATEWAY]`; anything else is reported and means DHCP.
fn addressing(arguments: &str) -> EthernetAddressing {
    let Some(value) = bootargs::value(arguments, "ip").filter(|&value| value != "dhcp") else {
        return EthernetAddressing::Dhcp;
    };
    let parse = || {
        let (network, gateway) = match value.split_once(',') {
            Some((network, gateway)) => (network, Some(gateway)),
            None => (value, None),
        };
        let (address, prefix) = network.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = prefix.parse().ok().filter(|&prefix| prefix <= bits)?;
        let gateways = match gateway {
            Some(gateway) => List::try_from_slice(&[gateway.parse().ok()?]).ok()?,
            None => List::new(),
        };
        let addresses = List::try_from_slice(&[(address, prefix)]).ok()?;
        Some(EthernetAddressing::Static {
            addresses: addresses.into_vec(),
            gateways: gateways.into_vec(),
        })
    };
    parse().unwrap_or_else(|| {
        log::warn!(
            "boot argument ip={value:?} is neither dhcp nor ADDRESS/PREFIX[,GATEWAY]: using dhcp"
        );
        EthernetAddressing::Dhcp
    })
}

/// So often the receiver leaves the interface to other harts before it waits for it.
const ATTEMPTS: u32 = 4;

/// Passes received frames to the stack.
async fn receive(stack: &'static Arc<Stack>, line: Line, mut receiver: Box<Receiver>) {
    line.enable();
    let mut busyness = Busyness::default();
    let mut share = Share::new();
    loop {
        line.next().await;
        receiver.acknowledge();
        // If this hart has not slept for some interrupts, frames wait for their turn anyway: until
        // it would sleep, they are looked for.
        let (hart, sleeps) = arrivals::sleeps();
        let mut are_looked_for = busyness.interrupt(hart, sleeps);
        let mut is_late = false;
        loop {
            // The wake may also mean that there is room to transmit again.
            stack.transmit_ready();
            let found_some = receive_all(stack, &mut receiver, &mut share).await;
            if found_some && is_late {
                COUNTERS.frames_found_late.add(1);
            }
            if found_some && are_looked_for {
                are_looked_for = arrivals::next(receiver.received()).await;
                is_late = !are_looked_for;
                busyness.waited(are_looked_for);
                continue;
            }
            is_late = false;
            if !receiver.enable_interrupts() {
                break;
            }
        }
        line.complete();
    }
}

/// What the receiver may have of the machine's time; `None` with several harts.
struct Share(Option<Credit>);

impl Share {
    fn new() -> Self {
        // It may save up the longest slice, so that a burst is received at once.
        let credit = || {
            let [most, rest] = [1000 * timer::SLICE_MILLISECONDS, arrivals::LATEST_MICROSECONDS]
                .map(timer::ticks_from_microseconds);
            Credit::new(most, rest)
        };
        Self((arch::hart_count() == 1).then(credit))
    }

    /// The receiver begins to receive.
    fn begin(&mut self) {
        if let Some(credit) = &mut self.0 {
            credit.begin(arch::now_ticks());
        }
    }

    /// The receiver has received. Returns whether it has rested after that, because it had had its
    /// share.
    async fn spend(&mut self) -> bool {
        let Some(credit) = &mut self.0 else { return false };
        if !credit.spend(arch::now_ticks()) {
            return false;
        }
        arrivals::rest().await;
        credit.rested(arch::now_ticks());
        true
    }
}

/// Passes frames to the stack, in portions, until there are no more. Returns whether there were
/// some.
async fn receive_all(stack: &Stack, receiver: &mut Receiver, share: &mut Share) -> bool {
    let mut found_some = false;
    share.begin();
    loop {
        let mut attempts = 0..ATTEMPTS;
        let taken = poll_fn(|context| {
            let batch = match attempts.next() {
                Some(_) => stack.try_receive_batch(context),
                None => Some(stack.receive_batch()),
            };
            let Some(mut batch) = batch else { return Poll::Pending };
            // The batch ends, and with it the interface's lock, before what it has woken is done.
            let receive = || {
                receiver.receive(FRAMES_PER_PORTION, move |frame, header| {
                    if let Some((start, field)) = header.partial {
                        cops_net::complete_checksum(frame, start, field);
                    }
                    if header.is_verified {
                        batch.receive_verified(frame)
                    } else {
                        batch.receive(frame)
                    }
                })
            };
            Poll::Ready(sched::burst(receive))
        })
        .await;
        found_some |= taken.some;
        if share.spend().await {
            continue;
        }
        if !taken.more {
            return found_some;
        }
        cops_executor::yield_now().await;
    }
}

/// Runs the stack's timers and sends what could not be sent immediately.
async fn serve_timers(stack: &'static Arc<Stack>) {
    poll_fn(|context| {
        stack.register_poll_waker(context.waker());
        match stack.poll() {
            None => {}
            Some(deadline) if deadline <= HartClock.now_microseconds() => {
                context.waker().wake_by_ref()
            }
            Some(deadline) => {
                timer::wake_network_at(timer::ticks_from_microseconds(deadline), context.waker())
            }
        }
        Poll::<()>::Pending
    })
    .await;
}

/// Logs the machine's address once it is known.
async fn log_address(stack: &'static Arc<Stack>) {
    let lease = poll_fn(|context| stack.poll_configured(context)).await;
    log::info!("network: {}/{}, gateway {:?}", lease.address, lease.prefix_length, lease.gateway);
}
