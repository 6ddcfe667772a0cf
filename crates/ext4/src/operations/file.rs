//! The content of files: read, write, truncate; targets of symbolic links.

use alloc::vec::Vec;

use super::{Attributes, orphans, with_space};
use crate::Ext4;
use crate::allocate;
use crate::block::Check;
use crate::bytes::put_bytes;
use crate::change::Change;
use crate::device::{BlockDevice, LONGEST_REQUEST};
use crate::error::{Error, Result};
use crate::extent::{self, Extent, Progress};
use crate::inode::{CHANGED, Inode, Kind, MODIFIED, Time};
use crate::shared::Source;
use crate::state::Status;

/// Blocks that one step of a write changes at most. A write of more is several changes, between
/// which other operations and a commit may come.
const BLOCKS_OF_A_STEP: u32 = 64;

/// Fails unless the inode has bytes.
fn must_be_file(inode: &Inode) -> Result<()> {
    match inode.kind()? {
        Kind::Regular => inode.has_blocks().map(drop),
        Kind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid),
    }
}

/// The block of a file that has a position, as its number. Fails beyond the format's limit.
fn block_of(position: u64, block_size: usize) -> Result<u32> {
    let block = u32::try_from(position / block_size as u64).map_err(|_| Error::TooLarge)?;
    if block == u32::MAX { Err(Error::TooLarge) } else { Ok(block) }
}

/// Bytes of `inode` from `position` on, until `buffer` is full or the file ends.
async fn read_into<S: Source>(
    source: &S,
    inode: &Inode,
    position: u64,
    buffer: &mut [u8],
) -> Result<usize> {
    let size = source.layout().block_size;
    let left = inode.size().saturating_sub(position);
    let length = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
    let buffer = buffer.get_mut(..length).unwrap_or(&mut []);
    let mut done = 0;
    while done < length {
        let at = position + done as u64;
        let inside = (at % size as u64) as usize;
        let mapping = extent::map(source, inode, block_of(at, size)?).await?;
        let bytes = (u64::from(mapping.length) * size as u64 - inside as u64)
            .min((length - done) as u64) as usize;
        let (bytes, blocks) = match mapping.physical {
            Some(first) if !mapping.unwritten => {
                let count = (inside + bytes).div_ceil(size).min(LONGEST_REQUEST);
                let blocks = source.core().file_blocks(first, count, Check::None).await?;
                (bytes.min(count * size - inside), blocks)
            }
            _ => (bytes, Vec::new()),
        };
        let part = buffer.get_mut(done..done + bytes).unwrap_or(&mut []);
        if blocks.is_empty() {
            part.fill(0);
        } else {
            let mut filled = 0;
            for (index, block) in blocks.iter().enumerate() {
                let from = if index == 0 { inside } else { 0 };
                let source = block.get(from..).unwrap_or(&[]);
                let count = source.len().min(bytes - filled);
                put_bytes(part, filled, source.get(..count).unwrap_or(&[]));
                filled += count;
            }
        }
        done += bytes;
    }
    Ok(length)
}

/// Writes a part of one block of a file that has it.
async fn write_part<D: BlockDevice>(
    change: &mut Change<'_, D>,
    physical: u64,
    inside: usize,
    data: &[u8],
    is_new: bool,
) -> Result<()> {
    if data.len() == change.core().layout.block_size {
        change.replace_data(physical, data);
        return Ok(());
    }
    let bytes = match is_new {
        true => change.fresh(physical, Status::Data)?,
        false => change.edit_data(physical).await?,
    };
    put_bytes(bytes, inside, data);
    Ok(())
}

