//! Several threads on one stack, with a clock that does not advance.
//!
//! No timer ever expires, so no retransmission hides a fault: a byte that is left behind the
//! interface's lock, behind a full device or by a lost wake stays there, and the test fails.

mod common;

use common::*;
use cops_net::{Clock, Configuration, Connection, DeviceFull, FrameDevice, Listener, Stack};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

struct FrozenClock;

impl Clock for FrozenClock {
    fn now_microseconds(&self) -> u64 {
        SECOND
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until `poll` is ready.
fn wait<R>(what: &str, mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>) -> R {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let begin = Instant::now();
    loop {
        if let Poll::Ready(result) = poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        // `park` returns early if the thread is woken for another reason. If it is never woken, the
        // assertion fails.
        thread::park_timeout(PATIENCE);
        assert!(begin.elapsed() < PATIENCE, "stranded: {what}");
    }
}

/// The polling coroutine as a thread: polls only when it was woken or told that there is more work.
/// (A periodic poll would hide lost wakes.)
fn poller(stack: Arc<Stack>, stop: Arc<AtomicBool>) {
    struct Doorbell(Thread, AtomicBool);
    impl Wake for Doorbell {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Ordering::SeqCst);
            self.0.unpark();
        }
    }
    let doorbell = Arc::new(Doorbell(thread::current(), AtomicBool::new(true)));
    let waker = Waker::from(doorbell.clone());
    while !stop.load(Ordering::SeqCst) {
        if !doorbell.1.swap(false, Ordering::SeqCst) {
            thread::park_timeout(Duration::from_millis(100));
            continue;
        }
        stack.register_poll_waker(&waker);
        if stack.poll().is_some_and(|deadline| deadline <= SECOND) {
            doorbell.1.store(true, Ordering::SeqCst);
        }
    }
}

fn send_all(connection: &Connection, mut data: &[u8]) {
    while !data.is_empty() {
        let sent = wait("sending", |context| connection.poll_send(context, data)).unwrap();
        data = &data[sent..];
    }
}

fn receive_exactly(connection: &Connection, buffer: &mut [u8]) {
    let mut length = 0;
    while length < buffer.len() {
        let received =
            wait("receiving", |context| connection.poll_receive(context, &mut buffer[length..]))
                .unwrap();
        assert_ne!(received, 0);
        length += received;
    }
}

fn echo_client(stack: Arc<Stack>, target: &str, rounds: usize, seed: u64) {
    let mut random = Random(seed);
    let connection = stack.connect(address(target)).unwrap();
    wait("connecting", |context| connection.poll_connected(context)).unwrap();
    for _ in 0..rounds {
        let length = 1 + random.next() as usize % 1000;
        let message: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        send_all(
            &connection,
            &(length as u32).to_be_bytes().iter().chain(&message).copied().collect::<Vec<_>>(),
        );
        let mut answer = vec![0; length];
        receive_exactly(&connection, &mut answer);
        assert_eq!(answer, message);
    }
}

fn echo_server(listener: Arc<Listener>, rounds: usize) {
    let connection = wait("accepting", |context| listener.poll_accept(context)).unwrap();
    for _ in 0..rounds {
        let mut length = [0; 4];
        receive_exactly(&connection, &mut length);
        let mut message = vec![0; u32::from_be_bytes(length) as usize];
        receive_exactly(&connection, &mut message);
        send_all(&connection, &message);
    }
    // All of the client's bytes are read; its close ends the stream.
    let end = wait("the end", |context| connection.poll_receive(context, &mut [0; 1]));
    assert_eq!(end, Ok(0));
}

/// Waits until the stacks have no connection any more. The last handle may leave the end of a
/// handshake to the poller, which is woken but may run late: it must not be stopped before.
fn wait_until_closed(stacks: &[&Stack]) {
    let begin = Instant::now();
    while stacks.iter().any(|stack| stack.statistics().connections_now > 0) {
        assert!(begin.elapsed() < PATIENCE, "a connection is not closed");
        thread::yield_now();
    }
}

/// `pairs` clients and servers on one loopback interface.
fn loopback(pairs: usize, rounds: usize) {
    let stack = Stack::new(Configuration::default(), Arc::new(FrozenClock), None).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let listener = Arc::new(stack.listen(address("127.0.0.1:7"), 8).unwrap());
    let poller = thread::spawn({
        let (stack, stop) = (stack.clone(), stop.clone());
        || poller(stack, stop)
    });
    thread::scope(|scope| {
        for pair in 0..pairs {
            let (stack, listener) = (stack.clone(), listener.clone());
            scope.spawn(move || echo_server(listener, rounds));
            scope.spawn(move || echo_client(stack, "127.0.0.1:7", rounds, pair as u64));
        }
    });
    wait_until_closed(&[&stack]);
    stop.store(true, Ordering::SeqCst);
    poller.join().unwrap();
    let statistics = stack.statistics();
    println!(
        "handed over: {} of {} packets",
        statistics.egress_handed_over, statistics.loopback_packets
    );
}

