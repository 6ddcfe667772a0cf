//! How fast files are read and written by coroutines: the native counterpart of
//! `user/linux/files.c`, which describes the files, the rows and the output.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cops::abi::Errno;
use cops::fs::{File, OpenOptions};
use cops::io::{self, read_at, synchronise, write_at};
use cops::println;
use cops::task::{self, Priority};
use cops::time::Instant;

/// Bytes of a page, and of a request in random order.
const PAGE: usize = 4096;
/// Bytes of a request in sequential order: several calls.
const SEQUENTIAL_BYTES: usize = 64 * 1024;
/// Bytes that one call transfers.
const CALL_BYTES: usize = 16 * 1024;
const COROUTINES: [u64; 3] = [1, 16, 256];
/// The file that is written, and the number that its first words have.
const DATA: &str = "data";
const DATA_NUMBER: u64 = 15;

/// What a row does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cold,
    Warm,
    Writes,
}

/// A row, and its progress.
struct Row {
    file: File,
    kind: Kind,
    is_random: bool,
    /// The first word of the file.
    base: u64,
    file_bytes: u64,
    requests: u64,
    begin: Instant,
    /// The next request.
    next: AtomicU64,
    /// Number of requests that have completed.
    done: AtomicU64,
    /// When the last one completed, in nanoseconds after the beginning.
    end: AtomicU64,
}

/// A file of the folder, and the first word that it should have.
async fn open(folder: &str, name: &str, number: u64, is_new: bool) -> io::Result<(File, u64)> {
    let path = format!("{folder}/{name}");
    let writes = name == DATA || is_new;
    let options = OpenOptions::new().read(true).write(writes).create(is_new);
    let file = options.open(&path).await.inspect_err(|error| println!("{path}: {error}"))?;
    Ok((file, number << 32))
}

fn fill(buffer: &mut [u8], first: u64) {
    for (index, page) in buffer.chunks_exact_mut(PAGE).enumerate() {
        let first = first + (index * PAGE) as u64;
        page[..8].copy_from_slice(&first.to_le_bytes());
        page[PAGE - 8..].copy_from_slice(&(first + PAGE as u64 - 8).to_le_bytes());
    }
}

fn check(words: &[u64], first: u64) -> io::Result<()> {
    for (index, page) in words.chunks_exact(PAGE / 8).enumerate() {
        let first = first + (index * PAGE) as u64;
        let last = first + PAGE as u64 - 8;
        if page[0] != first || page[PAGE / 8 - 1] != last {
            println!("files: {:#x}..{:#x} instead of {first:#x}", page[0], page[PAGE / 8 - 1]);
            return Err(Errno::EIO.into());
        }
    }
    Ok(())
}

/// Reads `bytes` bytes at `offset` in calls of as many bytes as `words` has, and checks them.
async fn read(
    file: &File,
    offset: u64,
    bytes: usize,
    mut words: Vec<u64>,
    base: u64,
) -> io::Result<Vec<u64>> {
    let step = words.len() * 8;
    for at in (offset..offset + bytes as u64).step_by(step) {
        let (count, read) = read_at(file, at, words).await;
        words = read;
        if count? != step {
            return Err(Errno::EIO.into());
        }
        check(&words, base + at)?;
    }
    Ok(words)
}

/// Writes all of `buffer` at `offset`.
async fn write(file: &File, offset: u64, buffer: &[u8]) -> io::Result<()> {
    for (part, at) in buffer.chunks(CALL_BYTES).zip((offset..).step_by(CALL_BYTES)) {
        if write_at(file, at, part).await? != part.len() {
            return Err(Errno::EIO.into());
        }
    }
    Ok(())
}

/// Reads the whole file and checks it.
async fn check_file(file: &File, bytes: u64, base: u64) -> io::Result<()> {
    let words = vec![0; CALL_BYTES / 8];
    read(file, 0, bytes as usize, words, base).await.map(drop)
}

impl Row {
    /// The row that begins now, and transfers each block of the file `rounds` times.
    fn new(
        file: File,
        kind: Kind,
        is_random: bool,
        base: u64,
        file_bytes: u64,
        rounds: u64,
    ) -> Self {
        let bytes = if is_random { PAGE } else { SEQUENTIAL_BYTES };
        Self {
            file,
            kind,
            is_random,
            base,
            file_bytes,
            requests: file_bytes / bytes as u64 * rounds,
            begin: Instant::now(),
            next: AtomicU64::new(0),
            done: AtomicU64::new(0),
            end: AtomicU64::new(0),
        }
    }

    /// Bytes of a request.
    fn bytes(&self) -> usize {
        if self.is_random { PAGE } else { SEQUENTIAL_BYTES }
    }

