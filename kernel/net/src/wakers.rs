//! The waiters of one direction of one socket.
//!
//! A set is guarded by the lock of the object it belongs to, and its wakers are called under that
//! lock: a wake must be an enqueue (as the executor's is) and must not call the stack.

use alloc::vec::Vec;
use core::task::Waker;

/// Registrations beyond this wake all. Spurious wakes are always allowed, so this bounds the
/// memory that cancelled waiters can leave behind without asking them to unregister.
const MAXIMUM_WAITERS: usize = 16;

/// Wakers waiting for one kind of event. The first, nearly always the only one, costs no allocation.
#[derive(Debug, Default)]
pub(crate) struct WakerSet {
    first: Option<Waker>,
    others: Vec<Waker>,
}

impl WakerSet {
    /// Adds `waker`, unless one that wakes the same task is there.
    pub(crate) fn register(&mut self, waker: &Waker) {
        let Some(first) = &self.first else {
            self.first = Some(waker.clone());
            return;
        };
        if first.will_wake(waker) || self.others.iter().any(|other| other.will_wake(waker)) {
            return;
        }
        if self.others.len() + 1 >= MAXIMUM_WAITERS {
            self.wake_all();
            self.first = Some(waker.clone());
        } else {
            self.others.push(waker.clone());
        }
    }

    /// Wakes and forgets all.
    pub(crate) fn wake_all(&mut self) {
        if let Some(waker) = self.first.take() {
            waker.wake();
        }
        for waker in self.others.drain(..) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use alloc::task::Wake;
    use core::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn one_task_is_woken_once_however_often_it_registers() {
        let (count, mut set) = (Arc::new(Count::default()), WakerSet::default());
        let waker = Waker::from(count.clone());
        for _ in 0..100 {
            set.register(&waker);
        }
        set.wake_all();
        set.wake_all();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn nobody_is_lost_when_the_set_overflows() {
        let counts: Vec<_> = (0..100).map(|_| Arc::new(Count::default())).collect();
        let mut set = WakerSet::default();
        for count in &counts {
            set.register(&Waker::from(count.clone()));
            assert!(set.others.len() < MAXIMUM_WAITERS);
        }
        set.wake_all();
        assert!(counts.iter().all(|count| count.0.load(Ordering::Relaxed) == 1));
    }
}
