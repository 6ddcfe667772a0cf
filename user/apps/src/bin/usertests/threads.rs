//! `cops::thread`: threads beside coroutines, and what they wait for.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::future::Future;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use cops::abi::Errno;
use cops::abi::syscall::{self as number, signal};
use cops::memory::statistics;
use cops::process::{self, ExitCode, Resource};
use cops::sync::channel;
use cops::task::{self, Priority};
use cops::thread::sync::{Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, Semaphore};
use cops::thread::{self, Builder, JoinHandle, LocalKey, MIN_STACK_BYTES};
use cops::time::{Duration, Instant, sleep};
use cops::{inspect, io};

use crate::files::use_the_heap_up;
use crate::harness::{Failure, Outcome, errno, harts, level, run, soon, start, start_tied, until};
use crate::processes::HELPER;
use crate::raw;
use crate::{check, check_equal, tests};

tests! { threads:
    start_and_join,
    scoped_threads_borrow,
    values_of_a_thread,
    values_made_while_a_result_is_dropped,
    a_value_that_uses_itself_when_it_is_dropped,
    parking,
    a_wait_for_a_future_leaves_an_unpark,
    a_wait_inside_of_a_wait,
    mutex_excludes,
    condition_variable,
    a_notification_without_a_waiter,
    the_longest_time_out,
    semaphore_and_barrier,
    readers_and_a_writer,
    once_is_once,
    most_urgent_gets_the_permit,
    threads_and_coroutines,
    a_call_blocks_its_thread_alone,
    levels_of_threads,
    a_panic_ends_the_process,
    an_overflow_ends_the_process,
    killed_with_a_lock_held,
    threads_to_the_limit,
    memory_ends_while_threads_start,
    memory_ends_before_a_scope,
    until_empty_and_the_algorithms,
    threads_run_coroutines_for_a_while,
}

/// The helpers.
pub fn help(arguments: &[&str]) -> Option<ExitCode> {
    match arguments {
        ["thread-panics"] => drop(thread::spawn(die).join()),
        ["thread-overflows"] => {
            let Ok(sum) = thread::spawn(|| recurse(1 << 20)).join();
            return Some(ExitCode(sum as u8));
        }
        ["thread-uses-what-it-drops"] => {
            let Ok(()) = thread::spawn(|| SELFISH.with(|_| ())).join();
        }
        ["threads-wait"] => wait_with_a_lock_held(),
        ["threads-to-the-limit"] => return Some(start_to_the_limit()),
        ["threads-without-memory"] => return Some(start_without_memory()),
        ["scope-without-memory"] => return Some(scope_without_memory()),
        ["threads-run-coroutines"] => return Some(run_beside_a_virtual_cpu()),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

fn die() {
    panic!("as the test asks");
}

fn join<T>(handle: JoinHandle<T>) -> T {
    let Ok(value) = handle.join();
    value
}

async fn start_and_join() -> Outcome {
    let handles: Vec<_> = (0..20).map(|index| thread::spawn(move || index * 3)).collect();
    let mut ids: Vec<_> = handles.iter().map(|handle| handle.thread().id()).collect();
    let sum: usize = handles.into_iter().map(join).sum();
    check_equal!(sum, 570, "sum of the results");
    ids.dedup();
    check_equal!(ids.len(), 20, "different ids");

    let named = Builder::new().name("worker bee".to_string()).spawn(|| {
        let own = thread::current();
        (own.id(), own.name().map(str::to_string))
    })?;
    let id = named.thread().id();
    check_equal!(join(named), (id, Some("worker bee".to_string())), "the thread's own view");
    check_equal!(thread::current().name(), Some("main"), "the first virtual CPU");

    let gate = Arc::new(Semaphore::new(0));
    let waits = gate.clone();
    let handle = thread::spawn(move || waits.acquire());
    check!(!handle.is_finished(), "a thread ended before it could");
    gate.release();
    until("the end of a thread", || Ok(handle.is_finished())).await
}

async fn scoped_threads_borrow() -> Outcome {
    let mut numbers = vec![1u32; 100];
    let total = AtomicU32::new(0);
    let halves = thread::scope(|scope| {
        let (first, second) = numbers.split_at_mut(50);
        let counts = [first, second].map(|half| {
            scope.spawn(|| {
                half.iter_mut().for_each(|number| *number += 1);
                total.fetch_add(half.iter().sum(), SeqCst);
                half.len()
            })
        });
        // This one is joined by the scope only.
        let _ = scope.spawn(|| {
            thread::sleep(Duration::from_millis(5));
            total.fetch_add(1000, SeqCst)
        });
        counts.map(|count| {
            let Ok(count) = count.join();
            count
        })
    });
    check_equal!(halves, [50, 50], "results");
    check_equal!(total.load(SeqCst), 1200, "the scope ended before its threads");
    check!(numbers.iter().all(|&number| number == 2), "not everything was changed");
    Ok(())
}

static DROPPED: AtomicU32 = AtomicU32::new(0);

struct Counted(Cell<u32>);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(self.0.get(), SeqCst);
    }
}

