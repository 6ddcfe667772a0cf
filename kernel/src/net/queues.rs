//! The calls that wait for a socket, one queue for each direction.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::task::Waker;

use cops_fallible::{OutOfMemory, try_arc};

use crate::sched::{WaitQueue, Waiting};

/// Calls that wait for one socket. A woken call wakes the next one of its direction if anything is
/// left.
pub struct Queues {
    /// Those that wait for bytes or connections.
    reading: Arc<WaitQueue>,
    /// Those that wait for room or for the connection to be established.
    writing: Arc<WaitQueue>,
}

impl Queues {
    /// Two empty queues.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new() -> Result<Self, OutOfMemory> {
        Ok(Self { reading: try_arc(WaitQueue::new())?, writing: try_arc(WaitQueue::new())? })
    }

    fn shared(&self, waiting: Waiting) -> &Arc<WaitQueue> {
        match waiting {
            Waiting::ToRead => &self.reading,
            Waiting::ToWrite => &self.writing,
        }
    }

    /// The calls that wait for this direction.
    pub fn of(&self, waiting: Waiting) -> &WaitQueue {
        self.shared(waiting)
    }

    /// What the stack wakes when an attempt in this direction may succeed.
    pub fn waker(&self, waiting: Waiting) -> Waker {
        Waker::from(self.shared(waiting).clone())
    }

    /// Lets all calls that wait attempt again, and tells those that watch the socket.
    pub fn wake_all(&self) {
        self.reading.wake_all();
        self.writing.wake_all();
    }

    /// Tells those that watch the socket that its state has changed: they register with the stack
    /// for the new state.
    pub fn notify_watches(&self) {
        self.reading.notify_watches();
        self.writing.notify_watches();
    }
}

/// What has watched the socket finds it closed. The stack may keep the queues for some time.
impl Drop for Queues {
    fn drop(&mut self) {
        self.notify_watches();
    }
}
