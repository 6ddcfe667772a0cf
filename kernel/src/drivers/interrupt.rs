//! Device interrupts that a coroutine can wait for.
//!
//! The handler claims the source, which cannot interrupt again until it is completed, records on
//! which hart that happened, and wakes the waiting coroutine. The coroutine empties the device and
//! completes the source.

use crate::arch::{self, controller};
use cops_executor::CoroutineId;
use cops_lock::Mutex;
use core::future::poll_fn;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::task::Poll;

/// The state of one source.
struct Source {
    /// Raw id of the waiting coroutine; 0 if none waits.
    waiter: AtomicU64,
    /// The hart that has claimed the source, plus 1; 0 if it is not claimed.
    claimed_by: AtomicUsize,
}

impl Source {
    const fn new() -> Self {
        Self { waiter: AtomicU64::new(0), claimed_by: AtomicUsize::new(0) }
    }
}

static SOURCES: [Source; controller::MAX_SOURCE + 1] =
    [const { Source::new() }; controller::MAX_SOURCE + 1];

/// A device's interrupt line. One coroutine at a time may wait for it.
pub struct Line {
    source: usize,
}

/// The hart that gets the next line: lines are assigned round robin.
static NEXT_HART: Mutex<usize> = Mutex::new(0);

impl Line {
    /// The line with the number that the device tree gives.
    ///
    /// # Panics
    /// If the controller does not have such a line.
    pub fn new(source: usize) -> Self {
        assert!(
            (1..=controller::MAX_SOURCE).contains(&source),
            "interrupt {source} does not exist"
        );
        Self { source }
    }

    /// Enables the device's interrupt, on one hart that does not change.
    pub fn enable(&self) {
        let mut next = NEXT_HART.lock();
        controller::enable(self.source, *next);
        *next = (*next + 1) % arch::hart_count();
    }

    /// Waits until the device has interrupted. It then cannot interrupt until [`Line::complete`].
    /// Cancel-safe: the next wait finds an interrupt that came meanwhile.
    pub async fn next(&self) {
        let source = &SOURCES[self.source];
        let is_claimed = || source.claimed_by.load(Ordering::SeqCst) != 0;
        poll_fn(|_| {
            // Mostly so when the handler has woken it.
            if is_claimed() {
                return Poll::Ready(());
            }
            // The coroutine stores the waiter and then reads `claimed_by`; the handler stores
            // `claimed_by` and then reads the waiter. All four are sequentially consistent: so
            // either the handler sees the waiter, or the coroutine sees the claim.
            let waiter = cops_executor::current().map_or(0, CoroutineId::raw);
            source.waiter.store(waiter, Ordering::SeqCst);
            if is_claimed() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        source.waiter.store(0, Ordering::Relaxed);
    }

    /// Lets the device interrupt again, if it has. Must be called after the device was told to
    /// withdraw its request, so that any later request interrupts again.
    pub fn complete(&self) {
        let claimed_by = SOURCES[self.source].claimed_by.swap(0, Ordering::SeqCst);
        if let Some(hart) = claimed_by.checked_sub(1) {
            controller::complete(self.source, hart);
        }
    }
}

/// The interrupt handler: claims a source that interrupts this hart. If another one does so, too,
/// the hart is interrupted again: that is rare, and asking costs an access to the controller.
pub fn on_external() {
    let Some(source) = controller::claim() else { return };
    let Some(state) = SOURCES.get(source) else { return };
    state.claimed_by.store(arch::hart_index() + 1, Ordering::SeqCst);
    if let Some(waiter) = CoroutineId::from_raw(state.waiter.load(Ordering::SeqCst)) {
        cops_executor::wake_up(waiter);
    }
}