/// Writes `data`, which covers at most [`BLOCKS_OF_A_STEP`] blocks; allocates what is missing. The
/// caller stores the inode.
async fn write_from<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    position: u64,
    data: &[u8],
) -> Result<()> {
    let core = change.core();
    let size = core.layout.block_size;
    let mut done = 0;
    while done < data.len() {
        let at = position + done as u64;
        let logical = block_of(at, size)?;
        let inside = (at % size as u64) as usize;
        let wanted = (inside + data.len() - done).div_ceil(size) as u32;
        let mapping = extent::map(change, inode, logical).await?;
        let run = mapping.length.min(wanted);
        let (first, count, is_new) = match mapping.physical {
            Some(first) if !mapping.unwritten => (first, run, false),
            Some(first) => {
                let written = Extent { logical, physical: first, length: run, unwritten: false };
                extent::insert(change, inode, written).await?;
                (first, run, true)
            }
            None => {
                let goal = goal(change, inode, logical).await?;
                let (first, count) = allocate::allocate(change, inode, goal, run).await?;
                let added = Extent { logical, physical: first, length: count, unwritten: false };
                extent::insert(change, inode, added).await?;
                (first, count, true)
            }
        };
        if !core.layout.is_for_files(first, u64::from(count)) {
            return Err(Error::Corrupt("blocks of an extent"));
        }
        for block in 0..count as usize {
            let inside = if block == 0 { inside } else { 0 };
            let part = (size - inside).min(data.len() - done);
            let data = data.get(done..done + part).unwrap_or(&[]);
            write_part(change, first + block as u64, inside, data, is_new).await?;
            done += part;
        }
    }
    Ok(())
}

/// Where the next block of a file should be: behind the one before it.
async fn goal<S: Source>(source: &S, inode: &Inode, logical: u32) -> Result<u64> {
    let before = match logical.checked_sub(1) {
        Some(before) => extent::map(source, inode, before).await?.physical,
        None => None,
    };
    Ok(before.map_or_else(|| allocate::goal_of(source, inode), |block| block + 1))
}

/// Clears the part of the last block behind the end, so that a longer file has zeros there.
async fn clear_tail<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &Inode,
    size: u64,
) -> Result<()> {
    let block_size = change.core().layout.block_size;
    let inside = (size % block_size as u64) as usize;
    if inside == 0 {
        return Ok(());
    }
    let mapping = extent::map(change, inode, block_of(size, block_size)?).await?;
    if let Some(block) = mapping.physical
        && !mapping.unwritten
    {
        let bytes = change.edit_data(block).await?;
        bytes.get_mut(inside..).unwrap_or(&mut []).fill(0);
    }
    Ok(())
}

/// Stores the target of a new link.
pub(crate) async fn set_target<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    target: &[u8],
) -> Result<()> {
    inode.set_size(target.len() as u64);
    if target.len() < crate::inode::BLOCK_SIZE {
        put_bytes(inode.root_mut(), 0, target);
        return Ok(());
    }
    extent::initialise(inode);
    write_from(change, inode, 0, target).await
}

impl<D: BlockDevice> Ext4<D> {
    /// Reads from `position` on; returns how many bytes. Fewer than the buffer has only at the end
    /// of the file.
    ///
    /// # Errors
    ///
    /// [`Error::IsDirectory`]; [`Error::Invalid`] for what has no bytes.
    pub async fn read(&self, inode: u32, position: u64, buffer: &mut [u8]) -> Result<usize> {
        let view = self.core.view().await;
        let inode = Inode::load(&view, inode).await?;
        must_be_file(&inode)?;
        read_into(&view, &inode, position, buffer).await
    }

    /// Where on the disk the `length` bytes from `position` on are, or fewer at the end of the
    /// file: at most `most` pairs of a position and a number of bytes, in the order of the file.
    /// `None` if one of these bytes is in memory only, or in a hole, or if there would be more
    /// pairs, or none.
    ///
    /// The blocks stay those of this file, with these bytes or what is written there later, until
    /// [`truncate`](Ext4::truncate) is called, or the inode is deleted.
    ///
    /// # Errors
    ///
    /// As [`read`](Ext4::read).
    pub async fn places(
        &self,
        inode: u32,
        position: u64,
        length: usize,
        most: usize,
    ) -> Result<Option<Vec<(u64, u64)>>> {
        let view = self.core.view().await;
        let inode = Inode::load(&view, inode).await?;
        must_be_file(&inode)?;
        let size = self.core.layout.block_size as u64;
        let end = position.saturating_add(length as u64).min(inode.size());
        let mut places: Vec<(u64, u64)> = Vec::new();
        let mut at = position;
        while at < end {
            let mapping = extent::map(&view, &inode, block_of(at, size as usize)?).await?;
            let (Some(first), false) = (mapping.physical, mapping.unwritten) else {
                return Ok(None);
            };
            let inside = at % size;
            let bytes = (u64::from(mapping.length) * size - inside).min(end - at);
            let blocks = (inside + bytes).div_ceil(size);
            if !self.core.layout.is_for_files(first, blocks) {
                return Err(Error::Corrupt("block of a file"));
            }
            if self.core.state.lock().await.is_in_memory_only(first, blocks) {
                return Ok(None);
            }
            let place = first * size + inside;
            let is_full = places.len() == most;
            match places.last_mut() {
                Some((start, count)) if *start + *count == place => *count += bytes,
                _ if is_full => return Ok(None),
                _ => places.push((place, bytes)),
            }
            at += bytes;
        }
        Ok(Some(places).filter(|places| !places.is_empty()))
    }

