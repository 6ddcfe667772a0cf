//! `cops_algorithms::timekeeper`: when all harts are done, a clock is armed for the earliest
//! deadline, or the service is the most urgent of all and woken.

use cops_algorithms::timekeeper::Timekeeper;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// The first deadline is due.
const NOW: u64 = 10;
const LATER: u64 = 20;

struct Machine {
    keeper: Timekeeper,
    queue: Mutex<Vec<u64>>,
    /// What the clock of each hart is armed for. Only that hart uses it.
    armed: [AtomicU64; 2],
    /// The service is the most urgent of all, and woken.
    is_raised: AtomicBool,
}

impl Machine {
    /// Hart 0 keeps the time, for a deadline that is due.
    fn new() -> Arc<Self> {
        let keeper = Timekeeper::new();
        keeper.appoint(0, NOW);
        Arc::new(Self {
            keeper,
            queue: Mutex::new(vec![NOW, LATER]),
            armed: [AtomicU64::new(NOW), AtomicU64::new(u64::MAX)],
            is_raised: AtomicBool::new(false),
        })
    }

    fn arm(&self, hart: usize) {
        let ticks = self.keeper.ticks_for(hart).min(self.armed[hart].load(Relaxed));
        self.armed[hart].store(ticks, Relaxed);
    }

    fn add(&self, hart: usize, deadline: u64) {
        let mut queue = self.queue.lock().unwrap();
        queue.push(deadline);
        if self.keeper.bring_forward(hart, deadline) {
            drop(queue);
            self.arm(hart);
        }
    }

    /// The service serves what is due, and is less urgent from then on.
    fn serve(&self, hart: usize) {
        let mut queue = self.queue.lock().unwrap();
        queue.retain(|&deadline| deadline > NOW);
        self.keeper.appoint(hart, queue.iter().copied().min().unwrap_or(u64::MAX));
        drop(queue);
        self.arm(hart);
        self.is_raised.swap(false, AcqRel);
        if self.keeper.is_due(NOW) {
            self.is_raised.swap(true, AcqRel);
        }
    }

    /// The timer interrupt.
    fn interrupt(&self, hart: usize) {
        self.armed[hart].store(u64::MAX, Relaxed);
        if self.keeper.take_due(hart, NOW) {
            self.is_raised.swap(true, AcqRel);
        }
        self.arm(hart);
    }

    /// All harts are done.
    fn verify(&self) {
        let earliest = self.queue.lock().unwrap().iter().copied().min().unwrap_or(u64::MAX);
        let keeps = |hart: usize| {
            let ticks = self.keeper.ticks_for(hart);
            ticks <= earliest && self.armed[hart].load(SeqCst) <= ticks
        };
        let is_kept = earliest == u64::MAX || keeps(0) || keeps(1);
        assert!(is_kept || self.is_raised.load(SeqCst), "no clock is armed for {earliest}");
    }
}

/// Runs the two on a hart each.
fn explore(one: fn(&Machine), other: fn(&Machine)) {
    loom::model(move || {
        let machine = Machine::new();
        let on_other = machine.clone();
        let hart = thread::spawn(move || other(&on_other));
        one(&machine);
        hart.join().unwrap();
        machine.verify();
    });
}

/// The service runs already, for what was due before.
#[test]
fn take_against_appoint() {
    explore(|machine| machine.interrupt(0), |machine| machine.serve(1));
}

#[test]
fn take_against_bring_forward() {
    explore(|machine| machine.interrupt(0), |machine| machine.add(1, NOW - 1));
    explore(|machine| machine.interrupt(0), |machine| machine.add(1, LATER - 1));
}

#[test]
fn take_against_take() {
    explore(
        |machine| machine.interrupt(0),
        |machine| {
            machine.add(1, NOW - 1);
            machine.interrupt(1);
        },
    );
}

#[test]
fn appoint_against_bring_forward() {
    for deadline in [NOW - 1, LATER - 1, LATER + 1] {
        loom::model(move || {
            let machine = Machine::new();
            let on_other = machine.clone();
            let hart = thread::spawn(move || on_other.add(0, deadline));
            machine.serve(1);
            hart.join().unwrap();
            machine.verify();
        });
    }
}

#[test]
fn bring_forward_against_bring_forward() {
    explore(|machine| machine.add(0, NOW - 1), |machine| machine.add(1, NOW - 2));
}

/// The clock interrupts the service's hart between the appointment and its end; the other hart
/// brings a deadline forward.
#[test]
fn take_within_appoint_against_bring_forward() {
    explore(
        |machine| {
            machine.queue.lock().unwrap().retain(|&deadline| deadline > NOW);
            machine.keeper.appoint(0, NOW);
            machine.interrupt(0);
            machine.serve(0);
        },
        |machine| machine.add(1, LATER - 1),
    );
}
