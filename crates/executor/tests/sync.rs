//! What `sync` promises, one promise a test: on one worker, in a known order.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as PlainMutex};
use std::task::{Context, Poll, Wake, Waker};

use cops_executor::sync::*;
use cops_executor::*;

/// Each test has its own executor: numbers are global.
macro_rules! executor {
    ($number:literal) => {{
        static EXECUTOR: Executor = Executor::with_number($number);
        EXECUTOR.start_on_host(1).unwrap();
        &EXECUTOR
    }};
}

fn at_level(level: u8) -> Priority {
    Priority::new(level).unwrap()
}

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<PlainMutex<Vec<u32>>>);

impl Log {
    fn push(&self, entry: u32) {
        self.0.lock().unwrap().push(entry);
    }

    fn take(&self) -> Vec<u32> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Polls a future by hand, outside of any coroutine.
fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A waker that counts.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is leaked: kept, so that Miri takes it for what statics have.
static KEPT: PlainMutex<Vec<Box<dyn Any + Send>>> = PlainMutex::new(Vec::new());

/// Something for the program's lifetime.
fn leak<T: Send + Sync>(value: T) -> &'static T {
    let leaked: &'static T = Box::leak(Box::new(value));
    KEPT.lock().unwrap().push(Box::new(leaked));
    leaked
}

/// Spawns coroutines that wait for a permit each, log, and give it back.
fn takers(
    executor: &Executor,
    semaphore: &'static Semaphore,
    log: &Log,
    levels: &[u8],
) -> Vec<CoroutineId> {
    let spawn = |(number, &of): (usize, &u8)| {
        let log = log.clone();
        let taker = async move {
            let _permit = semaphore.acquire(1).await;
            log.push(number as u32);
        };
        let id = executor.spawn(taker, at_level(of)).unwrap();
        // So that they come in this order, whatever their levels.
        executor.run_until_stalled(0);
        id
    };
    levels.iter().enumerate().map(spawn).collect()
}

/// As `takers`, with a mutex.
fn lockers(
    executor: &Executor,
    mutex: &'static Mutex<u32>,
    log: &Log,
    levels: &[u8],
) -> Vec<CoroutineId> {
    let spawn = |(number, &of): (usize, &u8)| {
        let log = log.clone();
        let locker = async move {
            *mutex.lock().await += 1;
            log.push(number as u32);
        };
        let id = executor.spawn(locker, at_level(of)).unwrap();
        executor.run_until_stalled(0);
        id
    };
    levels.iter().enumerate().map(spawn).collect()
}

#[test]
fn waiters_are_served_by_priority_and_within_it_in_the_order_of_coming() {
    let (executor, log) = (executor!(10), Log::default());
    let levels = [40, 3, 40, 10, 3, 63, 0];
    let expected = [6, 1, 4, 3, 0, 2, 5];

    let mutex = leak(Mutex::new(0));
    let held = mutex.try_lock().unwrap();
    lockers(executor, mutex, &log, &levels);
    assert_eq!(log.take(), []);
    drop(held);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), expected);
    assert_eq!(*mutex.try_lock().unwrap(), 7);

    let semaphore = leak(Semaphore::new(0));
    takers(executor, semaphore, &log, &levels);
    semaphore.add_permits(1);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), expected);
    assert_eq!(semaphore.available(), 1);
}

#[test]
fn the_priority_that_counts_is_that_of_the_hand_over() {
    let (executor, log) = (executor!(11), Log::default());
    let mutex = leak(Mutex::new(0));
    let held = mutex.try_lock().unwrap();
    let ids = lockers(executor, mutex, &log, &[20, 20, 20, 20]);
    // No coroutine is polled between this and the unlock.
    assert!(set_priority(ids[2], at_level(5)));
    assert!(set_priority(ids[0], at_level(21)));
    drop(held);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [2, 1, 3, 0]);

    let semaphore = leak(Semaphore::new(0));
    let ids = takers(executor, semaphore, &log, &[20, 20, 20, 20]);
    assert!(set_priority(ids[2], at_level(5)));
    assert!(set_priority(ids[0], at_level(21)));
    semaphore.add_permits(1);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [2, 1, 3, 0]);
}

