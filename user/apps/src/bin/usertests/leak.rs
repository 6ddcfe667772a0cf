//! Checks whether a test has left anything in the kernel.

use alloc::format;
use alloc::vec::Vec;

use cops::inspect::{self, state};

use crate::harness::Failure;
use crate::holdings::Holdings;

/// Waits until the kernel uses no more than `before`.
///
/// # Errors
/// The resources that are not free after a while, and the processes and kernel coroutines at that
/// time.
pub async fn wait_until_free(before: &Holdings) -> Result<(), Failure> {
    let excess = before.wait_until_free().await?;
    if excess.iter().all(|&(_, amount)| amount == 0) {
        return Ok(());
    }
    let processes: Vec<_> = inspect::processes()?
        .iter()
        .map(|one| format!("{} {}", one.process, state::name(one.state)))
        .collect();
    let coroutines: Vec<_> = inspect::coroutines(0)?
        .iter()
        .map(|one| {
            format!("{}{:#x} {}", inspect::text(&one.name), one.coroutine, state::name(one.state))
        })
        .collect();
    Err(Failure(format!(
        "left behind: {excess:?}; processes {processes:?}; kernel coroutines {coroutines:?}"
    )))
}
