//! The surface that most programs use: free functions, join sets, coroutines that stay on their
//! thread, what is seen of coroutines.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use cops_executor::sync::{Event, oneshot};
use cops_executor::time::Elapsed;
use cops_executor::*;

/// Counts what is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A future that never ends, and says when it is dropped.
fn endless(dropped: &Arc<AtomicUsize>) -> impl Future<Output = u32> + Send + 'static {
    let counted = Counted(dropped.clone());
    async move {
        pending::<()>().await;
        drop(counted);
        0
    }
}

/// As `block_on`, and fails if that does not return.
fn run<F: Future>(future: F) -> F::Output {
    block_on(timeout(Duration::from_secs(60), future)).expect("it hangs")
}

fn message(panicked: Box<dyn std::any::Any + Send>) -> String {
    match panicked.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => (*other.downcast::<&str>().unwrap()).to_owned(),
    }
}

#[test]
fn members_come_in_the_order_in_which_they_finish() {
    let events: Arc<[Event; 4]> = Arc::new([const { Event::new() }; 4]);
    let order = run(async {
        let mut set = JoinSet::new();
        for n in 0..4 {
            let events = events.clone();
            set.spawn(async move {
                events[n].wait().await;
                n
            });
        }
        let mut order = Vec::new();
        for n in [2, 0, 3, 1] {
            events[n].set();
            order.push(set.join_next().await.unwrap().unwrap());
        }
        assert_eq!(set.join_next().await, None);
        // All are finished before the first is taken.
        for n in [3, 1, 0] {
            set.spawn(async move { n });
        }
        let last = spawn(async {});
        last.await.unwrap();
        while let Some(n) = set.join_next().await {
            order.push(n.unwrap());
        }
        order
    });
    assert_eq!(order, [2, 0, 3, 1, 3, 1, 0]);
}

#[test]
fn a_set_takes_what_had_finished_before_it_was_inserted() {
    run(async {
        let mut done = spawn(async { 1 });
        assert_eq!((&mut done).await, Ok(1));
        let ready = spawn(async { 2 });
        yield_to_all().await;
        assert!(ready.is_finished());
        let mut set = JoinSet::new();
        set.insert(ready);
        assert_eq!((set.len(), set.join_next().await, set.len()), (1, Some(Ok(2)), 0));
    });
}

/// More coroutines than are ready at once in a test that yields to all.
const READY_MAX: usize = 64;

/// Lets all that is ready run. In the main future of `block_on`, a yield comes after one batch,
/// which has at least one poll.
async fn yield_to_all() {
    // What took this long makes batches of one poll for a while, as a loaded host does.
    thread::sleep(Duration::from_millis(1));
    for _ in 0..READY_MAX {
        yield_now().await;
    }
}

#[test]
fn dropping_a_set_cancels_its_members_and_detaching_does_not() {
    let dropped = Arc::new(AtomicUsize::new(0));
    run(async {
        let mut set = JoinSet::new();
        for _ in 0..10 {
            set.spawn(endless(&dropped));
        }
        yield_to_all().await;
        assert_eq!(dropped.load(SeqCst), 0);
        drop(set);
        yield_to_all().await;
        assert_eq!(dropped.load(SeqCst), 10);

        let mut set = JoinSet::new();
        set.spawn(endless(&dropped));
        set.detach_all();
        assert!(set.is_empty());
        drop(set);
        yield_to_all().await;
        assert_eq!(dropped.load(SeqCst), 10, "it runs on");
    });
    assert_eq!(dropped.load(SeqCst), 11, "until its runtime ends");
}

#[test]
fn a_notice_of_a_detached_member_says_nothing_of_the_member_in_its_place() {
    run(async {
        let (sender, mut receiver) = oneshot::<()>();
        let mut set = JoinSet::new();
        set.spawn(async { 1 });
        set.detach_all();
        set.spawn(async move {
            receiver.receive().await;
            2
        });
        yield_to_all().await;
        assert_eq!(set.try_join_next(), None);
        sender.send(()).unwrap();
        assert_eq!(set.join_next().await, Some(Ok(2)));
    });
}

