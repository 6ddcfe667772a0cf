//! Which worker is notified, which is interrupted, which steals: several workers driven by one
//! thread, the hooks replaced by a recorder, exact sequences.
#![allow(unsafe_code)]

mod common;

use std::future::{Future, pending, poll_fn};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use common::{Event, Host};
use cops_executor::core::NO_WORKER;
use cops_executor::*;

const WORKERS: usize = 3;

struct Rig {
    executor: &'static Executor,
    host: &'static Host,
    states: &'static [WorkerState; WORKERS],
}

fn rig(number: u8) -> Rig {
    rig_with(number, Host::hooks)
}

fn rig_without_interrupts(number: u8) -> Rig {
    rig_with(number, |host| Hooks { preempt: None, ..host.hooks() })
}

fn rig_with(number: u8, hooks: fn(&Host) -> Hooks) -> Rig {
    let executor: &'static Executor = Box::leak(Box::new(Executor::with_number(number)));
    let host: &'static Host = Box::leak(Host::new());
    let states: &'static [WorkerState; WORKERS] = Box::leak(Box::default());
    // SAFETY: the hooks do what they should, and live for ever.
    unsafe { executor.start(&hooks(host)) }.unwrap();
    for (worker, state) in states.iter().enumerate() {
        executor.add_worker(worker as u32, state).unwrap();
    }
    Rig { executor, host, states }
}

fn level(level: u8) -> Priority {
    Priority::new(level).unwrap()
}

impl Rig {
    /// A coroutine that is blocked, having run on `worker`.
    fn sleeper(&self, worker: u32, priority: Priority) -> CoroutineId {
        let id = self.executor.spawn(pending(), priority).unwrap();
        self.executor.run_until_stalled(worker);
        self.host.take_events();
        id
    }

    /// Runs `inside` in a coroutine on `worker`, and returns the events meanwhile.
    fn events_inside(
        &self,
        worker: u32,
        priority: Priority,
        inside: impl Future<Output = ()> + Send + 'static,
    ) -> Vec<Event> {
        let (events, host) = (Arc::new(Mutex::new(None)), self.host);
        let out = events.clone();
        let observed = async move {
            host.take_events();
            inside.await;
            *out.lock().unwrap() = Some(host.take_events());
        };
        self.executor.spawn(observed, priority).unwrap();
        assert_eq!(self.executor.run(worker, 1), RunOutcome::BudgetUsed);
        events.lock().unwrap().take().expect("it was not run first")
    }
}

#[test]
fn a_parked_target_is_notified_once_for_each_time_it_parks() {
    let rig = rig(40);
    let id = rig.sleeper(1, Priority::DEFAULT);
    assert!(rig.executor.prepare_park(1));
    assert_eq!(rig.states[1].phase.load(std::sync::atomic::Ordering::Relaxed), 2);
    // Woken from outside, it goes back to where it ran.
    wake_up(id);
    assert_eq!(rig.host.take_events(), [Event::Notify(1)]);
    wake_up(id);
    assert_eq!(rig.host.take_events(), []);
    rig.executor.finish_park(1);
    assert!(!rig.executor.prepare_park(1), "something is ready");
    assert_eq!(rig.executor.run_until_stalled(1), RunOutcome::Stalled);
    assert!(rig.executor.prepare_park(1));
    wake_up(id);
    assert_eq!(rig.host.take_events(), [Event::Notify(1)]);
}

#[test]
fn no_worker_parks_while_anything_is_ready_anywhere() {
    let rig = rig(41);
    let id = rig.sleeper(0, Priority::DEFAULT);
    assert!(rig.executor.prepare_park(2));
    rig.executor.finish_park(2);
    // In an inbox.
    wake_up(id);
    assert!(!rig.executor.prepare_park(2));
    // In a list.
    rig.executor.run(0, 0);
    assert!(!rig.executor.prepare_park(2));
    // Being polled is not being ready.
    rig.executor.run_until_stalled(2);
    let executor = rig.executor;
    rig.events_inside(0, Priority::DEFAULT, async move {
        assert!(executor.prepare_park(2));
        executor.finish_park(2);
    });
}

