//! Models for loom, on the shipped `sync`, join handles and sets of them: mutex, semaphore and
//! event, with waits that are given up while they are granted; a handle that is awaited or dropped
//! while its coroutine ends; a set that gets members, is awaited or detaches while members end. Two
//! holders at once are a data race on a cell of loom's; a lost wake is a deadlock.
//!
//! Outside of coroutines, so without inheritance; `tests/inheritance.rs` checks its rule.
#![cfg(loom)]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32 as Plain, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use cops_executor::core::begin_model;
use cops_executor::modelled_join::{Side, sides};
use cops_executor::sync::{Event, Mutex, Semaphore, begin_sync_model, spsc};
use cops_executor::{JoinError, JoinHandle, JoinSet, current};
use loom::cell::UnsafeCell;
use loom::sync::Notify;
use loom::thread;

/// Bounds the search in the scenes that are interleaved.
const PREEMPTIONS: usize = 3;
/// Atomics that one execution may use.
const ATOMICS: usize = 40;

struct Unpark(Notify);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

fn unpark() -> (Arc<Unpark>, Waker) {
    let unpark = Arc::new(Unpark(Notify::new()));
    (unpark.clone(), Waker::from(unpark))
}

/// Sleeps until the future is ready; for ever, if its wake was lost.
fn block_on<F: Future>(future: F) -> F::Output {
    let (unpark, waker) = unpark();
    let mut future = pin!(future);
    loop {
        match poll(future.as_mut(), &waker) {
            Poll::Ready(output) => return output,
            Poll::Pending => unpark.0.wait(),
        }
    }
}

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// Explores a scene in both ways of `begin_model`, and prints how many executions there were.
fn explore(name: &str, scene: impl Fn() + Sync + Send + 'static) {
    // The record of threads that are no workers is a static, and stays bound to the first atomic of
    // an execution.
    loom::model(|| {
        begin_model(ATOMICS, false);
        assert_eq!(current(), None);
    });
    let scene = Arc::new(scene);
    for (latest, way) in [(false, "weakly ordered"), (true, "interleaved")] {
        let executions = Arc::new(Plain::new(0));
        let (counted, scene) = (executions.clone(), scene.clone());
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(PREEMPTIONS);
        model.max_branches = 20_000;
        model.check(move || {
            counted.fetch_add(1, SeqCst);
            begin_model(ATOMICS, latest);
            begin_sync_model();
            // So no other lock gets that first one.
            assert!(!Mutex::new(()).is_locked());
            scene();
        });
        println!("{name}, {way}: {} executions", executions.load(SeqCst));
    }
}

/// Adds without atomics: loom finds two that do so at once, or one that does not see the other.
fn add(cell: &UnsafeCell<u32>) {
    cell.with_mut(|value| {
        // SAFETY: the lock that is to be checked.
        #[allow(unsafe_code)]
        unsafe {
            *value += 1;
        }
    });
}

#[test]
fn a_mutex_excludes_and_wakes() {
    explore("lock against lock", || {
        let mutex = Arc::new(Mutex::new(UnsafeCell::new(0)));
        let other = mutex.clone();
        let thread = thread::spawn(move || add(&*block_on(other.lock())));
        add(&*block_on(mutex.lock()));
        thread.join().unwrap();
        assert!(!mutex.is_locked());
        let mutex = Arc::into_inner(mutex).unwrap();
        assert_eq!(
            mutex.into_inner().with(|value| {
                // SAFETY: the thread has ended and the mutex is consumed, so no other reference to
                // the value exists.
                #[allow(unsafe_code)]
                unsafe {
                    *value
                }
            }),
            2
        );
    });
}

#[test]
fn a_waiter_that_gives_up_against_the_unlock() {
    explore("giving up against unlock", || {
        let mutex = Arc::new(Mutex::new(UnsafeCell::new(0)));
        let guard = mutex.try_lock().unwrap();
        let other = mutex.clone();
        let thread = thread::spawn(move || {
            let (_unpark, waker) = unpark();
            let mut wait = Box::pin(other.lock());
            match poll(wait.as_mut(), &waker) {
                Poll::Ready(guard) => add(&guard),
                // Perhaps it has been granted meanwhile.
                Poll::Pending => drop(wait),
            }
        });
        add(&guard);
        drop(guard);
        thread.join().unwrap();
        assert!(!mutex.is_locked());
        drop(mutex.try_lock().expect("it was passed on, or released"));
    });
}