static OWN: LocalKey<Counted> = LocalKey::new(|| Counted(Cell::new(1)));
static NAME: LocalKey<Cell<u32>> = LocalKey::new(|| Cell::new(7));

async fn values_of_a_thread() -> Outcome {
    let use_them = |times: u32| {
        for _ in 0..times {
            OWN.with(|own| own.0.set(own.0.get() + NAME.with(Cell::get)));
        }
        OWN.with(|own| own.0.get())
    };
    check_equal!(use_them(1), 8, "the value of this virtual CPU");
    let handles: Vec<_> = (1..4).map(|times| thread::spawn(move || use_them(times))).collect();
    let results: Vec<u32> = handles.into_iter().map(join).collect();
    check_equal!(results, [8, 15, 22], "each thread has its own");
    check_equal!(DROPPED.load(SeqCst), 8 + 15 + 22, "sum of the values that were dropped");
    check_equal!(use_them(1), 15, "the value of this virtual CPU later");
    Ok(())
}

static LATE_DROPPED: AtomicU32 = AtomicU32::new(0);

struct Late;

impl Drop for Late {
    fn drop(&mut self) {
        LATE_DROPPED.fetch_add(1, SeqCst);
    }
}

static LATE: LocalKey<Late> = LocalKey::new(|| Late);

/// A result that uses a value of the thread that drops it.
struct UsesLate;

impl Drop for UsesLate {
    fn drop(&mut self) {
        LATE.with(|_| ());
    }
}

async fn values_made_while_a_result_is_dropped() -> Outcome {
    const THREADS: u32 = 100;
    let gate = Arc::new(Semaphore::new(0));
    // All handles are dropped first, so that each thread drops its result.
    for _ in 0..THREADS {
        let waits = gate.clone();
        drop(thread::spawn(move || {
            waits.acquire();
            UsesLate
        }));
    }
    (0..THREADS).for_each(|_| gate.release());
    until("the drop of every value", || Ok(LATE_DROPPED.load(SeqCst) == THREADS)).await
}

struct Selfish;

impl Drop for Selfish {
    fn drop(&mut self) {
        SELFISH.with(|_| ());
    }
}

static SELFISH: LocalKey<Selfish> = LocalKey::new(|| Selfish);

async fn a_value_that_uses_itself_when_it_is_dropped() -> Outcome {
    let status = run(&[HELPER, "thread-uses-what-it-drops"]).await?;
    check_equal!(status.signal(), Some(signal::SIGABRT), "how it ends");
    Ok(())
}

async fn parking() -> Outcome {
    let released = Arc::new(AtomicBool::new(false));
    let seen = released.clone();
    let handle = thread::spawn(move || {
        // One that was given before is taken at once.
        thread::current().unpark();
        thread::park();
        while !seen.load(SeqCst) {
            thread::park();
        }
        // None is left, so the time ends it.
        let begin = Instant::now();
        thread::park_timeout(Duration::from_millis(20));
        begin.elapsed()
    });
    for _ in 0..10 {
        handle.thread().unpark();
        thread::sleep(Duration::from_micros(100));
    }
    check!(!handle.is_finished(), "a thread was released that had to wait");
    released.store(true, SeqCst);
    handle.thread().unpark();
    let _ = join(handle);
    Ok(())
}