    /// Where request `number` reads or writes. In random order, each step maps the numbers of the
    /// blocks one to one, as their count is a power of two.
    fn offset(&self, number: u64) -> u64 {
        let blocks = self.file_bytes / self.bytes() as u64;
        let half = blocks.trailing_zeros().div_ceil(2);
        let mut block = number % blocks;
        if self.is_random {
            for _ in 0..3 {
                block = block.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x7f4a_7c15);
                block %= blocks;
                block ^= block >> half;
            }
        }
        block * self.bytes() as u64
    }

    /// Makes requests until there are no more.
    async fn take_part(self: Arc<Self>) -> io::Result<()> {
        let mut words = vec![0u64; self.bytes().min(CALL_BYTES) / 8];
        let mut buffer = vec![0u8; if self.kind == Kind::Writes { self.bytes() } else { 0 }];
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            if number >= self.requests {
                return Ok(());
            }
            let offset = self.offset(number);
            if self.kind == Kind::Writes {
                fill(&mut buffer, self.base + offset);
                write(&self.file, offset, &buffer).await?;
            } else {
                words = read(&self.file, offset, self.bytes(), words, self.base).await?;
            }
            if self.done.fetch_add(1, Relaxed) + 1 == self.requests {
                self.end.store(self.elapsed(), Relaxed);
            }
        }
    }

    fn elapsed(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Runs the row with `count` coroutines and prints its line.
    async fn run(self: Arc<Self>, count: u64) -> io::Result<()> {
        let time = self.clone().measure(count).await?;
        println!(
            "files: operation={} order={} cache={} bytes={} tasks={count} requests={} \
             nanoseconds={time}",
            if self.kind == Kind::Writes { "write" } else { "read" },
            if self.is_random { "random" } else { "sequential" },
            if self.kind == Kind::Cold { "cold" } else { "warm" },
            self.bytes(),
            self.requests,
        );
        Ok(())
    }

    /// Runs the row with `count` coroutines; returns its time in nanoseconds.
    async fn measure(self: Arc<Self>, count: u64) -> io::Result<u64> {
        let parts: Vec<_> = (0..count)
            .map(|_| task::spawn_join(self.clone().take_part(), Priority::DEFAULT))
            .collect();
        for part in parts {
            part.await.map_err(|_| Errno::ECANCELED)??;
        }
        if self.kind != Kind::Writes {
            return Ok(self.end.load(Relaxed));
        }
        synchronise(&self.file).await?;
        let time = self.elapsed();
        check_file(&self.file, self.file_bytes, self.base).await?;
        Ok(time)
    }
}

async fn make(folder: &str, name: &str, number: u64, bytes: u64) -> io::Result<()> {
    let (file, base) = open(folder, name, number, true).await?;
    let mut buffer = vec![0; SEQUENTIAL_BYTES];
    for at in (0..bytes).step_by(SEQUENTIAL_BYTES) {
        fill(&mut buffer, base + at);
        write(&file, at, &buffer).await?;
    }
    synchronise(&file).await?;
    Ok(())
}

/// `FOLDER MEBIBYTES ROUNDS [make]`, as for the C program.
pub async fn run(arguments: &[&str]) -> io::Result<()> {
    let [folder, mebibytes, rounds, rest @ ..] = arguments else {
        return Err(Errno::EINVAL.into());
    };
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0);
    let (Some(mebibytes), Some(rounds)) = (number(mebibytes), number(rounds)) else {
        return Err(Errno::EINVAL.into());
    };
    let file_bytes = mebibytes << 20;
    if !file_bytes.is_power_of_two() {
        return Err(Errno::EINVAL.into());
    }
    if rest == ["make"] {
        for number in 0..6 {
            make(folder, &format!("{number}"), number, file_bytes).await?;
        }
        make(folder, DATA, DATA_NUMBER, file_bytes).await?;
    }
    let mut generation = DATA_NUMBER;
    for kind in [Kind::Cold, Kind::Warm, Kind::Writes] {
        for is_random in [false, true] {
            for (index, coroutines) in (0..).zip(COROUTINES) {
                let (file, mut base) = if kind == Kind::Cold {
                    let number = if is_random { 3 + index } else { index };
                    open(folder, &format!("{number}"), number, false).await?
                } else {
                    open(folder, DATA, DATA_NUMBER, false).await?
                };
                if kind == Kind::Writes {
                    generation += 1;
                    base = generation << 32;
                }
                if kind == Kind::Warm {
                    check_file(&file, file_bytes, base).await?;
                }
                let rounds = if kind == Kind::Cold { 1 } else { rounds };
                let row = Row::new(file, kind, is_random, base, file_bytes, rounds);
                Arc::new(row).run(coroutines).await?;
            }
        }
    }
    println!("all rows");
    Ok(())
}