    /// How many bytes of a file, from the beginning on, can be overwritten on a full disk: those in
    /// blocks that have been written, up to the first hole, and none of a file that must not be
    /// changed. It looks at a bounded part of the file, so that there may be more.
    ///
    /// The number holds until [`truncate`](Ext4::truncate) is called.
    ///
    /// # Errors
    ///
    /// As [`read`](Ext4::read).
    pub async fn solid(&self, inode: u32) -> Result<u64> {
        let view = self.core.view().await;
        let inode = Inode::load(&view, inode).await?;
        must_be_file(&inode)?;
        if inode.must_be_changeable(false).is_err() {
            return Ok(0);
        }
        let size = self.core.layout.block_size as u64;
        let blocks = u32::try_from(inode.size().div_ceil(size)).unwrap_or(u32::MAX);
        let written = extent::written(&view, &inode, blocks).await?;
        Ok((u64::from(written) * size).min(inode.size()))
    }

    /// Reads `length` bytes from `position` on into the cache, as far as the file has them and they
    /// are not there, in steps between which changes can be published. Which bytes are worth it is
    /// what [`ReadAhead`](crate::ReadAhead) knows.
    ///
    /// # Errors
    ///
    /// As [`read`](Ext4::read).
    pub async fn prefetch(&self, inode: u32, position: u64, length: u64) -> Result<()> {
        let size = self.core.layout.block_size as u64;
        let mut at = position - position % size;
        let end = position.saturating_add(length);
        loop {
            let view = self.core.view().await;
            let inode = Inode::load(&view, inode).await?;
            must_be_file(&inode)?;
            let end = end.min(inode.size());
            if at >= end {
                return Ok(());
            }
            let mapping = extent::map(&view, &inode, block_of(at, size as usize)?).await?;
            let wanted = usize::try_from((end - at).div_ceil(size)).unwrap_or(usize::MAX);
            let count = wanted.min(mapping.length as usize).min(LONGEST_REQUEST);
            // No change waits for a read for which no caller waits.
            drop(view);
            if let (Some(first), false) = (mapping.physical, mapping.unwritten) {
                self.core.file_blocks(first, count, Check::None).await?;
            }
            at += count.max(1) as u64 * size;
        }
    }

