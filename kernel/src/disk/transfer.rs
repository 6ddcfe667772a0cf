//! A call that reads, writes or flushes the disk.

use cops_abi::Errno;
use cops_abi::errno::CallResult;

use super::{Disk, Kind, disk};
use crate::drivers::virtio_block::{Command, SECTOR_BYTES, TRANSFER_BYTES_MAX};
use crate::mm::PinnedBuffer;
use crate::sched::Waiter;

/// What a call wants of the disk.
pub enum Work {
    /// Read from this position into the buffer.
    Read(u64, PinnedBuffer),
    /// Write the buffer at this position.
    Write(u64, PinnedBuffer),
    /// Make all completed writes durable.
    Flush,
}

/// The part of a call that waits for the disk. Dropping it is possible at any time: a request that
/// the device has keeps its own memory until the device returns it.
pub struct DiskTransfer {
    disk: &'static Disk,
    work: Work,
    /// Number of bytes that are transferred.
    bytes: usize,
    /// The slot of its request, once the device has it.
    slot: Option<usize>,
    /// Whether it has been in the queue for a free slot.
    is_queued: bool,
    /// Whether its coroutine is woken at the end of the request.
    has_waiter: bool,
}

impl DiskTransfer {
    /// Checks what is wanted. The transfer begins at the first [`Self::attempt`].
    ///
    /// # Errors
    /// `ENXIO` without a disk; `EINVAL` for a position or length that is not a multiple of
    /// [`SECTOR_BYTES`]; `EROFS` for a write to a disk that cannot be written; `ENOSPC` for a
    /// write at the end of the disk.
    pub fn new(work: Work) -> Result<Self, Errno> {
        let disk = disk()?;
        let bytes = match &work {
            Work::Read(position, buffer) => length(disk, *position, buffer)?,
            Work::Write(position, buffer) => {
                if disk.is_read_only {
                    return Err(Errno::EROFS);
                }
                let bytes = length(disk, *position, buffer)?;
                if bytes == 0 && buffer.len() > 0 {
                    return Err(Errno::ENOSPC);
                }
                bytes
            }
            Work::Flush => 0,
        };
        Ok(Self { disk, work, bytes, slot: None, is_queued: false, has_waiter: false })
    }

    /// Number of bytes that will be transferred if the device does not fail.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins the transfer if it has not begun and the device has room, and ends it if the device
    /// has finished. `None` if it has to wait.
    pub fn attempt(&mut self) -> Option<CallResult> {
        let Some(slot) = self.slot else { return self.begin() };
        let (mut memory, result) = self.disk.take_result(slot)?;
        self.slot = None;
        if let (Work::Read(_, buffer), Ok(())) = (&self.work, result) {
            buffer.write_at(0, &memory.data()[..self.bytes]);
        }
        self.disk.release(slot, memory);
        Some(result.map(|()| self.bytes).map_err(|_| Errno::EIO))
    }

    fn begin(&mut self) -> Option<CallResult> {
        let needs_device = match self.work {
            Work::Flush => self.disk.has_cache,
            _ => self.bytes > 0,
        };
        if !needs_device {
            return Some(Ok(0));
        }
        let (slot, mut memory) = self.disk.reserve(Kind::Call)?;
        let sector = |position: u64| position / SECTOR_BYTES as u64;
        let bytes = self.bytes;
        let command = match &self.work {
            Work::Read(position, _) => Command::Read { sector: sector(*position), bytes },
            Work::Write(position, buffer) => {
                buffer.read_at(0, &mut memory.data()[..bytes]);
                Command::Write { sector: sector(*position), bytes }
            }
            Work::Flush => Command::Flush,
        };
        match self.disk.start(slot, command, memory) {
            Ok(()) => {
                self.slot = Some(slot);
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Registers `waiter` for the next event: a free slot, or the end of the request. The caller
    /// attempts once more afterwards.
    pub fn insert_waiter(&mut self, waiter: Waiter) {
        match self.slot {
            None => {
                self.is_queued = true;
                self.disk.waiting.insert(waiter);
            }
            Some(slot) => {
                self.remove_waiter(waiter.number);
                self.has_waiter = true;
                self.disk.set_waiter(slot, waiter.coroutine);
            }
        }
    }

    /// Whether the device has the request, and no coroutine is woken at its end: the last attempt
    /// found a free slot while it waited for one.
    pub fn is_without_waiter(&self) -> bool {
        self.slot.is_some() && !self.has_waiter
    }

    /// The waiter with this number leaves the queue for a free slot, because it has one or has
    /// ended. There may be more than one free slot, so the next waiter looks too.
    pub fn remove_waiter(&mut self, waiter: u32) {
        if core::mem::take(&mut self.is_queued) {
            self.disk.waiting.remove(waiter, true);
        }
    }

    /// The waiter with this number has become less urgent. Returns whether it waits in a queue,
    /// where it has to attempt again to wait with its new priority.
    pub fn pass_on(&self, waiter: u32) -> bool {
        if self.is_queued {
            self.disk.waiting.pass_on(waiter);
        }
        self.is_queued
    }
}

impl Drop for DiskTransfer {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.disk.abandon(slot);
        }
    }
}

/// Number of bytes of a transfer between `buffer` and the disk at `position`: the whole sectors
/// that the buffer has room for and the disk has there.
///
/// # Errors
/// `EINVAL` if the position is not a multiple of [`SECTOR_BYTES`], or the buffer is smaller than
/// that and not empty.
fn length(disk: &Disk, position: u64, buffer: &PinnedBuffer) -> Result<usize, Errno> {
    let wanted = buffer.len().min(TRANSFER_BYTES_MAX);
    let whole = wanted - wanted % SECTOR_BYTES;
    if !position.is_multiple_of(SECTOR_BYTES as u64) || whole == 0 && wanted > 0 {
        return Err(Errno::EINVAL);
    }
    let rest = disk.bytes.saturating_sub(position);
    Ok(usize::try_from(rest).unwrap_or(usize::MAX).min(whole))
}
