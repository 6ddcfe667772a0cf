//! Results of calls that completed while they were being cancelled. They wait here for the next call that
//! asks for the same thing, so that a timeout on a read loses no bytes, one on an accept no connection and one on
//! a wait no exit status.
//!
//! May touch: its own table. Everybody who reads, accepts or waits asks here first; while the table is empty,
//! which is nearly always, that costs one load.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use alloc::collections::{BTreeMap, VecDeque};

use crate::io::Fd;
use crate::lock::Lock;

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

static TABLE: Lock<Table> =
    Lock::new(Table { bytes: BTreeMap::new(), connections: BTreeMap::new(), statuses: BTreeMap::new() });
/// Entries in the table. Whoever may expect to find something put it there itself, or was told by who did: relaxed.
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

/// Bytes that were read from `fd` and that nobody has got.
pub fn keep_bytes(fd: i32, bytes: &[u8]) {
    if !bytes.is_empty() {
        with(|table| table.bytes.entry(fd).or_default().extend(bytes));
    }
}

/// Moves kept bytes of `fd` into `buffer`; how many, or `None` if there are none.
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

/// A connection accepted from `listener` that nobody has got.
pub fn keep_connection(listener: i32, connection: Fd) {
    with(|table| table.connections.entry(listener).or_default().push_back(connection));
}

/// The oldest kept connection of `listener`.
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

/// How child `pid` ended, which nobody has heard.
pub fn keep_status(pid: u32, status: i32) {
    with(|table| table.statuses.insert(pid, status));
}

/// The kept status of `pid`, or of any child.
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

/// `fd` is being closed: what was kept for it is gone, as is what the kernel had for it.
#[inline]
pub fn forget(fd: i32) {
    if !is_empty() {
        // Connections are closed outside of the lock: closing comes here again.
        let connections = with(|table| {
            table.bytes.remove(&fd);
            table.connections.remove(&fd)
        });
        drop(connections);
    }
}