#[test]
fn a_priority_that_changes_and_changes_back_puts_a_waiter_behind_its_peers_once_it_was_seen() {
    let (executor, log) = (executor!(12), Log::default());
    let semaphore = leak(Semaphore::new(0));
    let ids = takers(executor, semaphore, &log, &[20, 20, 20]);
    set_priority(ids[0], at_level(30));
    // It is woken, and takes its new place.
    executor.run_until_stalled(0);
    set_priority(ids[0], at_level(20));
    executor.run_until_stalled(0);
    semaphore.add_permits(1);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [1, 2, 0]);
}

#[test]
fn what_was_handed_over_is_not_taken_by_those_that_come_by() {
    let (executor, log) = (executor!(13), Log::default());
    let (mutex, semaphore) = (leak(Mutex::new(0)), leak(Semaphore::new(0)));
    let held = mutex.try_lock().unwrap();
    lockers(executor, mutex, &log, &[63]);
    takers(executor, semaphore, &log, &[63]);
    drop(held);
    semaphore.add_permits(1);
    assert!(mutex.try_lock().is_none());
    assert!(semaphore.try_acquire(1).is_none());
    // Neither by the most urgent.
    let urgent = {
        let log = log.clone();
        async move {
            let _permit = semaphore.acquire(1).await;
            *mutex.lock().await += 1;
            log.push(9);
        }
    };
    executor.spawn(urgent, Priority::MOST_URGENT).unwrap();
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [0, 0, 9]);
}

#[test]
fn a_waiter_that_is_dropped_passes_on_what_it_was_granted() {
    let (executor, log) = (executor!(14), Log::default());
    let (mutex, semaphore) = (leak(Mutex::new(0)), leak(Semaphore::new(0)));
    let held = mutex.try_lock().unwrap();
    let lockers = lockers(executor, mutex, &log, &[5, 6, 7]);
    cancel(lockers[1]);
    executor.run_until_stalled(0);
    drop(held);
    // Granted, and not polled since.
    cancel(lockers[0]);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [2]);
    assert!(!mutex.is_locked());

    let takers = takers(executor, semaphore, &log, &[5, 6, 7]);
    cancel(takers[1]);
    executor.run_until_stalled(0);
    semaphore.add_permits(1);
    cancel(takers[0]);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [2]);
    assert_eq!(semaphore.available(), 1);
}

#[test]
fn the_last_waiter_that_gives_up_leaves_an_uncontended_mutex() {
    let (executor, log) = (executor!(15), Log::default());
    let mutex = leak(Mutex::new(0));
    let held = mutex.try_lock().unwrap();
    let ids = lockers(executor, mutex, &log, &[5]);
    cancel(ids[0]);
    executor.run_until_stalled(0);
    drop(held);
    assert!(!mutex.is_locked());
    assert!(mutex.try_lock().is_some());
}

#[test]
fn asking_for_many_permits_is_not_starved() {
    let (executor, log) = (executor!(16), Log::default());
    let semaphore = leak(Semaphore::new(2));
    let one = semaphore.try_acquire(1).unwrap();
    let large_log = log.clone();
    let large = async move {
        let permit = semaphore.acquire(2).await;
        large_log.push(100);
        drop(permit);
    };
    let large = executor.spawn(large, at_level(20)).unwrap();
    executor.run_until_stalled(0);
    // One is free, but the others are not more urgent.
    assert!(semaphore.try_acquire(1).is_none());
    takers(executor, semaphore, &log, &[20, 21]);
    assert_eq!(log.take(), []);
    // This one is.
    takers(executor, semaphore, &log, &[19]);
    assert_eq!(log.take(), [0]);
    drop(one);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [100, 0, 1]);
    assert!(priority(large).is_none());
}

