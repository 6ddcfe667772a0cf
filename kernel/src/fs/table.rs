//! The table of open files of one process.
//!
//! Files are in chunks, so that even a long table needs no large allocation, and growing it copies
//! nothing. Closing a file never allocates.

use alloc::boxed::Box;
use alloc::sync::Arc;

use cops_abi::Errno;
use cops_fallible::{List, try_arc, try_box};

use super::file::{File, Object};
use super::mounts::root;
use super::node::NodeRef;
use crate::mm::quota::{Amounts, Charge, Family, Kind, MemoryCharge};
use crate::sched::leftovers::{self, Leftover};

/// Maximum number of open files of a process: enough for ten thousand connections.
const OPEN_FILES_MAX: usize = 32_768;

/// Number of files in a chunk, which takes a little more than a kilobyte.
const CHUNK_FILES: usize = 128;
/// Chunks without files that are freed in one portion: a process may have closed 32,768 files
/// before it ended.
const CHUNKS_PER_PORTION: usize = 8;
const CHUNKS_MAX: usize = OPEN_FILES_MAX / CHUNK_FILES;

/// The number by which a program names a file, which need not be open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor(pub usize);

struct Chunk {
    files: [Option<Arc<File>>; CHUNK_FILES],
    /// A bit for each number in use, or reserved.
    taken: u128,
    /// A bit for each number that a call has reserved for the file that it is to open.
    reserved: u128,
    /// A bit for each number that `exec` closes; only of numbers in use.
    close_on_exec: u128,
    /// Once its table is gone: what is freed after it.
    next: Option<Box<dyn Leftover>>,
}

impl Chunk {
    /// A bit for each number in use.
    fn open(&self) -> u128 {
        self.taken & !self.reserved
    }
}

/// Files that are closed in one portion, if their table is gone.
const PORTION_FILES: usize = 4;

impl Leftover for Chunk {
    fn free_some(&mut self) -> bool {
        for _ in 0..PORTION_FILES {
            let Some(file) = self.files.get_mut(self.taken.trailing_zeros() as usize) else {
                return false;
            };
            drop(file.take());
            self.taken &= self.taken.wrapping_sub(1);
        }
        self.taken != 0
    }

    fn next(&mut self) -> &mut Option<Box<dyn Leftover>> {
        &mut self.next
    }
}

/// Descriptor numbers and their files. A new file gets the lowest free number, as POSIX requires.
pub struct FileTable {
    /// `None`: all of its numbers are free, and it has not been needed.
    chunks: List<Option<Box<Chunk>>>,
    /// A bit for each chunk without a free number.
    full: [u64; CHUNKS_MAX.div_ceil(64)],
    count: usize,
    /// The charge for the chunks, and for at least `count` descriptors. The files have their own.
    charge: Charge,
    /// The current directory; `None`: the root.
    working: Option<NodeRef>,
    /// Permissions that new files do not get.
    pub mask: u32,
    /// New descriptors are smaller than this.
    limit: usize,
}

/// Memory for a chunk.
const CHUNK_BYTES: u64 = size_of::<Chunk>() as u64;
/// Memory for an open file, and for a place in the table.
const FILE_BYTES: u64 = 512;
/// Additional memory for a socket for datagrams: its queues in the stack.
const DATAGRAMS_BYTES: u64 = 40 << 10;
/// Additional memory for one of a pair of sockets: a pipe.
const PAIRED_BYTES: u64 = 1024;

/// Additional memory for a timer, with what is left of a process that has set it and has ended.
pub const TIMER_BYTES: u64 = 4096;

/// Memory that is charged for an open file, as long as it is open.
fn bytes_of(object: &Object) -> u64 {
    let more = match object {
        // A connection is charged apart.
        Object::Socket(_) => crate::net::charges::SOCKET_BYTES,
        Object::Datagrams(_) => DATAGRAMS_BYTES,
        Object::Paired(_) => PAIRED_BYTES,
        Object::Timer(_) => TIMER_BYTES,
        _ => 0,
    };
    FILE_BYTES + more
}

