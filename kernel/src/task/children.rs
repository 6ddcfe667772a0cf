//! Who is whose child, who has ended and how: the table of processes.
//!
//! May touch: processes.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::*;

use cops_abi::Errno;
use cops_fallible::Map;
use cops_fallible::map::Spare;
use spin::Mutex;

use super::process::{FIRST_PROCESS, Process, ProcessId, WaitStatus};
use super::reaper;
use crate::fs;
use crate::mm::quota::{self, Amounts, Charge, Family, Kind, Membership};

/// What the kernel keeps of a process besides what is charged as it grows.
const RECORD_BYTES: u64 = 4096;

/// What is known of a process.
struct Record {
    parent: ProcessId,
    /// Until the reaper has it.
    process: Option<Arc<Process>>,
    /// How it ended, once it is gone.
    status: Option<WaitStatus>,
    /// Room in `ended` for when it has: a process cannot fail to end.
    room: Option<Spare<Pair, ()>>,
    /// Its place in this table, charged until it is waited for.
    _place: Charge,
    /// What it may hold, and whose descendant it is.
    membership: Membership,
}

/// Parent, child.
type Pair = (ProcessId, ProcessId);

struct Table {
    records: Map<ProcessId, Record>,
    /// Every record again, by its parent.
    families: Map<Pair, ()>,
    /// As `families`, of those only that have a status: who waits for a child looks at no other.
    ended: Map<Pair, ()>,
    next: ProcessId,
}

/// The child in the first pair of `parent` in which it is at least `child`.
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

/// Reserves a number for a new process of `parent`.
///
/// # Errors
/// `EAGAIN` if there are too many processes, `ENOMEM`.
pub fn reserve(parent: ProcessId) -> Result<ProcessId, Errno> {
    let mut table = TABLE.lock();
    let membership = match table.records.get(&parent) {
        Some(record) => Membership::new(record.membership.family())?,
        // The kernel's only child.
        None => Membership::first(),
    };
    let place =
        Charge::new(membership.family(), &Amounts::of(Kind::Processes, 1).and(Kind::Memory, RECORD_BYTES))?;
    let id = table.next;
    membership.set_head(id);
    reaper::reserve(table.records.len() + 1)?;
    let family = Spare::try_new()?;
    let room = Some(Spare::try_new()?);
    let record = Record { parent, process: None, status: None, room, _place: place, membership };
    table.records.try_insert(id, record)?;
    table.families.insert_with(family, (parent, id), ());
    table.next += 1;
    Ok(id)
}

/// Enters the process that has taken the number.
pub fn enter(process: &Arc<Process>) {
    if let Some(record) = TABLE.lock().records.get_mut(&process.id) {
        record.process = Some(process.clone());
    }
}

/// The family of the process with this number, until it has been waited for.
pub fn family(id: ProcessId) -> Option<Family> {
    Some(TABLE.lock().records.get(&id)?.membership.family())
}

/// Gives back a number that no process has taken.
pub fn give_back(id: ProcessId) {
    TABLE.lock().remove(id);
}

/// The process with this number, unless it has ended.
pub fn find(id: ProcessId) -> Option<Arc<Process>> {
    TABLE.lock().records.get(&id)?.process.clone()
}

/// The process whose time it is when the kernel works for what is left of `family`: the nearest ancestor that lives, or
/// the head itself if that is not `ended`.
pub(super) fn payer(family: Family, ended: ProcessId) -> Option<Arc<Process>> {
    let table = TABLE.lock();
    let mut heads = quota::heads(family).filter(|&head| head != ended);
    heads.find_map(|head| table.records.get(&head)?.process.clone())
}

/// Processes that one portion of [`lower_some`] looks at. Whether one is a descendant costs as much as the two are apart.
const PORTION_PROCESSES: usize = 4;

/// Makes some processes of `family` no more urgent than `level`, those with the lowest numbers from `from` on. Returns the
/// number to go on with; `None`: there are no more.
///
/// A process that is started meanwhile has a higher number than its parent: either it inherits what that has got here
/// already, or it is still to come.
pub fn lower_some(family: Family, level: u8, from: ProcessId) -> Option<ProcessId> {
    let mut next = from;
    for _ in 0..PORTION_PROCESSES {
        let Entry { id, process, .. } = at_or_after(next)?;
        if let Some(process) = process
            && process.is_of(family)
        {
            process.lower_ceiling_to(level);
        }
        next = id.checked_add(1)?;
    }
    Some(next)
}

/// A process as the table knows it.
pub struct Entry {
    /// Its number.
    pub id: ProcessId,
    /// Its parent's; 0 if it has none any more.
    pub parent: ProcessId,
    /// The process, until the reaper has it.
    pub process: Option<Arc<Process>>,
}

/// The process with the lowest number that is not below `id`.
pub fn at_or_after(id: ProcessId) -> Option<Entry> {
    let table = TABLE.lock();
    let (&id, record) = table.records.at_or_after(&id)?;
    Some(Entry { id, parent: record.parent, process: record.process.clone() })
}

/// Processes that have not been waited for.
pub fn count() -> usize {
    TABLE.lock().records.len()
}

/// Drops the table's hold on a process that is being freed.
pub(super) fn forget(id: ProcessId) {
    let process = TABLE.lock().records.get_mut(&id).and_then(|record| record.process.take());
    drop(process);
}

/// Children that one portion of [`orphan_some`] parts from their parent.
const PORTION_CHILDREN: usize = 4;

/// Makes orphans of some children of a process that is gone. Returns whether there are more. Orphans that have ended are
/// forgotten: no process can wait for them.
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

/// A process is gone, and its children are orphans already: keeps how it ended for its parent.
pub(super) fn ended(id: ProcessId, status: WaitStatus) {
    let parent = enter_end(id, status);
    // Before the parent is woken: it finds the console its own again.
    fs::leave_console(id);
    match parent {
        Some(parent) => parent.child_ended.wake_all(),
        None if id == FIRST_PROCESS => super::first_process_ended(status),
        None => {}
    }
}

/// What [`ended`] does to the table. Returns the parent.
fn enter_end(id: ProcessId, status: WaitStatus) -> Option<Arc<Process>> {
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

/// Takes a child of `parent` that has ended (`None`: any) out of the table. `Ok(None)`: none has yet.
///
/// # Errors
/// `ECHILD` if there is no such child.
pub fn reap(parent: ProcessId, child: Option<ProcessId>) -> Result<Option<(ProcessId, WaitStatus)>, Errno> {
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