#[test]
fn one_gives_up_and_the_next_gets_it() {
    explore("giving up against unlock, another waits", || {
        let mutex = Arc::new(Mutex::new(UnsafeCell::new(0)));
        let guard = mutex.try_lock().unwrap();
        let (_unpark, waker) = unpark();
        let mut first = Box::pin(mutex.lock());
        assert!(poll(first.as_mut(), &waker).is_pending());
        let other = mutex.clone();
        let thread = thread::spawn(move || add(&*block_on(other.lock())));
        drop(guard);
        drop(first);
        thread.join().unwrap();
        assert!(!mutex.is_locked());
    });
}

#[test]
fn one_sends_and_one_receives() {
    explore("a channel of one place: send against receive", || {
        let (mut sender, mut receiver) = spsc::channel(1);
        assert_eq!(sender.try_send(0), Ok(()));
        // Waits for a place, and then the receiver waits for the value.
        let thread = thread::spawn(move || assert_eq!(block_on(sender.send(1)), Ok(())));
        assert_eq!(receiver.try_receive(), Ok(0));
        assert_eq!(block_on(receiver.receive()), Some(1));
        thread.join().unwrap();
    });
}

#[test]
fn the_end_of_the_receiver_against_a_send() {
    explore("a full channel: send against the end of the receiver", || {
        let (mut sender, receiver) = spsc::channel(1);
        assert_eq!(sender.try_send(0), Ok(()));
        let thread = thread::spawn(move || drop(receiver));
        assert!(block_on(sender.send(1)).is_err());
        thread.join().unwrap();
    });
}

#[test]
fn permits_against_waiting() {
    explore("adding permits against waiting", || {
        let semaphore = Arc::new(Semaphore::new(0));
        let other = semaphore.clone();
        let thread = thread::spawn(move || block_on(other.acquire(2)).forget());
        // May find the lock held, and leave a note.
        semaphore.add_permits(1);
        semaphore.add_permits(1);
        thread.join().unwrap();
        assert_eq!(semaphore.available(), 0);
    });
}

#[test]
fn a_demand_that_is_withdrawn_against_permits() {
    explore("giving up against adding permits", || {
        let semaphore = Arc::new(Semaphore::new(0));
        let (_unpark, waker) = unpark();
        let mut wait = Box::pin(semaphore.acquire(1));
        assert!(poll(wait.as_mut(), &waker).is_pending());
        let other = semaphore.clone();
        let thread = thread::spawn(move || other.add_permits(1));
        drop(wait);
        thread.join().unwrap();
        assert_eq!(semaphore.available(), 1);
    });
}

#[test]
fn an_event_against_waiting_and_clearing() {
    explore("set against wait and clear", || {
        let event = Arc::new(Event::new());
        let value = Arc::new(UnsafeCell::new(0));
        let (other, written) = (event.clone(), value.clone());
        let thread = thread::spawn(move || {
            add(&written);
            other.set();
        });
        block_on(event.wait());
        // What was written before it was set is seen.
        add(&value);
        event.clear();
        thread.join().unwrap();
        assert!(!event.is_set());
    });
}

#[test]
fn giving_up_between_two_batches_of_wakes() {
    explore("giving up against set, three wait", || {
        let event = Arc::new(Event::new());
        let (_unpark, waker) = unpark();
        // More than are woken before the lock is released.
        let mut waits: Vec<_> = (0..3).map(|_| Box::pin(event.wait())).collect();
        for wait in &mut waits {
            assert!(poll(wait.as_mut(), &waker).is_pending());
        }
        let other = event.clone();
        let thread = thread::spawn(move || other.set());
        drop(waits.pop());
        thread.join().unwrap();
        assert!(waits.iter_mut().all(|wait| poll(wait.as_mut(), &waker).is_ready()));
    });
}

/// An output that counts its destructions; loom finds data races on its cell.
struct Output {
    cell: Arc<UnsafeCell<u32>>,
    dropped: Arc<Plain>,
}

impl Drop for Output {
    fn drop(&mut self) {
        // After what the coroutine did, whichever side drops it.
        add(&self.cell);
        self.dropped.fetch_add(1, SeqCst);
    }
}

/// A coroutine with a handle, and how often its output was dropped.
fn coroutine() -> (JoinHandle<Output>, Side, Arc<Plain>) {
    let dropped = Arc::new(Plain::new(0));
    let output = Output { cell: Arc::new(UnsafeCell::new(0)), dropped: dropped.clone() };
    let (handle, coroutine) = sides(async move {
        add(&output.cell);
        output
    });
    (handle, coroutine, dropped)
}

