//! A resource and its waiters, behind one spin lock; and the ticket with which a future waits.
//!
//! Semaphore, event, channels and rendezvous are each a [`Resource`]: safe code that says when a
//! newcomer need not wait, and what to grant to which waiter once something has changed. This
//! module has what they have in common: queueing, waking after the unlock, returning what a dropped
//! future was granted, and posting from interrupt handlers.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::mem::{MaybeUninit, take};
use ::core::pin::Pin;
use ::core::ptr;
use ::core::task::{Context, Poll, Waker};

use super::queue::{Link, Node, Place, Queue, node, priority_of};
use super::waiting::{self, FOR_OTHERS};
use crate::core::CoroutineId;
use crate::core::atomic::{AtomicU64, Ordering};
use crate::front::lock::SpinLock;
use crate::front::registry;

/// What is waited for. All its methods run under the monitor's lock: no foreign code, no
/// allocation.
pub(super) trait Resource: Sized {
    /// What a waiter asks for.
    type Demand: Copy;
    /// What it gets.
    type Grant: Copy;

    /// Takes in what was posted: the sum of all posts since, `u64::MAX` if that is more.
    fn accept(&mut self, posted: u64);

    /// Grants at once what a newcomer asks for, if it is available and no waiter has precedence.
    fn try_now(
        &mut self,
        demand: &mut Self::Demand,
        owner: Option<CoroutineId>,
    ) -> Option<Self::Grant>;

    /// The line in which this demand waits.
    fn line(&mut self, demand: Self::Demand) -> &mut Line<Self>;

    /// Grants to the waiters what is available, until `wakes` is full.
    fn distribute(&mut self, wakes: &mut Wakes);

    /// Releases what was granted to a future that was dropped before it saw the grant.
    fn release_grant(&mut self, demand: Self::Demand, grant: Self::Grant, wakes: &mut Wakes);
}

/// A demand, and what was granted.
type Entry<R> = (<R as Resource>::Demand, Option<<R as Resource>::Grant>);

/// Waiters in the order of their priorities as they are now.
pub(super) struct Line<R: Resource> {
    queue: Queue<Entry<R>>,
    /// `waiting::changes` when the queue was last put in order.
    in_order_at: u32,
}

impl<R: Resource> Line<R> {
    pub const fn new() -> Line<R> {
        Line { queue: Queue::new(), in_order_at: 0 }
    }

    #[inline]
    fn put_in_order(&mut self) {
        let changes = waiting::changes();
        if self.in_order_at != changes {
            self.in_order_at = changes;
            self.requeue();
        }
    }

    #[cold]
    fn requeue(&mut self) {
        // SAFETY: a line is reached under its monitor's lock only.
        unsafe { self.queue.requeue() };
    }

    /// The demand of the first waiter.
    #[inline]
    pub fn first(&mut self) -> Option<R::Demand> {
        if self.queue.is_empty() {
            return None;
        }
        self.put_in_order();
        // SAFETY: the monitor's lock is held, and the queue is not empty, so its first node is
        // linked and valid.
        Some(unsafe { node::data(self.queue.first()) }.0)
    }

    /// Whether a newcomer may pass all waiters.
    #[inline]
    pub fn lets_pass(&mut self, owner: Option<CoroutineId>) -> bool {
        if self.queue.is_empty() {
            return true;
        }
        self.put_in_order();
        // SAFETY: the monitor's lock is held, and the queue is not empty, so its first node is
        // linked and valid.
        priority_of(owner).is_more_urgent_than(unsafe { node::priority(self.queue.first()) })
    }

    /// Grants to the first waiter, if there is one.
    pub fn grant_first(&mut self, grant: R::Grant, wakes: &mut Wakes) {
        self.put_in_order();
        let first = self.queue.first();
        if !first.is_null() {
            self.grant(first, grant, wakes);
        }
    }

    /// Grants to the first waiter with a `suitable` demand. False if there is none.
    pub fn grant_where(
        &mut self,
        suitable: impl Fn(R::Demand) -> bool,
        grant: R::Grant,
        wakes: &mut Wakes,
    ) -> bool {
        self.put_in_order();
        let mut next = self.queue.first();
        while !next.is_null() {
            // SAFETY: the monitor's lock is held, and `next` is linked, so it is valid, as is the
            // node that follows it.
            unsafe {
                if suitable(node::data(next).0) {
                    self.grant(next, grant, wakes);
                    return true;
                }
                next = node::following(next);
            }
        }
        false
    }

