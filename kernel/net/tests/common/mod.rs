//! A network in memory and in virtual time: two stacks, and a cable that can lose, repeat and
//! delay.
//!
//! The world polls a stack only when the stack's contract requires it: at the deadline that `poll`
//! returned, or after the poll waker was woken. So a stack that fails to announce a timer, or
//! leaves a frame behind, makes no progress here and fails the test.
// Each test binary uses only a part of this module.
#![allow(dead_code, unused_imports)]

mod transfer;

pub use transfer::Transfer;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use smoltcp::wire::{Ipv4Packet, TcpPacket};

use cops_net::{
    Clock, Configuration, Connection, DeviceFull, Error, EthernetAddressing, FrameDevice, Listener,
    RandomSeeds, Stack,
};

pub const SECOND: u64 = 1_000_000;
pub const ADDRESS_A: &str = "10.0.0.1";
pub const ADDRESS_B: &str = "10.0.0.2";
pub const ADDRESS_A6: &str = "fd00::1";
pub const ADDRESS_B6: &str = "fd00::2";

/// A clock that advances only when a test moves it.
#[derive(Default)]
pub struct VirtualClock(AtomicU64);

impl Clock for VirtualClock {
    fn now_microseconds(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl VirtualClock {
    pub fn advance_to(&self, time: u64) {
        self.0.fetch_max(time, Ordering::SeqCst);
    }
}

/// A small deterministic generator (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn chance(&mut self, per_thousand: u64) -> bool {
        self.next() % 1000 < per_thousand
    }
}

/// The faults of a cable.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub lost_per_thousand: u64,
    pub repeated_per_thousand: u64,
    pub damaged_per_thousand: u64,
    /// Each frame takes the latency plus up to this much, so frames may overtake each other.
    pub jitter_microseconds: u64,
}

/// Returns whether a frame may pass.
pub type Filter = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// One direction of a cable.
pub struct Wire {
    frames: VecDeque<(u64, Vec<u8>)>,
    pub faults: Faults,
    pub latency_microseconds: u64,
    /// Number of frames on the wire at which the device is full.
    pub capacity: usize,
    pub cut: bool,
    /// Drops the frames for which it returns false.
    pub filter: Option<Filter>,
    pub carried: u64,
    /// Long segments that the card got.
    pub divided: u64,
    /// Those of them that are wrong.
    pub wrong: u64,
    pub flushes: u64,
    random: Random,
}

impl Wire {
    fn new(seed: u64) -> Arc<Mutex<Wire>> {
        Arc::new(Mutex::new(Wire {
            frames: VecDeque::new(),
            faults: Faults::default(),
            latency_microseconds: 50,
            capacity: 256,
            cut: false,
            filter: None,
            carried: 0,
            divided: 0,
            wrong: 0,
            flushes: 0,
            random: Random(seed),
        }))
    }

    fn put(&mut self, frame: Vec<u8>, now: u64) {
        self.carried += 1;
        let lost = self.filter.as_mut().is_some_and(|filter| !filter(&frame));
        if lost || self.cut || self.random.chance(self.faults.lost_per_thousand) {
            return;
        }
        let copies = 1 + usize::from(self.random.chance(self.faults.repeated_per_thousand));
        for _ in 0..copies {
            let mut frame = frame.clone();
            if self.random.chance(self.faults.damaged_per_thousand) {
                let index = self.random.next() as usize % frame.len();
                frame[index] ^= 1 << (self.random.next() % 8);
            }
            let jitter = match self.faults.jitter_microseconds {
                0 => 0,
                jitter => self.random.next() % jitter,
            };
            let due = now + self.latency_microseconds + jitter;
            let position = self.frames.partition_point(|(other, _)| *other <= due);
            self.frames.insert(position, (due, frame));
        }
    }

    fn take_due(&mut self, now: u64) -> Option<Vec<u8>> {
        (self.frames.front()?.0 <= now).then(|| self.frames.pop_front().unwrap().1)
    }
}

/// What a card does with a long segment that it gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offload {
    /// It divides it, as a card at a real cable.
    Divides,
    /// It passes it on as it is, as one between two machines of a host.
    PassesOn,
}

pub struct CableEnd {
    wire: Arc<Mutex<Wire>>,
    clock: Arc<VirtualClock>,
    hardware_address: [u8; 6],
    offload: Option<Offload>,
}