/// An `unpark` during `block_on` is for the next `park`.
async fn a_wait_for_a_future_leaves_an_unpark() -> Outcome {
    let (sender, receiver) = channel::<u32>(1);
    let handle = thread::spawn(move || {
        let received = thread::block_on(receiver.receive());
        thread::park();
        received
    });
    until("a thread that waits for a value", || Ok(asleep()? == 1)).await?;
    handle.thread().unpark();
    check!(sender.send(5).await.is_ok(), "the receiver is gone");
    until("the end of a thread that was unparked", || Ok(handle.is_finished())).await?;
    check_equal!(join(handle), Some(5), "what the thread received");
    Ok(())
}

/// A future calls `block_on` in its first poll. Its own wake comes meanwhile.
async fn a_wait_inside_of_a_wait() -> Outcome {
    let (sender, receiver) = channel::<u32>(1);
    let (inner_sender, inner_receiver) = channel::<u32>(1);
    let handle = thread::spawn(move || {
        let mut polls = 0;
        let mut inner = None;
        let mut outer = core::pin::pin!(receiver.receive());
        let received = thread::block_on(core::future::poll_fn(|context| {
            polls += 1;
            let result = outer.as_mut().poll(context);
            if polls == 1 {
                inner = thread::block_on(inner_receiver.receive());
            }
            result
        }));
        (received, inner, polls)
    });
    until("a thread that waits for the inner value", || Ok(asleep()? == 1)).await?;
    check!(sender.send(1).await.is_ok(), "the outer receiver is gone");
    check!(inner_sender.send(2).await.is_ok(), "the inner receiver is gone");
    until("the end of a thread", || Ok(handle.is_finished())).await?;
    check_equal!(join(handle), (Some(1), Some(2), 2), "both values, and the number of polls");
    Ok(())
}

async fn mutex_excludes() -> Outcome {
    const THREADS: usize = 6;
    const ROUNDS: usize = 5000;
    let shared = Arc::new(Mutex::new((0usize, 0usize)));
    let handles: Vec<_> = (0..THREADS)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    let mut both = shared.lock();
                    both.0 += 1;
                    if round % 512 == 0 {
                        // Others run meanwhile, and have to sleep.
                        thread::yield_now();
                    }
                    both.1 += 1;
                    assert_eq!(both.0, both.1, "two threads held the lock");
                }
            })
        })
        .collect();
    handles.into_iter().for_each(join);
    check_equal!(*shared.lock(), (THREADS * ROUNDS, THREADS * ROUNDS), "increments");
    let guard = shared.lock();
    check!(shared.try_lock().is_none(), "a locked mutex was locked");
    drop(guard);
    check!(shared.try_lock().is_some(), "a free mutex was not locked");
    Ok(())
}

/// A bounded queue, as it is written for threads.
struct Queue {
    items: Mutex<Vec<u32>>,
    changed: Condvar,
}

async fn condition_variable() -> Outcome {
    const EACH: u32 = 2000;
    let queue = Arc::new(Queue { items: Mutex::new(Vec::new()), changed: Condvar::new() });
    let producers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            thread::spawn(move || {
                for number in 0..EACH {
                    let items = queue.items.lock();
                    let mut items = queue.changed.wait_while(items, |items| items.len() >= 4);
                    items.push(number);
                    drop(items);
                    queue.changed.notify_all();
                }
            })
        })
        .collect();
    let consumers: Vec<_> = (0..2)
        .map(|_| {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut sum = 0u64;
                for _ in 0..EACH * 3 / 2 {
                    let mut items = queue.items.lock();
                    while items.is_empty() {
                        items = queue.changed.wait(items);
                    }
                    sum += u64::from(items.pop().unwrap_or(0));
                    drop(items);
                    queue.changed.notify_all();
                }
                sum
            })
        })
        .collect();
    producers.into_iter().for_each(join);
    let sum: u64 = consumers.into_iter().map(join).sum();
    check_equal!(sum, 3 * u64::from(EACH) * u64::from(EACH - 1) / 2, "sum of what was consumed");

    let (items, limit) = (queue.items.lock(), Duration::from_millis(10));
    let (items, result) = queue.changed.wait_timeout_while(items, limit, |_| true);
    check!(result.timed_out(), "a wait without a notification ended");
    let (_items, result) = queue.changed.wait_timeout_while(items, limit, |_| false);
    check!(!result.timed_out(), "a wait for nothing timed out");
    Ok(())
}

