//! The waiters for one direction of one socket.
//!
//! A set is protected by the lock of the object to which it belongs, and its wakers are called
//! under that lock: a wake must only enqueue (as the executor's does) and must not call the stack.

use core::task::Waker;

/// A registration beyond this wakes all. Spurious wakes are always allowed, so this bounds the
/// memory of cancelled waiters, which need not unregister. A caller with many waiters must keep
/// them itself and register one waker.
const MAXIMUM_WAITERS: usize = 3;

/// Wakers that wait for one kind of event. Allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct WakerSet {
    wakers: [Option<Waker>; MAXIMUM_WAITERS],
}

impl WakerSet {
    /// Adds `waker`, unless the set contains one that wakes the same task.
    pub(crate) fn register(&mut self, waker: &Waker) {
        if self.wakers.iter().flatten().any(|other| other.will_wake(waker)) {
            return;
        }
        if self.wakers.iter().all(Option::is_some) {
            self.wake_all();
        }
        if let Some(place) = self.wakers.iter_mut().find(|place| place.is_none()) {
            *place = Some(waker.clone());
        }
    }

    /// Wakes and removes all.
    pub(crate) fn wake_all(&mut self) {
        for place in &mut self.wakers {
            if let Some(waker) = place.take() {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use alloc::task::Wake;
    use alloc::vec::Vec;
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
    fn no_waker_is_lost_when_the_set_overflows() {
        let counts: Vec<_> = (0..100).map(|_| Arc::new(Count::default())).collect();
        let mut set = WakerSet::default();
        for count in &counts {
            set.register(&Waker::from(count.clone()));
        }
        set.wake_all();
        assert!(counts.iter().all(|count| count.0.load(Ordering::Relaxed) == 1));
    }
}
