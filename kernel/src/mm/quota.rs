//! Quotas: what each process and its descendants hold together, and may hold (decision 16).
//!
//! The arithmetic, and the proposition about what a process is guaranteed, is `cops_algorithms::quota`.
//! Here are the one tree there is, behind a lock that is held for a walk up of at most 32 nodes, and
//! the types through which the rest of the kernel uses it: [`Membership`] for a process's place in the
//! tree, [`Charge`] for what it holds. Dropping either gives it back.
//! May touch: frames (how many there are). Not for interrupt handlers.
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_algorithms::quota::{Refusal, Tree};
use spin::Mutex;

pub use cops_algorithms::quota::{Amounts, Family, KINDS, Kind};

use super::frames::{self, FRAME_BYTES};

/// Processes there may be at a time, those included that have ended and not been waited for.
pub const PROCESSES_MAX: u64 = 1024;
/// Open files of all processes.
const DESCRIPTORS_MAX: u64 = 262_144;
/// Virtual CPUs of all processes.
const CPUS_MAX: u64 = 4096;
/// The part of all memory that is kept for what the kernel needs for nobody in particular, and for
/// frames in the harts' caches.
const KERNEL_PART: usize = 16;
/// The part of the memory for programs that calls in flight may take.
const CALLS_PART: u64 = 16;
/// What a call in flight takes: its cell, its coroutine, its timer.
pub const CALL_BYTES: u64 = 256;

static TREE: Mutex<Tree> = Mutex::new(Tree::new());

/// Sets what the first process and its descendants, that is all processes, may have. At the end of the boot, when
/// the kernel has taken what it needs for itself.
///
/// # Errors
/// `ENOMEM`.
pub fn prepare() -> Result<(), Errno> {
    let frames = frames::statistics();
    let memory = frames.free.saturating_sub(frames.total / KERNEL_PART) as u64 * FRAME_BYTES as u64;
    let limits = Amounts::of(Kind::Memory, memory)
        .and(Kind::Processes, PROCESSES_MAX)
        .and(Kind::Calls, memory / CALLS_PART / CALL_BYTES)
        .and(Kind::Descriptors, DESCRIPTORS_MAX)
        .and(Kind::Cpus, CPUS_MAX);
    TREE.lock().set_root(limits).map_err(errno)
}

/// What a program is told.
fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Over(Kind::Memory) | Refusal::NoMemory => Errno::ENOMEM,
        Refusal::Over(Kind::Descriptors) => Errno::EMFILE,
        Refusal::Over(Kind::Processes | Kind::Calls | Kind::Cpus) | Refusal::TooDeep => Errno::EAGAIN,
        Refusal::Gone => Errno::ESRCH,
    }
}

/// A process's place in the tree: a family of which it is the head. Dropped when the process has been waited for;
/// the family lasts as long as it has descendants or charges.
#[derive(Debug)]
pub struct Membership(Family);

impl Membership {
    /// The first process's.
    pub const fn first() -> Self {
        Self(Family::ROOT)
    }

    /// A family below `parent`.
    ///
    /// # Errors
    /// `EAGAIN` if the line of ancestors is too long, `ESRCH` if there is no such parent, `ENOMEM`.
    pub fn new(parent: Family) -> Result<Self, Errno> {
        TREE.lock().add(parent).map(Self).map_err(errno)
    }

    /// The family.
    pub fn family(&self) -> Family {
        self.0
    }

    /// Tells the number of the process whose place this is.
    pub fn set_head(&self, process: u32) {
        TREE.lock().set_head(self.0, process);
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        TREE.lock().process_gone(self.0);
    }
}

/// Whether the head of `family` is the head of `ancestor` or descends from it: whether the latter may
/// kill it, and set its ceiling and quotas.
///
/// The orphans of a process count as descendants of the nearest ancestor that is still there.
pub fn is_within(family: Family, ancestor: Family) -> bool {
    TREE.lock().is_within(family, ancestor)
}

/// The numbers of the process at the head of `family` and of its ancestors, the nearest first; 0 for those that are gone.
pub fn heads(family: Family) -> impl Iterator<Item = u32> {
    TREE.lock().heads(family).into_iter().filter(|&head| head != 0)
}

/// Limits of a family, and what it holds.
pub fn state(family: Family) -> Option<(Amounts, Amounts)> {
    TREE.lock().state(family)
}

/// The most of `kind` that a family could charge now.
pub fn room(family: Family, kind: Kind) -> u64 {
    TREE.lock().room(family, kind)
}

/// Sets a limit of a family, at most its parent's. Returns what it was.
///
/// # Errors
/// `ESRCH` if the family is gone.
pub fn set_limit(family: Family, kind: Kind, limit: u64) -> Result<u64, Errno> {
    TREE.lock().set_limit(family, kind, limit).map_err(errno)
}

/// What is charged to a family, until it is dropped.
#[derive(Debug)]
pub struct Charge {
    family: Family,
    amounts: Amounts,
}

impl Charge {
    /// Nothing yet.
    pub const fn nothing(family: Family) -> Self {
        Self { family, amounts: Amounts([0; KINDS]) }
    }

    /// Charges `amounts`.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE` or `EAGAIN` by the kind of which there is too little.
    pub fn new(family: Family, amounts: &Amounts) -> Result<Self, Errno> {
        let mut charge = Self::nothing(family);
        charge.grow(amounts)?;
        Ok(charge)
    }

    /// Charges `more`.
    ///
    /// # Errors
    /// As [`Charge::new`]; nothing has changed then.
    pub fn grow(&mut self, more: &Amounts) -> Result<(), Errno> {
        TREE.lock().charge(self.family, more).map_err(errno)?;
        self.amounts.add(more);
        Ok(())
    }

    /// Charges `more` even beyond the limits: for what cannot fail. What else the family asks for is refused the sooner.
    pub fn grow_forced(&mut self, more: &Amounts) {
        if TREE.lock().charge_forced(self.family, more).is_ok() {
            self.amounts.add(more);
        }
    }

    /// Gives back `less`, at most what is charged.
    pub fn shrink(&mut self, less: &Amounts) {
        let mut given = *less;
        for (given, held) in given.0.iter_mut().zip(self.amounts.0) {
            *given = (*given).min(held);
        }
        self.amounts.subtract(&given);
        TREE.lock().release(self.family, &given);
    }

    /// What is charged.
    pub fn amounts(&self) -> &Amounts {
        &self.amounts
    }

    /// Whom it is charged to.
    pub fn family(&self) -> Family {
        self.family
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        TREE.lock().release(self.family, &self.amounts);
    }
}
