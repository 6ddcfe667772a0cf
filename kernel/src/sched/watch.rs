//! Watches: which watchers are to be notified of the next event of a wait queue, besides the calls
//! that wait in it (decision 31). `cops_algorithms::watches` has the order in which they are
//! notified.
//!
//! A watcher has a [`WatchSlot`] for each queue that it may watch. It arms a watch first and looks
//! at the condition afterwards; the other side makes a change first and then notifies the watches,
//! so one of the two sees the other. A watch is notified once. An event notifies the first few
//! watches in its own portion; [`service`] notifies the others, the most urgent of all queues first
//! (`cops_algorithms::later`), at their level.
//!
//! Lock order: a slot, then a set; [`LATER`], then the place of a set in it. A watcher is notified
//! without these, but under whatever lock the event has: that of a connection, for example.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::Poll;

use cops_abi::Priority;
use cops_algorithms::later::{self, Later};
use cops_algorithms::watches::{self, Key, Watches};
use cops_fallible::{OutOfMemory, try_arc};
use cops_lock::Mutex;

use super::service::{Service, set_priority};
use super::wait::Waiting;

/// How many watches one portion notifies. To notify one takes some hundreds of instructions, and a
/// few thousand if it is an entry of an epoll instance that is watched itself.
const PER_PORTION: usize = 8;

/// Wants to be notified of events.
pub trait Watcher: Send + Sync {
    /// The memory for its watch in the queue of this direction.
    fn slot(&self, waiting: Waiting) -> &WatchSlot;

    /// There was an event. Must only enqueue, because the caller may hold locks.
    fn notify(self: Arc<Self>);
}

type Watched = (Arc<dyn Watcher>, Waiting);
type Place = watches::Place<Watched>;

/// Memory for a watch.
pub const WATCH_BYTES: usize = cops_fallible::Map::<Key, Watched>::ENTRY_BYTES;

/// The place of a watcher in one queue.
#[derive(Default)]
pub struct WatchSlot(Mutex<Slot>);

impl WatchSlot {
    /// Whether the watch is in the queue, or being notified.
    pub fn is_armed(&self) -> bool {
        matches!(*self.0.lock(), Slot::Armed(_))
    }
}

#[derive(Default)]
enum Slot {
    /// The queue has never been watched.
    #[default]
    Empty,
    /// Not in the queue.
    Idle(Place),
    /// In the queue, or being notified.
    Armed(Key),
}

/// The watches on one queue.
pub struct WatchSet {
    watches: Mutex<Watches<Watched>>,
    /// Its place in [`LATER`], changed under that lock.
    place: Mutex<later::Place<Arc<WatchSet>>>,
}

/// The sets that the service has to continue. Its level is set under this lock.
static LATER: Mutex<Later<Arc<WatchSet>>> = Mutex::new(Later::new());
static SERVICE: Service = Service::new();

impl WatchSet {
    /// A set without watches.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new() -> Result<Arc<Self>, OutOfMemory> {
        let place = Mutex::new(later::Place::try_new()?);
        try_arc(Self { watches: Mutex::new(Watches::new()), place })
    }

    /// Arms the watch of `watcher`, unless it is armed. The caller looks at the condition
    /// afterwards.
    ///
    /// # Errors
    /// [`OutOfMemory`], only the first time.
    pub fn arm(
        &self,
        watcher: &Arc<dyn Watcher>,
        waiting: Waiting,
        priority: Priority,
    ) -> Result<(), OutOfMemory> {
        let mut slot = watcher.slot(waiting).0.lock();
        let place = match core::mem::take(&mut *slot) {
            Slot::Empty => Place::try_new()?,
            Slot::Idle(place) => place,
            armed => {
                *slot = armed;
                return Ok(());
            }
        };
        let key = self.watches.lock().arm(place, priority, (watcher.clone(), waiting));
        *slot = Slot::Armed(key);
        Ok(())
    }

    /// Removes the watch of `watcher`. It may still be notified, if that is under way.
    pub fn disarm(&self, watcher: &dyn Watcher, waiting: Waiting) {
        let mut slot = watcher.slot(waiting).0.lock();
        let Slot::Armed(key) = *slot else { return };
        let removed = self.watches.lock().disarm(key);
        if let Some((watched, place)) = removed {
            *slot = Slot::Idle(place);
            drop(slot);
            drop(watched);
        }
    }

    /// Tells all watches of an event: the first ones now, the others soon.
    pub fn notify(self: Arc<Self>) {
        self.watches.lock().event();
        self.notify_some();
        self.continue_later();
    }

    fn notify_some(&self) {
        for _ in 0..PER_PORTION {
            let Some(((watcher, waiting), place)) = self.watches.lock().next_due() else { return };
            // Before it is notified, so that it can arm the watch again.
            *watcher.slot(waiting).0.lock() = Slot::Idle(place);
            watcher.notify();
        }
    }

    /// The service continues if there is more to notify.
    fn continue_later(self: Arc<Self>) {
        let Some(priority) = self.watches.lock().due_priority() else { return };
        let mut later = LATER.lock();
        later.enqueue(&mut self.place.lock(), priority, self.clone());
        set_level(&later);
        drop(later);
        SERVICE.wake();
    }
}

/// Makes the service as urgent as the first set. Returns whether there is one.
fn set_level(later: &Later<Arc<WatchSet>>) -> bool {
    let priority = later.priority();
    if let (Some(priority), Some(service)) = (priority, SERVICE.id()) {
        set_priority(service, priority);
    }
    priority.is_some()
}

/// The service coroutine: notifies the watches that an event has not notified itself.
pub async fn service() {
    SERVICE.begin();
    poll_fn(|context| {
        let next = LATER.lock().pop(|set, place| *set.place.lock() = place);
        if let Some(set) = next {
            set.notify_some();
            set.continue_later();
        }
        if set_level(&LATER.lock()) {
            context.waker().wake_by_ref();
        }
        Poll::<()>::Pending
    })
    .await;
}