    /// Writes at `position`; a gap behind the end reads as zeros. Returns how many bytes were
    /// written: fewer than `data` has only if the disk became full, or the device failed, after a
    /// part.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`], [`Error::TooLarge`], [`Error::IsDirectory`], [`Error::Invalid`].
    pub async fn write(&self, inode: u32, position: u64, data: &[u8], now: Time) -> Result<usize> {
        let block = self.core.layout.block_size;
        let mut step = block * BLOCKS_OF_A_STEP as usize;
        let mut done = 0;
        while done < data.len() {
            let at = position.checked_add(done as u64).ok_or(Error::TooLarge)?;
            // Later steps begin at a block's first byte.
            let length = (step - (at % step as u64) as usize).min(data.len() - done);
            let part = data.get(done..done + length).unwrap_or(&[]);
            match with_space!(self, self.write_step(inode, at, part, now)) {
                Ok(()) => done += length,
                // A step writes all or nothing: the last free blocks are filled one by one.
                Err(Error::NoSpace) if step > block => step = block,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes at the end of a file, whatever others append at the same time; returns the position
    /// and how many bytes were written. A part that [`write`](Ext4::write) would do in one step
    /// stays together.
    ///
    /// # Errors
    ///
    /// As [`write`](Ext4::write).
    pub async fn append(&self, inode: u32, data: &[u8], now: Time) -> Result<(u64, usize)> {
        let first = data.len().min(self.core.layout.block_size * BLOCKS_OF_A_STEP as usize / 2);
        let (head, rest) = data.split_at(first);
        let mut whole = head;
        let position = loop {
            match with_space!(self, self.write_once(inode, None, whole, now)) {
                Ok(position) => break position,
                Err(Error::NoSpace) if whole.len() > 1 => {
                    whole = whole.get(..whole.len() / 2).unwrap_or(&[]);
                }
                Err(error) => return Err(error),
            }
        };
        if rest.is_empty() || whole.len() < head.len() {
            return Ok((position, whole.len()));
        }
        let at = position + first as u64;
        let more = self.write(inode, at, rest, now).await.unwrap_or(0);
        Ok((position, first + more))
    }

    async fn write_step(&self, inode: u32, position: u64, data: &[u8], now: Time) -> Result<()> {
        self.write_once(inode, Some(position), data, now).await.map(drop)
    }

    /// Writes in one change, at `position` or at the end; returns where.
    async fn write_once(
        &self,
        inode: u32,
        position: Option<u64>,
        data: &[u8],
        now: Time,
    ) -> Result<u64> {
        let (mut change, mut inode) = self.change_content(inode, now).await?;
        must_be_file(&inode)?;
        inode.must_be_changeable(position.is_none())?;
        let position = position.unwrap_or(inode.size());
        let end = position.checked_add(data.len() as u64).ok_or(Error::TooLarge)?;
        block_of(end, self.core.layout.block_size)?;
        write_from(&mut change, &mut inode, position, data).await?;
        if end > inode.size() {
            inode.set_size(end);
        }
        inode.set_time(MODIFIED, now);
        inode.set_time(CHANGED, now);
        inode.store(&mut change).await?;
        change.publish().await?;
        Ok(position)
    }

    /// Makes a file `size` bytes long. The new size holds at once; blocks that it no longer needs
    /// are freed in steps.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], [`Error::IsDirectory`], [`Error::Invalid`].
    pub async fn truncate(&self, inode: u32, size: u64, now: Time) -> Result<Attributes> {
        block_of(size, self.core.layout.block_size)?;
        let (mut change, mut inode) = self.change_content(inode, now).await?;
        must_be_file(&inode)?;
        inode.must_be_changeable(false)?;
        let shrinks = size < inode.size();
        if shrinks {
            clear_tail(&mut change, &inode, size).await?;
        }
        inode.set_size(size);
        inode.set_time(MODIFIED, now);
        inode.set_time(CHANGED, now);
        if shrinks {
            while orphans::shrink(&mut change, &mut inode, false).await? == Progress::More {
                orphans::add(&mut change, &mut inode).await?;
                inode.store(&mut change).await?;
                // Another operation that changes the content finishes it first.
                self.core.state.lock().await.unfinished.insert(inode.number, now);
                change = self.next(change).await?;
                inode = Inode::load(&change, inode.number).await?;
            }
            let listed = self.core.state.lock().await.orphans.contains_key(&inode.number);
            if listed && inode.links() > 0 {
                orphans::remove(&mut change, &mut inode).await?;
            }
        }
        inode.store(&mut change).await?;
        let attributes = Attributes::of(&inode, &self.core.layout)?;
        change.publish().await?;
        if shrinks && inode.links() == 0 {
            self.core.state.lock().await.has_shortened(inode.number);
        }
        Ok(attributes)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for everything else.
    pub async fn read_link(&self, inode: u32) -> Result<Vec<u8>> {
        let view = self.core.view().await;
        let inode = Inode::load(&view, inode).await?;
        if inode.kind()? != Kind::Symlink {
            return Err(Error::Invalid);
        }
        let length = usize::try_from(inode.size()).unwrap_or(usize::MAX);
        if !inode.has_blocks()? {
            let target = inode.root().get(..length).ok_or(Error::Corrupt("size of a link"))?;
            return Ok(target.to_vec());
        }
        if length > self.core.layout.block_size {
            return Err(Error::Corrupt("size of a link"));
        }
        let mut target = alloc::vec![0; length];
        read_into(&view, &inode, 0, &mut target).await?;
        Ok(target)
    }
}
