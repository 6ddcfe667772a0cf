//! Connections of servers that are gone: what they have kept is freed by the sweeper, in portions.

use alloc::sync::Arc;

use cops_lock::Mutex;

use super::connection::Connection;
use crate::fs::SWEEPER;

/// The first of the connections that have something to free.
static CLOSED: Mutex<Option<Arc<Connection>>> = Mutex::new(None);

/// Frees what `connection`, which is closed, has kept, soon.
pub fn sweep(connection: Arc<Connection>) {
    let mut closed = CLOSED.lock();
    *connection.next_closed.lock() = closed.take();
    *closed = Some(connection);
    drop(closed);
    SWEEPER.wake();
}

/// Frees some of it. Returns whether there is more.
pub fn sweep_some() -> bool {
    let Some(first) = CLOSED.lock().clone() else { return false };
    if first.free_some() {
        return true;
    }
    // Others may have been put before it in the meantime: these are next.
    let mut closed = CLOSED.lock();
    match &*closed {
        Some(connection) if Arc::ptr_eq(connection, &first) => {
            *closed = first.next_closed.lock().take();
        }
        _ => return true,
    }
    closed.is_some()
}
