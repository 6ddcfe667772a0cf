//! Who is whose child, who has ended and how: the table of processes.
//!
//! May touch: processes.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::*;

use cops_abi::Errno;
use spin::Mutex;

use super::process::{Process, ProcessId, WaitStatus};

/// Processes there may be at a time, the ended ones that nobody has waited for included.
pub const PROCESSES_MAX: usize = 1024;

/// What is known of a process.
struct Record {
    parent: ProcessId,
    /// Until the reaper has it.
    process: Option<Arc<Process>>,
    /// How it ended, once it is gone.
    status: Option<WaitStatus>,
}

struct Table {
    records: BTreeMap<ProcessId, Record>,
    next: ProcessId,
}

static TABLE: Mutex<Table> = Mutex::new(Table { records: BTreeMap::new(), next: 1 });

/// Reserves a number for a new process of `parent`.
///
/// # Errors
/// `EAGAIN` if there are too many processes.
pub fn reserve(parent: ProcessId) -> Result<ProcessId, Errno> {
    let mut table = TABLE.lock();
    if table.records.len() >= PROCESSES_MAX {
        return Err(Errno::EAGAIN);
    }
    let id = table.next;
    table.next += 1;
    table.records.insert(id, Record { parent, process: None, status: None });
    Ok(id)
}

/// Enters the process that has taken the number.
pub fn enter(process: &Arc<Process>) {
    if let Some(record) = TABLE.lock().records.get_mut(&process.id) {
        record.process = Some(process.clone());
    }
}

/// Gives back a number that no process has taken.
pub fn give_back(id: ProcessId) {
    TABLE.lock().records.remove(&id);
}

/// The process with this number, unless it has ended.
pub fn find(id: ProcessId) -> Option<Arc<Process>> {
    TABLE.lock().records.get(&id)?.process.clone()
}

/// Makes `process` and all its descendants no more urgent than `level`.
pub fn lower_ceilings(process: ProcessId, level: u8) {
    let table = TABLE.lock();
    let mut todo = alloc::vec![process];
    while let Some(id) = todo.pop() {
        if let Some(process) = table.records.get(&id).and_then(|record| record.process.as_ref()) {
            process.lower_ceiling_to(level);
        }
        todo.extend(table.records.iter().filter(|(_, record)| record.parent == id).map(|(&child, _)| child));
    }
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
    let (&id, record) = table.records.range(id..).next()?;
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

/// A process is gone: keeps how it ended for its parent, makes orphans of its children.
pub(super) fn ended(id: ProcessId, status: WaitStatus) {
    let mut table = TABLE.lock();
    // Orphans that have ended are nobody's any more; the others forget their parent.
    table.records.retain(|_, record| record.parent != id || record.status.is_none());
    for record in table.records.values_mut().filter(|record| record.parent == id) {
        record.parent = 0;
        if let Some(process) = &record.process {
            process.parent.store(0, Relaxed);
        }
    }
    let Some(record) = table.records.get_mut(&id) else { return };
    record.status = Some(status);
    let parent = record.parent;
    let parent = table.records.get(&parent).and_then(|record| record.process.clone());
    if parent.is_none() && id != 1 {
        table.records.remove(&id);
    }
    drop(table);
    match parent {
        Some(parent) => parent.child_ended.wake_all(),
        None if id == 1 => super::first_process_ended(status),
        None => {}
    }
}

/// Takes a child of `parent` that has ended (`None`: any) out of the table. `Ok(None)`: none has yet.
///
/// # Errors
/// `ECHILD` if there is no such child.
pub fn reap(parent: ProcessId, child: Option<ProcessId>) -> Result<Option<(ProcessId, WaitStatus)>, Errno> {
    let mut table = TABLE.lock();
    let mut any = false;
    let mut found = None;
    for (&id, record) in &table.records {
        if record.parent != parent || child.is_some_and(|child| child != id) {
            continue;
        }
        any = true;
        if let Some(status) = record.status {
            found = Some((id, status));
            break;
        }
    }
    if let Some((id, _)) = found {
        table.records.remove(&id);
    }
    if any { Ok(found) } else { Err(Errno::ECHILD) }
}
