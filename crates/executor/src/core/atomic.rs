//! The atomics of the core, all of them: the machine's, or, with `--cfg loom`, those of the model
//! checker.
//!
//! A machine without 64-bit atomics (RV32, Cortex-M) gets them from `portable-atomic`, and the
//! others with them, since such a machine may have no compare-and-exchange at all (RV32IMC,
//! Cortex-M0). How, the program says by the features it gives that crate: none of them is right for
//! all machines, and the one that would be the default, a global lock, would deadlock an interrupt
//! handler that wakes a coroutine.
//!
//! May touch nothing. The rest of the core takes atomics from here only, so that what
//! `tests/loom.rs` explores is the shipped source.

#[cfg(all(not(loom), cops_perturb))]
pub use self::perturbed::*;
#[cfg(not(loom))]
pub use ::core::hint::spin_loop;
#[cfg(all(not(loom), not(cops_perturb), target_has_atomic = "64"))]
pub use ::core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
#[cfg(not(loom))]
pub use ::core::sync::atomic::{Ordering, compiler_fence};
// No AtomicU64 there? The program must choose how it is made: `portable-atomic` in its own
// Cargo.toml, with the feature `fallback` and one of `unsafe-assume-single-core`,
// `unsafe-assume-privileged` (documentation of this crate).
#[cfg(all(not(loom), not(target_has_atomic = "64")))]
pub use portable_atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

#[cfg(all(not(loom), not(cops_perturb), target_has_atomic = "64"))]
pub use super::published::load_published;

/// As that of [`published`](super::published), for these atomics.
#[cfg(not(all(not(loom), not(cops_perturb), target_has_atomic = "64")))]
pub fn load_published<T>(place: &AtomicPtr<T>) -> *mut T {
    place.load(Ordering::Acquire)
}

#[cfg(loom)]
pub use self::modelled::*;

/// For the front, which is not explored.
#[cfg(feature = "static-tasks")]
pub mod unmodelled {
    #[cfg(target_has_atomic = "64")]
    pub use super::super::published::load_published;
    #[cfg(target_has_atomic = "64")]
    pub use ::core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
    #[cfg(not(target_has_atomic = "64"))]
    pub use portable_atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

    /// As that of [`published`](super::super::published), for these atomics.
    #[cfg(not(target_has_atomic = "64"))]
    pub fn load_published<T>(place: &AtomicPtr<T>) -> *mut T {
        place.load(Ordering::Acquire)
    }
}