#[test]
fn loopback_between_six_threads() {
    loopback(3, 2000);
}

/// Two threads send at the same moment and then do nothing. A sender that finds the interface busy
/// relies on the other's last check, because no third thread comes by.
#[test]
fn two_senders_at_the_same_moment_strand_nothing() {
    const ROUNDS: usize = 20_000;
    let stack = Stack::new(Configuration::default(), Arc::new(FrozenClock), None).unwrap();
    let listener = stack.listen(address("127.0.0.1:7"), 8).unwrap();
    let arrived = AtomicUsize::new(0);
    // Waits until both threads have called it `round` times.
    let meet = |round: usize| {
        arrived.fetch_add(1, Ordering::SeqCst);
        spin_until("the other thread", || arrived.load(Ordering::SeqCst) >= 2 * round);
    };
    thread::scope(|scope| {
        for seed in 0..2 {
            let client = stack.connect(address("127.0.0.1:7")).unwrap();
            let server = listener.try_accept().unwrap();
            let meet = &meet;
            scope.spawn(move || {
                let mut random = Random(seed);
                for round in 0..ROUNDS {
                    meet(2 * round + 1);
                    // A random delay, so that the send happens at every stage of the other thread's
                    // work.
                    (0..random.next() % 1500).for_each(|_| std::hint::spin_loop());
                    assert_eq!(client.try_send(b"x"), Ok(1));
                    // Reading one byte of a wide window does not use the interface.
                    spin_until("a byte", || server.try_receive(&mut [0; 1]) == Ok(1));
                    meet(2 * round + 2);
                }
            });
        }
    });
    println!("handed over: {} of {ROUNDS} rounds", stack.statistics().egress_handed_over);
}

fn spin_until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    for round in 1_u64.. {
        if done() {
            return;
        }
        std::hint::spin_loop();
        if round % 1000 == 0 {
            thread::yield_now();
            assert!(begin.elapsed() < PATIENCE, "stranded: {what}");
        }
    }
}

/// A device with room for one frame, which another thread carries.
struct Channel {
    sender: Sender<Vec<u8>>,
    in_flight: Arc<AtomicUsize>,
    last: u8,
}

const CHANNEL_CAPACITY: usize = 1;

impl FrameDevice for Channel {
    fn hardware_address(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0, self.last]
    }

    fn has_room(&mut self) -> bool {
        self.in_flight.load(Ordering::SeqCst) < CHANNEL_CAPACITY
    }

    fn transmit(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceFull> {
        if !self.has_room() {
            return Err(DeviceFull);
        }
        let mut frame = vec![0xa5; length];
        fill(&mut frame);
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        // At the end of the test the other end may be gone.
        let _ = self.sender.send(frame);
        Ok(())
    }
}

/// The receiving part of the driver; it also completes the sender's frames.
fn driver(
    to: Arc<Stack>,
    from: Arc<Stack>,
    frames: Receiver<Vec<u8>>,
    in_flight: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) {
    loop {
        match frames.recv_timeout(Duration::from_millis(20)) {
            Ok(frame) => {
                in_flight.fetch_sub(1, Ordering::SeqCst);
                from.transmit_ready();
                let mut batch = wait("the interface", |context| {
                    to.try_receive_batch(context).map_or(Poll::Pending, Poll::Ready)
                });
                batch.receive(&frame);
            }
            Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::SeqCst) => {}
            Err(_) => return,
        }
    }
}