/// It is counted in system calls: none. One with a waiter is one.
async fn a_notification_without_a_waiter() -> Outcome {
    const NOTIFICATIONS: u64 = 1000;
    let queue = Arc::new(Queue { items: Mutex::new(Vec::new()), changed: Condvar::new() });
    // The process that has started this test finishes its work on other harts meanwhile.
    sleep(Duration::from_millis(10)).await;
    let notify = |change: &Condvar| {
        let before = statistics()?.system_calls;
        for _ in 0..NOTIFICATIONS / 2 {
            change.notify_one();
            change.notify_all();
        }
        Ok::<u64, Failure>(statistics()?.system_calls - before)
    };
    let calls = notify(&queue.changed)?;
    check!(calls < NOTIFICATIONS / 10, "{calls} system calls without a waiter");

    let waits = {
        let queue = queue.clone();
        thread::spawn(move || {
            let items = queue.items.lock();
            drop(queue.changed.wait_while(items, |items| items.is_empty()));
        })
    };
    let calls = until_waited_for(&queue.changed, notify).await?;
    check!(calls >= NOTIFICATIONS, "{calls} system calls with a waiter");
    queue.items.lock().push(1);
    queue.changed.notify_one();
    join(waits);
    // It does not count any more.
    let calls = notify(&queue.changed)?;
    check!(calls < NOTIFICATIONS / 10, "{calls} system calls after the waiter");
    Ok(())
}

/// Notifies until the notifications find a waiter. Returns the last number of system calls.
async fn until_waited_for(
    change: &Condvar,
    notify: impl Fn(&Condvar) -> Result<u64, Failure>,
) -> Result<u64, Failure> {
    for _ in 0..1000 {
        let calls = notify(change)?;
        if calls >= 1000 {
            return Ok(calls);
        }
        sleep(Duration::from_millis(1)).await;
    }
    Ok(0)
}

/// A wait with a time-out of more seconds than the kernel has a number for lasts until the
/// notification.
async fn the_longest_time_out() -> Outcome {
    for is_conditional in [false, true] {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let waits = shared.clone();
        let handle = thread::spawn(move || {
            let mut guard = waits.0.lock();
            // May also return early, but not because the time is over.
            while !*guard {
                let result;
                (guard, result) = if is_conditional {
                    waits.1.wait_timeout_while(guard, Duration::MAX, |is_set| !*is_set)
                } else {
                    waits.1.wait_timeout(guard, Duration::MAX)
                };
                if result.timed_out() {
                    return false;
                }
            }
            true
        });
        sleep(Duration::from_millis(20)).await;
        check!(!handle.is_finished(), "the wait did not last");
        *shared.0.lock() = true;
        shared.1.notify_one();
        check!(join(handle), "the time was over");
    }
    Ok(())
}