#[test]
fn a_worker_that_leaves_gives_all_to_its_heir_in_order() {
    let rig = rig_without_interrupts(30);
    rig.executor.rely_on_offers();
    let order: Arc<Mutex<Vec<u8>>> = Arc::default();
    let spawn = |name: u8, at: u8| {
        let order = order.clone();
        rig.executor.spawn(async move { order.lock().unwrap().push(name) }, level(at)).unwrap();
    };
    (0..100).for_each(|name| spawn(name, 32));
    rig.executor.run(0, 0);
    // In the inbox.
    (100..110).for_each(|name| spawn(name, 5));
    assert!(!rig.executor.prepare_park(0), "there is work");
    assert!(rig.executor.prepare_leave(0, 1));
    assert_eq!((rig.states[0].waiting(), rig.states[1].waiting()), (0, 1 << 5 | 1 << 32));
    assert_eq!(rig.host.take_events(), [], "the heir is awake");
    rig.executor.run_until_stalled(1);
    let expected: Vec<u8> = (100..110).chain(0..100).collect();
    assert_eq!(*order.lock().unwrap(), expected);
    rig.executor.finish_park(0);
}

#[test]
fn a_worker_that_has_left_is_notified_of_what_becomes_ready_there() {
    let rig = rig_without_interrupts(33);
    rig.executor.rely_on_offers();
    let id = rig.sleeper(0, Priority::DEFAULT);
    assert!(rig.executor.prepare_leave(0, 1));
    wake_up(id);
    assert_eq!(rig.host.take_events(), [Event::Notify(0)]);
    rig.executor.finish_park(0);
    assert_eq!(rig.executor.run_until_stalled(0), RunOutcome::Stalled);
}

#[test]
fn an_heir_that_sleeps_is_notified() {
    let rig = rig_without_interrupts(31);
    rig.executor.rely_on_offers();
    let id = rig.sleeper(0, Priority::DEFAULT);
    let executor = rig.executor;
    let events = rig.events_inside(0, Priority::DEFAULT, async move {
        assert!(executor.prepare_park(1));
        wake_up(id);
    });
    assert_eq!(events, [], "worker 0 is in run");
    assert!(rig.executor.prepare_leave(0, 1));
    assert_eq!(rig.host.take_events(), [Event::Notify(1)]);
    rig.executor.finish_park(1);
    let other = rig.sleeper(1, Priority::DEFAULT);
    let events = rig.events_inside(1, Priority::DEFAULT, async move {
        wake_up(other);
    });
    assert_eq!(events, [], "worker 1 is awake");
    rig.executor.finish_park(0);
}

#[test]
fn a_worker_leaves_nothing_that_is_more_urgent_than_the_poll_of_its_heir() {
    let rig = rig_without_interrupts(34);
    rig.executor.rely_on_offers();
    for (waiting, leaves) in [(31, false), (32, true)] {
        let id = rig.sleeper(0, level(waiting));
        let executor = rig.executor;
        rig.events_inside(1, level(32), async move {
            executor.core().wake(id.raw(), NO_WORKER);
            assert_eq!(executor.prepare_leave(0, 1), leaves, "level {waiting}");
            executor.finish_park(0);
        });
        rig.executor.run_until_stalled(1);
    }
}

#[test]
fn a_worker_does_not_leave_without_an_heir_or_when_it_shall_stop() {
    let rig = rig_without_interrupts(32);
    rig.executor.rely_on_offers();
    for heir in [0, WORKERS as u32, NO_WORKER] {
        assert!(!rig.executor.prepare_leave(0, heir));
    }
    rig.executor.request_stop(true);
    assert!(!rig.executor.prepare_leave(0, 1));
    rig.executor.request_stop(false);
    assert!(rig.executor.prepare_leave(0, 1), "also with nothing");
    rig.executor.finish_park(0);
}

#[test]
fn the_first_wake_on_ones_own_worker_notifies_no_other_and_the_second_calls_a_parked_one() {
    let rig = rig(42);
    let (first, second) = (rig.sleeper(0, Priority::DEFAULT), rig.sleeper(0, Priority::DEFAULT));
    let third = rig.sleeper(0, Priority::DEFAULT);
    let (executor, host) = (rig.executor, rig.host);
    let events = rig.events_inside(0, Priority::DEFAULT, async move {
        assert!(executor.prepare_park(1) && executor.prepare_park(2));
        wake_up(first);
        assert_eq!(host.take_events(), []);
        wake_up(second);
        assert_eq!(host.take_events(), [Event::Notify(1)]);
        wake_up(third);
    });
    assert_eq!(events, [], "worker 1 is about to look, and calls the next if there is more");
    // It does, when it begins the first.
    executor.finish_park(1);
    executor.run(1, 1);
    assert_eq!(rig.host.take_events(), [Event::Notify(2)]);
}