#[test]
fn a_large_demand_that_is_withdrawn_lets_small_ones_go() {
    let (executor, log) = (executor!(17), Log::default());
    let semaphore = leak(Semaphore::new(1));
    let large = async { semaphore.acquire(5).await.forget() };
    let large = executor.spawn(large, at_level(20)).unwrap();
    executor.run_until_stalled(0);
    takers(executor, semaphore, &log, &[30]);
    assert_eq!(log.take(), []);
    cancel(large);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [0]);
}

#[test]
fn a_waiter_that_is_raised_takes_what_it_may_have_now() {
    let (executor, log) = (executor!(18), Log::default());
    let semaphore = leak(Semaphore::new(1));
    let large = async { semaphore.acquire(5).await.forget() };
    executor.spawn(large, at_level(20)).unwrap();
    executor.run_until_stalled(0);
    let ids = takers(executor, semaphore, &log, &[30]);
    assert_eq!(log.take(), []);
    set_priority(ids[0], at_level(19));
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [0]);
}

#[test]
fn an_event_releases_all_waiters_by_priority_also_if_it_is_cleared_at_once() {
    let (executor, log) = (executor!(19), Log::default());
    let event = leak(Event::new());
    // More than are woken at once.
    for number in 0..100 {
        let log = log.clone();
        let waiter = async move {
            event.wait().await;
            log.push(number);
        };
        executor.spawn(waiter, at_level((number % 4) as u8)).unwrap();
    }
    executor.run_until_stalled(0);
    event.set();
    event.clear();
    let late = poll_fn({
        let mut wait = Box::pin(event.wait());
        move |context| wait.as_mut().poll(context)
    });
    let late = executor.spawn(late, at_level(0)).unwrap();
    executor.run_until_stalled(0);
    let order = log.take();
    let expected: Vec<u32> =
        (0..4).flat_map(|of| (0..100).filter(move |number| number % 4 == of)).collect();
    assert_eq!(order, expected);
    assert!(priority(late).is_some(), "it came after the event was cleared");
    event.set();
    executor.run_until_stalled(0);
    assert!(priority(late).is_none());
    assert!(event.is_set());
}

#[test]
fn a_channel_is_bounded_keeps_the_order_and_returns_what_no_receiver_will_take() {
    let executor = executor!(20);
    let (sender, receiver) = channel(2);
    sender.try_send(1).unwrap();
    sender.try_send(2).unwrap();
    assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
    let sending = {
        let sender = sender.clone();
        executor.spawn_join(async move { sender.send(3).await }, at_level(9)).unwrap()
    };
    executor.run_until_stalled(0);
    assert!(!sending.is_finished());
    assert_eq!(receiver.try_receive(), Ok(1));
    // The place is the waiting sender's.
    assert_eq!(sender.try_send(4), Err(TrySendError::Full(4)));
    assert_eq!(executor.block_on(sending), Ok(Ok(())));
    assert_eq!((receiver.try_receive(), receiver.try_receive()), (Ok(2), Ok(3)));

    sender.try_send(5).unwrap();
    sender.try_send(6).unwrap();
    let waiting = {
        let sender = sender.clone();
        executor.spawn_join(async move { sender.send(7).await }, at_level(9)).unwrap()
    };
    executor.run_until_stalled(0);
    drop(receiver);
    assert_eq!(executor.block_on(waiting), Ok(Err(SendError(7))));
    assert_eq!(sender.try_send(8), Err(TrySendError::Closed(8)));
}

#[test]
fn receivers_get_what_is_left_after_the_senders_are_gone() {
    let executor = executor!(21);
    let (sender, receiver) = channel(8);
    for number in 0..3 {
        sender.try_send(number).unwrap();
    }
    drop(sender);
    let all = async {
        let mut all = Vec::new();
        while let Some(number) = receiver.receive().await {
            all.push(number);
        }
        all
    };
    assert_eq!(executor.block_on(all), [0, 1, 2]);
}

