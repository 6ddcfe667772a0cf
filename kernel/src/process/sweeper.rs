//! The sweeper: a coroutine that frees the contents of files in memory, some pages at a time.
//!
//! What it does is a small part of what the programs have done to write these pages. So it works at
//! the default level, and is charged to no process.

use core::future::poll_fn;
use core::task::Poll;

use crate::fs::{SWEEPER, sweep_some};

/// The service coroutine.
pub async fn service() {
    SWEEPER.begin();
    poll_fn(|context| {
        if sweep_some() {
            context.waker().wake_by_ref();
        }
        Poll::<()>::Pending
    })
    .await;
}
