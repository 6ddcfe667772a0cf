//! `cops_algorithms::arrivals`: the hart of a receiver that waits does not sleep, and no frame lies
//! there that neither interrupts nor is looked for.

use cops_algorithms::arrivals::Arrivals;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, AtomicU64, Ordering::*};
use loom::thread;

const RECEIVER: u64 = 7;
/// The harts: where the receiver begins to wait, and another one.
const HART: usize = 0;
const OTHER: usize = 1;

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
    fn go_to_sleep(&self, hart: usize) -> bool {
        !self.wake(self.arrivals.begin_sleep(hart, self.arrived.load(Relaxed)))
    }

    /// The other hart goes to sleep.
    fn leave(&self) -> bool {
        self.go_to_sleep(OTHER)
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
    card.arrivals.begin(RECEIVER, 0, HART);
}

/// Rule 1: whatever another hart that goes to sleep has seen, the frame is looked for by the hart
/// of the receiver, which does not sleep.
#[test]
fn begin_against_sleep() {
    explore(
        |_| {},
        |card| {
            waits(card);
            card.go_to_sleep(HART)
        },
        |card| {
            card.arrived.store(1, Relaxed);
            card.leave()
        },
        |card, sleeps, other_sleeps| {
            assert!(!card.arrivals.is_awaited(), "its hart sleeps meanwhile");
            assert_eq!(card.wakes(), 1);
            assert!(sleeps != other_sleeps, "one of them stays awake for the receiver");
        },
    );
}

/// The receiver begins again on another hart while its first one goes to sleep.
#[test]
fn begin_elsewhere_against_sleep() {
    explore(
        |card| {
            waits(card);
            card.arrivals.end();
        },
        |card| {
            card.arrivals.begin(RECEIVER, 0, OTHER);
            card.go_to_sleep(OTHER)
        },
        |card| card.go_to_sleep(HART),
        |card, sleeps, first_sleeps| {
            assert!(!card.arrivals.is_awaited());
            assert!(sleeps != first_sleeps && card.wakes() == 1);
        },
    );
}

/// A frame comes while the receiver begins to wait, and a hart looks. If that look does not see it,
/// the next one does.
#[test]
fn begin_against_look() {
    explore(
        |_| {},
        waits,
        |card| {
            card.arrived.store(1, Relaxed);
            card.enter_user_mode()
        },
        |card, (), is_woken| {
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
            card.arrivals.begin(RECEIVER, 1, HART);
        },
        Card::enter_user_mode,
        |card, (), is_woken| {
            card.arrived.store(2, SeqCst);
            assert!(is_woken && !card.arrivals.is_awaited() || card.enter_user_mode());
        },
    );
}

#[test]
fn begin_against_clock() {
    explore(|_| {}, waits, Card::clock, |card, (), is_woken| assert!(is_woken != card.clock()));
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
        |card| card.go_to_sleep(HART),
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
    taken_once(Card::enter_user_mode, |card| card.go_to_sleep(HART));
    taken_once(Card::enter_user_mode, Card::leave);
}

#[test]
fn look_against_clock() {
    taken_once(Card::enter_user_mode, Card::clock);
}

#[test]
fn sleep_against_clock() {
    taken_once(|card| card.go_to_sleep(HART), Card::clock);
    taken_once(Card::leave, Card::clock);
}

/// Both harts would sleep: one of them stays awake for the receiver, its own one if no frame comes.
#[test]
fn sleep_against_sleep() {
    explore(
        waits,
        |card| card.go_to_sleep(HART),
        Card::leave,
        |card, sleeps, other_sleeps| {
            assert!(!sleeps && other_sleeps);
            assert_eq!(card.wakes(), 1);
        },
    );
}

fn rests(card: &Card) {
    card.arrivals.begin_rest(RECEIVER, HART);
}

/// Rule 4: a receiver that rests knows of the frames, so a look leaves it alone.
#[test]
fn rest_against_look() {
    explore(
        |card| card.arrived.store(1, SeqCst),
        rests,
        Card::enter_user_mode,
        |card, (), _| {
            // A look may see it and not yet that it rests: then it receives on.
            assert_eq!(card.wakes() == 0, card.arrivals.is_awaited());
            assert!(!card.enter_user_mode());
        },
    );
}

/// Whichever hart has nothing else to do takes it, once.
#[test]
fn rest_against_sleep() {
    for sleeper in [HART, OTHER] {
        explore(
            |card| card.arrived.store(1, SeqCst),
            move |card| {
                rests(card);
                card.go_to_sleep(HART)
            },
            move |card| card.go_to_sleep(sleeper),
            |card, sleeps, other_sleeps| {
                assert!(!card.arrivals.is_awaited() && card.wakes() == 1);
                assert!(sleeps != other_sleeps);
            },
        );
    }
}

#[test]
fn rest_is_taken_once() {
    for one in [Card::leave, Card::clock, |card: &Card| card.go_to_sleep(HART)] {
        for other in [Card::leave, Card::clock] {
            explore(rests, one, other, |card, _, _| {
                assert!(card.wakes() == 1 && !card.arrivals.is_awaited());
            });
        }
    }
}

/// It waits for frames after a rest: no look mistakes the one for the other for ever.
#[test]
fn begin_after_rest_against_look() {
    explore(
        |card| {
            rests(card);
            card.arrivals.end();
        },
        waits,
        |card| {
            card.arrived.store(1, SeqCst);
            card.enter_user_mode()
        },
        |card, (), is_woken| assert!(is_woken != card.enter_user_mode() && card.wakes() == 1),
    );
}
