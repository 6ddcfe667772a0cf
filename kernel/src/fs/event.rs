//! `eventfd`: a counter as a file. A write adds to it; a read takes all of it, or 1.

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::poll::bits_if;
use cops_abi::poll::event::{READABLE, WRITABLE};
use cops_lock::Mutex;

use crate::mm::PinnedBuffer;
use crate::sched::{WaitQueue, Waiting};

/// Maximum value.
const VALUE_MAX: u64 = u64::MAX - 1;
/// Size of the number that is read or written.
const BYTES: usize = 8;

/// The counter.
pub struct EventCounter {
    value: Mutex<u64>,
    /// Whether a read takes 1.
    is_semaphore: bool,
    readable: WaitQueue,
    writable: WaitQueue,
}

impl EventCounter {
    /// A counter with this value.
    pub const fn new(value: u32, is_semaphore: bool) -> Self {
        Self {
            value: Mutex::new(value as u64),
            is_semaphore,
            readable: WaitQueue::new(),
            writable: WaitQueue::new(),
        }
    }

    /// Takes the value, or 1, into `buffer`; `None` if it is 0.
    pub fn attempt_read(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        if buffer.len() < BYTES {
            return Some(Err(Errno::EINVAL));
        }
        let mut value = self.value.lock();
        let taken = if self.is_semaphore { (*value).min(1) } else { *value };
        if taken == 0 {
            return None;
        }
        *value -= taken;
        drop(value);
        buffer.write_at(0, &taken.to_le_bytes());
        // The room may be too little for the first one, and enough for the next: it grows by 1, or
        // another writer uses it first.
        self.writable.wake_all();
        Some(Ok(BYTES))
    }

    /// Adds the number in `buffer`; `None` if the sum would be too large.
    pub fn attempt_write(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        if buffer.len() < BYTES {
            return Some(Err(Errno::EINVAL));
        }
        let mut bytes = [0; BYTES];
        buffer.read_at(0, &mut bytes);
        let more = u64::from_le_bytes(bytes);
        if more > VALUE_MAX {
            return Some(Err(Errno::EINVAL));
        }
        let mut value = self.value.lock();
        *value = value.checked_add(more).filter(|&sum| sum <= VALUE_MAX)?;
        drop(value);
        self.readable.wake_one();
        Some(Ok(BYTES))
    }

    /// The events of `ppoll` that it has.
    pub fn readiness(&self) -> u32 {
        let value = *self.value.lock();
        bits_if(value > 0, READABLE) | bits_if(value < VALUE_MAX, WRITABLE)
    }

    /// The calls that wait for this direction.
    pub fn queue(&self, waiting: Waiting) -> &WaitQueue {
        match waiting {
            Waiting::ToRead => &self.readable,
            Waiting::ToWrite => &self.writable,
        }
    }

    /// Whether an attempt in this direction may succeed now.
    pub fn may_be_ready(&self, waiting: Waiting) -> bool {
        let bits = if waiting == Waiting::ToRead { READABLE } else { WRITABLE };
        self.readiness() & bits != 0
    }
}