#[test]
fn all_are_aborted_and_what_had_finished_keeps_its_output() {
    let dropped = Arc::new(AtomicUsize::new(0));
    run(async {
        let mut set = JoinSet::new();
        set.spawn(async { 7 });
        yield_to_all().await;
        for _ in 0..3 {
            set.spawn(endless(&dropped));
        }
        set.abort_all();
        assert_eq!(set.len(), 4);
        assert_eq!(set.join_next().await, Some(Ok(7)));
        for left in [3, 2, 1] {
            assert_eq!((set.len(), set.join_next().await), (left, Some(Err(JoinError::Cancelled))));
        }
        assert_eq!((set.join_next().await, dropped.load(SeqCst)), (None, 3));
        // One alone, by what `spawn` returned.
        let switch = set.spawn(endless(&dropped));
        set.spawn(endless(&dropped));
        switch.abort();
        assert_eq!(set.join_next_with_id().await, Some((switch.id(), Err(JoinError::Cancelled))));
        set.shutdown().await;
        assert_eq!((set.len(), dropped.load(SeqCst)), (0, 5));
    });
}

#[test]
fn the_panic_of_a_member_is_its_own() {
    run(async {
        let mut set = JoinSet::new();
        set.spawn(async { panic!("on purpose") });
        set.spawn(async { 5 });
        let panicked = set.join_next().await.unwrap().unwrap_err();
        assert_eq!(message(panicked.into_panic()), "on purpose");
        assert_eq!(set.join_next().await, Some(Ok(5)));
    });
}

#[test]
fn awaiting_the_next_member_may_be_given_up() {
    run(async {
        let (sender, mut receiver) = oneshot::<()>();
        let mut set = JoinSet::new();
        set.spawn(async move { receiver.receive().await.is_some() });
        for _ in 0..3 {
            let limited = timeout(Duration::from_millis(1), set.join_next()).await;
            assert_eq!(limited, Err(Elapsed));
        }
        sender.send(()).unwrap();
        assert_eq!(set.join_next().await, Some(Ok(true)));
    });
}

/// Two runtimes of two workers finish members while a thread outside takes them.
#[test]
fn a_set_loses_no_member_of_many_workers() {
    const ROUNDS: u64 = 40;
    let runtimes = [Runtime::new(2).unwrap(), Runtime::new(2).unwrap()];
    let mut set = JoinSet::new();
    let mut sum = 0;
    runtimes[0].block_on(async {
        for round in 0..ROUNDS {
            for n in 0..50 {
                let member = async move {
                    if n % 3 == 0 {
                        yield_now().await;
                    }
                    round * 50 + n
                };
                set.insert(runtimes[n as usize % 2].spawn(member));
            }
            for _ in 0..30 {
                sum += set.join_next().await.unwrap().unwrap();
            }
        }
        while let Some(output) = set.join_next().await {
            sum += output.unwrap();
        }
    });
    let count = ROUNDS * 50;
    assert_eq!(sum, count * (count - 1) / 2);
}

