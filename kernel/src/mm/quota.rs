//! Quotas: what each process and its descendants together hold, and may hold (decision 16).
//!
//! The arithmetic is in `cops_algorithms::quota`, with the proof of what each process is
//! guaranteed. This module has the only tree, behind a lock that is held for a walk up of at most
//! 32 nodes, and the types through which the rest of the kernel uses it: [`Membership`] for a
//! process's place in the tree, [`Charge`] for what is charged to it. Dropping one of them releases
//! it. Not for interrupt handlers.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_algorithms::quota::{NODE_BYTES, Refusal, Tree};
use cops_fallible::{OutOfMemory, try_arc};
use cops_lock::Mutex;

pub use cops_algorithms::quota::{Amounts, Family, KINDS, Kind};

use super::frames::{self, FRAME_BYTES};

/// Maximum number of processes, those included that have ended and have not been waited for.
pub const PROCESSES_MAX: u64 = 1024;
/// Open files of all processes.
const DESCRIPTORS_MAX: u64 = 262_144;
/// Virtual CPUs of all processes: so many that a program with 4,000 threads can be started by
/// another one, which gives it three eighths. Their memory is charged too.
const CPUS_MAX: u64 = 12_288;
/// Ports of all processes: three quarters of the 16,384 dynamic ones, so that all processes
/// together leave some free, which connections that have ended can keep for a while.
const PORTS_MAX: u64 = 12_288;
/// The part of all memory (one in so many) that is kept for the kernel's general needs and for
/// frames in the harts' caches.
const KERNEL_PART: usize = 16;
/// The part of the memory for programs (one in so many) that calls in flight may use.
const CALLS_PART: u64 = 16;
/// Memory for the place of a family in the tree: part of the charge for whatever can be left behind
/// by a process.
pub const FAMILY_BYTES: u64 = NODE_BYTES;
/// Memory for a call in flight: its cell, its coroutine, its timer.
pub const CALL_BYTES: u64 = 256;

static TREE: Mutex<Tree> = Mutex::new(Tree::new());

/// Sets the limits of the first process and its descendants, which are all processes. Called at the
/// end of the boot, when the kernel has allocated what it needs for itself.
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
        .and(Kind::Cpus, CPUS_MAX)
        .and(Kind::Ports, PORTS_MAX);
    TREE.lock().set_root(limits).map_err(errno)
}

/// The error code for a program.
fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Over(Kind::Memory) | Refusal::NoMemory => Errno::ENOMEM,
        Refusal::Over(Kind::Descriptors) => Errno::EMFILE,
        Refusal::Over(Kind::Ports) => Errno::EADDRNOTAVAIL,
        Refusal::Over(Kind::Processes | Kind::Calls | Kind::Cpus) | Refusal::TooDeep => {
            Errno::EAGAIN
        }
        Refusal::Gone => Errno::ESRCH,
    }
}

/// A process's place in the tree: a family with this process as its head. Dropped when the process
/// has been waited for; the family exists as long as it has descendants or charges.
#[derive(Debug)]
pub struct Membership(Family);

impl Membership {
    /// That of the first process.
    pub const fn first() -> Self {
        Self(Family::ROOT)
    }

    /// A family below `parent`.
    ///
    /// # Errors
    /// `EAGAIN` if there are too many ancestors, `ESRCH` if there is no such parent, `ENOMEM`.
    pub fn new(parent: Family) -> Result<Self, Errno> {
        TREE.lock().add(parent).map(Self).map_err(errno)
    }

    pub fn family(&self) -> Family {
        self.0
    }

    /// Records the number of the process that has this place.
    pub fn set_head(&self, process: u32) {
        TREE.lock().set_head(self.0, process);
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        TREE.lock().process_gone(self.0);
    }
}

/// Whether the head of `family` is the head of `ancestor` or descends from it. If so, the latter
/// may kill it and set its ceiling and quotas.
///
/// Orphans count as descendants of their nearest ancestor that still exists.
pub fn is_within(family: Family, ancestor: Family) -> bool {
    TREE.lock().is_within(family, ancestor)
}

/// The numbers of the process at the head of `family` and of its ancestors, the nearest first; 0
/// for those that are gone.
pub fn heads(family: Family) -> impl Iterator<Item = u32> {
    TREE.lock().heads(family).into_iter().filter(|&head| head != 0)
}

/// The limits of a family, and what is charged to it.
pub fn state(family: Family) -> Option<(Amounts, Amounts)> {
    TREE.lock().state(family)
}

/// How much of `kind` could be charged to a family now.
pub fn room(family: Family, kind: Kind) -> u64 {
    TREE.lock().room(family, kind)
}

/// Sets a limit of a family, at most its parent's. Returns the previous limit.
///
/// # Errors
/// `ESRCH` if the family no longer exists.
pub fn set_limit(family: Family, kind: Kind, limit: u64) -> Result<u64, Errno> {
    TREE.lock().set_limit(family, kind, limit).map_err(errno)
}

/// Lowers a limit of a family, at the request of its head.
///
/// # Errors
/// `EPERM` if `limit` is above the current one, `ESRCH` if the family no longer exists.
pub fn lower_limit(family: Family, kind: Kind, limit: u64) -> Result<u64, Errno> {
    TREE.lock().lower_limit(family, kind, limit).map_err(|refusal| match refusal {
        Refusal::Over(_) => Errno::EPERM,
        other => errno(other),
    })
}

