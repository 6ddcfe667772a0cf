//! The operations of the file system, each as one change or in steps.

mod attributes;
pub(crate) mod entries;
mod file;
mod names;
pub(crate) mod orphans;
mod rename;

pub use self::attributes::{Attributes, SetAttributes, Statistics};
pub use self::names::{Entry, New};

use core::future::poll_fn;
use core::task::Poll;

use cops_executor::sync::MutexGuard;

use crate::change::Change;
use crate::device::BlockDevice;
use crate::error::Result;
use crate::{Ext4, journal};

/// Runs an operation that allocates, and once more if the disk was full but for blocks that were
/// freed and are not yet committed, or can be freed.
macro_rules! with_space {
    ($file_system:expr, $operation:expr) => {
        match $operation.await {
            Err($crate::Error::NoSpace) if $file_system.make_space().await? => $operation.await,
            other => other,
        }
    };
}
pub(crate) use with_space;

/// Lets what is as urgent run.
async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if core::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<D: BlockDevice> Ext4<D> {
    /// Begins a changing operation, when there is room for it in the cache and in the journal.
    pub(crate) async fn change(&self) -> Result<Change<'_, D>> {
        self.change_with(self.core.changes.lock().await).await
    }

    /// The same with the guard of `changes`.
    async fn change_with<'a>(&'a self, turn: MutexGuard<'a, ()>) -> Result<Change<'a, D>> {
        self.make_room().await?;
        Ok(Change::new(&self.core, turn))
    }

    /// Publishes a change and begins the next step of the same operation, after the operations that
    /// wait: so a long one delays each of the others by one step.
    pub(crate) async fn next<'a>(&'a self, change: Change<'a, D>) -> Result<Change<'a, D>> {
        change.publish().await?;
        yield_now().await;
        self.change().await
    }

    /// Commits, and writes back what is in the journal, if so much has changed that one more
    /// operation could exceed the limits. The caller holds `changes`.
    async fn make_room(&self) -> Result<()> {
        let (commit, checkpoint) = {
            let state = self.core.state.lock().await;
            (state.commit_is_due(), state.checkpoint_is_due())
        };
        if commit {
            journal::commit(&self.core).await?;
        }
        if checkpoint {
            journal::checkpoint(&self.core).await?;
        }
        Ok(())
    }

    /// Makes space if it can: continues deletions that have not ended, and commits, after which
    /// freed blocks are available. Returns whether there may be more space now.
    pub(crate) async fn make_space(&self) -> Result<bool> {
        let mut has_freed = self.continue_orphans(true).await;
        if self.core.state.lock().await.has_freed() {
            journal::commit(&self.core).await?;
            has_freed = true;
        }
        Ok(has_freed)
    }
}