async fn semaphore_and_barrier() -> Outcome {
    const THREADS: usize = 5;
    const ROUNDS: usize = 50;
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (permits, barrier) = (Semaphore::new(2), Barrier::new(THREADS));
    let (leaders, rounds) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let _ = scope.spawn(|| {
                for round in 0..ROUNDS {
                    let permit = permits.access();
                    most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(1, SeqCst);
                    drop(permit);
                    rounds.fetch_add(1, SeqCst);
                    if barrier.wait().is_leader() {
                        leaders.fetch_add(1, SeqCst);
                    }
                    assert!(rounds.load(SeqCst) >= (round + 1) * THREADS, "left too early");
                }
            });
        }
    });
    check!(most.load(SeqCst) <= 2, "{} held two permits", most.load(SeqCst));
    check_equal!(leaders.load(SeqCst), ROUNDS, "leaders");
    check_equal!(permits.available(), 2, "permits left");
    check!(permits.try_acquire() && permits.try_acquire(), "two permits are there");
    check!(!permits.acquire_timeout(Duration::from_millis(5)), "there is no third permit");
    Ok(())
}

async fn readers_and_a_writer() -> Outcome {
    let shared = RwLock::new((0u32, 0u32));
    let (readers, together) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            let _ = scope.spawn(|| {
                for _ in 0..300 {
                    let mut both = shared.write();
                    assert_eq!(readers.load(SeqCst), 0, "a reader beside a writer");
                    both.0 += 1;
                    thread::yield_now();
                    both.1 += 1;
                }
            });
        }
        for _ in 0..3 {
            let _ = scope.spawn(|| {
                loop {
                    let both = shared.read();
                    together.fetch_max(readers.fetch_add(1, SeqCst) + 1, SeqCst);
                    assert_eq!(both.0, both.1, "a half of a write");
                    thread::yield_now();
                    readers.fetch_sub(1, SeqCst);
                    if both.0 == 600 {
                        break;
                    }
                }
            });
        }
    });
    check_equal!(*shared.read(), (600, 600), "writes");
    let (first, second) = (shared.try_read(), shared.try_read());
    check!(first.is_some() && second.is_some(), "two readers at once");
    check!(shared.try_write().is_none(), "a writer beside readers");
    Ok(())
}

static MADE: AtomicUsize = AtomicUsize::new(0);
static LAZY: LazyLock<usize> = LazyLock::new(|| {
    thread::sleep(Duration::from_millis(2));
    MADE.fetch_add(1, SeqCst) + 41
});

async fn once_is_once() -> Outcome {
    let (once, count, lock) = (Once::new(), AtomicUsize::new(0), OnceLock::new());
    thread::scope(|scope| {
        for _ in 0..8 {
            let _ = scope.spawn(|| {
                once.call_once(|| {
                    thread::sleep(Duration::from_millis(2));
                    count.fetch_add(1, SeqCst);
                });
                assert_eq!(count.load(SeqCst), 1, "returned before it had happened");
                assert_eq!(*LAZY, 41, "the value");
                lock.get_or_init(|| count.load(SeqCst) + 1);
            });
        }
    });
    check_equal!(MADE.load(SeqCst), 1, "made");
    check_equal!(lock.get(), Some(&2), "set");
    check_equal!(lock.set(9), Err(9), "set again");
    check_equal!(lock.into_inner(), Some(2), "the value");
    Ok(())
}

/// Number of threads of this process that are asleep in the kernel.
fn asleep() -> Result<usize, Failure> {
    let cpus = inspect::cpus(process::id())?;
    let waits =
        |cpu: &&inspect::CpuRecord| cpu.cpu >= 8 && cpu.state == cops::abi::inspect::state::BLOCKED;
    Ok(cpus.iter().filter(waits).count())
}

async fn most_urgent_gets_the_permit() -> Outcome {
    let gate = Arc::new(Semaphore::new(0));
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut handles = Vec::new();
    for at in [40, 20, 30, 20] {
        let (gate, order) = (gate.clone(), order.clone());
        let number = handles.len();
        handles.push(Builder::new().priority(level(at)).spawn(move || {
            gate.acquire();
            order.lock().push(number);
            gate.release();
        })?);
        until("a thread that waits", || Ok(asleep()? == number + 1)).await?;
    }
    gate.release();
    handles.into_iter().for_each(join);
    // Each passes the permit on to the next that waits, unless it takes it itself: it does not.
    check_equal!(*order.lock(), [1, 3, 2, 0], "the order in which they had the permit");
    Ok(())
}

