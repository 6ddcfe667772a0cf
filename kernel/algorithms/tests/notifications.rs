//! A model of harts in virtual time that use `cops_algorithms::doorbell` and
//! `cops_algorithms::arrivals` as the kernel does (decision 59).
//!
//! After every step it checks that no notification is owed for longer than its bound, that no frame
//! lies in the ring unseen for longer than the bound, and that the hart does not sleep that looks
//! for frames.

use cops_algorithms::arrivals::{Arrivals, Busyness, Credit, LastLook};
use cops_algorithms::doorbell::{BeforeUserMode, Bounds, Owed};
use proptest::prelude::*;

const BOUNDS: Bounds = Bounds { peers_ticks: 100, latest_ticks: 1000 };
/// What was looked for longer ago is found late.
const IN_TIME_TICKS: u64 = 500;
const RECEIVER: u64 = 7;
/// The longest portion of the kernel, and how many there are between two looks.
const PORTION_TICKS: u64 = 10;
const PORTIONS: u64 = 8;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A hart in the kernel publishes a frame.
    Send(usize),
    /// A hart in the kernel runs a portion of other work.
    Portion(usize),
    /// A hart enters user mode, and leaves it after some time, unless its clock interrupts.
    User { hart: usize, has_peers: bool, ticks: u64 },
    /// A virtual CPU leaves the hart, which goes to sleep if nothing is ready.
    Sleep(usize),
    /// A frame arrives.
    Arrive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    /// The card interrupts for the next frame.
    Interrupts,
    /// Woken: it runs when a hart next runs coroutines of the kernel.
    Ready,
    /// The card does not interrupt.
    Waits,
}

struct Machine {
    now_ticks: u64,
    owed: Owed,
    arrivals: Arrivals,
    busyness: Busyness,
    receiving: Receiving,
    are_looked_for: bool,
    /// Frames that were sent, and of which the card knows.
    published: u64,
    notified: u64,
    /// When the oldest frame was published of which the card does not know.
    owed_since: Option<u64>,
    arrived: u16,
    received: u16,
    /// When the oldest frame arrived that was not received.
    lies_since: Option<u64>,
    last_look: LastLook,
    /// Where the receiver waits. It was woken by the clock, or by a late look.
    waits_on: usize,
    has_waited: bool,
    is_late: bool,
    /// For each hart: the moment of its clock's interrupt, whether it sleeps, and how often it has.
    clocks: Vec<u64>,
    asleep: Vec<bool>,
    sleeps: Vec<u64>,
    /// Portions of the kernel on each hart since it last looked.
    portions: Vec<u64>,
}

impl Machine {
    fn new(harts: usize) -> Self {
        Self {
            now_ticks: 1,
            owed: Owed::new(),
            arrivals: Arrivals::new(),
            busyness: Busyness::default(),
            receiving: Receiving::Interrupts,
            are_looked_for: false,
            published: 0,
            notified: 0,
            owed_since: None,
            arrived: 0,
            received: 0,
            lies_since: None,
            last_look: LastLook::new(),
            waits_on: 0,
            has_waited: false,
            is_late: false,
            clocks: vec![u64::MAX; harts],
            asleep: vec![false; harts],
            sleeps: vec![0; harts],
            portions: vec![0; harts],
        }
    }

    fn notify(&mut self) {
        self.notified = self.published;
        self.owed_since = None;
    }

    fn settle(&mut self) {
        if self.owed.is_owed() && self.owed.take() {
            self.notify();
        }
    }

    fn wake(&mut self, receiver: u64) -> bool {
        if receiver == RECEIVER {
            assert_eq!(self.receiving, Receiving::Waits);
            self.receiving = Receiving::Ready;
        }
        receiver != 0
    }

    /// The interrupts of the clocks that are due.
    fn pass(&mut self, ticks: u64) {
        self.now_ticks += ticks;
        for hart in 0..self.clocks.len() {
            if self.clocks[hart] <= self.now_ticks {
                self.clocks[hart] = u64::MAX;
                self.asleep[hart] = false;
                self.settle();
                if !self.arrivals.waits_on(hart) {
                    continue;
                }
                let due_ticks = self.last_look.due_ticks(BOUNDS.latest_ticks);
                if self.now_ticks < due_ticks {
                    self.clocks[hart] = due_ticks;
                    continue;
                }
                self.is_late = true;
                let receiver = self.arrivals.take();
                self.wake(receiver);
            }
        }
    }

    /// The card's interrupt, on the first hart.
    fn interrupt(&mut self) {
        self.asleep[0] = false;
        self.are_looked_for = self.busyness.interrupt(0, self.sleeps[0]);
        self.receiving = Receiving::Ready;
    }

