//! Reads by coroutines of the kernel, for pages that the kernel keeps of files on the disk
//! (decision 64). They have slots of their own, with more memory, so that neither they nor the
//! calls of programs wait for slots of the other kind.

use core::future::poll_fn;
use core::task::Poll;

use cops_abi::Errno;
use cops_executor::sync::{Permit, Semaphore};

use super::{Disk, Kind, disk};
use crate::drivers::virtio_block::{Command, DIRECT_BYTES_MAX, DIRECT_MAX, Memory, SECTOR_BYTES};

/// The device reads multiples of this.
pub const UNIT_BYTES: u64 = SECTOR_BYTES as u64;

/// The slots of such reads, which are given out by priority.
static SLOTS: Semaphore = Semaphore::new(DIRECT_MAX);

/// What was read. Its slot is free again when it is dropped.
pub struct Loan {
    disk: &'static Disk,
    slot: usize,
    memory: Option<Memory>,
    /// After the slot is free, the next coroutine gets it.
    _permit: Permit<'static>,
}

impl Loan {
    /// The bytes, at least as many as were asked for.
    pub fn bytes(&mut self) -> &[u8] {
        self.memory.as_mut().map_or(&[], |memory| memory.data())
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        match self.memory.take() {
            Some(memory) => self.disk.release(self.slot, memory),
            // The device may still have it.
            None => self.disk.abandon(self.slot),
        }
    }
}

/// Whether [`read`] can read these bytes.
pub fn can_read(position: u64, bytes: u64) -> bool {
    let end = bytes.checked_next_multiple_of(UNIT_BYTES).and_then(|bytes| {
        let is_possible = (1..=DIRECT_BYTES_MAX as u64).contains(&bytes);
        position.checked_add(bytes).filter(|_| is_possible)
    });
    position.is_multiple_of(UNIT_BYTES)
        && end.is_some_and(|end| disk().is_ok_and(|disk| end <= disk.bytes))
}

/// Reads `bytes` bytes at `position`, and the rest of the last sector. The calling coroutine waits
/// for a slot, and for the device.
///
/// # Errors
/// `EIO` if [`can_read`] is false, and for an error of the device; `ENXIO` without a disk.
pub async fn read(position: u64, bytes: usize) -> Result<Loan, Errno> {
    if !can_read(position, bytes as u64) {
        return Err(Errno::EIO);
    }
    let disk = disk()?;
    let coroutine = cops_executor::current().ok_or(Errno::EIO)?;
    let permit = SLOTS.acquire(1).await;
    let (slot, memory) = disk.reserve(Kind::Direct).ok_or(Errno::EIO)?;
    let sector = position / UNIT_BYTES;
    let command = Command::Read { sector, bytes: bytes.next_multiple_of(SECTOR_BYTES) };
    disk.start(slot, command, memory)?;
    let mut loan = Loan { disk, slot, memory: None, _permit: permit };
    let (memory, result) = poll_fn(|_| {
        // Before the look: a request that is finished later wakes it.
        disk.set_waiter(slot, coroutine);
        disk.take_result(slot).map_or(Poll::Pending, Poll::Ready)
    })
    .await;
    loan.memory = Some(memory);
    result.map(|()| loan).map_err(|_| Errno::EIO)
}
