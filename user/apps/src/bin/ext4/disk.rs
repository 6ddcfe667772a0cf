//! The disk below the file system: `/dev/vda`.

use alloc::vec;
use alloc::vec::Vec;

use cops::fs::OpenOptions;
use cops::io::{Result, Seek, SeekFrom, read_at, synchronise, write_at};
use cops_ext4::{BlockDevice, DeviceError};
use futures_util::future::{join_all, try_join_all};

/// Bytes of one request to the kernel.
const REQUEST_BYTES: usize = 16 * 1024;

/// The open disk.
pub struct Disk {
    file: cops::fs::File,
    bytes: u64,
}

impl Disk {
    /// Opens it.
    pub async fn open() -> Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open("/dev/vda").await?;
        let bytes = file.seek(SeekFrom::End(0)).await?;
        Ok(Self { file, bytes })
    }

    /// Reads `length` bytes, whole sectors of at most one request.
    async fn read_part(
        &self,
        at: u64,
        length: usize,
    ) -> core::result::Result<Vec<u8>, DeviceError> {
        let (count, bytes) = read_at(&self.file, at, vec![0; length]).await;
        if count == Ok(length) { Ok(bytes) } else { Err(DeviceError) }
    }

    /// Writes all of `data`, whole sectors of at most one request.
    async fn write_part(&self, at: u64, data: &[u8]) -> core::result::Result<(), DeviceError> {
        let count = write_at(&self.file, at, data).await;
        if count == Ok(data.len()) { Ok(()) } else { Err(DeviceError) }
    }
}

impl BlockDevice for Disk {
    fn size(&self) -> u64 {
        self.bytes
    }

    async fn read(
        &self,
        position: u64,
        buffer: &mut [u8],
    ) -> core::result::Result<(), DeviceError> {
        let places = (position..).step_by(REQUEST_BYTES);
        let parts = buffer.chunks(REQUEST_BYTES).zip(places);
        let parts = parts.map(|(part, at)| self.read_part(at, part.len()));
        let read = try_join_all(parts).await?;
        for (place, bytes) in buffer.chunks_mut(REQUEST_BYTES).zip(&read) {
            place.copy_from_slice(bytes);
        }
        Ok(())
    }

    async fn write(&self, position: u64, data: &[u8]) -> core::result::Result<(), DeviceError> {
        let places = (position..).step_by(REQUEST_BYTES);
        let parts = data.chunks(REQUEST_BYTES).zip(places);
        // All of them, also after an error: none is under way when this returns.
        join_all(parts.map(|(part, at)| self.write_part(at, part))).await.into_iter().collect()
    }

    async fn flush(&self) -> core::result::Result<(), DeviceError> {
        synchronise(&self.file).await.map(drop).map_err(|_| DeviceError)
    }
}
