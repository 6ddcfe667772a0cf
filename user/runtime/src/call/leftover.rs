//! Results of calls that completed while they were being cancelled. They are kept for the next call
//! that asks for the same. So a timeout on a read loses no bytes, a timeout on an accept no
//! connection, and a timeout on a wait no exit status.
//!
//! Bytes of a file are not kept: its position moves back instead, so that a seek or a write after
//! the dropped read is where it would be without it.
//!
//! Nor is the error of a file, which the next read finds again. That of a stream is kept: the
//! kernel reports once how a connection has failed, and later reads find its end. There is at most
//! one for a descriptor, until that is closed.
//!
//! May touch: its own table, positions of files. Every read, accept and wait checks this table
//! first; while it is empty, which is nearly always the case, the check costs one load.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use alloc::collections::{BTreeMap, VecDeque};

use cops_abi::Errno;
use cops_abi::errno::CallResult;

use crate::io::Fd;
use crate::lock::Lock;
use crate::system;

#[derive(Default)]
struct Table {
    bytes: BTreeMap<i32, VecDeque<u8>>,
    errors: BTreeMap<i32, Errno>,
    connections: BTreeMap<i32, VecDeque<Fd>>,
    statuses: BTreeMap<u32, i32>,
}

impl Table {
    fn entries(&self) -> usize {
        self.bytes.len() + self.errors.len() + self.connections.len() + self.statuses.len()
    }
}

static TABLE: Lock<Table> = Lock::new(Table {
    bytes: BTreeMap::new(),
    errors: BTreeMap::new(),
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

/// Moves the position of `fd` by so many bytes. False if it has none.
fn move_position(fd: i32, bytes: i64) -> bool {
    const FROM_HERE: usize = 1;
    system::seek(fd, bytes, FROM_HERE).is_ok()
}

/// Undoes a read of these bytes from `fd`, which were not delivered: moves the position back, or
/// keeps them where there is none.
pub fn undo_read(fd: i32, bytes: &[u8]) {
    if !bytes.is_empty() && !move_position(fd, -(bytes.len() as i64)) {
        with(|table| table.bytes.entry(fd).or_default().extend(bytes));
    }
}

/// Keeps the error of a read of `fd` that was not delivered, unless the next read finds it again.
#[cold]
pub fn keep_error(fd: i32, error: Errno) {
    if !move_position(fd, 0) {
        with(|table| *table.errors.entry(fd).or_insert(error));
    }
}

/// What reads of `fd` have left: moves kept bytes into `buffer` and returns how many; behind the
/// last of them comes the kept error. `None` if there is neither.
#[inline]
pub fn take_bytes(fd: i32, buffer: &mut [u8]) -> Option<CallResult> {
    if is_empty() || buffer.is_empty() { None } else { take_bytes_slowly(fd, buffer) }
}

#[cold]
fn take_bytes_slowly(fd: i32, buffer: &mut [u8]) -> Option<CallResult> {
    with(|table| {
        let Some(kept) = table.bytes.get_mut(&fd) else {
            return table.errors.remove(&fd).map(Err);
        };
        let count = kept.len().min(buffer.len());
        for (place, byte) in buffer.iter_mut().zip(kept.drain(..count)) {
            *place = byte;
        }
        if kept.is_empty() {
            table.bytes.remove(&fd);
        }
        Some(Ok(count))
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
            table.errors.remove(&fd);
            table.connections.remove(&fd)
        });
        drop(connections);
    }
}
