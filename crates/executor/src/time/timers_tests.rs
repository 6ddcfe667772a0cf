//! Firing waits for nothing, also between two batches of wakes.

use std::boxed::Box;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Wake};
use std::thread;
use std::vec::Vec;

use super::*;
use crate::time::ManualClock;

/// A thread that takes the lock when this is woken, and has lost its processor.
struct Takes(&'static Timers<ManualClock>);

impl Wake for Takes {
    fn wake(self: Arc<Self>) {
        self.0.lock.lock();
    }
}

#[test]
fn firing_does_not_wait_for_one_that_takes_the_lock_while_it_wakes() {
    let timers: &Timers<ManualClock> = Box::leak(Box::new(Timers::new(ManualClock::new())));
    let takes = Waker::from(Arc::new(Takes(timers)));
    let mut sleepers: Vec<_> =
        (10..30).map(|deadline| Box::pin(timers.sleep_until(deadline))).collect();
    for (number, sleeper) in sleepers.iter_mut().enumerate() {
        let waker = if number == 0 { &takes } else { Waker::noop() };
        assert!(sleeper.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    timers.clock().advance_to(28);
    let (done, is_done) = channel();
    thread::spawn(move || done.send(timers.fire_due()).unwrap());
    let fired = is_done.recv_timeout(Duration::from_secs(5));
    // The holder goes on. It finds a note, fires the others, and learns when to fire next.
    let rest = if timers.lock.unlock() { Fired::default() } else { timers.fire_and_unlock() };
    assert_eq!(fired, Ok(Fired { count: FIRED_AT_ONCE, next_deadline: None }));
    assert_eq!(rest, Fired { count: 3, next_deadline: Some(29) });
}