    fn grant(&mut self, waiter: Link<Entry<R>>, grant: R::Grant, wakes: &mut Wakes) {
        // SAFETY: the callers found it in the queue, under the lock.
        unsafe {
            node::set_data(waiter, (node::data(waiter).0, Some(grant)));
            wakes.push(self.queue.grant(waiter));
        }
    }
}

/// Wakers to be woken after the unlock. Making and dropping an empty one costs nothing: most
/// operations wake no one.
pub(super) struct Wakes {
    /// The first `count` are there.
    wakers: [MaybeUninit<Waker>; Wakes::CAPACITY],
    count: usize,
}

impl Wakes {
    /// Small for the model checker, so that it sees what happens when they are full.
    const CAPACITY: usize = if cfg!(loom) { 3 } else { 16 };

    #[inline]
    const fn new() -> Wakes {
        Wakes { wakers: [const { MaybeUninit::uninit() }; Wakes::CAPACITY], count: 0 }
    }

    /// Nothing more may be granted before these are woken.
    #[inline]
    pub fn is_full(&self) -> bool {
        // One is left for the grant that an operation makes beside `distribute`.
        self.count >= Wakes::CAPACITY - 1
    }

    fn push(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.wakers[self.count].write(waker);
            self.count += 1;
        }
    }

    #[inline]
    fn wake_all(&mut self) {
        if self.count != 0 {
            self.wake_some();
        }
    }

    fn wake_some(&mut self) {
        // Should one panic, the rest is leaked.
        for waker in &mut self.wakers[..take(&mut self.count)] {
            // SAFETY: below the count, which is 0 now: read once.
            unsafe { waker.assume_init_read() }.wake();
        }
    }
}

/// A resource behind its lock.
pub(super) struct Monitor<R> {
    lock: SpinLock,
    /// What was posted and not accepted yet.
    posted: AtomicU64,
    resource: UnsafeCell<R>,
}

// SAFETY: the resource is reached by one thread at a time, under the lock.
unsafe impl<R: Send> Sync for Monitor<R> {}

impl<R: Resource> Monitor<R> {
    pub const fn new(resource: R) -> Monitor<R> {
        Monitor {
            lock: SpinLock::new(),
            posted: AtomicU64::new(0),
            resource: UnsafeCell::new(resource),
        }
    }

    /// Acts on the resource, then grants what that made possible. Waits for the lock.
    pub fn with<T>(&self, act: impl FnOnce(&mut R, &mut Wakes) -> T) -> T {
        let mut wakes = Wakes::new();
        self.lock.lock();
        let result = {
            // SAFETY: under the lock, and gone before `grant_and_unlock`.
            let resource = unsafe { &mut *self.resource.get() };
            self.accept(resource);
            act(resource, &mut wakes)
        };
        self.grant_and_unlock(&mut wakes);
        result
    }

    /// Adds to what `accept` gets, `u64::MAX` at most, in any context and without waiting: the
    /// holder of the lock finds it.
    pub fn post(&self, amount: u64) {
        let mut posted = self.posted.load(Ordering::Relaxed);
        // Before the note, which releases it.
        while let Err(now) = self.posted.compare_exchange_weak(
            posted,
            posted.saturating_add(amount),
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            posted = now;
        }
        if self.lock.lock_or_note() {
            self.grant_and_unlock(&mut Wakes::new());
        }
    }

    fn accept(&self, resource: &mut R) {
        if self.posted.load(Ordering::Relaxed) != 0 {
            resource.accept(self.posted.swap(0, Ordering::Acquire));
        }
    }

    /// Accepts, grants, unlocks, wakes; until there is nothing more, or another caller holds the
    /// lock after some wakes: then that one does the rest.
    fn grant_and_unlock(&self, wakes: &mut Wakes) {
        loop {
            // SAFETY: the caller holds the lock, and has no reference to the resource.
            let resource = unsafe { &mut *self.resource.get() };
            self.accept(resource);
            resource.distribute(wakes);
            if wakes.is_full() {
                self.lock.release();
                wakes.wake_all();
                // A post does not wait. What is left to grant is found by the holder.
                if !self.lock.lock_or_note() {
                    return;
                }
            } else if self.lock.unlock() {
                break;
            }
        }
        wakes.wake_all();
    }
}

