//! What spawning does when the global allocator has no memory for the future.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::Future;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use cops_executor::*;

/// Refuses, while `REFUSES` is set, what only the futures of this test ask for.
struct Refusing;

static REFUSES: AtomicBool = AtomicBool::new(false);

// SAFETY: all is `System`'s, but for what is refused, as an allocator may.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if REFUSES.load(Relaxed) && matches!(layout.size(), 900..=1024 | 5000..6000) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises, and the memory is from `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// A future with an `Arc`, by which the test sees whether it has been dropped.
struct Ready<const BYTES: usize>(#[expect(dead_code)] Arc<()>, [u8; BYTES]);

impl<const BYTES: usize> Future for Ready<BYTES> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        std::hint::black_box(&self.1);
        Poll::Ready(())
    }
}

fn is_refused_and_dropped<const BYTES: usize>(executor: &'static Executor) {
    let arc = Arc::new(());
    let future = || Ready(arc.clone(), [0; BYTES]);
    REFUSES.store(true, Relaxed);
    let spawned = executor.spawn(future(), Priority::DEFAULT);
    let joined = executor.spawn_join(future(), Priority::DEFAULT).map(|handle| handle.id());
    REFUSES.store(false, Relaxed);
    assert_eq!((spawned, joined), (Err(SpawnError::OutOfMemory), Err(SpawnError::OutOfMemory)));
    assert_eq!((Arc::strong_count(&arc), executor.live_count()), (1, 0), "both were dropped");
    executor.spawn(future(), Priority::DEFAULT).unwrap();
    executor.run_until_stalled(0);
    assert_eq!((Arc::strong_count(&arc), executor.live_count()), (1, 0), "it has run");
}

#[test]
fn a_spawn_without_memory_is_refused() {
    static EXECUTOR: Executor = Executor::new();
    EXECUTOR.start_on_host(1).unwrap();
    // A size that a thread keeps, and one for which the global allocator is asked each time.
    is_refused_and_dropped::<900>(&EXECUTOR);
    is_refused_and_dropped::<5000>(&EXECUTOR);
}