/// With the hook `preempt`, as the kernel, and without, as its programs.
#[test]
fn an_executor_that_relies_on_offers_notifies_only_the_worker_that_something_waits_on() {
    for rig in [rig(55), rig_without_interrupts(56)] {
        let (executor, host) = (rig.executor, rig.host);
        executor.rely_on_offers();
        let sleepers = [0, 0, 0].map(|worker| rig.sleeper(worker, Priority::DEFAULT));
        let on_parked = rig.sleeper(1, Priority::DEFAULT);
        let events = rig.events_inside(0, Priority::DEFAULT, async move {
            assert!(executor.prepare_park(1) && executor.prepare_park(2));
            assert!(executor.core().any_asleep());
            for sleeper in sleepers {
                wake_up(sleeper);
            }
            assert_eq!(host.take_events(), [], "the host offers what waits");
            executor.offer(0);
        });
        assert_eq!(events, [Event::Notify(1)]);
        assert!(executor.core().any_asleep(), "worker 2");
        // The one that comes does not notify the next one either.
        executor.finish_park(1);
        executor.run(1, 1);
        assert_eq!(host.take_events(), []);
        executor.offer(NO_WORKER);
        assert_eq!(host.take_events(), [Event::Notify(2)]);
        assert!(!executor.core().any_asleep());
        // What waits on a parked worker notifies it at once.
        rig.executor.finish_park(2);
        while rig.executor.run_until_stalled(0) != RunOutcome::Stalled {}
        assert!(executor.prepare_park(1));
        wake_up(on_parked);
        assert_eq!(host.take_events(), [Event::Notify(1)]);
    }
}

#[test]
fn what_becomes_ready_on_a_worker_that_is_left_alone_notifies_another_one() {
    for rig in [rig(57), rig_without_interrupts(58)] {
        let (executor, host) = (rig.executor, rig.host);
        executor.rely_on_offers();
        let [runs, first, second] = [0, 0, 0].map(|worker| rig.sleeper(worker, Priority::DEFAULT));
        let wake = |id: CoroutineId, here| executor.core().wake(id.raw(), here);
        let events = rig.events_inside(0, Priority::MOST_URGENT, async move {
            assert!(executor.prepare_park(1));
            executor.core().wake(runs.raw(), NO_WORKER);
        });
        assert!(!events.contains(&Event::Notify(1)), "worker 0 is in run: {events:?}");
        executor.finish_park(1);
        rig.executor.run_until_stalled(0);
        assert!(executor.prepare_park(1));
        host.take_events();
        // By itself, as in an interrupt handler between two calls of run.
        wake(runs, 0);
        assert_eq!(host.take_events(), [], "worker 0 is here");
        wake(first, NO_WORKER);
        assert_eq!(host.take_events(), [Event::Notify(1)]);
        wake(second, 2);
        assert_eq!(host.take_events(), [], "worker 1 looks everywhere");
    }
}

#[test]
fn without_interrupts_the_first_wake_in_a_poll_calls_a_parked_worker_that_is_not_quiet() {
    let rig = rig_without_interrupts(37);
    let (executor, host) = (rig.executor, rig.host);
    let sleepers = [0, 0, 0].map(|worker| rig.sleeper(worker, Priority::DEFAULT));
    let events = rig.events_inside(0, Priority::DEFAULT, async move {
        executor.set_quiet(1, true);
        assert!(executor.prepare_park(1));
        wake_up(sleepers[0]);
        assert_eq!(host.take_events(), [], "worker 1 looks by itself before long");
        // The second calls it all the same.
        wake_up(sleepers[1]);
    });
    assert_eq!(events, [Event::Notify(1)]);
    executor.finish_park(1);
    executor.set_quiet(1, false);
    rig.executor.run_until_stalled(0);
    let events = rig.events_inside(0, Priority::DEFAULT, async move {
        assert!(executor.prepare_park(1) && executor.prepare_park(2));
        wake_up(sleepers[0]);
        assert_eq!(host.take_events(), [Event::Notify(1)], "this poll may be long");
        wake_up(sleepers[1]);
        executor.spawn(async {}, Priority::MOST_URGENT).unwrap();
    });
    assert_eq!(events, [], "one that looks is enough");
}