    /// The receiver runs on `hart`, if it is ready.
    fn receive(&mut self, hart: usize) {
        if self.receiving != Receiving::Ready {
            return;
        }
        self.arrivals.end();
        if std::mem::take(&mut self.has_waited) {
            self.are_looked_for &= !self.is_late;
            self.busyness.waited(!self.is_late);
        }
        let found_some = self.arrived != self.received;
        self.received = self.arrived;
        self.lies_since = None;
        self.receiving = Receiving::Interrupts;
        if found_some && self.are_looked_for {
            self.arrivals.begin(RECEIVER, self.received, hart);
            self.last_look.begin(self.now_ticks);
            (self.waits_on, self.has_waited, self.is_late) = (hart, true, false);
            self.receiving = Receiving::Waits;
            self.arm(hart, self.last_look.due_ticks(BOUNDS.latest_ticks));
        }
    }

    fn arm(&mut self, hart: usize, ticks: u64) {
        self.clocks[hart] = self.clocks[hart].min(ticks);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Arrive => {
                self.arrived = self.arrived.wrapping_add(1);
                self.lies_since.get_or_insert(self.now_ticks);
                if self.receiving == Receiving::Interrupts {
                    self.interrupt();
                }
            }
            Step::Send(hart) => {
                self.asleep[hart] = false;
                self.published += 1;
                self.owed_since.get_or_insert(self.now_ticks);
                self.owed.owe(self.now_ticks);
                self.portion(hart);
            }
            Step::Portion(hart) => {
                self.asleep[hart] = false;
                self.receive(hart);
                self.portion(hart);
            }
            Step::User { hart, has_peers, ticks } => {
                self.asleep[hart] = false;
                self.receive(hart);
                self.portions[hart] = 0;
                if self.arrivals.is_awaited() {
                    let unseen_ticks = self.last_look.look(self.now_ticks);
                    let receiver = self.arrivals.look(self.arrived);
                    if self.wake(receiver) {
                        self.is_late = unseen_ticks > IN_TIME_TICKS;
                        let lay = self.now_ticks - self.lies_since.expect("there is a frame");
                        assert!(
                            lay <= unseen_ticks,
                            "found after {lay}, and looked for {unseen_ticks} ago"
                        );
                    }
                    self.receive(hart);
                }
                match self.owed.before_user_mode(self.now_ticks, has_peers, BOUNDS) {
                    BeforeUserMode::Nothing => {}
                    BeforeUserMode::Notify => self.notify(),
                    BeforeUserMode::InterruptBy(ticks) => self.arm(hart, ticks),
                }
                let until = self.now_ticks.saturating_add(ticks).min(self.clocks[hart]);
                self.pass(until.saturating_sub(self.now_ticks));
                self.receive(hart);
            }
            Step::Sleep(hart) => {
                if self.asleep[hart] {
                    return;
                }
                // A virtual CPU has left it.
                self.settle();
                self.receive(hart);
                self.portions[hart] = 0;
                let receiver = self.arrivals.begin_sleep(hart, self.arrived);
                if self.wake(receiver) {
                    self.receive(hart);
                } else {
                    self.asleep[hart] = true;
                    self.sleeps[hart] += 1;
                }
            }
        }
    }

    fn portion(&mut self, hart: usize) {
        self.pass(PORTION_TICKS);
        self.portions[hart] += 1;
        if self.portions[hart] >= PORTIONS {
            self.portions[hart] = 0;
            if self.owed.take_if_late(self.now_ticks, BOUNDS) {
                self.notify();
            }
        }
    }

    fn verify(&self, harts: usize) {
        assert_eq!(self.owed.is_owed(), self.owed_since.is_some(), "a notification is lost");
        assert_eq!(self.arrivals.is_awaited(), self.receiving == Receiving::Waits);
        let waits = self.receiving == Receiving::Waits;
        assert!(!waits || !self.asleep[self.waits_on], "the hart sleeps that looks for frames");
        assert!(
            self.owed_since.is_none() || self.asleep.contains(&false),
            "all harts sleep, and a notification is owed"
        );
        // A portion of each hart may be under way.
        let slack = harts as u64 * PORTION_TICKS;
        if let Some(since) = self.lies_since.filter(|_| waits) {
            let ticks = self.now_ticks - since;
            assert!(ticks <= BOUNDS.latest_ticks + slack, "a frame lies there for {ticks}");
        }
    }
}

