//! A post waits for nothing, also between two batches of wakes.

use std::boxed::Box;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::Wake;
use std::thread;
use std::time::Duration;
use std::vec::Vec;

use super::*;

/// Each post releases all that wait.
struct Door {
    is_open: bool,
    line: Line<Door>,
}

impl Resource for Door {
    type Demand = ();
    type Grant = ();

    fn accept(&mut self, _: u64) {
        self.is_open = true;
    }

    fn try_now(&mut self, (): &mut (), _: Option<CoroutineId>) -> Option<()> {
        self.is_open.then_some(())
    }

    fn line(&mut self, (): ()) -> &mut Line<Self> {
        &mut self.line
    }

    fn distribute(&mut self, wakes: &mut Wakes) {
        while self.is_open && !wakes.is_full() && self.line.first().is_some() {
            self.line.grant_first((), wakes);
        }
    }

    fn release_grant(&mut self, (): (), (): (), _: &mut Wakes) {}
}

/// A thread that takes the lock when this is woken, and has lost its processor.
struct Takes(&'static Monitor<Door>);

impl Wake for Takes {
    fn wake(self: Arc<Self>) {
        self.0.lock.lock();
    }
}

/// What `accept` gets.
struct Sum(u64);

impl Resource for Sum {
    type Demand = ();
    type Grant = ();

    fn accept(&mut self, posted: u64) {
        self.0 = posted;
    }

    fn try_now(&mut self, (): &mut (), _: Option<CoroutineId>) -> Option<()> {
        None
    }

    fn line(&mut self, (): ()) -> &mut Line<Self> {
        unreachable!("there are no waiters")
    }

    fn distribute(&mut self, _: &mut Wakes) {}

    fn release_grant(&mut self, (): (), (): (), _: &mut Wakes) {}
}

#[test]
fn posts_while_the_lock_is_held_saturate() {
    let monitor = Monitor::new(Sum(0));
    monitor.with(|_, _| {
        // The holder of the lock accepts both together.
        monitor.post(u64::MAX);
        monitor.post(1);
    });
    assert_eq!(monitor.with(|sum, _| sum.0), u64::MAX);
}

#[test]
fn a_post_does_not_wait_for_one_that_takes_the_lock_while_it_wakes() {
    let monitor: &Monitor<Door> =
        Box::leak(Box::new(Monitor::new(Door { is_open: false, line: Line::new() })));
    let mut tickets: Vec<_> = (0..20).map(|_| Box::pin(Ticket::new(monitor, ()))).collect();
    let takes = Waker::from(Arc::new(Takes(monitor)));
    for (number, ticket) in tickets.iter_mut().enumerate() {
        let waker = if number == 0 { &takes } else { Waker::noop() };
        let polled = ticket.as_mut().poll(&mut Context::from_waker(waker), |_, ()| ());
        assert!(polled.is_pending());
    }
    let (done, is_done) = channel();
    thread::spawn(move || {
        monitor.post(1);
        done.send(()).unwrap();
    });
    let is_done = is_done.recv_timeout(Duration::from_secs(5));
    // The holder goes on. It finds a note, and releases the others.
    if !monitor.lock.unlock() {
        monitor.grant_and_unlock(&mut Wakes::new());
    }
    assert!(is_done.is_ok(), "a post waits for the lock");
    for ticket in &mut tickets {
        let context = &mut Context::from_waker(Waker::noop());
        assert!(ticket.as_mut().poll(context, |_, ()| ()).is_ready());
    }
}
