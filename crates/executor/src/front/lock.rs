//! The lock under everything here that waits: some tens of instructions, no foreign code, no
//! allocation.
//!
//! One word. A signal from an interrupt handler must not wait for a lock that the interrupted
//! coroutine may hold: such a caller takes the lock if it is free, and otherwise leaves a note, and
//! the holder of the lock does the work before it unlocks. May touch nothing but the word, the
//! hook, and the value that it guards.

#[cfg(feature = "alloc")]
use ::core::cell::UnsafeCell;

use crate::core::atomic::{AtomicU32, Ordering, spin_loop};

const HELD: u32 = 1;
/// Something was posted while the lock was held.
const NOTED: u32 = 2;
/// Looks at the lock before the waiter lets the host run another thread, which may be the holder.
#[cfg(not(loom))]
const SPINS_BEFORE_YIELD: u32 = 100;

/// A spin lock that can carry a note.
pub(crate) struct SpinLock(AtomicU32);

impl SpinLock {
    pub const fn new() -> SpinLock {
        SpinLock(AtomicU32::new(0))
    }

    /// Takes the lock. Not for interrupt handlers, unless the interrupted code cannot hold it.
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        #[cfg(not(loom))]
        let mut spins = 0_u32;
        loop {
            // Acquire pairs with the Release of the unlock.
            if self.0.load(Ordering::Relaxed) == 0 && self.try_lock() {
                return;
            }
            spin_loop();
            #[cfg(not(loom))]
            {
                spins += 1;
                if spins.is_multiple_of(SPINS_BEFORE_YIELD) {
                    hook::yield_to_holder();
                }
            }
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(0, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock if it is free, true then; otherwise its holder will find a note. Does not
    /// wait.
    pub fn lock_or_note(&self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let next = if seen == 0 { HELD } else { seen | NOTED };
            // Release: what was posted before the note. Acquire: as `try_lock`.
            match self.0.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return seen == 0,
                Err(now) => seen = now,
            }
        }
    }

    /// Gives the lock back: true. Or takes a note that was left, and keeps the lock: false.
    #[must_use]
    #[inline]
    pub fn unlock(&self) -> bool {
        // Acquire, if there is a note: what was posted.
        if self.0.compare_exchange(HELD, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
            return true;
        }
        self.0.fetch_and(!NOTED, Ordering::AcqRel);
        false
    }

    /// Gives the lock back though there may be a note: the caller locks again and looks, or leaves
    /// another note for the one that holds the lock by then.
    pub fn release(&self) {
        // Not a store, which loom may take to come before a note that has not seen it.
        self.0.swap(0, Ordering::Release);
    }
}

/// A value that is reached under its own lock only.
#[cfg(feature = "alloc")]
pub(crate) struct Guarded<T> {
    lock: SpinLock,
    value: UnsafeCell<T>,
}

// SAFETY: `with`, the only function that reaches the value, holds the lock meanwhile. So one thread
// at a time has it, which is as if it were sent from one to the next.
#[cfg(feature = "alloc")]
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Guarded<T> {}

#[cfg(feature = "alloc")]
impl<T> Guarded<T> {
    pub const fn new(value: T) -> Guarded<T> {
        Guarded { lock: SpinLock::new(), value: UnsafeCell::new(value) }
    }

    /// Acts on the value under the lock. `act` must neither allocate, nor run foreign code (clone,
    /// wake or drop a waker, drop what others have put in), nor panic, nor call this again.
    #[inline]
    pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        self.lock.lock();
        // SAFETY: the lock is held, and this is the only place where the value is borrowed.
        #[allow(unsafe_code)]
        let result = act(unsafe { &mut *self.value.get() });
        self.lock.release();
        result
    }
}

#[cfg(all(not(loom), feature = "std"))]
mod hook {
    pub(crate) use crate::front::relax::relax as yield_to_holder;
}

#[cfg(all(not(loom), not(feature = "std")))]
mod hook {
    #![allow(unsafe_code)]

    use ::core::ptr;

    use crate::core::atomic::{AtomicPtr, Ordering};

    static HOOK: AtomicPtr<fn()> = AtomicPtr::new(ptr::null_mut());

    /// What waiters of this crate's locks do after 100 looks, instead of looking on for ever.
    ///
    /// To be set where a worker can lose its hart while it holds a lock (a virtual CPU of a
    /// process): the hook then lets another thread run. Kernels and firmware need none: their
    /// workers are interrupted but not replaced.
    ///
    /// ```ignore
    /// // Without `std`; not compiled here.
    /// static YIELD: fn() = || my_kernel::yield_virtual_cpu();
    /// cops_executor::sync::set_contention_hook(&YIELD);
    /// ```
    pub fn set_contention_hook(hook: &'static fn()) {
        HOOK.store(ptr::from_ref(hook).cast_mut(), Ordering::Release);
    }

    pub fn yield_to_holder() {
        // SAFETY: the pointer is null, or `set_contention_hook` stored it from a `&'static`
        // reference.
        if let Some(hook) = unsafe { HOOK.load(Ordering::Acquire).as_ref() } {
            hook();
        }
    }
}

#[cfg(all(not(loom), not(feature = "std")))]
pub use hook::set_contention_hook;
