//! The signals of keys: a coroutine of the kernel that sends them to the group for which they were
//! typed (decision 36).
//!
//! The console's coroutine must not do it, since a group may have thousands of members. It is as
//! urgent as the console, because a program that is to be ended may compute on every hart.
#![forbid(unsafe_code)]

use core::future::poll_fn;
use core::task::Poll;

use cops_algorithms::signals::{SIGNALS, bit};
use cops_algorithms::terminal::Keyed;
use cops_executor::yield_now;

use super::groups;
use crate::fs::terminal::{KEY_SIGNALS, next_keyed};

/// The coroutine, to be spawned once.
pub async fn service() {
    KEY_SIGNALS.begin();
    loop {
        let Keyed { group, signals } =
            poll_fn(|_| next_keyed().map_or(Poll::Pending, Poll::Ready)).await;
        for signal in (1..=SIGNALS).filter(|&signal| signals & bit(signal) != 0) {
            let mut next = 0;
            while let Some(more) = groups::signal_some(group, signal, next) {
                next = more;
                yield_now().await;
            }
        }
    }
}