/// The machine's atomics, each access of which takes a while now and then, or lets other threads
/// run: for `tests/storm`, since what two threads must do within a nanosecond of each other happens
/// once in hours otherwise.
#[cfg(all(not(loom), cops_perturb))]
mod perturbed {
    use ::core::sync::atomic as machine;
    use ::core::sync::atomic::Ordering;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64 as Seed, Ordering::Relaxed};

    static SEED: Seed = Seed::new(1);

    std::thread_local! {
        static RANDOM: Cell<u64> =
            Cell::new(SEED.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1);
    }

    /// One access in 32 spins for up to 64 turns; one update in 128 gives up the processor when it
    /// is made, which is where what follows a transition meets what another thread makes of it.
    fn perturb(is_updated: bool) {
        // A thread that ends has no random numbers any more.
        let drawn = RANDOM.try_with(|random| {
            let mut word = random.get();
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            random.set(word);
            word
        });
        let Ok(word) = drawn else { return };
        if is_updated && word & 127 == 0 {
            std::thread::yield_now();
        } else if word & 31 == 0 {
            (0..word >> 8 & 63).for_each(|_| ::core::hint::spin_loop());
        }
    }

    /// Methods that compare before they update.
    macro_rules! exchanges {
        ($type:ty, $($method:ident),*) => {
            $(
                pub fn $method(
                    &self,
                    seen: $type,
                    next: $type,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$type, $type> {
                    perturb(false);
                    let outcome = self.0.$method(seen, next, success, failure);
                    perturb(outcome.is_ok());
                    outcome
                }
            )*
        };
    }

    macro_rules! perturbed {
        ($name:ident$(<$of:ident>)?, $type:ty, $($method:ident),*) => {
            /// As the machine's.
            #[repr(transparent)]
            #[derive(Debug)]
            pub struct $name$(<$of>)?(machine::$name$(<$of>)?);

            #[allow(dead_code, missing_docs)]
            impl$(<$of>)? $name$(<$of>)? {
                pub const fn new(value: $type) -> Self {
                    Self(machine::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $type {
                    perturb(false);
                    self.0.load(order)
                }

                pub fn store(&self, value: $type, order: Ordering) {
                    perturb(false);
                    self.0.store(value, order);
                }

                exchanges!($type, compare_exchange, compare_exchange_weak);

                $(
                    pub fn $method(&self, value: $type, order: Ordering) -> $type {
                        perturb(false);
                        let before = self.0.$method(value, order);
                        perturb(true);
                        before
                    }
                )*
            }
        };
    }

    perturbed!(AtomicU64, u64, swap, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max);
    perturbed!(AtomicU32, u32, swap, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max);
    perturbed!(AtomicBool, bool, swap, fetch_or, fetch_and);
    perturbed!(AtomicPtr<T>, *mut T, swap);
}

/// Loom's atomics in memory that is valid when zeroed, as slots and workers require: each is bound
/// to one of a pool at its first use.
#[cfg(loom)]
mod modelled {
    use ::core::fmt;
    use ::core::marker::PhantomData;
    use ::core::sync::atomic::AtomicU32 as Bound;
    pub use loom::hint::spin_loop;
    use loom::sync::atomic::AtomicU64 as Modelled;
    pub use loom::sync::atomic::Ordering;
    use loom::sync::atomic::fence;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use std::vec::Vec;

    std::thread_local! {
        /// Those of the present execution, and how many are bound. All threads of a model are one
        /// of the host's.
        static POOL: RefCell<(Vec<Rc<Modelled>>, usize)> = const { RefCell::new((Vec::new(), 0)) };
        static LATEST: Cell<bool> = const { Cell::new(false) };
    }

    /// To be called at the start of each execution, before the executor is made: makes `count`
    /// atomics, by the thread that starts all others, so that none can be used before it exists.
    ///
    /// With `latest`, each load sees the latest store. Of the earlier accesses that an access may
    /// race with, loom remembers one for each atomic, so a thread's own load hides another's from
    /// its update that follows, as in every loop of load and exchange; not if loads are updates to
    /// loom. So a model is to be run in both ways: one explores more interleavings, the other what
    /// weakly ordered loads may see.
    pub fn begin_model(count: usize, latest: bool) {
        LATEST.set(latest);
        let atomics = (0..count).map(|_| Rc::new(Modelled::new(0))).collect();
        POOL.with(|pool| *pool.borrow_mut() = (atomics, 0));
    }

    /// Loom takes sequentially consistent accesses for acquiring and releasing ones, but knows
    /// fences. With one before each such load and after each such update they have the one order
    /// that they are used for. (The fences order a little more than the accesses alone would.)
    fn before_load(order: Ordering) {
        if order == Ordering::SeqCst {
            fence(order);
        }
    }

    /// See `before_load`.
    fn after_update(order: Ordering) {
        before_load(order);
    }

    /// A compiler's fence orders one thread with its interrupt handlers; models have none.
    pub fn compiler_fence(_: Ordering) {}

    #[track_caller]
    fn load(modelled: &Modelled, order: Ordering) -> u64 {
        if LATEST.get() {
            return modelled.fetch_or(0, Ordering::AcqRel);
        }
        before_load(order);
        modelled.load(order)
    }

    #[track_caller]
    fn store(modelled: &Modelled, value: u64, order: Ordering) {
        if LATEST.get() {
            // Loom may take a store to come before an update that has not seen it.
            modelled.swap(value, Ordering::AcqRel);
            return;
        }
        modelled.store(value, order);
        after_update(order);
    }

    struct Word {
        /// The number of the bound atomic, plus 1.
        bound: Bound,
        initial: u64,
    }

    impl Word {
        const fn new(initial: u64) -> Word {
            Word { bound: Bound::new(0), initial }
        }

        fn modelled(&self) -> Rc<Modelled> {
            let bound = self.bound.load(Ordering::Relaxed);
            if bound != 0 {
                return POOL.with(|pool| pool.borrow().0[bound as usize - 1].clone());
            }
            let modelled = POOL.with(|pool| {
                let mut pool = pool.borrow_mut();
                pool.1 += 1;
                self.bound.store(pool.1 as u32, Ordering::Relaxed);
                pool.0[pool.1 - 1].clone()
            });
            if self.initial != 0 {
                modelled.store(self.initial, Ordering::Relaxed);
            }
            modelled
        }
    }

    macro_rules! define {
        ($name:ident, $type:ty, $to:expr, $from:expr) => {
            #[repr(C)]
            pub struct $name(Word);

            #[allow(dead_code)]
            impl $name {
                pub const fn new(value: $type) -> $name {
                    $name(Word::new(value as u64))
                }

                #[track_caller]
                pub fn load(&self, order: Ordering) -> $type {
                    $from(load(&self.0.modelled(), order))
                }

                #[track_caller]
                pub fn store(&self, value: $type, order: Ordering) {
                    store(&self.0.modelled(), $to(value), order);
                }

                #[track_caller]
                pub fn swap(&self, value: $type, order: Ordering) -> $type {
                    let before = self.0.modelled().swap($to(value), order);
                    after_update(order);
                    $from(before)
                }

                #[track_caller]
                pub fn compare_exchange(
                    &self,
                    seen: $type,
                    next: $type,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$type, $type> {
                    let modelled = self.0.modelled();
                    let outcome = modelled.compare_exchange($to(seen), $to(next), success, failure);
                    after_update(success);
                    outcome.map($from).map_err($from)
                }

                #[track_caller]
                pub fn compare_exchange_weak(
                    &self,
                    seen: $type,
                    next: $type,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$type, $type> {
                    self.compare_exchange(seen, next, success, failure)
                }
            }

            impl fmt::Debug for $name {
                fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                    fmt::Debug::fmt(&self.load(Ordering::Relaxed), formatter)
                }
            }
        };
    }

    macro_rules! define_arithmetic {
        ($name:ident, $type:ty, $($method:ident),*) => {
            #[allow(dead_code)]
            impl $name {
                $(
                    #[track_caller]
                    pub fn $method(&self, value: $type, order: Ordering) -> $type {
                        let before = self.0.modelled().$method(value as u64, order);
                        after_update(order);
                        before as $type
                    }
                )*
            }
        };
    }

    define!(AtomicU64, u64, |value: u64| value, |word: u64| word);
    define!(AtomicU32, u32, |value: u32| value as u64, |word: u64| word as u32);
    define!(AtomicBool, bool, |value: bool| value as u64, |word: u64| word != 0);
    define_arithmetic!(AtomicU64, u64, fetch_add, fetch_sub, fetch_or, fetch_and);
    // A sum does not wrap: it is for bits that are set once.
    define_arithmetic!(AtomicU32, u32, fetch_add, fetch_or, fetch_and, fetch_max);

    #[repr(C)]
    pub struct AtomicPtr<T>(Word, PhantomData<*mut T>);

    // The pointer is not followed here.
    #[allow(unsafe_code)]
    // SAFETY: like the standard library's `AtomicPtr`, this only stores the pointer and does not
    // dereference it.
    unsafe impl<T> Sync for AtomicPtr<T> {}
    #[allow(unsafe_code)]
    // SAFETY: like the standard library's `AtomicPtr`, this only stores the pointer and does not
    // dereference it.
    unsafe impl<T> Send for AtomicPtr<T> {}

    impl<T> AtomicPtr<T> {
        /// A null pointer, whatever is passed: the core makes no others.
        pub const fn new(_: *mut T) -> AtomicPtr<T> {
            AtomicPtr(Word::new(0), PhantomData)
        }

        #[track_caller]
        pub fn load(&self, order: Ordering) -> *mut T {
            ::core::ptr::with_exposed_provenance_mut(load(&self.0.modelled(), order) as usize)
        }

        #[track_caller]
        pub fn store(&self, value: *mut T, order: Ordering) {
            store(&self.0.modelled(), value.expose_provenance() as u64, order);
        }

        #[track_caller]
        pub fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
            let before = self.0.modelled().swap(value.expose_provenance() as u64, order);
            after_update(order);
            ::core::ptr::with_exposed_provenance_mut(before as usize)
        }

        #[track_caller]
        pub fn compare_exchange_weak(
            &self,
            seen: *mut T,
            next: *mut T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<*mut T, *mut T> {
            let outcome = self.compare_exchange(seen, next, success, failure);
            after_update(success);
            outcome
        }

        #[track_caller]
        pub fn compare_exchange(
            &self,
            seen: *mut T,
            next: *mut T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<*mut T, *mut T> {
            let (seen, next) = (seen.expose_provenance() as u64, next.expose_provenance() as u64);
            let pointer = |word: u64| ::core::ptr::with_exposed_provenance_mut(word as usize);
            self.0
                .modelled()
                .compare_exchange(seen, next, success, failure)
                .map(pointer)
                .map_err(pointer)
        }
    }
}
