//! What a coroutine is doing, as `ps` sees it.

use super::executor::Executor;
use super::id::CoroutineId;
use super::priority::Priority;
use super::snapshot::Place;

/// What a coroutine is doing.
///
/// ```
/// use cops_executor::{Handle, Phase, block_on, spawn};
/// let phases = async {
///     let runtime = Handle::current().unwrap();
///     runtime.coroutines().map(|one| one.phase).collect::<Vec<_>>()
/// };
/// let seen = block_on(async { spawn(phases).await });
/// assert_eq!(seen, Ok(vec![Phase::Running]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// Waits to be woken.
    Blocked = 1,
    /// Waits for a worker.
    Ready = 2,
    /// Is being polled or dropped.
    Running = 3,
}

impl Phase {
    fn from_raw(raw: u32) -> Option<Phase> {
        [Phase::Blocked, Phase::Ready, Phase::Running]
            .into_iter()
            .find(|&phase| phase as u32 == raw)
    }
}

/// A coroutine as `ps` sees it.
///
/// ```
/// use cops_executor::{Executor, Phase, Priority};
/// static EXECUTOR: Executor = Executor::new();
/// EXECUTOR.start_on_host(1)?;
/// let id = EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
/// let seen = EXECUTOR.inspect(id).expect("it has not exited");
/// assert_eq!((seen.id, seen.phase, seen.priority), (id, Phase::Ready, Priority::DEFAULT));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inspection {
    /// Its id.
    pub id: CoroutineId,
    /// What it is doing.
    pub phase: Phase,
    /// What it runs at: its own priority, or a more urgent one that it has inherited.
    pub priority: Priority,
    /// The worker that runs it or ran it last.
    pub worker: u32,
    /// It was cancelled, and its future has not been dropped yet.
    pub is_cancelled: bool,
    /// As it was spawned with: [`FutureVTable::kind`](super::FutureVTable::kind).
    pub kind: usize,
}

/// What is found in a slot.
///
/// ```
/// use cops_executor::Executor;
/// use cops_executor::core::Inspected;
/// static EXECUTOR: Executor = Executor::new();
/// EXECUTOR.start_on_host(1)?;
/// assert_eq!(EXECUTOR.inspect_slot(u32::MAX), Inspected::End);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inspected {
    /// There is no such slot, and none after it.
    End,
    /// No coroutine is in the slot.
    Empty,
    /// This one is.
    Coroutine(Inspection),
}

/// What [`inspect`](Executor::inspect) writes: an [`Inspection`] in integers, because it crosses
/// the C interface.
///
/// ```
/// use cops_executor::core::RawInspection;
/// assert_eq!(RawInspection::default().id, 0);
/// ```
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct RawInspection {
    /// Bits of the id.
    pub id: u64,
    /// See [`Phase`].
    pub phase: u32,
    /// 0 to 63.
    pub priority: u32,
    /// The worker.
    pub worker: u32,
    /// 1 if it was cancelled.
    pub cancelled: u32,
    /// Its kind.
    pub kind: u64,
}

/// `inspect`: there is no such slot.
pub const INSPECT_END: u32 = 0;
/// `inspect`: the slot is free.
pub const INSPECT_EMPTY: u32 = 1;
/// `inspect`: a coroutine is in the slot.
pub const INSPECT_COROUTINE: u32 = 2;

impl RawInspection {
    /// With numbers that no coroutine has: [`Inspected::Empty`].
    ///
    /// ```
    /// use cops_executor::core::{Inspected, RawInspection};
    /// assert_eq!(RawInspection::default().decode(), Inspected::Empty);
    /// ```
    #[must_use]
    pub fn decode(&self) -> Inspected {
        let decoded = || {
            Some(Inspection {
                id: CoroutineId::from_raw(self.id)?,
                phase: Phase::from_raw(self.phase)?,
                priority: Priority::new(u8::try_from(self.priority).ok()?)?,
                worker: self.worker,
                is_cancelled: self.cancelled != 0,
                kind: self.kind as usize,
            })
        };
        decoded().map_or(Inspected::Empty, Inspected::Coroutine)
    }
}

impl Executor {
    /// Describes the coroutine in slot `index`: returns [`INSPECT_END`], [`INSPECT_EMPTY`], or
    /// [`INSPECT_COROUTINE`] if `out` was filled. So all coroutines are found by counting up from 1
    /// until `INSPECT_END` is returned.
    ///
    /// In any context, interrupt handlers included. What it describes may have changed when it
    /// returns.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::core::{INSPECT_COROUTINE, INSPECT_END, RawInspection};
    /// let id = EXECUTOR.spawn(async {}, Priority::LEAST_URGENT)?;
    /// let mut out = RawInspection::default();
    /// assert_eq!(EXECUTOR.core().inspect(id.index(), &mut out), INSPECT_COROUTINE);
    /// assert_eq!((out.id, out.priority), (id.raw(), 63));
    /// assert_eq!(EXECUTOR.core().inspect(0, &mut out), INSPECT_END, "no slot has index 0");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inspect(&self, index: u32, out: &mut RawInspection) -> u32 {
        let Some(slot) = (if index == 0 { None } else { self.slab.get(index) }) else {
            return INSPECT_END;
        };
        let word = slot.state.load();
        let id = word.id_high() | slot.handle() as u64;
        let phase = match word.place() {
            Place::Nowhere => return INSPECT_EMPTY,
            Place::Blocked => Phase::Blocked,
            Place::Inbox => Phase::Ready,
            Place::List if self.current(word.worker()) == id => Phase::Running,
            Place::List => Phase::Ready,
        };
        *out = RawInspection {
            id,
            phase: phase as u32,
            priority: word.priority().level() as u32,
            worker: word.worker(),
            cancelled: word.is_cancelled() as u32,
            kind: slot.kind() as u64,
        };
        INSPECT_COROUTINE
    }
}
