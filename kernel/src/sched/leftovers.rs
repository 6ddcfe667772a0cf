//! Leftovers: what is left of something large that has ended, to be freed in portions.
//!
//! A service frees them, some parts of one leftover after the other, at the default level. Its time
//! is charged to no process: to free a part takes less than it took to make it.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use core::future::poll_fn;
use core::task::Poll;

use cops_lock::Mutex;

use super::service::Service;

/// Something large, which is freed in portions.
pub trait Leftover: Send {
    /// Frees a few parts. Returns whether there are more.
    fn free_some(&mut self) -> bool;

    /// Where it keeps the leftover behind it, while it waits.
    fn next(&mut self) -> &mut Option<Box<dyn Leftover>>;
}

static FIRST: Mutex<Option<Box<dyn Leftover>>> = Mutex::new(None);
static SERVICE: Service = Service::new();

/// Frees `leftover`, at once if it is small.
pub fn free(mut leftover: Box<dyn Leftover>) {
    if leftover.free_some() {
        free_later(leftover);
    }
}

/// Frees `leftover` soon. Takes a few steps, however large it is.
pub fn free_later(leftover: Box<dyn Leftover>) {
    put(leftover);
    SERVICE.wake();
}

fn put(mut leftover: Box<dyn Leftover>) {
    let mut first = FIRST.lock();
    *leftover.next() = first.take();
    *first = Some(leftover);
}

/// The service coroutine.
pub async fn service() {
    SERVICE.begin();
    poll_fn(|context| {
        let leftover = {
            let mut first = FIRST.lock();
            let leftover = first.take();
            leftover.map(|mut leftover| {
                *first = leftover.next().take();
                leftover
            })
        };
        if let Some(mut leftover) = leftover {
            if leftover.free_some() {
                put(leftover);
            }
            context.waker().wake_by_ref();
        }
        Poll::<()>::Pending
    })
    .await;
}