#[test]
fn a_set_that_is_polled_by_hand_wakes_its_last_waiter_once() {
    struct Count(AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let runtime = LocalRuntime::new().unwrap();
    let (first, last) =
        (Arc::new(Count(AtomicUsize::new(0))), Arc::new(Count(AtomicUsize::new(0))));
    let mut set = JoinSet::new();
    set.insert(runtime.spawn_local(async { 1 }));
    set.insert(runtime.spawn_local(async { 2 }));
    {
        let mut next = pin!(set.join_next());
        for count in [&first, &last] {
            let waker = Waker::from(count.clone());
            assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        runtime.block_on(yield_to_all());
    }
    assert_eq!((first.0.load(SeqCst), last.0.load(SeqCst)), (0, 1));
    assert_eq!(set.try_join_next(), Some(Ok(1)));
}

#[test]
fn a_local_coroutine_is_polled_and_dropped_on_its_thread_only() {
    /// Fails on another thread.
    struct Here(thread::ThreadId, Rc<Cell<u32>>);
    impl Here {
        fn note(&self) {
            assert_eq!(thread::current().id(), self.0);
            self.1.set(self.1.get() + 1);
        }
    }
    impl Drop for Here {
        fn drop(&mut self) {
            self.note();
        }
    }
    // Workers that have nothing to do, which is when they steal.
    let thieves = Runtime::new(2).unwrap();
    let notes = Rc::new(Cell::new(0));
    let runtime = LocalRuntime::new().unwrap();
    let locals: Vec<_> = (0..20)
        .map(|_| {
            let here = Here(thread::current().id(), notes.clone());
            runtime.spawn_local(async move {
                for _ in 0..50 {
                    here.note();
                    // Woken by a thread of the other runtime.
                    let _ = thieves_help().await;
                }
            })
        })
        .collect();
    // The helpers are spawned where these are, so they run here; wakes come from elsewhere by this.
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, handle) = (stop.clone(), runtime.handle());
    let waker = thieves.spawn(async move {
        while !stopped.load(SeqCst) {
            for one in handle.coroutines() {
                wake_up(one.id);
                set_priority(
                    one.id,
                    Priority::saturating(u32::from(one.priority.level() + 1) % 64),
                );
            }
            yield_now().await;
        }
    });
    runtime.block_on(async {
        for local in locals {
            local.await.unwrap();
        }
    });
    stop.store(true, SeqCst);
    thieves.block_on(waker).unwrap();
    assert_eq!(notes.get(), 20 * 51);
    // What is left is dropped here too, with the runtime.
    let here = Here(thread::current().id(), notes.clone());
    let left = runtime.spawn_local(async move {
        let _here = here;
        pending::<()>().await;
    });
    runtime.block_on(yield_to_all());
    let handle = runtime.handle();
    drop(runtime);
    assert_eq!(notes.get(), 20 * 51 + 1);
    assert_eq!(thieves.block_on(left), Err(JoinError::Cancelled));
    assert_eq!(handle.block_on(handle.spawn(async {})), Err(JoinError::Cancelled));
}

async fn thieves_help() {
    spawn(async {}).await.unwrap();
}

#[test]
fn a_thread_elsewhere_aborts_and_awaits_a_local_coroutine() {
    let runtime = LocalRuntime::new().unwrap();
    let text = Rc::new(String::from("local"));
    let kept = text.clone();
    let length = runtime.spawn_local(async move { kept.len() });
    let kept = text.clone();
    let endless = runtime.spawn_local(async move {
        pending::<()>().await;
        drop(kept);
    });
    let handle = runtime.handle();
    let other = thread::spawn(move || {
        assert!(endless.abort_handle().abort());
        (handle.block_on(length), handle.block_on(endless))
    });
    let foreign = runtime.handle().spawn(async { 1 });
    runtime.block_on(async {
        while !other.is_finished() {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(foreign.await, Ok(1));
    });
    assert_eq!(other.join().unwrap(), (Ok(5), Err(JoinError::Cancelled)));
    assert_eq!(Rc::strong_count(&text), 1);
}

#[test]
fn local_coroutines_run_in_order_of_priority() {
    let order = Rc::new(RefCell::new(Vec::new()));
    run(async {
        let mut set = JoinSet::new();
        for level in [40, 2, 63, 0] {
            let order = order.clone();
            let local = async move { order.borrow_mut().push(level) };
            set.insert(spawn_local_at(local, Priority::new(level).unwrap()));
        }
        while set.join_next().await.is_some() {}
    });
    assert_eq!(*order.borrow(), [0, 2, 40, 63]);
}

#[test]
fn what_a_destructor_spawns_at_the_end_is_refused_on_the_spot() {
    struct SpawnsAtTheEnd(Rc<Cell<Option<JoinHandle<()>>>>);
    impl Drop for SpawnsAtTheEnd {
        fn drop(&mut self) {
            let unsendable = Rc::new(0);
            self.0.set(Some(spawn_local(async move {
                assert_eq!(*unsendable, 1, "must not be polled");
            })));
        }
    }
    let late = Rc::new(Cell::new(None));
    let at_end = SpawnsAtTheEnd(late.clone());
    run(async {
        drop(spawn_local(async move {
            let _at_end = at_end;
            pending::<()>().await;
        }));
        yield_to_all().await;
    });
    let late = late.take().expect("dropped with the runtime");
    assert_eq!(block_on(late), Err(JoinError::Cancelled));
}

#[test]
fn outside_of_their_runtimes_the_free_functions_panic() {
    let said =
        |panics: Box<dyn FnOnce()>| message(catch_unwind(AssertUnwindSafe(panics)).unwrap_err());
    assert!(said(Box::new(|| drop(spawn(async {})))).contains("runtime"));
    assert!(said(Box::new(|| drop(spawn_local(async {})))).contains("LocalRuntime"));
    let runtime = Runtime::new(2).unwrap();
    let on_a_worker =
        runtime.spawn(async { catch_unwind(|| drop(spawn_local(async {}))).is_err() });
    assert_eq!(runtime.block_on(on_a_worker), Ok(true), "other workers would steal it");
    let local = LocalRuntime::new().unwrap();
    let nested = || local.block_on(async { local.block_on(async {}) });
    assert!(message(catch_unwind(AssertUnwindSafe(nested)).unwrap_err()).contains("await"));
    assert_eq!(local.block_on(async { 1 }), 1, "it goes on");
}

/// `spawn` means the innermost runtime, and what was before when that has returned.
#[test]
fn the_innermost_runtime_is_meant() {
    let outer = Runtime::new(1).unwrap();
    let inner = Runtime::new(1).unwrap();
    let (outer_number, inner_number) = (number_of(&outer), number_of(&inner));
    assert_ne!(outer_number, inner_number);
    outer.block_on(async {
        assert_eq!(spawned_on().await, outer_number);
        inner.block_on(async { assert_eq!(spawned_on().await, inner_number) });
        let local = block_on(async { spawned_on().await });
        assert!(local != outer_number && local != inner_number);
        assert_eq!(spawned_on().await, outer_number);
    });
    // A worker that blocks on another runtime.
    let handle = inner.handle();
    let across = outer.spawn(async move {
        let there = handle.block_on(spawned_on());
        (there, spawned_on().await)
    });
    assert_eq!(outer.block_on(across), Ok((inner_number, outer_number)));
    assert!(Handle::current().is_none());
}

async fn spawned_on() -> u8 {
    spawn(async { current().unwrap().executor() }).await.unwrap()
}

fn number_of(runtime: &Runtime) -> u8 {
    runtime.block_on(runtime.spawn(async { current().unwrap().executor() })).unwrap()
}

/// A child begins with what its parent was given, not with what that inherits for a mutex.
#[test]
fn a_child_begins_with_its_parents_own_priority() {
    let seen = block_on(async {
        let parent = async {
            let child = spawn(async { current().and_then(priority) });
            let local = spawn_local(async { current().and_then(priority) });
            (child.await.unwrap(), local.await.unwrap())
        };
        spawn_local_at(parent, Priority::new(9).unwrap()).await.unwrap()
    });
    assert_eq!(seen, (Priority::new(9), Priority::new(9)));
    let outside = block_on(async { spawn(async { current().and_then(priority) }).await });
    assert_eq!(outside, Ok(Some(Priority::DEFAULT)));
}

#[test]
fn sleeping_and_limits_work_in_either_kind_of_runtime() {
    let naps = || async {
        let start = std::time::Instant::now();
        sleep(Duration::from_millis(3)).await;
        let mut ticks = interval(Duration::from_millis(2));
        ticks.tick().await;
        let inside = spawn(timeout(Duration::from_millis(1), pending::<()>())).await;
        (start.elapsed() >= Duration::from_millis(6), inside)
    };
    assert_eq!(block_on(naps()), (true, Ok(Err(Elapsed))));
    let runtime = Runtime::new(2).unwrap();
    assert_eq!(runtime.block_on(naps()), (true, Ok(Err(Elapsed))), "outside of a coroutine");
    assert_eq!(runtime.block_on(runtime.spawn(naps())), Ok((true, Ok(Err(Elapsed)))));
}

#[test]
fn executors_take_the_numbers_that_are_free() {
    static CHOSEN: Executor = Executor::with_number(100);
    static FIRST: Executor = Executor::new();
    static SECOND: Executor = Executor::new();
    assert_eq!((CHOSEN.number(), FIRST.number()), (Some(100), None));
    CHOSEN.start_on_host(1).unwrap();
    FIRST.start_on_host(1).unwrap();
    SECOND.start_on_host(1).unwrap();
    let numbers = [&CHOSEN, &FIRST, &SECOND].map(|executor| executor.number().unwrap());
    assert!(numbers[0] == 100 && numbers[1] < 100 && numbers[2] < 100, "{numbers:?}");
    assert_ne!(numbers[1], numbers[2]);
    assert_eq!(FIRST.start_on_host(1), Err(StartError::NumberTaken), "it is started");
    for executor in [&CHOSEN, &FIRST, &SECOND] {
        let asks = executor.spawn_join(async { current().unwrap().executor() }, Priority::DEFAULT);
        assert_eq!(executor.block_on(asks.unwrap()).ok(), executor.number());
    }
    // One that has neither number nor start has no workers here and spawns nothing.
    static NEVER: Executor = Executor::new();
    assert_eq!(NEVER.spawn(async {}, Priority::DEFAULT), Err(SpawnError::NotStarted));
}

#[test]
fn all_phases_are_seen() {
    static EXECUTOR: Executor = Executor::new();
    EXECUTOR.start_on_host(1).unwrap();
    let blocked = EXECUTOR.spawn(pending(), Priority::MOST_URGENT).unwrap();
    let asks = poll_fn(move |_| {
        let seen = EXECUTOR.coroutines().collect::<Vec<_>>();
        Poll::Ready(seen)
    });
    let asks = EXECUTOR.spawn_join(asks, Priority::DEFAULT).unwrap();
    let running = asks.id();
    let ready = EXECUTOR.spawn(pending(), Priority::LEAST_URGENT).unwrap();
    assert!(cancel(ready));
    let seen = EXECUTOR.block_on(asks).unwrap();
    let expect = |id, phase, priority, is_cancelled| Inspection {
        id,
        phase,
        priority,
        worker: 0,
        is_cancelled,
        kind: 0,
    };
    assert_eq!(
        seen,
        [
            expect(blocked, Phase::Blocked, Priority::MOST_URGENT, false),
            expect(running, Phase::Running, Priority::DEFAULT, false),
            expect(ready, Phase::Ready, Priority::LEAST_URGENT, true),
        ]
    );
    EXECUTOR.run_until_stalled(0);
    assert_eq!(EXECUTOR.inspect(ready), None, "it has exited");
    let next = EXECUTOR.spawn(pending(), Priority::DEFAULT).unwrap();
    let stale = [running, ready].into_iter().find(|old| old.index() == next.index()).unwrap();
    assert_eq!((EXECUTOR.inspect(stale), EXECUTOR.inspect(next).is_some()), (None, true));
}