fn steps(harts: usize) -> impl Strategy<Value = Vec<Step>> {
    let hart = || 0..harts;
    let step = prop_oneof![
        3 => hart().prop_map(Step::Send),
        3 => hart().prop_map(Step::Portion),
        4 => (hart(), any::<bool>(), 0..3000u64)
            .prop_map(|(hart, has_peers, ticks)| Step::User { hart, has_peers, ticks }),
        1 => hart().prop_map(Step::Sleep),
        5 => Just(Step::Arrive),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// Several harts: nothing is lost, and the hart that looks for frames does not sleep.
    #[test]
    fn nothing_is_lost_on_three_harts(steps in steps(3)) {
        let mut machine = Machine::new(3);
        for step in steps {
            machine.step(step);
            machine.verify(3);
        }
    }

    /// One hart: no notification is owed for longer than its bound, whatever the hart does.
    #[test]
    fn a_notification_is_owed_for_no_longer_than_its_bound(steps in steps(1)) {
        let mut machine = Machine::new(1);
        for step in steps {
            machine.step(step);
            machine.verify(1);
            if let Some(since) = machine.owed_since {
                let ticks = machine.now_ticks - since;
                prop_assert!(ticks <= BOUNDS.latest_ticks, "owed for {ticks} after {step:?}");
            }
        }
    }

    /// A hart that runs coroutines of the kernel only, for ever.
    #[test]
    fn a_busy_kernel_notifies(sends in prop::collection::vec(any::<bool>(), 0..300)) {
        let mut machine = Machine::new(1);
        for is_send in sends {
            machine.step(if is_send { Step::Send(0) } else { Step::Portion(0) });
            machine.verify(1);
            if let Some(since) = machine.owed_since {
                let ticks = machine.now_ticks - since;
                let most = BOUNDS.peers_ticks + PORTIONS * PORTION_TICKS;
                prop_assert!(ticks <= most, "owed for {ticks}");
            }
        }
    }
}

#[test]
fn the_clock_looks_when_no_hart_has() {
    let last_look = LastLook::new();
    last_look.begin(1000);
    assert_eq!(last_look.due_ticks(100), 1100);
    assert_eq!(last_look.look(1060), 60);
    assert_eq!(last_look.due_ticks(100), 1160);
    assert_eq!(last_look.look(1061), 1);
    last_look.begin(2000);
    assert_eq!(last_look.due_ticks(100), 2100);
    assert_eq!(last_look.look(1999), 0, "another hart began meanwhile");
}

#[test]
fn frames_are_looked_for_after_some_interrupts_without_sleep() {
    let mut busyness = Busyness::default();
    // How many interrupts it takes.
    let count = |busyness: &mut Busyness, hart, sleeps| {
        (0..).find(|_| busyness.interrupt(hart, sleeps)).unwrap()
    };
    assert_eq!(count(&mut busyness, 1, 1), Busyness::INTERRUPTS);
    assert!(busyness.interrupt(1, 1));
    assert!(!busyness.interrupt(1, 2), "the hart has slept");
    assert_eq!(count(&mut busyness, 1, 2), Busyness::INTERRUPTS - 1);
    assert!(!busyness.interrupt(2, 2), "it is another hart");
    // A program computes for long.
    busyness.waited(false);
    assert_eq!(count(&mut busyness, 2, 3), 2 * Busyness::INTERRUPTS);
    for _ in 0..100 {
        busyness.waited(false);
    }
    assert_eq!(count(&mut busyness, 2, 4), Busyness::INTERRUPTS_MAX);
    busyness.waited(true);
    assert_eq!(count(&mut busyness, 2, 5), Busyness::INTERRUPTS_MAX / 8 * 5);
    for _ in 0..40 {
        busyness.waited(true);
    }
    assert_eq!(count(&mut busyness, 2, 6), Busyness::INTERRUPTS);
}

/// A receiver that always has frames, beside programs that always run: it has half of the time, and
/// neither has the hart for long.
#[test]
fn a_flood_of_frames_has_half_of_the_time() {
    const MOST: u64 = 10_000;
    const REST: u64 = 1_000;
    const FRAMES: u64 = 70;
    let mut credit = Credit::new(MOST, REST);
    let (mut now, mut received, mut longest, mut since) = (0, 0, 0, 0);
    credit.begin(now);
    while now < 1_000_000 {
        now += FRAMES;
        received += FRAMES;
        longest = longest.max(now - since);
        if credit.spend(now) {
            now += REST;
            credit.rested(now);
            since = now;
        }
    }
    assert!(received <= now / 2 + MOST + now / REST * FRAMES, "{received} of {now}");
    assert!(received >= now / 2, "{received} of {now}");
    assert!((MOST..MOST + FRAMES).contains(&longest), "a burst is received at once: {longest}");
}

/// Whatever its portions and pauses are, the receiver has at most half of the time, apart from what
/// it may save up; and with half of the time it never rests.
#[test]
fn credit_is_time_of_others() {
    let mut credit = Credit::new(10_000, 1_000);
    let mut now = 5_000_000;
    for round in 0..10_000 {
        let length = 1 + round * 7919 % 900;
        credit.begin(now);
        now += length;
        assert!(!credit.spend(now), "round {round}");
        now += length;
    }
    // Nothing is saved up beyond the maximum, and others get what it has had beyond its share.
    now += 1_000_000;
    credit.begin(now);
    assert!(!credit.spend(now + 9_999));
    assert!(credit.spend(now + 10_000));
    // No one else wanted the hart: it goes on.
    credit.rested(now + 10_001);
    assert!(!credit.spend(now + 11_000));
    assert!(credit.spend(now + 11_001));
}