async fn threads_and_coroutines() -> Outcome {
    let (sender, receiver) = channel::<u32>(4);
    let own = task::current();
    let handle = thread::spawn(move || {
        assert!(task::current().is_none(), "a thread is no coroutine");
        // A coroutine that was spawned by the thread, and its result.
        let Ok(sum) = thread::block_on(task::spawn_join(
            async {
                task::yield_now().await;
                cops::time::sleep(Duration::from_millis(1)).await;
                40 + 2
            },
            Priority::DEFAULT,
        )) else {
            return 0;
        };
        for number in 0..100 {
            // The queue is full most of the time: the thread sleeps until the coroutine has read.
            if thread::block_on(sender.send(number)).is_err() {
                return 0;
            }
        }
        sum
    });
    let mut next = 0;
    while let Some(number) = soon("a number from a thread", receiver.receive()).await? {
        check_equal!(number, next, "what a thread sends");
        next += 1;
    }
    check_equal!(next, 100, "numbers");
    check_equal!(join(handle), 42, "what a thread got from a coroutine");

    // A thread wakes a coroutine by its id.
    let is_set = Arc::new(AtomicBool::new(false));
    let sets = is_set.clone();
    let handle = thread::spawn(move || {
        thread::sleep(Duration::from_millis(2));
        sets.store(true, SeqCst);
        own.map(task::wake_up)
    });
    let woken = core::future::poll_fn(|_| {
        if is_set.load(SeqCst) { core::task::Poll::Ready(()) } else { core::task::Poll::Pending }
    });
    soon("a wake by a thread", woken).await?;
    check_equal!(join(handle), Some(true), "wake_up by a thread");
    check!(task::run(task::Until::Stalled).is_err(), "a coroutine ran coroutines");
    Ok(())
}

async fn a_call_blocks_its_thread_alone() -> Outcome {
    let (reader, mut writer) = io::pipe()?;
    let beside = Arc::new(AtomicU32::new(0));
    let counts = beside.clone();
    let blocked = thread::spawn(move || {
        let mut byte = [0];
        cops::read!(reader, &mut byte).map(|count| (count, byte[0]))
    });
    let counting = thread::spawn(move || {
        while counts.fetch_add(1, Relaxed) < 10 {
            thread::sleep(Duration::from_millis(1));
        }
    });
    for _ in 0..10 {
        cops::time::sleep(Duration::from_millis(1)).await;
    }
    join(counting);
    check!(!blocked.is_finished(), "a read of an empty pipe returned");
    io::Write::write_all(&mut writer, &[9]).await?;
    check_equal!(join(blocked), Ok((1, 9)), "what the thread read");
    Ok(())
}

async fn levels_of_threads() -> Outcome {
    let gate = Arc::new(Semaphore::new(0));
    let waits = gate.clone();
    let handle = Builder::new().priority(level(11)).spawn(move || {
        waits.acquire();
        let child = thread::spawn(|| thread::current().priority());
        (thread::current().priority(), join(child))
    })?;
    let levels = || -> Result<Vec<u32>, Failure> {
        let cpus = inspect::cpus(process::id())?;
        Ok(cpus.iter().filter(|cpu| cpu.cpu >= 8).map(|cpu| cpu.level).collect())
    };
    until("a thread of level 11", || Ok(asleep()? == 1 && levels()? == [11])).await?;
    handle.thread().set_priority(level(25))?;
    check_equal!(handle.thread().priority(), level(25), "the level that was set");
    gate.release();
    let ended = handle.thread().clone();
    check_equal!(join(handle), (level(25), level(25)), "the thread's and its child's level");
    until("a thread that has ended", || {
        let result = ended.set_priority(level(3)).err();
        Ok(result.and_then(errno) == Some(Errno::ESRCH))
    })
    .await?;

    let this = thread::current().set_priority(level(3)).err();
    check_equal!(this.and_then(errno), Some(Errno::EINVAL), "the level of a virtual CPU");
    let set = number::COPS_SET_THREAD_PRIORITY;
    raw::refused("this virtual CPU", set, [0, 3, 0, 0, 0, 0], &[Errno::EINVAL])?;
    raw::refused("no thread", set, [usize::MAX, 3, 0, 0, 0, 0], &[Errno::ESRCH])?;
    raw::refused("a process", set, [1, 3, 0, 0, 0, 0], &[Errno::ESRCH])?;
    raw::refused("no level", set, [0, 64, 0, 0, 0, 0], &[Errno::EINVAL])
}

