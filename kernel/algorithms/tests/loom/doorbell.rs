//! `cops_algorithms::doorbell`: when all harts are done, the device has been notified of each
//! frame.

use cops_algorithms::doorbell::{BeforeUserMode, Bounds, Owed};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::*};
use loom::thread;

const BOUNDS: Bounds = Bounds { peers_ticks: 100, latest_ticks: 1000 };

/// Frames of two harts. A device that is notified sees those that are visible to the hart which
/// notifies it. Nothing else orders them: the accesses are relaxed.
struct Card {
    owed: Owed,
    published: [AtomicU64; 2],
    seen: [AtomicU64; 2],
}

impl Card {
    fn new() -> Arc<Self> {
        let zeros = || [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Self { owed: Owed::new(), published: zeros(), seen: zeros() })
    }

    fn publish(&self, hart: usize, now_ticks: u64) {
        self.published[hart].store(1, Relaxed);
        self.owed.owe(now_ticks);
    }

    fn notify(&self) {
        for (published, seen) in self.published.iter().zip(&self.seen) {
            seen.fetch_max(published.load(Relaxed), Relaxed);
        }
    }

    /// Before sleep, at a clock interrupt.
    fn settle(&self) {
        if self.owed.is_owed() && self.owed.take() {
            self.notify();
        }
    }

    fn enter_user_mode(&self, now_ticks: u64, has_peers: bool) -> Option<u64> {
        match self.owed.before_user_mode(now_ticks, has_peers, BOUNDS) {
            BeforeUserMode::Nothing => None,
            BeforeUserMode::Notify => {
                self.notify();
                None
            }
            BeforeUserMode::InterruptBy(ticks) => Some(ticks),
        }
    }

    /// All harts are done.
    fn verify(&self) {
        assert!(!self.owed.is_owed(), "a notification is still owed");
        for (published, seen) in self.published.iter().zip(&self.seen) {
            assert_eq!(published.load(SeqCst), seen.load(SeqCst), "a notification is lost");
        }
    }
}

/// Runs the two on a hart each.
fn explore(
    one: impl Fn(&Card) + Send + Sync + 'static,
    other: impl Fn(&Card) + Send + Sync + 'static,
) {
    let (one, other) = (std::sync::Arc::new(one), std::sync::Arc::new(other));
    loom::model(move || {
        let card = Card::new();
        let (on_other, other) = (card.clone(), other.clone());
        let hart = thread::spawn(move || other(&on_other));
        one(&card);
        hart.join().unwrap();
        card.verify();
    });
}

/// Both owe; each settles before it sleeps.
#[test]
fn owe_against_owe() {
    let hart = |number| {
        move |card: &Card| {
            card.publish(number, 5);
            card.settle();
        }
    };
    explore(hart(0), hart(1));
}

/// One owes while the other takes what it has owed before.
#[test]
fn owe_against_take() {
    explore(
        |card| {
            card.publish(0, 5);
            card.publish(1, 6);
            card.settle();
        },
        Card::settle,
    );
}

/// One owes, and computes in user mode until the clock interrupts it, while the other enters user
/// mode.
#[test]
fn owe_against_user_mode() {
    for has_peers in [false, true] {
        explore(
            move |card| {
                card.publish(0, 5);
                if let Some(ticks) = card.enter_user_mode(6, true) {
                    assert!(ticks <= 5 + BOUNDS.latest_ticks, "the clock comes too late");
                    card.settle();
                }
            },
            move |card| {
                if let Some(ticks) = card.enter_user_mode(7, has_peers) {
                    assert!(has_peers && ticks <= 5 + BOUNDS.latest_ticks);
                }
            },
        );
    }
}

/// Two harts take the same notification: one of them gives it.
#[test]
fn take_against_take() {
    explore(
        |card| {
            card.publish(0, 5);
            card.settle();
        },
        |card| {
            card.settle();
            card.settle();
        },
    );
}

/// A hart that sleeps against one that enters user mode with the notification that both owe.
#[test]
fn take_against_user_mode() {
    explore(
        |card| {
            card.publish(0, 5);
            card.settle();
        },
        |card| {
            card.publish(1, 5);
            // It is owed for as long as it may be.
            assert_eq!(card.enter_user_mode(5 + BOUNDS.peers_ticks, true), None);
        },
    );
}

#[test]
fn user_mode_against_user_mode() {
    let hart = |number| {
        move |card: &Card| {
            card.publish(number, 5);
            assert_eq!(card.enter_user_mode(6, false), None);
        }
    };
    explore(hart(0), hart(1));
}

/// A hart that runs only coroutines of the kernel takes what is late.
#[test]
fn late_take_against_owe() {
    explore(
        |card| {
            card.publish(0, 5);
            if card.owed.take_if_late(5 + BOUNDS.peers_ticks, BOUNDS) {
                card.notify();
            }
        },
        |card| {
            card.publish(1, 6);
            card.settle();
        },
    );
}
