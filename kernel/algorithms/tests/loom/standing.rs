//! `cops_algorithms::standing`: one that runs is not shown as paused, the executor has the level
//! that is remembered, and what becomes more urgent while it begins a pause is raised.

use cops_abi::Priority;
use cops_algorithms::standing::{Cell, Level, Pauses, Standing};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::*, fence};
use loom::thread;

fn level(level: u32) -> Priority {
    Priority::saturating(level)
}

/// A switching coroutine, and its level in the executor.
struct Switcher {
    standing: Cell,
    remembered: Level,
    executor: AtomicU32,
}

impl Switcher {
    /// One that is paused at level 20.
    fn paused() -> Arc<Self> {
        let standing = Cell::new();
        standing.set(Standing::Paused { priority: level(20) });
        Arc::new(Self { standing, remembered: Level::new(level(20)), executor: AtomicU32::new(20) })
    }

    fn set_level(&self, to: u32) {
        // The executor orders its changes of one coroutine.
        self.remembered
            .set(level(to), |level| _ = self.executor.swap(level.level().into(), SeqCst));
    }

    /// Another hart, under the run queue's lock.
    fn raise(&self, to: u32) {
        if self.standing.raise(level(to)) {
            self.set_level(to);
        }
    }

    /// Its own hart polls it, and enters user mode at this level.
    fn run(&self, at: u32) {
        self.standing.set(Standing::Running { hart: 1 });
        self.set_level(at);
    }

    fn pause(&self, at: u32) {
        self.set_level(at);
        self.standing.set(Standing::Paused { priority: level(at) });
    }

    /// The level that the executor has is what is remembered: setting it is no change.
    fn verify_level(&self) {
        let at = self.executor.load(SeqCst);
        self.remembered.set(level(at), |_| panic!("the executor has level {at}, not remembered"));
    }
}

fn explore(
    one: impl Fn(&Switcher) + Send + Sync + 'static,
    other: impl Fn(&Switcher) + Send + Sync + 'static,
    verify: impl Fn(&Switcher) + Send + Sync + 'static,
) {
    let (one, other) = (std::sync::Arc::new(one), std::sync::Arc::new(other));
    let verify = std::sync::Arc::new(verify);
    loom::model(move || {
        let switcher = Switcher::paused();
        let (on_other, other) = (switcher.clone(), other.clone());
        let hart = thread::spawn(move || other(&on_other));
        one(&switcher);
        hart.join().unwrap();
        switcher.verify_level();
        verify(&switcher);
    });
}

/// It begins to run while it is raised.
#[test]
fn one_that_runs_is_not_shown_as_paused() {
    explore(
        |own| own.run(20),
        |other| other.raise(5),
        |after| assert_eq!(after.standing.get(), Standing::Running { hart: 1 }),
    );
}

/// It runs at another level than the one to which it is raised.
#[test]
fn the_executor_has_the_level_of_the_last_change() {
    explore(|own| own.run(30), |other| other.raise(5), |_| ());
}

/// It runs and pauses again while it is raised.
#[test]
fn one_that_pauses_again_may_be_raised() {
    explore(
        |own| {
            own.run(30);
            own.pause(40);
        },
        |other| other.raise(5),
        |after| match after.standing.get() {
            Standing::Paused { priority } => assert!([5, 40].contains(&priority.level())),
            Standing::Running { .. } => panic!("it pauses last"),
        },
    );
}

/// Two harts raise it, one after the other in the order of the run queue's lock, while it runs.
#[test]
fn two_raises_meet_a_run() {
    explore(
        |own| own.run(20),
        |other| {
            other.raise(7);
            other.raise(3);
        },
        |after| assert_eq!(after.standing.get(), Standing::Running { hart: 1 }),
    );
}

/// It pauses while another virtual CPU of its process makes more urgent what it polls.
#[test]
fn a_pause_meets_one_that_makes_it_more_urgent() {
    loom::model(|| {
        let (pauses, polled) = (Arc::new(Pauses::new()), Arc::new(AtomicU32::new(20)));
        let (on_other, stored) = (pauses.clone(), polled.clone());
        let hart = thread::spawn(move || {
            stored.store(5, Relaxed);
            fence(SeqCst);
            on_other.any()
        });
        pauses.begin();
        let seen = polled.load(Relaxed);
        let raises = hart.join().unwrap();
        assert!(seen == 5 || raises, "it stays at {seen}");
        pauses.end();
        assert!(!pauses.any());
    });
}