#[test]
fn a_waiting_receiver_is_released_when_the_last_sender_goes() {
    let executor = executor!(22);
    let (sender, receiver) = channel::<u32>(1);
    let waiting: Vec<_> = (0..40)
        .map(|_| {
            let receiver = receiver.clone();
            executor.spawn_join(async move { receiver.receive().await }, at_level(9)).unwrap()
        })
        .collect();
    executor.run_until_stalled(0);
    let other = sender.clone();
    drop(sender);
    executor.run_until_stalled(0);
    assert!(waiting.iter().all(|handle| !handle.is_finished()));
    drop(other);
    for handle in waiting {
        assert_eq!(executor.block_on(handle), Ok(None));
    }
}

#[test]
fn a_receiver_that_gives_up_leaves_its_value_to_another() {
    let (executor, log) = (executor!(23), Log::default());
    let (sender, receiver) = channel(1);
    let ids: Vec<_> = (0..2)
        .map(|number| {
            let (log, receiver) = (log.clone(), receiver.clone());
            let receiving = async move {
                log.push(receiver.receive().await.unwrap_or(99) * 10 + number);
            };
            executor.spawn(receiving, at_level(9)).unwrap()
        })
        .collect();
    executor.run_until_stalled(0);
    sender.try_send(7).unwrap();
    // It belongs to the first, which will not see it.
    assert_eq!(receiver.try_receive(), Err(TryReceiveError::Empty));
    cancel(ids[0]);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [71]);
}

/// A receiver that was granted a value may be dropped before it takes it, so until then a closed
/// channel is not empty.
#[test]
fn a_closed_channel_ends_for_a_receiver_when_its_last_value_is_taken() {
    let waits = |receive: &mut Pin<Box<dyn Future<Output = Option<u32>>>>, woken: &Arc<Woken>| {
        receive.as_mut().poll(&mut Context::from_waker(&Waker::from(woken.clone())))
    };
    for is_taken in [true, false] {
        let (sender, receiver) = channel(1);
        let (other, last) = (receiver.clone(), receiver.clone());
        let mut first = Box::pin(receiver.receive());
        assert!(poll_once(first.as_mut()).is_pending());
        sender.try_send(7).unwrap();
        drop(sender);
        assert_eq!((other.len(), other.try_receive()), (1, Err(TryReceiveError::Empty)));
        let woken = Arc::new(Woken::default());
        let mut second: Pin<Box<dyn Future<Output = _>>> =
            Box::pin(async move { last.receive().await });
        assert_eq!(waits(&mut second, &woken), Poll::Pending);
        if is_taken {
            assert_eq!(poll_once(first.as_mut()), Poll::Ready(Some(7)));
        } else {
            drop(first);
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        // Not before it has the value, if it gets it.
        assert_eq!(
            other.try_receive(),
            Err(if is_taken { TryReceiveError::Closed } else { TryReceiveError::Empty })
        );
        assert_eq!(waits(&mut second, &woken), Poll::Ready((!is_taken).then_some(7)));
        assert_eq!(other.try_receive(), Err(TryReceiveError::Closed));
    }
}

#[test]
fn values_are_dropped_once_wherever_they_are() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = channel(2);
    let mut made = 0;
    let mut value = || {
        made += 1;
        Counted(drops.clone())
    };
    sender.try_send(value()).ok().unwrap();
    sender.try_send(value()).ok().unwrap();
    // One that waits, and is dropped with its future.
    let mut waiting = Box::pin(sender.send(value()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    drop(waiting);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    drop(receiver.try_receive().ok().unwrap());
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    drop(receiver);
    assert_eq!(drops.load(Ordering::Relaxed), 3);
    assert!(matches!(sender.try_send(value()), Err(TrySendError::Closed(_))));
    let (sender, receiver) = oneshot();
    sender.send(value()).ok().unwrap();
    drop(receiver);
    assert_eq!(drops.load(Ordering::Relaxed), made);
}

#[test]
fn a_oneshot_that_is_never_sent_ends_the_wait() {
    let executor = executor!(24);
    let (sender, mut receiver) = oneshot::<u32>();
    let waiting =
        executor.spawn_join(async move { receiver.receive().await }, at_level(9)).unwrap();
    executor.run_until_stalled(0);
    drop(sender);
    assert_eq!(executor.block_on(waiting), Ok(None));
}

#[test]
fn signals_and_waits_meet_in_whatever_order() {
    let (executor, log) = (executor!(25), Log::default());
    let meet = leak(Rendezvous::<8>::new());
    let waiter = |key: u64, number: u32, of: u8| {
        let log = log.clone();
        let wait = async move {
            meet.wait_on(key).await;
            log.push(number);
        };
        let id = executor.spawn(wait, at_level(of)).unwrap();
        executor.run_until_stalled(0);
        id
    };
    meet.signal(1).unwrap();
    meet.signal(1).unwrap();
    waiter(1, 1, 9);
    waiter(1, 2, 9);
    assert_eq!(log.take(), [1, 2]);
    let first = waiter(1, 3, 9);
    waiter(1, 4, 5);
    waiter(2, 5, 0);
    // One signal, one waiter, the most urgent of its key.
    meet.signal(1).unwrap();
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [4]);
    // A waiter that gives up passes its signal on; here it is remembered.
    meet.signal(1).unwrap();
    cancel(first);
    executor.run_until_stalled(0);
    assert_eq!((log.take(), meet.remembered(1)), (vec![], 1));
    waiter(1, 6, 9);
    assert_eq!(log.take(), [6]);
    for number in 10..60 {
        waiter(3, number, 9);
    }
    assert_eq!(meet.signal_all(3), 50);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), (10..60).collect::<Vec<_>>());
    assert_eq!(meet.remembered(3), 0);
}

