//! The robust mutexes of a thread that ends, in portions.
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;

use crate::mm::UserRange;
use crate::process::{Process, Thread};

/// Number of mutexes that one portion releases. Each takes four accesses to the thread's memory.
const PORTION_MUTEXES: usize = 4;

/// Maximum number of robust mutexes of a thread that are released, as on Linux: the list may be a
/// circle.
const MUTEXES_MAX: usize = 2048;

/// The bit of an entry of the list: its mutex has priority inheritance.
const INHERITS: usize = 1;

/// The bits of a mutex's word.
pub(in crate::process) mod word {
    /// The id of its owner.
    pub const OWNER: u32 = 0x3fff_ffff;
    /// Its owner has ended without unlocking it.
    pub const OWNER_DIED: u32 = 0x4000_0000;
    /// Threads wait for it.
    pub const WAITERS: u32 = 0x8000_0000;
}

/// The robust mutexes of a thread that is ending: a list in its own memory.
pub struct Releasing {
    head: usize,
    /// The next mutex; `head` at the end of the list.
    next: usize,
    /// From an entry of the list to the word of its mutex.
    offset: usize,
    /// The mutex that the thread was locking or unlocking; 0 if none.
    pending: usize,
    left: usize,
    /// The id of the thread.
    owner: u32,
}

impl Releasing {
    /// The list of `thread`; `None` if it has none or its head cannot be read.
    pub fn new(process: &Process, thread: &Thread) -> Option<Self> {
        let head = thread.robust_list.load(Relaxed);
        if head == 0 {
            return None;
        }
        let [next, offset, pending] =
            [0, 8, 16].map(|at| head.checked_add(at).and_then(|at| read(process, at)));
        Some(Self {
            head,
            next: next?,
            offset: offset?,
            pending: pending?,
            left: MUTEXES_MAX,
            owner: thread.id,
        })
    }

    /// Releases some mutexes of the thread. Returns whether there are more.
    pub fn release_some(&mut self, process: &Process) -> bool {
        for _ in 0..PORTION_MUTEXES {
            let entry = self.next & !INHERITS;
            if entry == self.head || self.left == 0 {
                if self.pending & !INHERITS != 0 {
                    self.release(process, self.pending, true);
                }
                return false;
            }
            let Some(next) = read(process, entry) else { return false };
            if entry != self.pending & !INHERITS {
                self.release(process, self.next, false);
            }
            self.next = next;
            self.left -= 1;
        }
        true
    }

    /// If the thread owns the mutex of this entry, records that its owner has died, and wakes a
    /// waiter. An entry that cannot be accessed is skipped. `is_pending`: the thread was locking or
    /// unlocking it.
    fn release(&self, process: &Process, entry: usize, is_pending: bool) {
        let address = (entry & !INHERITS).wrapping_add(self.offset);
        let Some(place) = UserRange::new(address, 4).filter(|_| address.is_multiple_of(4)) else {
            return;
        };
        let mut before = match process.space.compare_exchange(place, 0, 0) {
            Ok(before) => before,
            Err(_) => return,
        };
        // The other threads of the process can change the word only a few times in between.
        for _ in 0..PORTION_MUTEXES {
            let owner = before & word::OWNER;
            if is_pending && owner == 0 && entry & INHERITS == 0 {
                // As on Linux: the thread has unlocked it and has not woken a waiter yet, or a wake
                // was for the thread, and the thread has not locked it yet. This is also how a
                // waiter of another process is found behind many threads that end.
                process.wake_one_on_futex(process.futex_word(address));
                return;
            }
            if owner != self.owner {
                return;
            }
            let after = before & word::WAITERS | word::OWNER_DIED;
            match process.space.compare_exchange(place, before, after) {
                Ok(found) if found == before => {
                    if before & word::WAITERS != 0 {
                        process.wake_one_on_futex(process.futex_word(address));
                    }
                    return;
                }
                Ok(found) => before = found,
                Err(_) => return,
            }
        }
    }
}

/// The word at `address`, if the program could read it.
fn read(process: &Process, address: usize) -> Option<usize> {
    let mut bytes = [0; 8];
    let place = UserRange::new(address, bytes.len())?;
    process.space.copy_in(place, &mut bytes).ok()?;
    Some(usize::from_le_bytes(bytes))
}
