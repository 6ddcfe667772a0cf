//! `cops_algorithms::arrivals`: no hart sleeps while the receiver waits, and no frame lies there
//! that neither interrupts nor is looked for.

use cops_algorithms::arrivals::Arrivals;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, AtomicU64, Ordering::*};
use loom::thread;

const RECEIVER: u64 = 7;

/// The card's count of frames, and how often the receiver was woken.
struct Card {
    arrivals: Arrivals,
    arrived: AtomicU16,
    wakes: AtomicU64,
}

impl Card {
    fn new() -> Arc<Self> {
        let (arrivals, arrived) = (Arrivals::new(), AtomicU16::new(0));
        Arc::new(Self { arrivals, arrived, wakes: AtomicU64::new(0) })
    }

    fn wake(&self, receiver: u64) -> bool {
        if receiver != 0 {
            assert_eq!(receiver, RECEIVER);
            self.wakes.fetch_add(1, SeqCst);
        }
        receiver != 0
    }

    /// Returns whether the hart sleeps.
    fn go_to_sleep(&self) -> bool {
        let is_woken = self.wake(self.arrivals.begin_sleep());
        if is_woken {
            self.arrivals.end_sleep(false);
        }
        !is_woken
    }

    fn enter_user_mode(&self) -> bool {
        self.arrivals.is_awaited() && self.wake(self.arrivals.look(self.arrived.load(Relaxed)))
    }

    fn clock(&self) -> bool {
        self.wake(self.arrivals.take())
    }

    fn wakes(&self) -> u64 {
        self.wakes.load(SeqCst)
    }
}

/// Runs `other` on a hart of its own, and `one`, and passes what they return to `verify`.
fn explore<A: 'static, B: 'static>(
    begin: impl Fn(&Card) + Send + Sync + 'static,
    one: impl Fn(&Card) -> A + Send + Sync + 'static,
    other: impl Fn(&Card) -> B + Send + Sync + 'static,
    verify: impl Fn(&Card, A, B) + Send + Sync + 'static,
) {
    let other = std::sync::Arc::new(other);
    loom::model(move || {
        let card = Card::new();
        begin(&card);
        let (on_other, other) = (card.clone(), other.clone());
        let hart = thread::spawn(move || other(&on_other));
        let result = one(&card);
        let others = hart.join().unwrap();
        verify(&card, result, others);
    });
}

fn waits(card: &Card) {
    assert!(card.arrivals.begin(RECEIVER, 0));
}

/// Rule 1.
#[test]
fn begin_against_sleep() {
    explore(
        |_| {},
        |card| card.arrivals.begin(RECEIVER, 0),
        Card::go_to_sleep,
        |card, begins, sleeps| {
            assert!(!(begins && sleeps) || !card.arrivals.is_awaited(), "a hart sleeps meanwhile");
            assert!(sleeps || card.wakes() == 1, "it stays awake for a receiver that is not woken");
            assert!(begins || !card.arrivals.is_awaited(), "it is looked for and not there");
        },
    );
}

/// A hart wakes up while the receiver begins to wait. Either is right; nothing is left behind.
#[test]
fn begin_against_end_of_sleep() {
    explore(
        |card| assert!(card.go_to_sleep()),
        |card| card.arrivals.begin(RECEIVER, 0),
        |card| card.arrivals.end_sleep(true),
        |card, begins, ()| {
            assert_eq!(card.arrivals.is_awaited(), begins);
            assert!(card.go_to_sleep() != begins, "a receiver that waits is woken");
        },
    );
}

/// A frame comes while the receiver begins to wait, and a hart looks. If that look does not see it,
/// the next one does.
#[test]
fn begin_against_look() {
    explore(
        |_| {},
        |card| card.arrivals.begin(RECEIVER, 0),
        |card| {
            card.arrived.store(1, Relaxed);
            card.enter_user_mode()
        },
        |card, begins, is_woken| {
            assert!(begins);
            assert!(is_woken != card.enter_user_mode(), "the frame is seen once");
            assert_eq!(card.wakes(), 1);
        },
    );
}

/// A look that meets a receiver that begins again may wake it in vain. It does not leave it asleep
/// with a frame.
#[test]
fn begin_again_against_look() {
    explore(
        |card| {
            waits(card);
            card.arrived.store(1, SeqCst);
        },
        |card| {
            card.arrivals.end();
            card.arrivals.begin(RECEIVER, 1)
        },
        Card::enter_user_mode,
        |card, begins, is_woken| {
            assert!(begins);
            card.arrived.store(2, SeqCst);
            assert!(is_woken && !card.arrivals.is_awaited() || card.enter_user_mode());
        },
    );
}

#[test]
fn begin_against_clock() {
    explore(
        |_| {},
        |card| card.arrivals.begin(RECEIVER, 0),
        Card::clock,
        |card, begins, is_woken| assert!(begins && (is_woken != card.clock())),
    );
}

#[test]
fn end_against_look() {
    explore(
        |card| {
            waits(card);
            card.arrived.store(1, SeqCst);
        },
        |card| card.arrivals.end(),
        Card::enter_user_mode,
        |card, (), _| assert!(!card.arrivals.is_awaited()),
    );
}

#[test]
fn end_against_sleep() {
    explore(
        waits,
        |card| card.arrivals.end(),
        Card::go_to_sleep,
        |card, (), _| assert!(!card.arrivals.is_awaited()),
    );
}

/// Of two harts that take the receiver, one wakes it.
fn taken_once(one: fn(&Card) -> bool, other: fn(&Card) -> bool) {
    explore(
        |card| {
            waits(card);
            card.arrived.store(1, SeqCst);
        },
        one,
        other,
        |card, _, _| assert_eq!(card.wakes(), 1),
    );
}

#[test]
fn look_against_look() {
    taken_once(Card::enter_user_mode, Card::enter_user_mode);
}

#[test]
fn look_against_sleep() {
    taken_once(Card::enter_user_mode, Card::go_to_sleep);
}

#[test]
fn look_against_clock() {
    taken_once(Card::enter_user_mode, Card::clock);
}

#[test]
fn sleep_against_clock() {
    taken_once(Card::go_to_sleep, Card::clock);
}

/// Both harts would sleep: one of them stays awake for the receiver.
#[test]
fn sleep_against_sleep() {
    explore(waits, Card::go_to_sleep, Card::go_to_sleep, |card, one, other| {
        assert!(one != other);
        assert_eq!(card.wakes(), 1);
    });
}