#[test]
fn two_stacks_with_full_devices_between_four_threads() {
    const PAIRS: usize = 2;
    const ROUNDS: usize = 1000;
    let stop = Arc::new(AtomicBool::new(false));
    let host = |address: &str, last| {
        let (sender, receiver) = channel();
        let in_flight = Arc::new(AtomicUsize::new(0));
        let device = Channel { sender, in_flight: in_flight.clone(), last };
        let configuration = static_configuration(&[address], u64::from(last));
        (
            Stack::new(configuration, Arc::new(FrozenClock), Some(Box::new(device))).unwrap(),
            receiver,
            in_flight,
        )
    };
    let (a, from_a, in_flight_a) = host(ADDRESS_A, 1);
    let (b, from_b, in_flight_b) = host(ADDRESS_B, 2);
    // smoltcp sends one neighbour request per second, and this clock never advances: a first
    // connection makes the neighbours known before the race begins.
    let listener = Arc::new(b.listen(address("0.0.0.0:7"), 8).unwrap());
    let mut threads = vec![
        thread::spawn({
            let (a, b, stop) = (a.clone(), b.clone(), stop.clone());
            || driver(b, a, from_a, in_flight_a, stop)
        }),
        thread::spawn({
            let (a, b, stop) = (a.clone(), b.clone(), stop.clone());
            || driver(a, b, from_b, in_flight_b, stop)
        }),
    ];
    for stack in [&a, &b] {
        let (stack, stop) = (stack.clone(), stop.clone());
        threads.push(thread::spawn(|| poller(stack, stop)));
    }
    thread::scope(|scope| {
        let first = listener.clone();
        scope.spawn(move || echo_server(first, 1));
        echo_client(a.clone(), "10.0.0.2:7", 1, 99);
    });
    thread::scope(|scope| {
        for pair in 0..PAIRS {
            let (stack, listener) = (a.clone(), listener.clone());
            scope.spawn(move || echo_server(listener, ROUNDS));
            scope.spawn(move || echo_client(stack, "10.0.0.2:7", ROUNDS, pair as u64));
        }
    });
    wait_until_closed(&[&a, &b]);
    stop.store(true, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for stack in [&a, &b] {
        let statistics = stack.statistics();
        println!(
            "frames {}, handed over {}, blocked {}",
            statistics.frames_transmitted,
            statistics.egress_handed_over,
            statistics.transmit_blocked
        );
    }
}

/// A device that keeps the first sender, which holds the interface, until the test resumes it.
struct Slow {
    begun: Sender<()>,
    resumed: Receiver<()>,
}

impl FrameDevice for Slow {
    fn hardware_address(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0, 1]
    }

    fn has_room(&mut self) -> bool {
        true
    }

    fn transmit(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceFull> {
        fill(&mut vec![0; length]);
        // The test looks at the first frame only.
        if self.begun.send(()).is_ok() {
            let _ = self.resumed.recv_timeout(PATIENCE);
        }
        Ok(())
    }
}

#[test]
fn what_finds_the_interface_held_leaves_its_work_to_the_holder() {
    let ((begun, has_begun), (resume, resumed)) = (channel(), channel());
    let clock = Arc::new(VirtualClock::default());
    let device = Slow { begun, resumed };
    let configuration = static_configuration(&[ADDRESS_A], 1);
    let stack = Stack::new(configuration, clock.clone(), Some(Box::new(device))).unwrap();
    let sender = thread::spawn({
        let stack = stack.clone();
        move || stack.connect(address("10.0.0.2:7")).map(drop)
    });
    has_begun.recv_timeout(PATIENCE).expect("a frame is sent");
    drop(has_begun);
    let begin = Instant::now();
    let (flag, waker) = Flag::new();
    let context = Context::from_waker(&waker);
    assert!(stack.try_receive_batch(&context).is_none(), "the interface is held");
    // The question for the neighbour's address would be repeated by now.
    clock.advance_to(10 * SECOND);
    stack.poll();
    stack.transmit_ready();
    assert!(begin.elapsed() < PATIENCE / 2, "it has waited for the holder");
    assert!(!flag.take(), "woken too early");
    assert_eq!(stack.statistics().timers_fired, 0);
    resume.send(()).unwrap();
    sender.join().unwrap().unwrap();
    assert!(flag.take(), "the receiver is not woken");
    assert!(stack.try_receive_batch(&context).is_some());
    assert!(stack.statistics().timers_fired > 0, "the holder has run no timers");
}

/// One thread has the interface for a moment, and another one wants it then. If it relies on being
/// woken, nothing else comes by that would wake it.
#[test]
fn a_receiver_at_the_same_moment_as_a_holder_is_not_stranded() {
    const ROUNDS: usize = 20_000;
    let device = Channel { sender: channel().0, in_flight: Arc::default(), last: 1 };
    let configuration = static_configuration(&[ADDRESS_A], 1);
    let stack = Stack::new(configuration, Arc::new(FrozenClock), Some(Box::new(device))).unwrap();
    let arrived = AtomicUsize::new(0);
    let meet = |round: usize, random: &mut Random| {
        arrived.fetch_add(1, Ordering::SeqCst);
        spin_until("the other thread", || arrived.load(Ordering::SeqCst) >= 2 * round);
        (0..random.next() % 300).for_each(|_| std::hint::spin_loop());
    };
    let waited = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(1);
            for round in 1..=ROUNDS {
                meet(round, &mut random);
                stack.poll();
            }
        });
        scope.spawn(|| {
            let mut random = Random(2);
            for round in 1..=ROUNDS {
                meet(round, &mut random);
                drop(wait("the interface", |context| match stack.try_receive_batch(context) {
                    Some(batch) => Poll::Ready(batch),
                    None => {
                        waited.fetch_add(1, Ordering::Relaxed);
                        Poll::Pending
                    }
                }));
            }
        });
    });
    println!("waited: {waited:?} of {ROUNDS} rounds");
}
