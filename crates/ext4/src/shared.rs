//! What all operations share: the device, the layout, the cache, and the order of locks.
//!
//! Order of locks, outermost first: `changes`, then `journal` or `readers`, then `state`.
//! A commit takes `journal` and `state` only.
//!
//! - `changes` is held by the one operation that changes something. It collects its changes in a
//!   [`Change`](crate::change::Change) that no other operation sees.
//! - `readers` has a place for each reading operation; publishing a `Change` takes all of them. So
//!   a reader sees every change as a whole, and waits only for a publication, never for the device
//!   on behalf of a writer.
//! - `state` is held for a bounded number of steps and never across an `.await`.
//! - `journal` is held by the one commit or checkpoint that runs.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::future::Future;

use cops_executor::sync::{Mutex, MutexGuard};

use crate::block::{Block, Check};
use crate::bytes::part;
use crate::device::{BlockDevice, LONGEST_REQUEST};
use crate::error::{Error, Result};
use crate::journal::Journal;
use crate::readers::Readers;
use crate::state::State;
use crate::superblock::Layout;

pub(crate) struct Core<D> {
    pub device: D,
    pub layout: Layout,
    pub changes: Mutex<()>,
    pub readers: Readers,
    pub state: Mutex<State>,
    pub journal: Mutex<Journal>,
}

impl<D: BlockDevice> Core<D> {
    /// The newest published content of a block.
    pub async fn block(&self, number: u64, check: Check) -> Result<Block> {
        if let Some(block) = self.state.lock().await.find(number) {
            return Ok(block);
        }
        if number >= self.layout.blocks {
            return Err(Error::Corrupt("block number"));
        }
        let mut bytes = vec![0; self.layout.block_size];
        self.device.read(number * self.layout.block_size as u64, &mut bytes).await?;
        check.run(&self.layout, &bytes)?;
        let block = Arc::new(bytes);
        self.state.lock().await.add_clean(number, block.clone());
        Ok(block)
    }

    /// The contents of `count` blocks of a file from `first` on, at most [`LONGEST_REQUEST`]. Those
    /// that are not in memory are read with as few requests as possible.
    ///
    /// Without a [`View`], the contents may be old, and those of another file: the caller does not
    /// use them. The cache gets them only if nothing has been published meanwhile.
    pub async fn file_blocks(&self, first: u64, count: usize, check: Check) -> Result<Vec<Block>> {
        let size = self.layout.block_size;
        let count = count.min(LONGEST_REQUEST);
        if !self.layout.is_for_files(first, count as u64) {
            return Err(Error::Corrupt("block of a file"));
        }
        let (mut found, published): (Vec<Option<Block>>, u64) = {
            let mut state = self.state.lock().await;
            ((first..).take(count).map(|number| state.find(number)).collect(), state.published)
        };
        let mut at = 0;
        while at < count {
            let missing = found.iter().skip(at).take_while(|block| block.is_none()).count();
            if missing == 0 {
                at += 1;
                continue;
            }
            let start = first + at as u64;
            let mut bytes = vec![0; missing * size];
            self.device.read(start * size as u64, &mut bytes).await?;
            for (index, place) in found.iter_mut().skip(at).take(missing).enumerate() {
                let bytes = part(&bytes, index * size, size);
                check.run(&self.layout, bytes)?;
                *place = Some(Arc::new(bytes.to_vec()));
            }
            let mut state = self.state.lock().await;
            if state.published != published {
                at += missing;
                continue;
            }
            for (number, block) in (start..).zip(found.iter().skip(at).take(missing).flatten()) {
                state.add_clean(number, block.clone());
            }
            at += missing;
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Begins a reading operation.
    pub async fn view(&self) -> View<'_, D> {
        View { core: self, _place: self.readers.read().await }
    }
}

/// Where an operation finds blocks: the published ones, or these with its own changes over them.
pub(crate) trait Source: Send + Sync {
    type Device: BlockDevice;
    fn core(&self) -> &Core<Self::Device>;
    /// The content of a block.
    fn block(&self, number: u64, check: Check) -> impl Future<Output = Result<Block>> + Send;

    /// Whether the operation itself has changed the block.
    fn has_changed(&self, number: u64) -> bool;

    fn layout<'a>(&'a self) -> &'a Layout
    where
        Self::Device: 'a,
    {
        &self.core().layout
    }
}

/// A reading operation. As long as it lives, no change is published.
pub(crate) struct View<'a, D> {
    core: &'a Core<D>,
    _place: MutexGuard<'a, ()>,
}

impl<D: BlockDevice> Source for View<'_, D> {
    type Device = D;

    fn core(&self) -> &Core<D> {
        self.core
    }

    fn block(&self, number: u64, check: Check) -> impl Future<Output = Result<Block>> + Send {
        self.core.block(number, check)
    }

    fn has_changed(&self, _: u64) -> bool {
        false
    }
}