/// A coroutine with a handle that ends on a thread of its own; and how often its output was
/// dropped.
fn ending(is_cancelled: bool) -> (JoinHandle<Output>, thread::JoinHandle<()>, Arc<Plain>) {
    let (handle, coroutine, dropped) = coroutine();
    (handle, thread::spawn(move || coroutine.end(is_cancelled)), dropped)
}

#[test]
fn a_handle_that_is_dropped_against_the_end() {
    for is_cancelled in [false, true] {
        explore("end against dropping the handle", move || {
            let (handle, thread, dropped) = ending(is_cancelled);
            drop(handle);
            thread.join().unwrap();
            assert_eq!(dropped.load(SeqCst), 1);
        });
    }
}

#[test]
fn a_handle_that_is_awaited_against_the_end() {
    for is_cancelled in [false, true] {
        explore("end against awaiting the handle", move || {
            let (handle, thread, dropped) = ending(is_cancelled);
            let result = block_on(handle);
            assert_eq!(result.is_err(), is_cancelled);
            if is_cancelled {
                assert!(matches!(result, Err(JoinError::Cancelled)));
            }
            drop(result);
            thread.join().unwrap();
            assert_eq!(dropped.load(SeqCst), 1);
        });
    }
}

#[test]
fn a_handle_that_is_polled_and_dropped_against_the_end() {
    explore("end against polling and dropping the handle", || {
        let (mut handle, thread, dropped) = ending(false);
        let (unpark, waker) = unpark();
        let first = poll(Pin::new(&mut handle), &waker);
        if first.is_pending() {
            drop(poll(Pin::new(&mut handle), &waker));
        }
        drop((first, handle, waker));
        thread.join().unwrap();
        assert_eq!(dropped.load(SeqCst), 1);
        // No waker is left in a block that is not freed.
        assert_eq!(Arc::strong_count(&unpark), 1);
    });
}

#[test]
fn a_set_that_is_awaited_against_the_ends_of_its_members() {
    explore("awaiting a set against the ends of two members", || {
        let mut set = JoinSet::new();
        let members = [coroutine(), coroutine()].map(|(handle, coroutine, dropped)| {
            set.insert(handle);
            (coroutine, dropped)
        });
        let [(one, one_dropped), (other, other_dropped)] = members;
        let thread = thread::spawn(move || one.end(false));
        other.end(true);
        let outputs = [block_on(set.join_next()), block_on(set.join_next())];
        assert_eq!(outputs.iter().filter(|output| matches!(output, Some(Ok(_)))).count(), 1);
        assert!(block_on(set.join_next()).is_none());
        drop(outputs);
        thread.join().unwrap();
        assert_eq!((one_dropped.load(SeqCst), other_dropped.load(SeqCst)), (1, 1));
    });
}

#[test]
fn a_member_that_is_inserted_against_its_end() {
    explore("inserting a member against its end", || {
        let (handle, thread, dropped) = ending(false);
        let mut set = JoinSet::new();
        set.insert(handle);
        assert!(matches!(block_on(set.join_next()), Some(Ok(_))));
        thread.join().unwrap();
        assert_eq!(dropped.load(SeqCst), 1);
    });
}

#[test]
fn awaiting_a_set_is_given_up_against_the_end_of_a_member() {
    explore("giving up awaiting a set against an end", || {
        let (handle, thread, dropped) = ending(false);
        let mut set = JoinSet::new();
        set.insert(handle);
        let (_unpark, waker) = unpark();
        let first = poll(pin!(set.join_next()), &waker);
        // What has not been taken is there, and wakes the waker of the next wait.
        if first.is_pending() {
            assert!(matches!(block_on(set.join_next()), Some(Ok(_))));
        }
        drop(first);
        thread.join().unwrap();
        assert_eq!(dropped.load(SeqCst), 1);
    });
}

#[test]
fn members_are_detached_against_an_end() {
    explore("detaching against an end, another has the place", || {
        let (handle, thread, dropped) = ending(false);
        let (other, coroutine, _) = coroutine();
        let mut set = JoinSet::new();
        set.insert(handle);
        set.detach_all();
        set.insert(other);
        let (_unpark, waker) = unpark();
        assert!(poll(pin!(set.join_next()), &waker).is_pending());
        coroutine.end(true);
        let joined = block_on(set.join_next());
        assert!(matches!(joined, Some(Err(JoinError::Cancelled))));
        thread.join().unwrap();
        assert_eq!(dropped.load(SeqCst), 1);
    });
}