impl FrameDevice for CableEnd {
    fn hardware_address(&self) -> [u8; 6] {
        self.hardware_address
    }

    fn has_room(&mut self) -> bool {
        let wire = self.wire.lock().unwrap();
        wire.frames.len() < wire.capacity
    }

    fn transmit(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceFull> {
        if !self.has_room() {
            return Err(DeviceFull);
        }
        // A pattern, so that a byte which the stack fails to write is detected.
        let mut frame = vec![0xa5; length];
        fill(&mut frame);
        self.wire.lock().unwrap().put(frame, self.clock.now_microseconds());
        Ok(())
    }

    fn divided_frame_length(&self) -> usize {
        if self.offload.is_some() { LONG_FRAME_BYTES } else { 0 }
    }

    fn transmit_divided(
        &mut self,
        length: usize,
        segment_bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceFull> {
        if !self.has_room() {
            return Err(DeviceFull);
        }
        assert!(length <= LONG_FRAME_BYTES && length > 54 + segment_bytes, "{length} bytes");
        let mut frame = vec![0xa5; length];
        fill(&mut frame);
        let divided = divide(&frame, segment_bytes);
        let mut wire = self.wire.lock().unwrap();
        wire.divided += 1;
        let now = self.clock.now_microseconds();
        match (divided, self.offload) {
            // Not with a panic: the stack that called has locks.
            (None, _) => wire.wrong += 1,
            (Some(frames), Some(Offload::Divides)) => {
                frames.into_iter().for_each(|frame| wire.put(frame, now));
            }
            _ => wire.put(frame, now),
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.wire.lock().unwrap().flushes += 1;
    }
}

/// Maximum length of a frame that a card gets.
const LONG_FRAME_BYTES: usize = 4084;
/// Maximum length of a frame on a cable.
const FRAME_BYTES: usize = 1514;

/// The frames that a card makes of a long segment, as virtio 1.2 has it in 5.1.6.2. `None` if the
/// segment is wrong.
fn divide(frame: &[u8], segment_bytes: usize) -> Option<Vec<Vec<u8>>> {
    // Nothing is missing but the sum of the segment itself.
    let mut frame = frame.to_vec();
    cops_net::complete_checksum(&mut frame, 34, 16);
    let (head, data) = frame.split_at(54);
    let whole = Ipv4Packet::new_checked(&frame[14..]).ok()?;
    let addresses = (whole.src_addr().into(), whole.dst_addr().into());
    let segment = TcpPacket::new_checked(whole.payload()).ok()?;
    if !(whole.verify_checksum() && segment.verify_checksum(&addresses.0, &addresses.1)) {
        return None;
    }
    let (sequence, pushes) = (segment.seq_number(), segment.psh());
    let parts = data.chunks(segment_bytes).enumerate();
    let make = |(index, part): (usize, &[u8])| {
        let mut frame = [head, part].concat();
        let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
        packet.set_total_len((40 + part.len()) as u16);
        packet.fill_checksum();
        let mut segment = TcpPacket::new_unchecked(packet.payload_mut());
        segment.set_seq_number(sequence + index * segment_bytes);
        segment.set_psh(pushes && index == (data.len() - 1) / segment_bytes);
        segment.fill_checksum(&addresses.0, &addresses.1);
        frame
    };
    Some(parts.map(make).collect())
}

/// A waker that records that it was woken.
#[derive(Default)]
pub struct Flag {
    pub woken: AtomicBool,
    pub count: AtomicUsize,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
    }
}

impl Flag {
    pub fn new() -> (Arc<Flag>, Waker) {
        let flag = Arc::new(Flag::default());
        (flag.clone(), Waker::from(flag))
    }

    pub fn take(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }
}

/// A host: a stack, and the state of its driver and timer coroutines.
pub struct Host {
    pub stack: Arc<Stack>,
    /// Frames on the wire to this host.
    pub incoming: Arc<Mutex<Wire>>,
    /// Frames on the wire from this host.
    pub outgoing: Arc<Mutex<Wire>>,
    /// A frame that this host receives before each other one.
    pub before_each_frame: Vec<Vec<u8>>,
    flag: Arc<Flag>,
    waker: Waker,
    deadline: Option<u64>,
}

impl Host {
    fn new(stack: Arc<Stack>, incoming: Arc<Mutex<Wire>>, outgoing: Arc<Mutex<Wire>>) -> Host {
        let (flag, waker) = Flag::new();
        let before_each_frame = Vec::new();
        Host { stack, incoming, outgoing, before_each_frame, flag, waker, deadline: Some(0) }
    }

    fn poll_if_due(&mut self, now: u64) -> bool {
        let due = self.deadline.is_some_and(|deadline| deadline <= now);
        if !self.flag.take() && !due {
            return false;
        }
        self.stack.register_poll_waker(&self.waker);
        self.deadline = self.stack.poll();
        true
    }

    fn deliver_due(&mut self, now: u64) -> bool {
        let mut frames = Vec::new();
        while let Some(frame) = self.incoming.lock().unwrap().take_due(now) {
            frames.push(frame);
        }
        let mut batch = self.stack.receive_batch();
        for frame in &frames {
            for before in &self.before_each_frame {
                batch.receive(before);
            }
            // What is longer than a cable allows was passed on without a checksum.
            if frame.len() > FRAME_BYTES {
                batch.receive_verified(frame);
            } else {
                batch.receive(frame);
            }
        }
        !frames.is_empty()
    }
}

/// Two hosts and the cable between them.
pub struct World {
    pub clock: Arc<VirtualClock>,
    pub a: Host,
    pub b: Host,
}

pub fn static_configuration(addresses: &[&str], seed: u64) -> Configuration {
    let prefix = |address: &IpAddr| if address.is_ipv4() { 24 } else { 64 };
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    Configuration {
        ethernet: EthernetAddressing::Static {
            addresses: addresses.iter().map(|address| (*address, prefix(address))).collect(),
            gateways: Vec::new(),
        },
        random_seeds: seeds(seed),
        ..Configuration::default()
    }
}

impl World {
    pub fn new() -> World {
        World::with(|_| {})
    }

    /// `adjust` changes the configuration of both hosts.
    pub fn with(adjust: impl Fn(&mut Configuration)) -> World {
        let [mut a, mut b] = World::configurations();
        adjust(&mut a);
        adjust(&mut b);
        World::from(a, b)
    }

    /// With cards that take long segments.
    pub fn with_cards(offload: Option<Offload>) -> World {
        let [a, b] = World::configurations();
        World::make(a, b, offload)
    }

    fn configurations() -> [Configuration; 2] {
        [([ADDRESS_A, ADDRESS_A6], 11), ([ADDRESS_B, ADDRESS_B6], 22)]
            .map(|(addresses, seed)| static_configuration(&addresses, seed))
    }

    pub fn from(a: Configuration, b: Configuration) -> World {
        World::make(a, b, None)
    }

    fn make(a: Configuration, b: Configuration, offload: Option<Offload>) -> World {
        let clock = Arc::new(VirtualClock::default());
        clock.advance_to(SECOND);
        let (a_to_b, b_to_a) = (Wire::new(1), Wire::new(2));
        let host =
            |configuration, last, outgoing: &Arc<Mutex<Wire>>, incoming: &Arc<Mutex<Wire>>| {
                let device = CableEnd {
                    wire: outgoing.clone(),
                    clock: clock.clone(),
                    hardware_address: [2, 0, 0, 0, 0, last],
                    offload,
                };
                let stack =
                    Stack::new(configuration, clock.clone(), Some(Box::new(device))).unwrap();
                Host::new(stack, incoming.clone(), outgoing.clone())
            };
        let a = host(a, 1, &a_to_b, &b_to_a);
        let b = host(b, 2, &b_to_a, &a_to_b);
        World { clock, a, b }
    }

    pub fn now(&self) -> u64 {
        self.clock.now_microseconds()
    }

    pub fn set_faults(&mut self, faults: Faults) {
        self.a.incoming.lock().unwrap().faults = faults;
        self.b.incoming.lock().unwrap().faults = faults;
    }

    /// Does what is due now. Returns `false` if nothing was.
    pub fn step(&mut self) -> bool {
        let now = self.now();
        let delivered = self.a.deliver_due(now) | self.b.deliver_due(now);
        if delivered {
            // The wires have room again, which the drivers report.
            self.a.stack.transmit_ready();
            self.b.stack.transmit_ready();
        }
        self.a.poll_if_due(now) | self.b.poll_if_due(now) | delivered
    }

    /// The time of the next event.
    pub fn next_event(&self) -> Option<u64> {
        let in_flight =
            |host: &Host| host.incoming.lock().unwrap().frames.front().map(|(due, _)| *due);
        [in_flight(&self.a), in_flight(&self.b), self.a.deadline, self.b.deadline]
            .into_iter()
            .flatten()
            .min()
    }

    /// Advances time until `done`, by at most `limit` microseconds. Returns whether `done` was
    /// reached.
    pub fn run_until(&mut self, limit: u64, mut done: impl FnMut(&mut World) -> bool) -> bool {
        let end = self.now() + limit;
        for round in 0_u64.. {
            assert!(round < 5_000_000, "the stacks spin without end");
            if done(self) {
                return true;
            }
            if self.step() {
                continue;
            }
            // The test's own actions in `done` may have woken the pollers.
            if self.a.flag.woken.load(Ordering::SeqCst) || self.b.flag.woken.load(Ordering::SeqCst)
            {
                continue;
            }
            match self.next_event() {
                Some(next) if next <= end => self.clock.advance_to(next),
                _ => {
                    self.clock.advance_to(end);
                    return done(self);
                }
            }
        }
        unreachable!()
    }

    /// Advances time by exactly `duration` microseconds.
    pub fn run_for(&mut self, duration: u64) {
        assert!(!self.run_until(duration, |_| false));
    }

    /// Opens a connection from `a` to a listener of `b`, and accepts it.
    pub fn pair(&mut self, listener: &Listener) -> (Connection, Connection) {
        self.pair_at(listener, reachable(listener.local_address()))
    }

    /// The same, to a given address.
    pub fn pair_at(&mut self, listener: &Listener, target: SocketAddr) -> (Connection, Connection) {
        let client = self.a.stack.connect(target).unwrap();
        let mut server = None;
        let connected = self.run_until(60 * SECOND, |_| {
            if server.is_none() {
                server = listener.try_accept().ok();
            }
            server.is_some() && connected(&client) == Some(Ok(()))
        });
        assert!(connected, "no connection to {}", listener.local_address());
        (client, server.unwrap())
    }
}

/// The address at which a listener of `b` can be reached.
fn reachable(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let host = if address.is_ipv4() { ADDRESS_B } else { ADDRESS_B6 };
        SocketAddr::new(host.parse().unwrap(), address.port())
    } else {
        address
    }
}

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|_| panic!("{text} is no address"))
}

