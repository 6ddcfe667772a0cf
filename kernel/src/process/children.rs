//! The table of processes: parents, children, and how processes have ended.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::*;

use cops_abi::{Errno, Priority};
use cops_fallible::Map;
use cops_fallible::map::Spare;
use spin::Mutex;

use super::{FIRST_PROCESS, Process, ProcessId, WaitStatus};
use crate::fs;
use crate::mm::quota::{self, Amounts, Charge, Family, Kind, Membership};

/// Memory for a process's record, apart from what is charged as the process grows.
const RECORD_BYTES: u64 = 4096;

/// The table's record of a process.
struct Record {
    parent: ProcessId,
    /// Removed when the reaper frees the process.
    process: Option<Arc<Process>>,
    /// How the process ended, once it is freed.
    status: Option<WaitStatus>,
    /// Memory for the entry in `ended`: the end of a process cannot fail.
    room: Option<Spare<Pair, ()>>,
    /// The charge for this record, until the process is waited for.
    _charge: Charge,
    /// Its limits and its ancestors.
    membership: Membership,
}

/// Parent, child.
type Pair = (ProcessId, ProcessId);

struct Table {
    records: Map<ProcessId, Record>,
    /// All records, by parent.
    families: Map<Pair, ()>,
    /// Like `families`, with only the ended processes, so that a wait for a child examines no
    /// others.
    ended: Map<Pair, ()>,
    next: ProcessId,
}

/// The first child of `parent` in `pairs` with a number of at least `child`.
fn child_from(pairs: &Map<Pair, ()>, parent: ProcessId, child: ProcessId) -> Option<ProcessId> {
    let (&(found, child), ()) = pairs.at_or_after(&(parent, child))?;
    (found == parent).then_some(child)
}

impl Table {
    fn remove(&mut self, id: ProcessId) {
        if let Some(record) = self.records.remove(&id) {
            self.families.remove(&(record.parent, id));
            self.ended.remove(&(record.parent, id));
        }
    }
}

static TABLE: Mutex<Table> =
    Mutex::new(Table { records: Map::new(), families: Map::new(), ended: Map::new(), next: 1 });

/// Reserves a number for a new process of `parent`, with the family that it is the head of.
///
/// # Errors
/// `EAGAIN` if there are too many processes, `ENOMEM`.
pub fn reserve(parent: ProcessId) -> Result<(ProcessId, Family), Errno> {
    let mut table = TABLE.lock();
    let membership = match table.records.get(&parent) {
        Some(record) => Membership::new(record.membership.family())?,
        // The first process, the only child of the kernel.
        None => Membership::first(),
    };
    let family = membership.family();
    let amounts = Amounts::of(Kind::Processes, 1).and(Kind::Memory, RECORD_BYTES);
    let charge = Charge::new(family, &amounts)?;
    let id = table.next;
    membership.set_head(id);
    let place = Spare::try_new()?;
    let room = Some(Spare::try_new()?);
    let record = Record { parent, process: None, status: None, room, _charge: charge, membership };
    table.records.try_insert(id, record)?;
    table.families.insert_with(place, (parent, id), ());
    table.next += 1;
    Ok((id, family))
}

/// Inserts the process for which the number was reserved.
pub fn insert(process: &Arc<Process>) {
    if let Some(record) = TABLE.lock().records.get_mut(&process.id) {
        record.process = Some(process.clone());
    }
}

/// Frees a number that no process uses.
pub fn release(id: ProcessId) {
    TABLE.lock().remove(id);
}

/// The process with this number, unless it has ended.
pub fn find(id: ProcessId) -> Option<Arc<Process>> {
    TABLE.lock().records.get(&id)?.process.clone()
}

/// The process to charge for the kernel's work on what is left of `family`: the nearest living
/// ancestor, or the head itself if that is not `ended`.
pub(super) fn payer(family: Family, ended: ProcessId) -> Option<Arc<Process>> {
    let table = TABLE.lock();
    let mut heads = quota::heads(family).filter(|&head| head != ended);
    heads.find_map(|head| table.records.get(&head)?.process.clone())
}

/// Number of processes that one portion of [`lower_some`] examines. Checking whether one is a
/// descendant costs as much as the distance of the two.
const PORTION_PROCESSES: usize = 4;