/// How far a ticket has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    /// Its node is linked, or granted.
    Waiting,
    Done,
}

/// One wait of one future. To be pinned; waits until it is granted or dropped. (The node needs no
/// dropping: its waker is always taken out.)
pub(super) struct Ticket<'a, R: Resource> {
    monitor: &'a Monitor<R>,
    demand: R::Demand,
    phase: Phase,
    /// Written when the wait begins: without a wait there is nothing to create or to drop.
    node: MaybeUninit<Node<Entry<R>>>,
}

// SAFETY: what the node holds is sent; others reach it under the monitor's lock.
unsafe impl<R: Resource + Send> Send for Ticket<'_, R>
where
    R::Demand: Send,
    R::Grant: Send,
{
}

impl<'a, R: Resource> Ticket<'a, R> {
    pub const fn new(monitor: &'a Monitor<R>, demand: R::Demand) -> Ticket<'a, R> {
        Ticket { monitor, demand, phase: Phase::New, node: MaybeUninit::uninit() }
    }

    /// Ready, with what `finish` makes of the grant under the lock, once it is granted.
    pub fn poll<T>(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        finish: impl FnOnce(&mut R, R::Grant) -> T,
    ) -> Poll<T> {
        // SAFETY: the node, the only field that must not move, is not moved out of this reference.
        let this = unsafe { self.get_unchecked_mut() };
        assert!(this.phase != Phase::Done, "polled after it was ready");
        let node = &mut this.node;
        // Cloned before and dropped after the lock: it may be foreign.
        let mut waker = Some(context.waker().clone());
        let owner = registry::current();
        let (phase, demand) = (&mut this.phase, &mut this.demand);
        this.monitor.with(|resource, _| {
            if *phase == Phase::New {
                if let Some(grant) = resource.try_now(demand, owner) {
                    *phase = Phase::Done;
                    return Poll::Ready(finish(resource, grant));
                }
                *phase = Phase::Waiting;
                FOR_OTHERS.enter(owner);
                let here: Link<Entry<R>> = ptr::from_mut(node.write(Node::new((*demand, None))));
                // SAFETY: pinned; the owner's until it is linked; unlinked by `drop`, at the
                // latest.
                unsafe {
                    node::set_owner(here, owner);
                    waker = waker.take().and_then(|waker| node::set_waker(here, waker));
                    resource.line(*demand).queue.link(here, priority_of(owner));
                }
                return Poll::Pending;
            }
            let here = node.as_ptr();
            // SAFETY: the node of a ticket that waits is touched under its monitor's lock: here.
            unsafe {
                if node::place(here) == Place::Granted {
                    *phase = Phase::Done;
                    FOR_OTHERS.leave(node::owner(here));
                    let grant = node::data(here).1.expect("set with the place");
                    return Poll::Ready(finish(resource, grant));
                }
                waker = waker.take().and_then(|waker| node::set_waker(here, waker));
                let before = node::owner(here);
                if owner != before {
                    // The future has moved to another coroutine.
                    FOR_OTHERS.enter(owner);
                    node::set_owner(here, owner);
                    FOR_OTHERS.leave(before);
                }
                let priority = priority_of(owner);
                if priority != node::priority(here) {
                    let line = resource.line(*demand);
                    line.queue.unlink(here);
                    line.queue.link(here, priority);
                }
            }
            Poll::Pending
        })
    }
}

impl<R: Resource> Drop for Ticket<'_, R> {
    fn drop(&mut self) {
        if self.phase != Phase::Waiting {
            return;
        }
        let (here, demand) = (self.node.as_ptr(), self.demand);
        let waker = self.monitor.with(|resource, wakes| {
            // SAFETY: the monitor's lock is held, and the node is pinned, was linked by `poll`, and
            // is unlinked here before it is dropped.
            unsafe {
                FOR_OTHERS.leave(node::owner(here));
                match (node::place(here), node::data(here).1) {
                    (Place::Granted, Some(grant)) => resource.release_grant(demand, grant, wakes),
                    _ => resource.line(demand).queue.unlink(here),
                }
                node::take_waker(here)
            }
        });
        drop(waker);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "monitor_tests.rs"]
mod tests;