async fn a_panic_ends_the_process() -> Outcome {
    let status = run(&[HELPER, "thread-panics"]).await?;
    check_equal!(status.signal(), Some(signal::SIGABRT), "how a panic in a thread ends");
    Ok(())
}

/// Uses 64 bytes of the stack at least for each step.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let space = core::hint::black_box([depth; 8]);
    if depth == 0 { 0 } else { recurse(depth - 1) + space[depth as usize % 8] }
}

async fn an_overflow_ends_the_process() -> Outcome {
    let status = run(&[HELPER, "thread-overflows"]).await?;
    check_equal!(status.signal(), Some(signal::SIGSEGV), "how an overflow ends");
    Ok(())
}

/// Threads that wait for a lock that one of them holds, for ever.
fn wait_with_a_lock_held() {
    let lock = Arc::new(Mutex::new(()));
    let handles: Vec<_> = (0..10)
        .map(|_| {
            let lock = lock.clone();
            thread::spawn(move || {
                let _guard = lock.lock();
                thread::sleep(Duration::from_secs(1000));
            })
        })
        .collect();
    handles.into_iter().for_each(join);
}

/// Also after this, all resources of the kernel are free: the harness compares them.
async fn killed_with_a_lock_held() -> Outcome {
    for _ in 0..3 {
        let child = start_tied(&[HELPER, "threads-wait"])?;
        until("ten threads", || {
            Ok(crate::inspection::find(child.id())?.is_some_and(|process| process.cpus == 11))
        })
        .await?;
        child.end().await?;
    }
    Ok(())
}

/// Starts threads until that fails, and joins them; then the same once more.
fn start_to_the_limit() -> ExitCode {
    // With several harts, each stack that is unmapped has to wait for all of them.
    if harts() > 1 && process::set_quota(0, Resource::Cpus, 100).is_err() {
        return ExitCode(4);
    }
    let Ok(room) = process::quota(0, Resource::Cpus).map(|quota| quota.room) else {
        return ExitCode(3);
    };
    let mut started = [0; 2];
    for started in &mut started {
        let gate = Arc::new(Semaphore::new(0));
        let mut handles = Vec::new();
        let error = loop {
            let waits = gate.clone();
            let builder = Builder::new().stack_size(MIN_STACK_BYTES);
            match builder.spawn(move || waits.acquire()) {
                Ok(handle) => handles.push(handle),
                Err(error) => break errno(error),
            }
        };
        if error != Some(Errno::EAGAIN) {
            return ExitCode(1);
        }
        *started = handles.len();
        handles.iter().for_each(|_| gate.release());
        handles.into_iter().for_each(join);
        while process::quota(0, Resource::Cpus).is_ok_and(|quota| quota.used > 1) {
            thread::yield_now();
        }
    }
    cops::println!("# {started:?} threads at once, quota for {room}");
    ExitCode(if started.iter().any(|&count| count as u64 != room.min(4096)) { 2 } else { 0 })
}

async fn threads_to_the_limit() -> Outcome {
    let status = start(&[HELPER, "threads-to-the-limit"])?.wait().await?;
    check_equal!(status.code(), Some(0), "how a process with all its threads ended");
    Ok(())
}