#[test]
fn a_burst_of_spawns_notifies_one_worker_and_each_calls_the_next() {
    let rig = rig_without_interrupts(36);
    let executor = rig.executor;
    let events = rig.events_inside(0, Priority::DEFAULT, async move {
        assert!(executor.prepare_park(1) && executor.prepare_park(2));
        for _ in 0..100 {
            executor.spawn(async {}, Priority::DEFAULT).unwrap();
        }
    });
    assert_eq!(events, [Event::Notify(1)]);
    assert!(executor.finish_park(1), "it was notified");
    executor.run(1, 1);
    assert_eq!(rig.host.take_events(), [Event::Notify(2)]);
    // All are called; there is none left for the third.
    executor.finish_park(2);
    executor.run(2, 1);
    assert_eq!(rig.host.take_events(), []);
}

#[test]
fn a_worker_that_leaves_passes_on_what_it_was_notified_for() {
    let rig = rig(35);
    let executor = rig.executor;
    assert!(executor.prepare_park(1) && executor.prepare_park(2));
    executor.spawn(async {}, Priority::DEFAULT).unwrap();
    assert_eq!(rig.host.take_events(), [Event::Notify(1)]);
    // Its thread goes elsewhere.
    executor.finish_park(1);
    executor.offer(NO_WORKER);
    assert_eq!(rig.host.take_events(), [Event::Notify(2)]);
}

#[test]
fn a_coroutine_spawned_by_no_worker_goes_to_a_parked_one() {
    let rig = rig(39);
    assert!(rig.executor.prepare_park(2));
    rig.executor.spawn(async {}, Priority::DEFAULT).unwrap();
    assert_eq!(rig.host.take_events(), [Event::Notify(2)]);
    assert_ne!(rig.states[2].waiting(), 0);
}

#[test]
fn the_last_exit_wakes_those_that_wait_for_it() {
    let rig = rig(38);
    let (executor, host) = (rig.executor, rig.host);
    let two = (0..2).map(|_| async move {
        assert!(executor.prepare_park(1));
        host.take_events();
    });
    for one in two {
        rig.executor.spawn(one, Priority::DEFAULT).unwrap();
    }
    rig.executor.run(0, 1);
    assert_eq!(rig.host.take_events(), [], "one is left");
    rig.executor.run(0, 1);
    assert_eq!(rig.executor.live_count(), 0);
    assert_eq!(rig.host.take_events(), [Event::Notify(1)]);
}

#[test]
fn offer_calls_a_parked_one_only_if_something_waits() {
    let rig = rig(43);
    let id = rig.sleeper(0, Priority::DEFAULT);
    let (executor, host) = (rig.executor, rig.host);
    let events = rig.events_inside(0, Priority::DEFAULT, async move {
        assert!(executor.prepare_park(1));
        executor.offer(0);
        assert_eq!(host.take_events(), []);
        wake_up(id);
        assert_eq!(host.take_events(), []);
        executor.offer(0);
    });
    assert_eq!(events, [Event::Notify(1)]);
}

#[test]
fn a_waker_that_is_no_worker_calls_a_parked_one_if_the_target_is_not() {
    let rig = rig(44);
    let id = rig.sleeper(0, Priority::DEFAULT);
    assert!(rig.executor.prepare_park(2));
    // Worker 0 is not parked, but there is no bound on when it will look.
    wake_up(id);
    assert_eq!(rig.host.take_events(), [Event::Notify(2)]);
}

#[test]
fn the_worker_with_the_least_urgent_poll_is_interrupted_if_none_is_parked() {
    let rig = rig(45);
    let urgent = rig.sleeper(0, level(5));
    let weak = rig.sleeper(0, level(60));
    let host = rig.host;
    let executor = rig.executor;
    let seen: Arc<Mutex<Vec<Vec<Event>>>> = Arc::default();
    let out = seen.clone();
    // Worker 2 polls at 50, inside that worker 1 at 40, inside that worker 0 at 3, which wakes.
    let innermost = async move {
        host.take_events();
        let record = || out.lock().unwrap().push(host.take_events());
        wake_up(weak);
        record();
        wake_up(urgent);
        record();
        set_priority(urgent, level(45));
        record();
        set_priority(urgent, level(55));
        record();
    };
    let nested = async move {
        executor.spawn(innermost, level(3)).unwrap();
        assert_eq!(executor.run(0, 1), RunOutcome::BudgetUsed);
    };
    let middle = async move {
        executor.spawn(nested, level(40)).unwrap();
        assert_eq!(executor.run(1, 1), RunOutcome::BudgetUsed);
    };
    rig.events_inside(2, level(50), middle);
    let interrupted = vec![Event::Preempt(2)];
    // At 60 and at 55 no worker runs anything less urgent.
    assert_eq!(*seen.lock().unwrap(), [vec![], interrupted.clone(), interrupted, vec![]]);
}

