//! Interrupts of devices, as something a coroutine can wait for.
//!
//! The handler claims the source, which stays silent until it is completed, notes on which
//! hart, and wakes the coroutine that waits. The coroutine empties the device and completes.

use crate::arch::{self, controller};
use cops_executor::CoroutineId;
use core::future::poll_fn;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::task::Poll;
use spin::Mutex;

/// What there is to know about one source.
struct Source {
    /// Raw id of the coroutine that waits, 0 for none.
    waiter: AtomicU64,
    /// The hart that has claimed it plus 1, 0 if it is not claimed.
    claimed_by: AtomicUsize,
}

impl Source {
    const fn new() -> Self {
        Self { waiter: AtomicU64::new(0), claimed_by: AtomicUsize::new(0) }
    }
}

static SOURCES: [Source; controller::MAX_SOURCE + 1] = [const { Source::new() }; controller::MAX_SOURCE + 1];

/// A device's interrupt. One coroutine may wait for it at a time.
pub struct Line {
    source: usize,
}

/// The hart the next line goes to: devices are dealt out in turn.
static NEXT_HART: Mutex<usize> = Mutex::new(0);

impl Line {
    /// The line with the number the device tree gives.
    ///
    /// # Panics
    /// If no controller has so many.
    pub fn new(source: usize) -> Self {
        assert!((1..=controller::MAX_SOURCE).contains(&source), "interrupt {source} does not exist");
        Self { source }
    }

    /// Lets the device interrupt, always the same hart.
    pub fn enable(&self) {
        let mut next = NEXT_HART.lock();
        controller::enable(self.source, *next);
        *next = (*next + 1) % arch::hart_count();
    }

    /// Waits until the device has interrupted. Afterwards it is silent until
    /// [`Line::complete`]. Cancel-safe: an interrupt that came is found by the next wait.
    pub async fn next(&self) {
        let source = &SOURCES[self.source];
        poll_fn(|_| {
            // Register, then look; the handler notes, then wakes. Both sequentially
            // consistent: so either the handler sees the waiter, or we see the note.
            let waiter = cops_executor::current().map_or(0, CoroutineId::raw);
            source.waiter.store(waiter, Ordering::SeqCst);
            if source.claimed_by.load(Ordering::SeqCst) == 0 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        source.waiter.store(0, Ordering::Relaxed);
    }

    /// Lets the device interrupt again, if it had. To be called after the device has been
    /// told to withdraw its request: what it asks for later interrupts again.
    pub fn complete(&self) {
        let claimed_by = SOURCES[self.source].claimed_by.swap(0, Ordering::SeqCst);
        if let Some(hart) = claimed_by.checked_sub(1) {
            controller::complete(self.source, hart);
        }
    }
}

/// The handler: claims all that wants this hart.
pub fn on_external() {
    crate::task::interrupt::on_external();
    while let Some(source) = controller::claim() {
        let Some(state) = SOURCES.get(source) else { continue };
        state.claimed_by.store(arch::hart_index() + 1, Ordering::SeqCst);
        if let Some(waiter) = CoroutineId::from_raw(state.waiter.load(Ordering::SeqCst)) {
            cops_executor::wake_up(waiter);
        }
    }
}
