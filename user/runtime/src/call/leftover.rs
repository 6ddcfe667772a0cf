//! Results of calls that completed while they were being cancelled. They are kept for the next call
//! that asks for the same. So a timeout on a read loses no bytes, a timeout on an accept no
//! connection, and a timeout on a wait no exit status.
//!
//! Bytes of a file are not kept: its position moves back instead, so that a seek or a write after
//! the dropped read is where it would be without it.
//!
//! May touch: its own table, positions of files. Every read, accept and wait checks this table
//! first; while it is empty, which is nearly always the case, the check costs one load.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use alloc::collections::{BTreeMap, VecDeque};

use crate::io::Fd;
use crate::lock::Lock;
use crate::system;

#[derive(Default)]
struct Table {
    bytes: BTreeMap<i32, VecDeque<u8>>,
    connections: BTreeMap<i32, VecDeque<Fd>>,
    statuses: BTreeMap<u32, i32>,
}

impl Table {
    fn entries(&self) -> usize {
        self.bytes.len() + self.connections.len() + self.statuses.len()
    }
}

static TABLE: Lock<Table> = Lock::new(Table {
    bytes: BTreeMap::new(),
    connections: BTreeMap::new(),
    statuses: BTreeMap::new(),
});
/// Number of entries in the table. Relaxed, because a caller that can expect an entry either added
/// it itself or was synchronised with the one that did.
static ENTRIES: AtomicUsize = AtomicUsize::new(0);

fn with<T>(change: impl FnOnce(&mut Table) -> T) -> T {
    let mut table = TABLE.lock();
    let result = change(&mut table);
    ENTRIES.store(table.entries(), Relaxed);
    result
}

fn is_empty() -> bool {
    ENTRIES.load(Relaxed) == 0
}

/// Undoes a read of these bytes from `fd`, which were not delivered: moves the position back, or
/// keeps them where there is none.
pub fn undo_read(fd: i32, bytes: &[u8]) {
    const FROM_HERE: usize = 1;
    if !bytes.is_empty() && system::seek(fd, -(bytes.len() as i64), FROM_HERE).is_err() {
        with(|table| table.bytes.entry(fd).or_default().extend(bytes));
    }
}

/// Moves kept bytes of `fd` into `buffer`. Returns how many; `None` if there are none.
#[inline]
pub fn take_bytes(fd: i32, buffer: &mut [u8]) -> Option<usize> {
    if is_empty() || buffer.is_empty() { None } else { take_bytes_slowly(fd, buffer) }
}

#[cold]
fn take_bytes_slowly(fd: i32, buffer: &mut [u8]) -> Option<usize> {
    with(|table| {
        let kept = table.bytes.get_mut(&fd)?;
        let count = kept.len().min(buffer.len());
        for (place, byte) in buffer.iter_mut().zip(kept.drain(..count)) {
            *place = byte;
        }
        if kept.is_empty() {
            table.bytes.remove(&fd);
        }
        Some(count)
    })
}

/// Keeps a connection that was accepted from `listener` and not delivered.
pub fn keep_connection(listener: i32, connection: Fd) {
    with(|table| table.connections.entry(listener).or_default().push_back(connection));
}

/// Takes the oldest kept connection of `listener`.
#[inline]
pub fn take_connection(listener: i32) -> Option<Fd> {
    if is_empty() {
        return None;
    }
    with(|table| {
        let kept = table.connections.get_mut(&listener)?;
        let connection = kept.pop_front();
        if kept.is_empty() {
            table.connections.remove(&listener);
        }
        connection
    })
}

/// Keeps the exit status of child `pid`, which was not delivered.
pub fn keep_status(pid: u32, status: i32) {
    with(|table| table.statuses.insert(pid, status));
}

/// Takes the kept status of `pid`, or of any child.
#[inline]
pub fn take_status(pid: Option<u32>) -> Option<(u32, i32)> {
    if is_empty() {
        return None;
    }
    with(|table| match pid {
        Some(pid) => table.statuses.remove(&pid).map(|status| (pid, status)),
        None => table.statuses.pop_first(),
    })
}

/// `fd` is being closed: drops everything that was kept for it.
#[inline]
pub fn forget(fd: i32) {
    if !is_empty() {
        // Connections are closed outside of the lock, because closing calls this function.
        let connections = with(|table| {
            table.bytes.remove(&fd);
            table.connections.remove(&fd)
        });
        drop(connections);
    }
}