#[test]
fn a_worker_that_runs_the_least_urgent_itself_needs_no_interrupt() {
    let rig = rig(46);
    let id = rig.sleeper(0, level(5));
    let events = rig.events_inside(0, level(60), async move {
        wake_up(id);
    });
    assert_eq!(events, []);
}

#[test]
fn a_running_coroutine_shows_its_new_priority_at_once() {
    let rig = rig(47);
    let state = &rig.states[0];
    rig.events_inside(0, level(60), async move {
        assert_eq!(state.current_priority(), Some(level(60)));
        set_priority(current().unwrap(), level(7));
        assert_eq!(state.current_priority(), Some(level(7)));
    });
    assert_eq!(state.current_priority(), None);
}

#[test]
fn a_running_coroutine_shows_what_others_lend_to_it_until_they_take_it_back() {
    let rig = rig(60);
    let (core, state) = (rig.executor.core(), &rig.states[0]);
    rig.events_inside(0, level(60), async move {
        let id = current().unwrap().raw();
        // As on another worker, and on none.
        for here in [1, NO_WORKER] {
            assert!(core.set_inherited(id, 7, here));
            assert_eq!(state.current_priority(), Some(level(7)), "lent by {here}");
            assert!(core.set_inherited(id, 63, here));
            assert_eq!(state.current_priority(), Some(level(60)), "taken back by {here}");
            assert!(core.set_priority(id, 9, here));
            assert_eq!(state.current_priority(), Some(level(9)), "set by {here}");
            assert!(core.set_priority(id, 60, here));
            assert_eq!(state.current_priority(), Some(level(60)), "set back by {here}");
        }
    });
    assert_eq!(state.current_priority(), None);
}

#[test]
fn workers_steal_what_is_more_urgent_or_anything_if_they_have_nothing() {
    let rig = rig(48);
    let log: Arc<Mutex<Vec<(u8, u32)>>> = Arc::default();
    // Spawned outside, with no worker parked, they go to worker 0.
    for priority in [20, 10, 30] {
        let log = log.clone();
        let logged = async move { log.lock().unwrap().push((priority, current_worker_of(48))) };
        rig.executor.spawn(logged, level(priority)).unwrap();
    }
    assert_eq!(current_worker_of(48), NO_WORKER);
    rig.executor.run(1, 1);
    assert_eq!(std::mem::take(&mut *log.lock().unwrap()), [(10, 1)]);
    rig.executor.run(0, 1);
    assert_eq!(std::mem::take(&mut *log.lock().unwrap()), [(20, 0)]);
    // Worker 2 has something of its own now, less urgent than what comes to worker 0.
    let (executor, inner) = (rig.executor, log.clone());
    rig.events_inside(2, level(5), async move {
        for priority in [40, 50] {
            let inner = inner.clone();
            let logged =
                async move { inner.lock().unwrap().push((priority, current_worker_of(48))) };
            executor.spawn(logged, level(priority)).unwrap();
        }
    });
    rig.executor.run_until_stalled(2);
    assert_eq!(std::mem::take(&mut *log.lock().unwrap()), [(30, 2), (40, 2), (50, 2)]);
    assert_eq!(rig.states[2].steals.load(std::sync::atomic::Ordering::Relaxed), 2);
}

/// A worker that is parked publishes nothing, and is not looked at. One that was notified has
/// something, and may take long to wake up.
#[test]
fn what_a_notified_worker_has_not_begun_is_taken_if_it_is_more_urgent() {
    for rig in [rig(53), rig_without_interrupts(54)] {
        let log: Arc<Mutex<Vec<&str>>> = Arc::default();
        let inner = log.clone();
        let urgent = async move {
            let mut is_first = true;
            poll_fn(
                |_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) },
            )
            .await;
            inner.lock().unwrap().push("urgent");
        };
        let urgent = rig.executor.spawn(urgent, level(5)).unwrap();
        rig.executor.run_until_stalled(1);
        assert!(rig.executor.prepare_park(1));
        let inner = log.clone();
        let waker = async move {
            // From outside, it goes to the worker on which it has run.
            std::thread::spawn(move || wake_up(urgent)).join().unwrap();
            for _ in 0..3 {
                inner.lock().unwrap().push("waker");
                yield_now().await;
            }
        };
        rig.executor.spawn(waker, level(40)).unwrap();
        rig.executor.run(0, 3);
        assert_eq!(*log.lock().unwrap(), ["waker", "urgent", "waker"]);
        rig.executor.finish_park(1);
    }
}