/// The result of the handshake; `None` while it is in progress.
pub fn connected(connection: &Connection) -> Option<Result<(), Error>> {
    match connection.poll_connected(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(result) => Some(result),
        std::task::Poll::Pending => None,
    }
}

/// The flags and the data length of a TCP segment in an IPv4 Ethernet frame.
pub fn tcp_flags_and_length(frame: &[u8]) -> Option<(u8, usize)> {
    if frame.get(12..14)? != [8, 0] || frame.get(23)? != &6 {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let header = 20 + usize::from(frame.get(46)? >> 4) * 4;
    Some((frame[47], total.saturating_sub(header)))
}

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// Derives the three seeds of a test from one.
pub fn seeds(seed: u64) -> RandomSeeds {
    RandomSeeds { ports: seed, loopback: seed ^ 1, ethernet: seed, tables: seed ^ 2 }
}

/// An ARP request of 10.0.0.1, which has the hardware address `sender`, as a broadcast.
pub fn arp_request(sender: [u8; 6], target: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(sender);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(sender);
    frame.extend([10, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    frame.extend(target);
    frame
}

/// The same with the addresses `sender` and `target`, as the answer of a request: none follows it.
pub fn arp_reply(hardware: [u8; 6], sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut frame = arp_request(hardware, target);
    frame[21] = 2;
    frame[28..32].copy_from_slice(&sender);
    frame
}

/// News for the host `target`: its peer has got another card, and then its own one again. So all
/// paths to the peer end, and nothing else changes.
pub fn news(sender: u8, target: u8) -> [Vec<u8>; 2] {
    [0x77, sender]
        .map(|card| arp_reply([2, 0, 0, 0, 0, card], [10, 0, 0, sender], [10, 0, 0, target]))
}

/// Sends as much as the other end has room for, and nothing reads it. Returns whether its buffer is
/// full within `limit` microseconds.
pub fn fill(world: &mut World, from: &Connection, to: &Connection, limit: u64) -> bool {
    world.run_until(limit, |_| {
        let there = to.unread_bytes() + from.unacknowledged_bytes();
        let _ = from.try_send(&vec![7; 4096_usize.saturating_sub(there)]);
        to.unread_bytes() == 4096
    })
}