/// Starts threads until memory ends, ends some, and starts others.
fn start_without_memory() -> ExitCode {
    let Ok(used) = process::quota(0, Resource::Memory).map(|quota| quota.used) else {
        return ExitCode(1);
    };
    if process::set_quota(0, Resource::Memory, used + (1 << 20)).is_err() {
        return ExitCode(2);
    }
    let gate = Arc::new(Semaphore::new(0));
    // The heap gets no memory any more either.
    let mut handles = Vec::with_capacity(1000);
    // As in `start_to_the_limit`.
    for round in 0..if harts() == 1 { 8 } else { 2 } {
        loop {
            let waits = gate.clone();
            match thread::Builder::new().stack_size(4 * MIN_STACK_BYTES).spawn(move || {
                waits.acquire();
            }) {
                Ok(handle) => handles.push(handle),
                Err(error) if errno(error) == Some(Errno::ENOMEM) => break,
                Err(_) => return ExitCode(3),
            }
        }
        if handles.len() < 10 {
            return ExitCode(4 + round);
        }
        // All first: it is not said which thread gets which permit.
        handles.iter().for_each(|_| gate.release());
        handles.drain(..).for_each(join);
        while process::quota(0, Resource::Cpus).is_ok_and(|quota| quota.used > 1) {
            thread::yield_now();
        }
    }
    ExitCode::SUCCESS
}

async fn memory_ends_while_threads_start() -> Outcome {
    let status = start(&[HELPER, "threads-without-memory"])?.wait().await?;
    check_equal!(status.code(), Some(0), "how the process ended");
    Ok(())
}

/// A scope needs no memory. Returns 0 if the start of a thread in it fails with `ENOMEM`.
fn scope_without_memory() -> ExitCode {
    if use_the_heap_up().is_err() {
        return ExitCode(1);
    }
    let error = thread::scope(|scope| Builder::new().spawn_scoped(scope, || ()).err());
    ExitCode(if error.and_then(errno) == Some(Errno::ENOMEM) { 0 } else { 2 })
}

async fn memory_ends_before_a_scope() -> Outcome {
    let status = run(&[HELPER, "scope-without-memory"]).await?;
    check_equal!(status.code(), Some(0), "how the process ended");
    Ok(())
}

async fn until_empty_and_the_algorithms() -> Outcome {
    for program in ["/bin/algorithm1", "/bin/algorithm2"] {
        let mut child = process::spawn::<&str>(program, &[])?;
        let status = soon("the end of an example", child.wait()).await??;
        check_equal!(status.code(), Some(3), "the code of {program}");
    }
    Ok(())
}

/// Threads run coroutines beside a virtual CPU, and stop while those wait: whichever worker a
/// coroutine blocked on, another one goes on with it.
async fn threads_run_coroutines_for_a_while() -> Outcome {
    let status = run(&[HELPER, "threads-run-coroutines"]).await?;
    check_equal!(status.code(), Some(0), "rounds in which a coroutine was left alone");
    Ok(())
}

/// Returns the number of rounds in which not all coroutines have ended.
fn run_beside_a_virtual_cpu() -> ExitCode {
    const ROUNDS: u8 = 5;
    const PATIENCE: Duration = Duration::from_secs(20);
    // This coroutine blocks the first virtual CPU.
    if task::alloc_cpu(1).is_err() {
        return ExitCode(99);
    }
    let mut failed = 0;
    for _ in 0..ROUNDS {
        for number in 0..40u64 {
            let sleeps = async move {
                for step in 0..100 {
                    let micros = (number * 37 + step * 101) % 1000;
                    cops::time::sleep(Duration::from_micros(micros)).await;
                }
            };
            task::spawn(sleeps, level(number as u8));
        }
        let runners: Vec<_> = (0..2)
            .map(|_| {
                thread::spawn(|| {
                    (0..100).all(|_| {
                        thread::sleep(Duration::from_micros(200));
                        task::run(task::Until::Stalled).is_ok()
                    })
                })
            })
            .collect();
        let have_run = runners.into_iter().map(join).filter(|&has_run| has_run).count() == 2;
        let begin = Instant::now();
        while task::live_count() > 1 && begin.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        failed += u8::from(!have_run || task::live_count() > 1);
    }
    ExitCode(failed)
}