#[test]
fn moving_a_coroutine_that_another_worker_took_meanwhile_loses_nothing() {
    let rig = rig(49);
    let log: Arc<Mutex<Vec<u32>>> = Arc::default();
    let inner = log.clone();
    let id = rig
        .executor
        .spawn(
            async move {
                inner.lock().unwrap().push(current_worker_of(49));
                yield_now().await;
                inner.lock().unwrap().push(current_worker_of(49));
            },
            level(20),
        )
        .unwrap();
    // Filed by worker 0, then moved while the request sits in worker 0's inbox and worker 1 steals:
    // it drains that inbox first, so the new level counts.
    rig.executor.run(0, 0);
    set_priority(id, level(10));
    rig.executor.run(1, 1);
    assert_eq!(priority(id), Some(level(10)));
    rig.executor.run_until_stalled(1);
    assert_eq!(*log.lock().unwrap(), [1, 1]);
    assert_eq!(rig.executor.live_count(), 0);
}

/// Woken at one level and moved to another before its worker filed it, a coroutine leaves a mark at
/// the first. A worker that comes for that mark must not leave with something less urgent than what
/// a third worker has.
#[test]
fn a_mark_of_a_former_priority_misleads_no_worker() {
    let rig = rig(50);
    let log: Arc<Mutex<Vec<u8>>> = Arc::default();
    let logged = |priority: u8| {
        let log = log.clone();
        async move { log.lock().unwrap().push(priority) }
    };
    let moved = rig.sleeper(0, level(3));
    // On worker 1 waits something at 30: it went to sleep there.
    let inner = logged(30);
    let waits = rig.executor.spawn(
        async move {
            let mut is_first = true;
            poll_fn(
                |_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) },
            )
            .await;
            inner.await;
        },
        level(30),
    );
    rig.executor.run_until_stalled(1);
    wake_up(waits.unwrap());
    // On worker 0, a mark at 3 of one that is at 50 now.
    wake_up(moved);
    set_priority(moved, level(50));
    rig.executor.run(2, 1);
    assert_eq!(*log.lock().unwrap(), [30]);
}

#[test]
fn a_worker_that_has_never_run_is_not_taken_to_poll_anything() {
    let rig = rig(51);
    let log: Arc<Mutex<Vec<u32>>> = Arc::default();
    for number in 0..3 {
        let log = log.clone();
        let logged = async move { log.lock().unwrap().push(number) };
        rig.executor.spawn(logged, Priority::MOST_URGENT).unwrap();
    }
    // All are with worker 0; what is left there after the first was stolen is still shown.
    rig.executor.run(1, 1);
    assert_eq!(*log.lock().unwrap(), [0]);
    rig.executor.run(2, 1);
    rig.executor.run(2, 1);
    assert_eq!(log.lock().unwrap().len(), 3);
}

/// Scheduling points of the only test that counts them.
static LOOKS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn count_look(_: *mut (), _worker: u32) {
    LOOKS.fetch_add(1, Relaxed);
}

#[test]
fn a_worker_alone_that_is_out_of_work_needs_no_other_scheduling_point() {
    let executor: &'static Executor = Box::leak(Box::new(Executor::with_number(59)));
    let host: &'static Host = Box::leak(Host::new());
    let states: &'static [WorkerState; 2] = Box::leak(Box::default());
    let hooks = Hooks { external: Some(count_look), ..host.hooks() };
    // SAFETY: the hooks do what they should, and live for ever.
    unsafe { executor.start(&hooks) }.unwrap();
    executor.add_worker(0, &states[0]).unwrap();
    let looks_of_a_poll = || {
        executor.spawn(pending(), Priority::DEFAULT).unwrap();
        LOOKS.store(0, Relaxed);
        assert_eq!(executor.run(0, u64::MAX), RunOutcome::Stalled);
        assert!(executor.prepare_park(0));
        executor.finish_park(0);
        LOOKS.load(Relaxed)
    };
    assert_eq!(looks_of_a_poll(), 2, "before the poll and after it");
    // With another one, it looks for work there.
    executor.add_worker(1, &states[1]).unwrap();
    assert_eq!(looks_of_a_poll(), 3);
}