/// More are released than are woken at once, and a waker may make new waiters.
#[test]
fn a_signal_for_all_releases_none_that_comes_while_others_are_woken() {
    type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;
    struct WaitsAgain {
        meet: &'static Rendezvous<4>,
        waits: PlainMutex<Vec<Wait>>,
    }
    impl Wake for WaitsAgain {
        fn wake(self: Arc<Self>) {
            let mut wait: Wait = Box::pin(self.meet.wait_on(3));
            let waker = Waker::from(self.clone());
            let mut waits = self.waits.lock().unwrap();
            // Ends in some way without the limit.
            if waits.len() < 100 {
                assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                waits.push(wait);
            }
        }
    }
    let meet = leak(Rendezvous::<4>::new());
    let again = Arc::new(WaitsAgain { meet, waits: PlainMutex::default() });
    let waker = Waker::from(again.clone());
    let mut waits: Vec<Wait> = (0..16).map(|_| -> Wait { Box::pin(meet.wait_on(3)) }).collect();
    for (number, wait) in waits.iter_mut().enumerate() {
        let waker = if number == 0 { &waker } else { Waker::noop() };
        assert!(wait.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    assert_eq!(meet.signal_all(3), 16);
    assert!(waits.iter_mut().all(|wait| poll_once(wait.as_mut()).is_ready()));
    let mut later = std::mem::take(&mut *again.waits.lock().unwrap());
    assert_eq!(later.len(), 1);
    assert!(poll_once(later[0].as_mut()).is_pending());
    assert_eq!(meet.signal_all(3), 1);
    assert!(poll_once(later[0].as_mut()).is_ready());
}

#[test]
fn a_rendezvous_refuses_what_it_could_not_remember() {
    let executor = executor!(26);
    let meet = leak(Rendezvous::<2>::new());
    let id = executor.spawn(meet.wait_on(1), at_level(9)).unwrap();
    executor.run_until_stalled(0);
    // On its way, and so counted: it might have to be remembered.
    meet.signal(1).unwrap();
    meet.signal(2).unwrap();
    assert_eq!(meet.signal(3), Err(Full));
    assert_eq!(meet.signal(2), Ok(()));
    cancel(id);
    executor.run_until_stalled(0);
    assert_eq!((meet.remembered(1), meet.remembered(2), meet.remembered(3)), (1, 2, 0));
    executor.block_on(meet.wait_on(1));
    assert_eq!(meet.signal(3), Ok(()));
}

#[test]
#[cfg_attr(miri, ignore = "it leaks")]
fn a_leaked_wait_is_safe() {
    let executor = executor!(27);
    let mut mutex = Box::new(Mutex::new(1));
    let held = mutex.try_lock().unwrap();
    let mut wait = Box::pin(mutex.lock());
    assert!(poll_once(wait.as_mut()).is_pending());
    std::mem::forget(wait);
    // The leaked future is handed the mutex, and keeps it.
    drop(held);
    assert!(mutex.try_lock().is_none());
    *mutex.get_mut() += 1;
    assert_eq!(mutex.into_inner(), 2);

    // Moved with a record left in the table: another mutex is not confused with it.
    let moved = Mutex::new(1);
    let held = moved.try_lock().unwrap();
    let mut wait = Box::pin(moved.lock());
    assert!(poll_once(wait.as_mut()).is_pending());
    std::mem::forget((held, wait));
    let moved = Box::new(moved);
    assert!(moved.try_lock().is_none());
    assert!(poll_once(Box::pin(moved.lock()).as_mut()).is_pending());
    drop(moved);
    assert_eq!(*executor.block_on(Mutex::new(3).lock()), 3);

    // Another mutex in the place of one that was moved away.
    let mut place = Mutex::new(4);
    let held = place.try_lock().unwrap();
    let mut wait = Box::pin(place.lock());
    assert!(poll_once(wait.as_mut()).is_pending());
    std::mem::forget((held, wait));
    let moved = std::mem::replace(&mut place, Mutex::new(5));
    assert!(moved.is_locked());
    let held = place.try_lock().unwrap();
    let mut wait = Box::pin(place.lock());
    assert!(poll_once(wait.as_mut()).is_pending());
    drop(held);
    let Poll::Ready(guard) = poll_once(wait.as_mut()) else {
        panic!("it was handed to another waiter")
    };
    assert_eq!(*guard, 5);
}

#[test]
fn a_future_may_move_to_another_coroutine_while_it_waits() {
    let (executor, log) = (executor!(28), Log::default());
    let semaphore = leak(Semaphore::new(0));
    let mut wait = Box::pin(semaphore.acquire(1));
    assert!(poll_once(wait.as_mut()).is_pending());
    let ids = takers(executor, semaphore, &log, &[20]);
    let mover_log = log.clone();
    let mover = async move {
        let _permit = wait.await;
        mover_log.push(9);
    };
    executor.spawn(mover, at_level(1)).unwrap();
    executor.run_until_stalled(0);
    semaphore.add_permits(1);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [9, 0], "the priority of the coroutine that polls it counts");
    assert!(priority(ids[0]).is_none());
}

#[test]
fn futures_and_guards_may_be_sent() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    fn is_shared<T: Sync>(_: &T) {}
    let (mutex, semaphore, event) = (Mutex::new(0), Semaphore::new(1), Event::new());
    is_shared(&mutex);
    is_shared(&semaphore);
    let meet = Rendezvous::<2>::new();
    let (sender, receiver) = channel(1);
    drop(is_send(mutex.lock()));
    drop(is_send(mutex.try_lock()));
    drop(is_send(semaphore.acquire(1)));
    drop(is_send(event.wait()));
    drop(is_send(meet.wait_on(1)));
    drop(is_send(sender.send(1)));
    drop(is_send(receiver.receive()));
    is_shared(&sender);
}

#[test]
fn futures_outside_of_coroutines_count_as_default() {
    let (executor, log) = (executor!(29), Log::default());
    let semaphore = leak(Semaphore::new(0));
    takers(executor, semaphore, &log, &[33]);
    let mut by_hand = Box::pin(semaphore.acquire(1));
    assert!(poll_once(by_hand.as_mut()).is_pending());
    takers(executor, semaphore, &log, &[31]);
    semaphore.add_permits(1);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [0], "the one of level 31");
    assert!(poll_once(by_hand.as_mut()).is_ready(), "then this, of level 32");
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [0]);
}
