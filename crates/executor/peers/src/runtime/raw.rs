//! No runtime: boxed futures in a vector, polled in turn with a waker that does nothing. The floor
//! for everything that keeps futures of different types; it cannot block, wake or prefer any of
//! them.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use super::{Runtime, Setup, Task};

type Boxed = Pin<Box<dyn Future<Output = ()>>>;

thread_local! {
    static SPAWNED: RefCell<Vec<Boxed>> = const { RefCell::new(Vec::new()) };
}

/// Bare polling.
#[derive(Clone, Copy)]
pub struct Raw;

impl Runtime for Raw {
    type Slots<F: Task> = ();

    fn start(_: Setup) -> Raw {
        Raw
    }

    fn slots<F: Task>(self, _: usize) {}

    fn spawn<F: Task>(self, (): (), _: usize, future: F, _: u32) {
        SPAWNED.with_borrow_mut(|spawned| spawned.push(Box::pin(future)));
    }

    fn run<P: Task>(self, parent: P) {
        let mut parent = pin!(parent);
        let mut context = Context::from_waker(Waker::noop());
        let mut futures: Vec<Boxed> = Vec::new();
        while parent.as_mut().poll(&mut context).is_pending() {
            SPAWNED.with_borrow_mut(|spawned| futures.append(spawned));
            while !futures.is_empty() {
                let mut number = 0;
                while let Some(future) = futures.get_mut(number) {
                    if future.as_mut().poll(&mut context).is_ready() {
                        drop(futures.swap_remove(number));
                    } else {
                        number += 1;
                    }
                }
            }
        }
    }
}