/// Charges `bytes` of memory to a family, which the caller remembers for [`release_memory`].
///
/// # Errors
/// As for [`Charge::new`].
pub fn charge_memory(family: Family, bytes: u64) -> Result<(), Errno> {
    TREE.lock().charge(family, &Amounts::of(Kind::Memory, bytes)).map_err(errno)
}

/// As [`charge_memory`], even beyond the limits: for what is held already.
pub fn charge_memory_forced(family: Family, bytes: u64) {
    // A family that is gone has nothing that could be charged.
    let _ = TREE.lock().charge_forced(family, &Amounts::of(Kind::Memory, bytes));
}

/// Releases what [`charge_memory`] has charged.
pub fn release_memory(family: Family, bytes: u64) {
    TREE.lock().release(family, &Amounts::of(Kind::Memory, bytes));
}

/// What is charged to a family; dropping it releases the charge.
#[derive(Debug)]
pub struct Charge {
    family: Family,
    amounts: Amounts,
}

impl Charge {
    /// An empty charge.
    pub const fn nothing(family: Family) -> Self {
        Self { family, amounts: Amounts([0; KINDS]) }
    }

    /// Charges `amounts`.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`, `EADDRNOTAVAIL` or `EAGAIN`, depending on the kind that is used up.
    pub fn new(family: Family, amounts: &Amounts) -> Result<Self, Errno> {
        let mut charge = Self::nothing(family);
        charge.grow(amounts)?;
        Ok(charge)
    }

    /// The charge of an object that is charged more later: for the family's node in the tree, which
    /// exists as long as the object does. Without it, a family of which the process has ended while
    /// others still have the object would be gone, and every later charge refused.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn standing(family: Family) -> Result<Self, Errno> {
        Self::new(family, &Amounts::of(Kind::Memory, FAMILY_BYTES))
    }

    /// As [`Self::standing`], for what has copies.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn shared_standing(family: Family) -> Result<Arc<Self>, Errno> {
        Ok(try_arc(Self::standing(family)?)?)
    }

    /// Charges `more`.
    ///
    /// # Errors
    /// As for [`Charge::new`]; nothing has changed then.
    pub fn grow(&mut self, more: &Amounts) -> Result<(), Errno> {
        TREE.lock().charge(self.family, more).map_err(errno)?;
        self.amounts.add(more);
        Ok(())
    }

    /// Charges `more` even beyond the limits: for what cannot fail. Later requests of the family
    /// are refused earlier instead.
    pub fn grow_forced(&mut self, more: &Amounts) {
        if TREE.lock().charge_forced(self.family, more).is_ok() {
            self.amounts.add(more);
        }
    }

    /// Releases `less`, at most what is charged.
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

    /// The family that it is charged to.
    pub fn family(&self) -> Family {
        self.family
    }
}

/// Memory that is charged to a family; dropping it releases the charge. A third of the size of a
/// [`Charge`]: for what there may be ten thousand of.
#[derive(Debug)]
pub struct MemoryCharge {
    family: Family,
    bytes: u64,
}

impl MemoryCharge {
    /// Charges `bytes`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(family: Family, bytes: u64) -> Result<Self, Errno> {
        charge_memory(family, bytes)?;
        Ok(Self { family, bytes })
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        release_memory(self.family, self.bytes);
    }
}

/// A port that is charged to a family; dropping it releases the charge. Small, as
/// [`MemoryCharge`].
#[derive(Debug)]
pub struct PortCharge(Family);

impl PortCharge {
    /// Charges one.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`, as if all ports were in use.
    pub fn new(family: Family) -> Result<Self, Errno> {
        TREE.lock().charge(family, &Amounts::of(Kind::Ports, 1)).map_err(errno)?;
        Ok(Self(family))
    }
}

impl Drop for PortCharge {
    fn drop(&mut self) {
        TREE.lock().release(self.0, &Amounts::of(Kind::Ports, 1));
    }
}

/// Memory that is charged to a family and not counted while this exists, since what is charged
/// meanwhile replaces it. Dropping it counts the memory again, also beyond the limits.
#[derive(Debug)]
pub struct Lent {
    family: Family,
    bytes: u64,
}

impl Lent {
    /// Lends `bytes`, of which at least as many are charged to `family`.
    pub fn new(family: Family, bytes: u64) -> Self {
        release_memory(family, bytes);
        Self { family, bytes }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        charge_memory_forced(self.family, self.bytes);
    }
}

/// The charge for memory that a call keeps while it is in flight, beside [`CALL_BYTES`]. Nothing is
/// charged for a call that completes at once.
#[derive(Debug, Default)]
pub struct Kept(Option<Charge>);

impl Kept {
    /// Charges at least `bytes` from now on.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn at_least(&mut self, family: Family, bytes: usize) -> Result<(), OutOfMemory> {
        let charged = self.0.as_ref().map_or(0, |charge| charge.amounts().get(Kind::Memory));
        let more = (bytes as u64).saturating_sub(charged);
        if more == 0 {
            return Ok(());
        }
        let charge = self.0.get_or_insert_with(|| Charge::nothing(family));
        charge.grow(&Amounts::of(Kind::Memory, more)).map_err(|_| OutOfMemory)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        TREE.lock().release(self.family, &self.amounts);
    }
}
