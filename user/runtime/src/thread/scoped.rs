//! Threads that borrow from the function that starts them.
#![allow(unsafe_code)]

use alloc::sync::Arc;
use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use super::builder::{Builder, Packet};
use super::handle::Thread;
use crate::io::Result;
use crate::system;

/// How many threads of a scope have not ended.
pub(super) struct Running(AtomicU32);

impl Running {
    /// A thread has dropped everything that it borrowed, except this: when the number is 0, this is
    /// no longer accessed, since `scope` may have returned. Only its address is used, for the wake.
    pub(super) fn end(&self) {
        let word = &raw const self.0;
        if self.0.fetch_sub(1, Release) == 1 {
            system::futex_wake(word, 1);
        }
    }

    fn wait(&self) {
        loop {
            match self.0.load(Acquire) {
                0 => return,
                count => drop(system::futex_wait(&self.0, count, None)),
            }
        }
    }
}

/// Where threads are started that may borrow; see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    running: Running,
    // Invariant in both, as in `std`: otherwise they could be shortened to borrow too little.
    scope: PhantomData<&'scope mut &'scope ()>,
    environment: PhantomData<&'env mut &'env ()>,
}

/// Calls `act`, which may start threads that borrow, and waits until all of them have ended.
///
/// ```ignore
/// let numbers = [1, 2, 3];
/// let sum = cops::thread::scope(|scope| {
///     let sum = scope.spawn(|| numbers.iter().sum::<u32>());
///     let Ok(sum) = sum.join();
///     sum
/// });
/// ```
pub fn scope<'env, F, T>(act: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    // Not in an `Arc`, so that no memory is needed where no error can be returned.
    let running = Running(AtomicU32::new(0));
    let scope = Scope { running, scope: PhantomData, environment: PhantomData };
    // A panic ends the process, so the threads are always waited for.
    let result = act(&scope);
    scope.running.wait();
    result
}

impl<'scope> Scope<'scope, '_> {
    /// As [`spawn`](super::spawn) for a thread that may borrow.
    ///
    /// # Panics
    /// As [`spawn`](super::spawn).
    pub fn spawn<F, T>(&'scope self, act: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        match Builder::new().spawn_scoped(self, act) {
            Ok(handle) => handle,
            Err(error) => panic!("thread: {error}"),
        }
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Scope").field(&self.running.0).finish()
    }
}

impl Builder {
    /// As [`Builder::spawn`] for a thread that may borrow.
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        act: F,
    ) -> Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        scope.running.0.fetch_add(1, Relaxed);
        // SAFETY: what is borrowed for `'scope` lives until `scope` returns, which waits for
        // `running`.
        match unsafe { self.start(act, Some(&scope.running)) } {
            Ok((thread, packet)) => Ok(ScopedJoinHandle { thread, packet, scope: PhantomData }),
            Err(error) => {
                scope.running.end();
                Err(error)
            }
        }
    }
}

/// The result of a thread of a [`Scope`].
#[must_use = "the scope waits for the thread, but its result is dropped"]
pub struct ScopedJoinHandle<'scope, T> {
    thread: Thread,
    packet: Arc<Packet<T>>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// As [`JoinHandle::join`](super::JoinHandle::join).
    ///
    /// # Errors
    /// None.
    pub fn join(self) -> core::result::Result<T, Infallible> {
        Ok(self.packet.wait())
    }

    /// Whether the result is there.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.packet.is_done()
    }

    /// The thread.
    #[must_use]
    pub fn thread(&self) -> &Thread {
        &self.thread
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ScopedJoinHandle").field(&self.thread).finish()
    }
}
