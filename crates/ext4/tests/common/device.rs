//! A disk in memory. It remembers which writes are not flushed, fails when its power is cut, and
//! then says what a real disk could have kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use cops_ext4::{BlockDevice, DeviceError};

use super::Random;

const SECTOR: usize = 512;

pub struct Disk {
    /// What the disk shows.
    pub bytes: Vec<u8>,
    /// For each sector that was written since the last flush: what is durable, and each content
    /// since then.
    unflushed: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    /// Requests until the power is cut.
    pub left: u64,
    /// Requests until one fails, once.
    pub fail_after: Option<u64>,
    /// Whether requests wait to be polled once more or up to four times.
    pub slow: Option<Random>,
    /// Whether a write that is dropped is performed later, at a random time.
    pub late: Option<Random>,
    dropped: Vec<(u64, Vec<u8>)>,
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
}

impl Disk {
    fn write(&mut self, position: u64, data: &[u8]) {
        self.writes += 1;
        assert!(position.is_multiple_of(512) && data.len().is_multiple_of(512));
        let at = usize::try_from(position).unwrap();
        for (sector, content) in (at / SECTOR..).zip(data.as_chunks::<SECTOR>().0) {
            let place = sector * SECTOR..(sector + 1) * SECTOR;
            let before: [u8; SECTOR] = self.bytes[place.clone()].try_into().unwrap();
            self.unflushed.entry(sector).or_insert_with(|| vec![before]).push(*content);
            self.bytes[place].copy_from_slice(content);
        }
    }

    /// Performs some of the writes that were dropped.
    fn perform_dropped(&mut self) {
        let Some(mut random) = self.late.clone() else { return };
        for (position, data) in std::mem::take(&mut self.dropped) {
            match random.below(8) {
                0 => self.write(position, &data),
                _ => self.dropped.push((position, data)),
            }
        }
        self.late = Some(random);
    }
}

/// A write that has begun; if it is dropped, the disk has it nevertheless.
struct Begun<'a> {
    device: &'a Device,
    position: u64,
    data: Option<&'a [u8]>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut disk = self.device.0.lock().unwrap();
        if let (Some(data), true) = (self.data, disk.late.is_some()) {
            disk.dropped.push((self.position, data.to_vec()));
        }
    }
}

#[derive(Clone)]
pub struct Device(pub Arc<Mutex<Disk>>);

impl Device {
    pub fn new(bytes: Vec<u8>) -> Device {
        Device(Arc::new(Mutex::new(Disk {
            bytes,
            unflushed: BTreeMap::new(),
            left: u64::MAX,
            fail_after: None,
            slow: None,
            late: None,
            dropped: Vec::new(),
            reads: 0,
            writes: 0,
            flushes: 0,
        })))
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().bytes.clone()
    }

    pub fn has_power(&self) -> bool {
        self.0.lock().unwrap().left > 0
    }

    /// What the disk has after a power cut: of each sector that was not flushed any of the contents
    /// that it had since it was durable. `whole` has byte ranges that are written as a whole or not
    /// at all.
    pub fn after_power_cut(&self, random: &mut Random, whole: std::ops::Range<usize>) -> Vec<u8> {
        let disk = self.0.lock().unwrap();
        let mut bytes = disk.bytes.clone();
        // All, none or some of the writes.
        let bias = random.below(4);
        let same = random.next();
        for (at, contents) in &disk.unflushed {
            let count = contents.len() as u64;
            let kept = if whole.contains(&(at * SECTOR)) {
                same % count
            } else {
                match bias {
                    0 => 0,
                    1 => count - 1,
                    _ => random.below(count),
                }
            };
            bytes[at * SECTOR..][..SECTOR].copy_from_slice(&contents[kept as usize]);
        }
        bytes
    }

    fn begin(&self) -> Result<u64, DeviceError> {
        let mut disk = self.0.lock().unwrap();
        if disk.left == 0 {
            return Err(DeviceError);
        }
        disk.left -= 1;
        disk.perform_dropped();
        if let Some(left) = &mut disk.fail_after {
            if *left == 0 {
                disk.fail_after = None;
                return Err(DeviceError);
            }
            *left -= 1;
        }
        Ok(disk.slow.as_mut().map_or(0, |random| 1 + random.below(4)))
    }

    async fn wait(mut polls: u64) {
        std::future::poll_fn(|context| {
            if polls == 0 {
                return Poll::Ready(());
            }
            polls -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

impl BlockDevice for Device {
    fn size(&self) -> u64 {
        self.0.lock().unwrap().bytes.len() as u64
    }

    async fn read(&self, position: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let polls = self.begin()?;
        {
            let mut disk = self.0.lock().unwrap();
            disk.reads += 1;
            assert!(position.is_multiple_of(512) && buffer.len().is_multiple_of(512));
            let at = usize::try_from(position).unwrap();
            buffer.copy_from_slice(disk.bytes.get(at..at + buffer.len()).ok_or(DeviceError)?);
        }
        // What is written meanwhile is not seen.
        Device::wait(polls).await;
        Ok(())
    }

    async fn write(&self, position: u64, data: &[u8]) -> Result<(), DeviceError> {
        let polls = self.begin()?;
        let mut begun = Begun { device: self, position, data: Some(data) };
        Device::wait(polls).await;
        begun.data = None;
        self.0.lock().unwrap().write(position, data);
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Device::wait(self.begin()?).await;
        let mut disk = self.0.lock().unwrap();
        disk.flushes += 1;
        disk.unflushed.clear();
        Ok(())
    }
}
