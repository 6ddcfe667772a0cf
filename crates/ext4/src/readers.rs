//! Reading operations, which a publication waits for.
//!
//! Each reading operation has the mutex of a *place*; a publication waits for the mutexes of all
//! places at once. So the readers are as urgent meanwhile as the operation that publishes
//! (`cops_executor::sync::Mutex`), and others that are no more urgent come after it. A reader that
//! waits for a publication passes its priority on in the same way.
//!
//! Rejected: a semaphore of which a publication takes all permits. It was that. A semaphore does
//! not know its holders, so an urgent change waited for unimportant readers, and these for
//! everything more urgent than themselves.

use alloc::vec::Vec;
use core::array;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops_executor::sync::{Mutex, MutexGuard};
use futures_util::future::join_all;

/// Reading operations that run beside each other; more wait. A disk has enough to do with fewer,
/// and each one costs a publication two atomic instructions.
const PLACES: usize = 32;

pub(crate) struct Readers {
    places: [Mutex<()>; PLACES],
    /// Where the next operation begins to look for a place.
    next: AtomicUsize,
}

impl Readers {
    pub fn new() -> Readers {
        Readers { places: array::from_fn(|_| Mutex::new(())), next: AtomicUsize::new(0) }
    }

    /// The places from a different one on each time.
    fn all_from_next(&self) -> impl Iterator<Item = &Mutex<()>> {
        let (before, after) = self.places.split_at(self.next.fetch_add(1, Relaxed) % PLACES);
        after.iter().chain(before)
    }

    /// Begins a reading operation, which ends when the guard is dropped. Cancel-safe.
    pub async fn read(&self) -> MutexGuard<'_, ()> {
        if let Some(guard) = self.all_from_next().find_map(Mutex::try_lock) {
            return guard;
        }
        // Those that wait are spread over the places.
        let [first, ..] = &self.places;
        self.all_from_next().next().unwrap_or(first).lock().await
    }

    /// Waits for all reading operations, and keeps others from beginning until the guards are
    /// dropped. Cancel-safe. One caller at a time: two would wait for each other.
    pub async fn exclude(&self) -> Vec<MutexGuard<'_, ()>> {
        let mut guards = Vec::with_capacity(PLACES);
        let taken = self.places.iter().filter(|place| {
            let guard = place.try_lock();
            let is_taken = guard.is_none();
            guards.extend(guard);
            is_taken
        });
        let taken: Vec<_> = taken.map(Mutex::lock).collect();
        if !taken.is_empty() {
            guards.extend(join_all(taken).await);
        }
        guards
    }
}
