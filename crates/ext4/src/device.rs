//! The disk below the file system.

use alloc::vec::Vec;
use core::future::Future;

use futures_util::future::join_all;

use crate::block::Block;
use crate::error::{Error, Result};

/// Reported by a device when a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceError;

impl From<DeviceError> for Error {
    fn from(_: DeviceError) -> Error {
        Error::Device
    }
}

/// A disk. Positions and lengths are whole sectors of 512 bytes. Requests may be in flight at the
/// same time. The file system never has two at once for the same sector if one of them writes, but
/// for reads of which it does not use the result.
pub trait BlockDevice: Send + Sync {
    /// Bytes of the disk.
    fn size(&self) -> u64;

    /// Fills `buffer` with the bytes at `position`.
    fn read(
        &self,
        position: u64,
        buffer: &mut [u8],
    ) -> impl Future<Output = core::result::Result<(), DeviceError>> + Send;

    /// Writes `data` to `position`. Only [`flush`](BlockDevice::flush) makes it durable. A sector
    /// is written as a whole or not at all. After an error, no part of it is still under way.
    ///
    /// If the future is dropped, the device may have written nothing, or something; but it must not
    /// do so after a later write of the same sectors. A device that cannot promise that is for
    /// callers that drop no future of an operation that changes something or commits.
    fn write(
        &self,
        position: u64,
        data: &[u8],
    ) -> impl Future<Output = core::result::Result<(), DeviceError>> + Send;

    /// Makes all writes durable that completed before the call.
    fn flush(&self) -> impl Future<Output = core::result::Result<(), DeviceError>> + Send;
}

/// Blocks that one request transfers at most: 64 KiB with blocks of 4 KiB.
pub(crate) const LONGEST_REQUEST: usize = 16;
/// Requests of one writer that are in flight at the same time.
const IN_FLIGHT: usize = 16;

/// Writes blocks, given in ascending order of their numbers. Neighbours become one request.
pub(crate) async fn write_blocks<D: BlockDevice>(
    device: &D,
    block_size: usize,
    blocks: &[(u64, Block)],
) -> Result<()> {
    let mut requests: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut rest = blocks;
    while let Some((first, _)) = rest.first() {
        let count = rest
            .iter()
            .zip(*first..)
            .take(LONGEST_REQUEST)
            .take_while(|((number, _), expected)| number == expected)
            .count()
            .max(1);
        let (run, others) = rest.split_at(count.min(rest.len()));
        let mut data = Vec::with_capacity(count * block_size);
        run.iter().for_each(|(_, block)| data.extend_from_slice(block));
        requests.push((first * block_size as u64, data));
        rest = others;
        if requests.len() == IN_FLIGHT || rest.is_empty() {
            // All of them, also after an error: a write that is left with the device could come
            // after its repetition.
            let writes = requests.iter().map(|(at, data)| device.write(*at, data));
            join_all(writes).await.into_iter().collect::<core::result::Result<(), _>>()?;
            requests.clear();
        }
    }
    Ok(())
}
