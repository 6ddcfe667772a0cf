//! The hook of priority inheritance: for which coroutines it is called, when, and that a copy of
//! the priority that goes by it ends up right.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex as PlainMutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use cops_executor::sync::{Mutex, set_inheritance_hook};
use cops_executor::*;

/// The level of each coroutine, as the hook has seen it last.
static COPIES: PlainMutex<BTreeMap<u64, u8>> = PlainMutex::new(BTreeMap::new());

/// The number of an executor of which the hook locks a mutex itself.
const USES_THE_TABLE: u8 = 11;

/// What a program does that keeps something by the priority of a coroutine, with `renew` in the
/// place of a system call.
fn renew(id: CoroutineId) {
    if id.executor() == USES_THE_TABLE {
        // The table of mutexes is unlocked, or this would wait for ever.
        let mutex = Mutex::new(());
        let _held = mutex.try_lock();
        let mut waits = pin!(mutex.lock());
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let mut known = None;
    while let Some(priority) = priority(id)
        && known.replace(priority) != Some(priority)
    {
        copies().insert(id.raw(), priority.level());
    }
}

/// The copies, also after a test has failed.
fn copies() -> MutexGuard<'static, BTreeMap<u64, u8>> {
    COPIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the hook. Until the end of what this returns, no other test runs: the table of mutexes
/// is one for all executors, and its next user may call the hook for the rest of a long chain.
fn install() -> MutexGuard<'static, ()> {
    static HOOK: fn(CoroutineId) = renew;
    static ALONE: PlainMutex<()> = PlainMutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    set_inheritance_hook(&HOOK);
    alone
}

fn at_level(level: u8) -> Priority {
    Priority::new(level).unwrap()
}

/// Each coroutine of a chain waits for a mutex of the next one. They are more than the table notes
/// at once.
#[test]
fn it_is_called_for_each_of_a_chain() {
    const HOLDERS: usize = 50;
    static EXECUTOR: Executor = Executor::with_number(10);
    static MUTEXES: [Mutex<()>; HOLDERS] = [const { Mutex::new(()) }; HOLDERS];
    EXECUTOR.start_on_host(1).unwrap();
    let _alone = install();
    // The last one first, so that each finds the next mutex taken.
    let holders = (0..HOLDERS).rev().map(|index| {
        let holder = async move {
            let _own = MUTEXES[index].lock().await;
            match MUTEXES.get(index + 1) {
                Some(next) => drop(next.lock().await),
                None => std::future::pending().await,
            }
        };
        let id = EXECUTOR.spawn(holder, at_level(40)).unwrap();
        EXECUTOR.run_until_stalled(0);
        id
    });
    let holders: Vec<_> = holders.collect();
    let told = |id: &CoroutineId| copies().get(&id.raw()).copied();
    assert!(holders.iter().all(|id| told(id).is_none()), "nothing has been inherited");

    let waiter = EXECUTOR.spawn(async { drop(MUTEXES[0].lock().await) }, at_level(10)).unwrap();
    EXECUTOR.run_until_stalled(0);
    assert!(holders.iter().all(|id| told(id) == Some(10)), "{:?}", copies());
    assert_eq!(told(&waiter), None, "one that inherits nothing");

    cancel(waiter);
    EXECUTOR.run_until_stalled(0);
    assert!(holders.iter().all(|id| told(id) == Some(40)), "{:?}", copies());
    for id in holders {
        cancel(id);
    }
}

/// Several threads come to wait for a coroutine's mutex and give up, while its own level changes.
#[test]
fn a_copy_is_right_after_changes_by_several_threads() {
    const ROUNDS: u8 = if cfg!(miri) { 3 } else { 200 };
    static EXECUTOR: Executor = Executor::with_number(USES_THE_TABLE);
    static MUTEX: Mutex<()> = Mutex::new(());
    EXECUTOR.start_on_host(4).unwrap();
    let _alone = install();
    let holder = async {
        let _held = MUTEX.lock().await;
        std::future::pending().await
    };
    let holder = EXECUTOR.spawn(holder, at_level(40)).unwrap();
    EXECUTOR.run_until_stalled(0);
    for round in 0..ROUNDS {
        let waiter = |of: u8| {
            let waits = async {
                let mut lock = pin!(MUTEX.lock());
                // In vain, once; then it gives up.
                let first = poll_fn(|context| Poll::Ready(lock.as_mut().poll(context))).await;
                assert!(first.is_pending());
            };
            EXECUTOR.spawn(waits, at_level(of)).unwrap()
        };
        for of in [5, 10, 15, 20, 25, 30] {
            waiter(of);
        }
        std::thread::scope(|scope| {
            for worker in 0..3 {
                scope.spawn(move || EXECUTOR.run_until_stalled(worker));
            }
            scope.spawn(move || {
                for own in [20, 45, 5, 40 + round % 8] {
                    set_priority(holder, at_level(own));
                    renew(holder);
                }
            });
        });
        EXECUTOR.run_until_stalled(0);
        let level = priority(holder).map(Priority::level);
        assert_eq!(level, Some(40 + round % 8), "what the holder counts as");
        let copy = copies().get(&holder.raw()).copied();
        assert_eq!(copy, level, "what is kept of it, in round {round}");
    }
    cancel(holder);
}
