//! How many requests a second the disk serves, by the number of coroutines that make them.
//!
//! The disk must contain, in each word, the word's position (`./cops bench disk` makes such a one):
//! every block that is read is checked, and writing changes nothing.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cops::abi::Errno;
use cops::fs::File;
use cops::io::{self, Seek, SeekFrom, read_at, synchronise, write_at};
use cops::println;
use cops::task::{self, Priority};
use cops::time::Instant;

const DISK: &str = "/dev/vda";
/// Bytes of a request: what one call can transfer, and a page.
const SEQUENTIAL_BYTES: usize = 16 * 1024;
const RANDOM_BYTES: usize = 4 * 1024;
/// Requests of a row.
const REQUESTS: u64 = 4096;
const COROUTINES: [u64; 3] = [1, 16, 256];

/// One row: what all its coroutines do together.
struct Work {
    disk: &'static File,
    bytes: usize,
    /// Number of blocks of this size that the disk has.
    blocks: u64,
    is_random: bool,
    writes: bool,
    /// The next request.
    next: AtomicU64,
}

impl Work {
    /// Where request `number` reads or writes.
    fn offset(&self, number: u64) -> u64 {
        let scattered = || number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
        let block = if self.is_random { scattered() } else { number };
        block % self.blocks * self.bytes as u64
    }

    /// Makes requests until there are no more.
    async fn take_part(&self) -> io::Result<()> {
        let mut words = vec![0u64; self.bytes / 8];
        let mut bytes = vec![0u8; if self.writes { self.bytes } else { 0 }];
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            if number >= REQUESTS {
                return Ok(());
            }
            let offset = self.offset(number);
            let count = if self.writes {
                for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
                    word.copy_from_slice(&(offset + 8 * index as u64).to_le_bytes());
                }
                write_at(self.disk, offset, &bytes).await?
            } else {
                let (count, read) = read_at(self.disk, offset, words).await;
                words = read;
                let last = words.last().copied().unwrap_or_default();
                if words[0] != offset || last != offset + self.bytes as u64 - 8 {
                    println!("disk: wrong contents at {offset:#x}: {:#x}, {last:#x}", words[0]);
                    return Err(Errno::EIO.into());
                }
                count?
            };
            if count != self.bytes {
                println!("disk: {count} bytes of {} at {offset:#x}", self.bytes);
                return Err(Errno::EIO.into());
            }
        }
    }
}

pub async fn run() -> io::Result<()> {
    let mut disk = File::open_for_writing(DISK)?;
    let size = disk.seek(SeekFrom::End(0)).await?;
    let disk: &'static File = Box::leak(Box::new(disk));
    for writes in [false, true] {
        for is_random in [false, true] {
            let bytes = if is_random { RANDOM_BYTES } else { SEQUENTIAL_BYTES };
            for coroutines in COROUTINES {
                let work = Work {
                    disk,
                    bytes,
                    blocks: size / bytes as u64,
                    is_random,
                    writes,
                    next: AtomicU64::new(0),
                };
                let work: &'static Work = Box::leak(Box::new(work));
                let begin = Instant::now();
                let parts: Vec<_> = (0..coroutines)
                    .map(|_| task::spawn_join(work.take_part(), Priority::DEFAULT))
                    .collect();
                for part in parts {
                    part.await.map_err(|_| Errno::ECANCELED)??;
                }
                synchronise(disk).await?;
                println!(
                    "disk: operation={} order={} bytes={bytes} coroutines={coroutines} requests={REQUESTS} microseconds={}",
                    if writes { "write" } else { "read" },
                    if is_random { "random" } else { "sequential" },
                    begin.elapsed().as_micros()
                );
            }
        }
    }
    Ok(())
}