/// Lowers the ceilings of some processes of `family` to `priority`, those with the lowest numbers
/// from `from` on. Returns the number to continue with; `None` if there are no more.
///
/// A process that is started in the meantime has a higher number than its parent. Either it
/// inherits the ceiling that its parent already got here, or it is still to be examined.
pub fn lower_some(family: Family, priority: Priority, from: ProcessId) -> Option<ProcessId> {
    let mut next = from;
    for _ in 0..PORTION_PROCESSES {
        let Entry { id, process, .. } = at_or_after(next)?;
        if let Some(process) = process
            && quota::is_within(process.family, family)
        {
            process.lower_ceiling_to(priority);
        }
        next = id.checked_add(1)?;
    }
    Some(next)
}

/// A process in the table.
pub struct Entry {
    /// Its number.
    pub id: ProcessId,
    /// The number of its parent; 0 if it has none any more.
    pub parent: ProcessId,
    /// The process, unless the reaper has freed it.
    pub process: Option<Arc<Process>>,
}

/// The process with the lowest number from `id` on.
pub fn at_or_after(id: ProcessId) -> Option<Entry> {
    let table = TABLE.lock();
    let (&id, record) = table.records.at_or_after(&id)?;
    Some(Entry { id, parent: record.parent, process: record.process.clone() })
}

/// Number of processes that have not been waited for.
pub fn count() -> usize {
    TABLE.lock().records.len()
}

/// Drops the table's reference to a process that is being freed.
pub(super) fn forget(id: ProcessId) {
    let process = TABLE.lock().records.get_mut(&id).and_then(|record| record.process.take());
    drop(process);
}

/// Number of children that one portion of [`orphan_some`] separates from their parent.
const PORTION_CHILDREN: usize = 4;

/// Makes orphans of some children of a process that has ended. Returns whether there are more.
/// Orphans that have already ended are removed, because no process can wait for them.
pub(super) fn orphan_some(id: ProcessId) -> bool {
    let table = &mut *TABLE.lock();
    for _ in 0..PORTION_CHILDREN {
        let Some(child) = child_from(&table.families, id, 0) else { return false };
        match table.records.get_mut(&child) {
            Some(record) if record.status.is_none() => {
                record.parent = 0;
                if let Some(process) = &record.process {
                    process.parent.store(0, Relaxed);
                }
                if let Some(((), node)) = table.families.take(&(id, child)) {
                    table.families.insert_with(node, (0, child), ());
                }
            }
            _ => {
                table.remove(child);
                table.families.remove(&(id, child));
            }
        }
    }
    true
}

/// Records for the parent how a process ended. It is freed, and its children are orphans already.
pub(super) fn ended(id: ProcessId, status: WaitStatus) {
    let parent = record_end(id, status);
    // Before the parent is woken, so that it already has the console again.
    fs::release_console(id);
    if let Some(parent) = parent {
        parent.child_ended.wake_all();
        parent.signal_end_of_child(id, status);
    }
}

/// The part of [`ended`] that changes the table. Returns the parent.
fn record_end(id: ProcessId, status: WaitStatus) -> Option<Arc<Process>> {
    let table = &mut *TABLE.lock();
    let record = table.records.get_mut(&id)?;
    record.status = Some(status);
    let parent = record.parent;
    if let Some(room) = record.room.take() {
        table.ended.insert_with(room, (parent, id), ());
    }
    let process = table.records.get(&parent).and_then(|record| record.process.clone());
    if process.is_none() && id != FIRST_PROCESS {
        table.remove(id);
    }
    process
}

/// Removes an ended child of `parent` (`None`: any child) from the table. `Ok(None)` if none has
/// ended yet.
///
/// # Errors
/// `ECHILD` if there is no such child.
pub fn reap(
    parent: ProcessId,
    child: Option<ProcessId>,
) -> Result<Option<(ProcessId, WaitStatus)>, Errno> {
    let mut table = TABLE.lock();
    let found = match child {
        Some(child) => table.ended.contains_key(&(parent, child)).then_some(child),
        None => child_from(&table.ended, parent, 0),
    };
    if let Some(id) = found {
        let status = table.records.get(&id).and_then(|record| record.status);
        table.remove(id);
        return Ok(status.map(|status| (id, status)));
    }
    let has_child = match child {
        Some(child) => table.families.contains_key(&(parent, child)),
        None => child_from(&table.families, parent, 0).is_some(),
    };
    if has_child { Ok(None) } else { Err(Errno::ECHILD) }
}
