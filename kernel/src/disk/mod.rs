//! The disk: which requests the device has, which calls wait for them, and the service that returns
//! results.
//!
//! A call's part is its [`DiskTransfer`]. The device has at most [`REQUESTS_MAX`] requests; those
//! beyond these wait in the order of their priorities. Calls have [`CALLS_MAX`] of them; the others
//! are for coroutines of the kernel ([`direct`]). A request in the device has a *slot*:
//!
//! ```text
//!          begin             start                   finished
//!   free --------> reserved --------> with device ---------------> done
//!    ^                |                    | the call is cancelled   |
//!    |                |                    v                         |
//!    |<---------------+<---- finished - abandoned                    |
//!    +<--------------------------------------------------------------+  the call takes the result
//! ```
//!
//! Lock order: a call's cell, then the disk. The service holds the lock for one request at a time
//! and wakes calls after it has unlocked.
#![forbid(unsafe_code)]

pub mod direct;
mod transfer;

pub use transfer::{DiskTransfer, Work};

use cops_abi::{Errno, Priority};
use cops_executor::CoroutineId;
use cops_lock::Mutex;
use spin::Once;

use crate::drivers::interrupt::Line;
use crate::drivers::virtio_block::{
    CALLS_MAX, Command, Failed, Found, Memory, REQUESTS_MAX, SECTOR_BYTES, VirtioBlock,
};
use crate::log;
use crate::sched::{self, WaitQueue};

/// Number of results that the service returns before it yields to other coroutines of its priority:
/// each wakes a call.
const RESULTS_PER_PORTION: usize = 8;

static DISK: Once<Disk> = Once::new();

/// A disk and its requests.
pub struct Disk {
    state: Mutex<State>,
    /// Calls that wait for a free slot.
    waiting: WaitQueue,
    bytes: u64,
    is_read_only: bool,
    has_cache: bool,
}

struct State {
    device: VirtioBlock,
    slots: [Slot; REQUESTS_MAX],
}

/// The state of a slot: see the diagram above.
enum Slot {
    Free(Memory),
    /// A transfer has its memory.
    Reserved,
    /// The device has its request; the coroutine is woken at the end.
    WithDevice(Option<CoroutineId>),
    /// The same, but the call has gone.
    Abandoned,
    Done(Memory, Result<(), Failed>),
}

/// What a slot is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Calls of programs: the first slots.
    Call,
    /// Coroutines of the kernel: the other slots.
    Direct,
}

impl Kind {
    /// What the slot with this number is for.
    fn of(slot: usize) -> Self {
        if slot < CALLS_MAX { Kind::Call } else { Kind::Direct }
    }
}

/// The disk.
///
/// # Errors
/// `ENXIO` if the machine has none.
pub fn disk() -> Result<&'static Disk, Errno> {
    DISK.get().ok_or(Errno::ENXIO)
}

/// Finds the disk and starts its service. Called once at boot.
#[inline(never)]
pub fn start() {
    let Some(Found { device, line, memory }) = VirtioBlock::probe() else { return };
    let mut memory = memory.into_vec().into_iter();
    let slots = core::array::from_fn(|_| memory.next().map_or(Slot::Reserved, Slot::Free));
    let bytes = device.sectors().saturating_mul(SECTOR_BYTES as u64);
    let (is_read_only, has_cache) = (device.is_read_only(), device.has_cache());
    log::info!("disk: {} KiB{}", bytes / 1024, if is_read_only { ", read-only" } else { "" });
    let disk = DISK.call_once(|| Disk {
        state: Mutex::new(State { device, slots }),
        waiting: WaitQueue::new(),
        bytes,
        is_read_only,
        has_cache,
    });
    sched::spawn_service("disk", Priority::MOST_URGENT, serve(disk, line));
}

/// Returns the results of finished requests to their calls.
async fn serve(disk: &'static Disk, line: Line) {
    line.enable();
    loop {
        line.next().await;
        disk.state.lock().device.acknowledge();
        let mut count = 0;
        while disk.return_one() {
            count += 1;
            if count % RESULTS_PER_PORTION == 0 {
                cops_executor::yield_now().await;
            }
        }
        line.complete();
    }
}

impl Disk {
    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it cannot be written.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Takes a finished request from the device. Returns whether there was one.
    fn return_one(&self) -> bool {
        let mut state = self.state.lock();
        let Some((number, memory, result)) = state.device.finished() else { return false };
        let slot = &mut state.slots[number];
        let waiter = match slot {
            Slot::WithDevice(waiter) => {
                let waiter = waiter.take();
                *slot = Slot::Done(memory, result);
                drop(state);
                waiter
            }
            _ => {
                *slot = Slot::Free(memory);
                drop(state);
                self.has_freed(number);
                None
            }
        };
        if let Some(waiter) = waiter {
            cops_executor::wake_up(waiter);
        }
        true
    }

    /// Slot `number` is free: the most urgent call that waits for one may have it.
    fn has_freed(&self, number: usize) {
        if Kind::of(number) == Kind::Call {
            self.waiting.wake_one();
        }
    }

    /// Reserves a free slot; `None` if there is none.
    fn reserve(&self, kind: Kind) -> Option<(usize, Memory)> {
        let mut state = self.state.lock();
        let mut slots = state.slots.iter().enumerate();
        let free = slots
            .position(|(number, slot)| Kind::of(number) == kind && matches!(slot, Slot::Free(_)))?;
        match core::mem::replace(&mut state.slots[free], Slot::Reserved) {
            Slot::Free(memory) => Some((free, memory)),
            _ => None,
        }
    }

    /// Gives the request of a reserved slot to the device.
    ///
    /// # Errors
    /// `EIO` if the device does not take it; the slot is free then.
    fn start(&self, slot: usize, command: Command, memory: Memory) -> Result<(), Errno> {
        let mut state = self.state.lock();
        match state.device.start(slot, command, memory) {
            Ok(()) => {
                state.slots[slot] = Slot::WithDevice(None);
                Ok(())
            }
            Err(memory) => {
                drop(state);
                self.release(slot, memory);
                Err(Errno::EIO)
            }
        }
    }

    /// Registers the coroutine that is woken when the request in `slot` is finished. It checks for
    /// the result once more afterwards.
    fn set_waiter(&self, slot: usize, coroutine: CoroutineId) {
        if let Slot::WithDevice(waiter) = &mut self.state.lock().slots[slot] {
            *waiter = Some(coroutine);
        }
    }

    /// The result of the request in `slot` and its memory, for [`Self::release`]; `None` if the
    /// device still has it.
    fn take_result(&self, slot: usize) -> Option<(Memory, Result<(), Failed>)> {
        let slot = &mut self.state.lock().slots[slot];
        if !matches!(slot, Slot::Done(..)) {
            return None;
        }
        match core::mem::replace(slot, Slot::Reserved) {
            Slot::Done(memory, result) => Some((memory, result)),
            _ => None,
        }
    }

    /// Frees a reserved slot, for the most urgent call that waits for one.
    fn release(&self, slot: usize, memory: Memory) {
        self.state.lock().slots[slot] = Slot::Free(memory);
        self.has_freed(slot);
    }

    /// The call of the request in `slot` does not wait for it any more.
    fn abandon(&self, slot: usize) {
        let mut state = self.state.lock();
        if let Slot::WithDevice(_) = state.slots[slot] {
            state.slots[slot] = Slot::Abandoned;
            return;
        }
        drop(state);
        if let Some((memory, _)) = self.take_result(slot) {
            self.release(slot, memory);
        }
    }
}