fn descriptors(count: usize) -> Amounts {
    Amounts::of(Kind::Descriptors, count as u64)
}

/// A process that ends has closed its files before. They are left only in the table of one that
/// was never complete, such as the copy of a process that was killed while it was copied.
impl Drop for FileTable {
    fn drop(&mut self) {
        while let Some(chunk) = self.chunks.pop() {
            if let Some(chunk) = chunk.filter(|chunk| chunk.taken != 0) {
                leftovers::free_later(chunk);
            }
        }
    }
}

impl FileTable {
    /// A table with standard input, output and error on the console. These, and all later files,
    /// are charged to `family`.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn with_console(family: Family) -> Result<Self, Errno> {
        let mut table = Self::empty(family);
        for file in File::standard() {
            table.insert(try_arc(file)?, false)?;
        }
        Ok(table)
    }

    /// A table without files, which is to get copies of those of another table.
    pub const fn empty(family: Family) -> Self {
        let charge = Charge::nothing(family);
        Self {
            chunks: List::new(),
            full: [0; CHUNKS_MAX.div_ceil(64)],
            count: 0,
            charge,
            working: None,
            mask: 0o022,
            limit: OPEN_FILES_MAX,
        }
    }

    /// Opens the files of a chunk of `from` here too, with the same numbers; all chunks before it
    /// have been copied, and this table is otherwise unused. The first call also takes over the
    /// current directory, the mask and the limit. Returns whether there is a chunk with this index.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn copy_chunk(&mut self, from: &FileTable, index: usize) -> Result<bool, Errno> {
        if index == 0 {
            (self.working, self.mask) = (from.working.clone(), from.mask);
            self.limit = from.limit;
        }
        let Some(chunk) = from.chunks.get(index) else { return Ok(false) };
        let Some(chunk) = chunk else {
            self.chunks.try_push(None)?;
            return Ok(true);
        };
        let taken = chunk.open();
        let count = taken.count_ones() as usize;
        let mut amounts = descriptors(count);
        amounts.add(&Amounts::of(Kind::Memory, CHUNK_BYTES));
        self.charge.grow(&amounts)?;
        let files = core::array::from_fn(|place| chunk.files[place].clone());
        let close_on_exec = chunk.close_on_exec;
        let copy = try_box(Chunk { files, taken, reserved: 0, close_on_exec, next: None })?;
        if taken == u128::MAX {
            self.full[index / 64] |= 1 << (index % 64);
        }
        self.chunks.try_push(Some(copy))?;
        self.count += count;
        Ok(true)
    }

    /// Number of descriptors in use or reserved.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Makes new descriptors smaller than `limit`, as far as they are not anyway. Those that exist
    /// stay.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(OPEN_FILES_MAX);
    }

    /// The current directory.
    pub fn working(&self) -> NodeRef {
        self.working.as_ref().unwrap_or_else(|| root()).clone()
    }

    /// Changes the current directory.
    pub fn set_working(&mut self, directory: NodeRef) {
        self.working = Some(directory);
    }

    /// Number of files that are charged.
    fn charged(&self) -> usize {
        self.charge.amounts().get(Kind::Descriptors) as usize
    }

    /// Releases the charge for what was reserved and not used.
    fn release_unused(&mut self) {
        self.charge.shrink(&descriptors(self.charged() - self.count));
    }

    /// Ensures that there are `more` numbers for [`Self::insert`], which then succeeds for files of
    /// [`Self::pay_for`].
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn reserve(&mut self, more: usize) -> Result<(), Errno> {
        self.reserve_charge(more)?;
        let (mut index, mut free) = (self.first_with_room(), 0);
        while free < more {
            let below_limit = self.limit.saturating_sub(index.saturating_mul(CHUNK_FILES));
            if below_limit == 0 {
                return Err(Errno::EMFILE);
            }
            let above_limit = u128::MAX.checked_shl(below_limit as u32).unwrap_or(0);
            free += (self.chunk(index)?.taken | above_limit).count_zeros() as usize;
            index += 1;
        }
        Ok(())
    }

    /// Charges `file` to the family of this table's process, unless it is charged already. The
    /// charge stays as long as the file is open anywhere, for calls in flight too.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn pay_for(&self, file: &File) -> Result<(), Errno> {
        if file.is_charged() {
            return Ok(());
        }
        file.keep_charge(MemoryCharge::new(self.charge.family(), bytes_of(&file.object))?);
        Ok(())
    }

    fn reserve_charge(&mut self, more: usize) -> Result<(), Errno> {
        if self.count + more > OPEN_FILES_MAX {
            return Err(Errno::EMFILE);
        }
        let missing = (self.count + more).saturating_sub(self.charged());
        if missing > 0 {
            self.charge.grow(&descriptors(missing))?;
        }
        Ok(())
    }

    /// The first chunk with a free number, which need not exist.
    fn first_with_room(&self) -> usize {
        let with_room = self.full.iter().enumerate().find(|&(_, &word)| word != u64::MAX);
        with_room.map_or(usize::MAX, |(index, word)| index * 64 + word.trailing_ones() as usize)
    }

    /// Chunk `index`, allocated and charged if it does not exist.
    fn chunk(&mut self, index: usize) -> Result<&mut Chunk, Errno> {
        if index >= CHUNKS_MAX {
            return Err(Errno::EMFILE);
        }
        while self.chunks.len() <= index {
            self.chunks.try_push(None)?;
        }
        let place = &mut self.chunks[index];
        if place.is_none() {
            let files = [const { None }; CHUNK_FILES];
            let chunk = Chunk { files, taken: 0, reserved: 0, close_on_exec: 0, next: None };
            let chunk = try_box(chunk)?;
            self.charge.grow(&Amounts::of(Kind::Memory, CHUNK_BYTES))?;
            *place = Some(chunk);
        }
        place.as_deref_mut().ok_or(Errno::ENOMEM)
    }

    /// The chunk of a number and the number's place in it, if the chunk exists.
    fn place(&self, Descriptor(number): Descriptor) -> Result<(&Chunk, usize), Errno> {
        let chunk = self.chunks.get(number / CHUNK_FILES).and_then(Option::as_deref);
        Ok((chunk.ok_or(Errno::EBADF)?, number % CHUNK_FILES))
    }

    /// Opens `file` with the lowest free number.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`; the file is dropped, that is, closed.
    pub fn insert(&mut self, file: Arc<File>, close_on_exec: bool) -> Result<Descriptor, Errno> {
        self.reserve(1)?;
        self.pay_for(&file)?;
        let descriptor = self.lowest()?;
        self.put(descriptor, file, close_on_exec);
        Ok(descriptor)
    }

    /// The lowest free number, for which there is room.
    fn lowest(&mut self) -> Result<Descriptor, Errno> {
        let index = self.first_with_room();
        let chunk = self.chunk(index)?;
        Ok(Descriptor(index * CHUNK_FILES + chunk.taken.trailing_ones() as usize))
    }

    /// Reserves the lowest free number for a file that is to be opened, until [`Self::fill`] or
    /// [`Self::give_up`].
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn reserve_number(&mut self) -> Result<Descriptor, Errno> {
        self.reserve(1)?;
        let descriptor = self.lowest()?;
        let chunk = self.mark(descriptor);
        let chunk = chunk.ok_or(Errno::EMFILE)?;
        chunk.reserved |= 1 << (descriptor.0 % CHUNK_FILES);
        Ok(descriptor)
    }

    /// Opens `file`, of [`Self::pay_for`], with a reserved number.
    ///
    /// # Errors
    /// `EBADF` if it is not reserved: the process has ended.
    pub fn fill(
        &mut self,
        descriptor: Descriptor,
        file: Arc<File>,
        close_on_exec: bool,
    ) -> Result<(), Errno> {
        if !self.unmark_reserved(descriptor) {
            return Err(Errno::EBADF);
        }
        self.put(descriptor, file, close_on_exec);
        Ok(())
    }

    /// A reserved number is free again, unless it is so already because the process has ended.
    pub fn give_up(&mut self, descriptor: Descriptor) {
        if self.unmark_reserved(descriptor) {
            self.release_unused();
        }
    }

    /// Makes a reserved number free, but keeps the charge for it. Returns whether it was reserved.
    fn unmark_reserved(&mut self, Descriptor(number): Descriptor) -> bool {
        let (index, bit) = (number / CHUNK_FILES, 1 << (number % CHUNK_FILES));
        let Some(Some(chunk)) = self.chunks.get_mut(index) else { return false };
        let is_reserved = chunk.reserved & bit != 0;
        if is_reserved {
            chunk.reserved &= !bit;
            self.unmark(Descriptor(number));
        }
        is_reserved
    }

    /// Puts `file` at a number that is free and has a chunk.
    fn put(&mut self, descriptor: Descriptor, file: Arc<File>, close_on_exec: bool) {
        let place = descriptor.0 % CHUNK_FILES;
        let Some(chunk) = self.mark(descriptor) else { return };
        if close_on_exec {
            chunk.close_on_exec |= 1 << place;
        }
        chunk.files[place] = Some(file);
    }

    /// A number that was free, and has a chunk, is taken. Returns its chunk.
    fn mark(&mut self, Descriptor(number): Descriptor) -> Option<&mut Chunk> {
        let index = number / CHUNK_FILES;
        let chunk = self.chunks.get_mut(index)?.as_deref_mut()?;
        chunk.taken |= 1 << (number % CHUNK_FILES);
        if chunk.taken == u128::MAX {
            self.full[index / 64] |= 1 << (index % 64);
        }
        self.count += 1;
        Some(chunk)
    }

    /// A number that was taken is free.
    fn unmark(&mut self, Descriptor(number): Descriptor) {
        let index = number / CHUNK_FILES;
        if let Some(Some(chunk)) = self.chunks.get_mut(index) {
            chunk.taken &= !(1 << (number % CHUNK_FILES));
            self.full[index / 64] &= !(1 << (index % 64));
            self.count -= 1;
        }
    }

    /// Opens `file` with the lowest free number that is at least `from`.
    ///
    /// # Errors
    /// `EINVAL` if no descriptor can have such a number, `EMFILE`, `ENOMEM`.
    pub fn insert_from(
        &mut self,
        from: Descriptor,
        file: Arc<File>,
        close_on_exec: bool,
    ) -> Result<Descriptor, Errno> {
        if from.0 >= self.limit {
            return Err(Errno::EINVAL);
        }
        let mut free = from.0;
        while free < self.limit {
            let Ok((chunk, place)) = self.place(Descriptor(free)) else { break };
            // A bit for each free number of the chunk that is not below the wanted one.
            let choice = !chunk.taken & u128::MAX << place;
            free -= place;
            if choice != 0 {
                free += choice.trailing_zeros() as usize;
                break;
            }
            free += CHUNK_FILES;
        }
        if free >= self.limit {
            return Err(Errno::EMFILE);
        }
        self.insert_at(Descriptor(free), file, close_on_exec).map(|_| Descriptor(free))
    }

    /// Opens `file` with this number. Returns the file that had it, to be dropped without the
    /// table's lock.
    ///
    /// # Errors
    /// `EBADF` if no descriptor can have this number; `EBUSY` if a call has reserved it;
    /// `EMFILE`, `ENOMEM`; the table is unchanged.
    pub fn insert_at(
        &mut self,
        descriptor: Descriptor,
        file: Arc<File>,
        close_on_exec: bool,
    ) -> Result<Option<Arc<File>>, Errno> {
        let Descriptor(number) = descriptor;
        if number >= self.limit {
            return Err(Errno::EBADF);
        }
        if self.place(descriptor).is_ok_and(|(chunk, place)| chunk.reserved & 1 << place != 0) {
            return Err(Errno::EBUSY);
        }
        let is_open = self.get(descriptor).is_ok();
        self.reserve_charge(usize::from(!is_open))?;
        self.chunk(number / CHUNK_FILES)?;
        self.pay_for(&file)?;
        let before = if is_open { self.take(descriptor).ok() } else { None };
        self.put(descriptor, file, close_on_exec);
        self.release_unused();
        Ok(before)
    }

    /// Whether `exec` closes this descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn closes_on_exec(&self, descriptor: Descriptor) -> Result<bool, Errno> {
        let (chunk, place) = self.place(descriptor)?;
        if chunk.open() & 1 << place == 0 {
            return Err(Errno::EBADF);
        }
        Ok(chunk.close_on_exec & 1 << place != 0)
    }

    /// Sets whether `exec` closes this descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_close_on_exec(&mut self, descriptor: Descriptor, closes: bool) -> Result<(), Errno> {
        self.closes_on_exec(descriptor)?;
        let Descriptor(number) = descriptor;
        let chunk = self.chunk(number / CHUNK_FILES)?;
        let bit = 1 << (number % CHUNK_FILES);
        if closes {
            chunk.close_on_exec |= bit;
        } else {
            chunk.close_on_exec &= !bit;
        }
        Ok(())
    }

    /// Takes out one file that `exec` closes; `None` if there is none left. The caller drops the
    /// file without the table's lock, and calls again in its next portion.
    pub fn pop_close_on_exec(&mut self) -> Option<Arc<File>> {
        let closing = |chunk: &Option<Box<Chunk>>| {
            chunk.as_ref().is_some_and(|chunk| chunk.close_on_exec != 0)
        };
        let index = self.chunks.iter().position(closing)?;
        let place = self.chunks[index].as_ref()?.close_on_exec.trailing_zeros() as usize;
        self.remove(Descriptor(index * CHUNK_FILES + place)).ok()
    }

    /// The first number from `from` on that is in use.
    pub fn next_from(&self, from: usize) -> Option<usize> {
        let first = from / CHUNK_FILES;
        let chunks = self.chunks.iter().enumerate().skip(first);
        let mut taken = chunks.filter_map(|(index, chunk)| {
            let mask = if index == first { u128::MAX << (from % CHUNK_FILES) } else { u128::MAX };
            Some((index, chunk.as_ref()?.open() & mask))
        });
        let (index, taken) = taken.find(|&(_, taken)| taken != 0)?;
        Some(index * CHUNK_FILES + taken.trailing_zeros() as usize)
    }

    /// The file with this number.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn get(&self, descriptor: Descriptor) -> Result<Arc<File>, Errno> {
        let (chunk, place) = self.place(descriptor)?;
        chunk.files[place].clone().ok_or(Errno::EBADF)
    }

    /// Removes a file. Calls in flight keep it open until they are completed or cancelled.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn remove(&mut self, descriptor: Descriptor) -> Result<Arc<File>, Errno> {
        let file = self.take(descriptor)?;
        self.release_unused();
        Ok(file)
    }

    /// Removes a file, but not the charge for its number.
    fn take(&mut self, descriptor: Descriptor) -> Result<Arc<File>, Errno> {
        let Descriptor(number) = descriptor;
        let (index, place) = (number / CHUNK_FILES, number % CHUNK_FILES);
        let chunk =
            self.chunks.get_mut(index).and_then(Option::as_deref_mut).ok_or(Errno::EBADF)?;
        let file = chunk.files[place].take().ok_or(Errno::EBADF)?;
        chunk.close_on_exec &= !(1 << place);
        self.unmark(descriptor);
        Ok(file)
    }

    /// Removes one file from a table that gets no more files, or frees some chunks without files:
    /// `Some(None)`. `None` if nothing is left.
    pub fn pop(&mut self) -> Option<Option<Arc<File>>> {
        for _ in 0..CHUNKS_PER_PORTION {
            if let Some(chunk) = self.chunks.last_mut()?
                && let Some(place) = (u128::BITS - chunk.taken.leading_zeros()).checked_sub(1)
            {
                chunk.taken &= !(1 << place);
                chunk.reserved &= !(1 << place);
                self.count -= 1;
                let file = chunk.files[place as usize].take();
                self.release_unused();
                return Some(file);
            }
            self.chunks.pop();
        }
        Some(None)
    }
}
