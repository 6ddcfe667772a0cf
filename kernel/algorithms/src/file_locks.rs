//! Locks of files: which owner has which bytes of which file, and which process waits for which.
//!
//! An owner has disjoint ranges of a file, shared or exclusive. A range that is set replaces what
//! the owner has there, so ranges are cut and become one with their neighbours. An exclusive byte
//! has one owner. A set that another owner's range forbids changes nothing.
//!
//! | | key | to find |
//! | --- | --- | --- |
//! | `files` | file | the owners with ranges, and the queue of those that wait |
//! | owners of a file | owner | its ranges: two trees, `ranges` |
//! | `waits` | process, number of the wait | what the process waits for |
//!
//! Every operation is bounded, whatever is locked. A set looks at each other owner of the file: one
//! search in each of its two trees. If the heights of these trees reach [`WEIGHT_MAX`], nothing is
//! added ([`Refused::Full`]). Many ranges that a set replaces, or an owner leaves, are cut out at
//! once and returned as [`Remains`], which the caller frees in portions.
//!
//! Deadlock: a process that would wait asks whether the owner in its way waits for it, perhaps
//! through others. A wait names one owner in its way; it counts only while that owner still has
//! such a range, so a process that may have what it waited for is not in the way. Chains are
//! followed over [`CHAIN_MAX`] processes; a longer cycle is not found, as on Linux.

mod ranges;

use alloc::boxed::Box;

use cops_abi::Errno;
use cops_fallible::{Map, OutOfMemory, try_box};

use super::quota::Family;
use ranges::{NODE_BYTES, Node, Ranges};

/// The largest sum of the weights of the owners of one file. The weight of an owner is the sum of
/// the heights of its trees, and 2: 3 for an owner with one range.
pub const WEIGHT_MAX: usize = 1024;
/// Maximum number of ranges that an owner has of one file.
pub const RANGES_MAX: usize = 65_536;
/// Number of processes over which a chain of waits is followed.
pub const CHAIN_MAX: usize = 10;
/// Number of waits of one process that are looked at.
const WAITS_EXAMINED: usize = 4;
/// Number of ranges that are freed in one portion.
const PORTION_RANGES: usize = 32;

/// Memory for a range.
pub const RANGE_BYTES: u64 = NODE_BYTES as u64;
/// Memory for an owner of a file: its place among the file's owners, that of the file, and the box
/// for its [`Remains`].
pub const OWNER_BYTES: u64 = (Map::<Owner, Holder>::ENTRY_BYTES
    + Map::<File, Entry<usize>>::ENTRY_BYTES) as u64
    + size_of::<Remains>() as u64;
/// The most that one operation adds.
pub const GROWTH_BYTES: u64 = OWNER_BYTES + 2 * RANGE_BYTES;
/// Memory for the place of a wait.
pub const WAIT_BYTES: u64 = Map::<WaitKey, Wait>::ENTRY_BYTES as u64;

/// Bytes of a file, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub first: u64,
    /// The last byte; smaller than `u64::MAX`.
    pub last: u64,
}

impl Range {
    /// The last byte that a file can have.
    pub const LAST: u64 = i64::MAX as u64;
    /// All bytes of a file.
    pub const ALL: Self = Self { first: 0, last: Self::LAST };

    /// The range that a program names by its start, counted from `base`, and its length: 0 for all
    /// bytes from there on; a negative length for the bytes before.
    ///
    /// # Errors
    /// `EINVAL` for a start before the file, `EOVERFLOW` for an end that no file can have.
    pub fn of(base: u64, start: i64, length: i64) -> Result<Self, Errno> {
        let base = i64::try_from(base).map_err(|_| Errno::EOVERFLOW)?;
        let start = base.checked_add(start).ok_or(Errno::EOVERFLOW)?;
        let (first, last) = match length {
            0 => (start, i64::MAX),
            1.. => (start, start.checked_add(length - 1).ok_or(Errno::EOVERFLOW)?),
            // Not for a start before the file: it stays negative.
            _ => (start.saturating_add(length), start.saturating_sub(1)),
        };
        match (u64::try_from(start), u64::try_from(first), u64::try_from(last)) {
            (Ok(_), Ok(first), Ok(last)) => Ok(Self { first, last }),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Start and length as a program names it.
    #[must_use]
    pub fn named(self) -> (u64, u64) {
        let length = if self.last == Self::LAST { 0 } else { self.last - self.first + 1 };
        (self.first, length)
    }
}

/// What a range is locked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Others can have shared ranges there.
    Shared,
    /// No others can have ranges there.
    Exclusive,
}

/// The owner of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The process with this number.
    Process(u32),
    /// The open file with this number.
    OpenFile(u64),
}

/// A file, for one of the two kinds of locks, which know nothing of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct File {
    /// Locks of the whole file (`flock`), or of ranges (`fcntl`).
    pub is_whole: bool,
    /// The file system, and the file's number in it.
    pub identity: (u64, u64),
}

/// A range of another owner that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner.
    pub owner: Owner,
    /// What it has.
    pub kind: Kind,
    /// Where.
    pub range: Range,
}

/// The reason why a range is not set. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another owner has a range there.
    Conflict(Conflict),
    /// There is no room for more owners or ranges of this file.
    Full,
    /// There is no memory.
    NoMemory,
}

impl From<OutOfMemory> for Refused {
    fn from(_: OutOfMemory) -> Self {
        Self::NoMemory
    }
}

/// What one owner has of one file.
#[derive(Debug)]
struct Holder {
    payer: Family,
    shared: Ranges,
    exclusive: Ranges,
    /// For all of its ranges, when it leaves the file. There as soon as they are more than a
    /// portion.
    remains: Option<Box<Remains>>,
}

impl Holder {
    const fn new(payer: Family) -> Self {
        Self { payer, shared: Ranges::new(), exclusive: Ranges::new(), remains: None }
    }

    fn len(&self) -> usize {
        self.shared.len() + self.exclusive.len()
    }

    fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.exclusive.is_empty()
    }

    /// What a search for a conflict with it costs, in steps.
    fn weight(&self) -> usize {
        2 + self.shared.height() + self.exclusive.height()
    }

    fn of_kind(&mut self, kind: Kind) -> &mut Ranges {
        match kind {
            Kind::Shared => &mut self.shared,
            Kind::Exclusive => &mut self.exclusive,
        }
    }

    /// Its first range that forbids another owner one of this kind.
    fn forbids(&self, kind: Kind, part: Range) -> Option<(Kind, Range)> {
        let exclusive = self.exclusive.overlapping(part).map(|range| (Kind::Exclusive, range));
        if kind == Kind::Shared {
            return exclusive;
        }
        let shared = self.shared.overlapping(part).map(|range| (Kind::Shared, range));
        match (exclusive, shared) {
            (Some(first), Some(second)) if second.1.first < first.1.first => Some(second),
            (first, second) => first.or(second),
        }
    }

    /// Whether a cut of `part` makes two ranges of one.
    fn is_split_by(&self, part: Range) -> bool {
        self.shared.is_split_by(part) || self.exclusive.is_split_by(part)
    }

    /// Memory for a cut of `part`: a node if a range is split, and a box if more than a portion of
    /// ranges can be gone. That is the holder's box, unless so many ranges stay that the holder
    /// needs it.
    fn prepare(&mut self, part: Range) -> Result<Prepared, Refused> {
        let spare = if self.is_split_by(part) { Some(Node::try_new(part)?) } else { None };
        let count = self.shared.count_in(part) + self.exclusive.count_in(part);
        if count <= PORTION_RANGES {
            return Ok(Prepared { spare, remains: None });
        }
        // What is left of the first and the last of them, and a range in their place.
        let most = self.len() - count + 3;
        let own = if most <= PORTION_RANGES { self.remains.take() } else { None };
        let remains = match own {
            Some(own) => own,
            None => Remains::try_new(self.payer)?,
        };
        Ok(Prepared { spare, remains: Some(remains) })
    }

    /// Cuts `part` out of both trees.
    fn cut_out(&mut self, part: Range, mut prepared: Prepared) -> Gone {
        let shared = self.shared.cut_out(part, &mut prepared.spare);
        let exclusive = self.exclusive.cut_out(part, &mut prepared.spare);
        Gone::new(self.payer, [shared, exclusive], prepared.remains)
    }
}

/// Memory for a cut.
struct Prepared {
    spare: Option<Box<Node>>,
    remains: Option<Box<Remains>>,
}

/// Ranges that have been cut out, which the caller frees.
#[derive(Debug)]
pub struct Remains {
    payer: Family,
    trees: [Ranges; 2],
    next: Option<Box<Remains>>,
}

impl Remains {
    fn try_new(payer: Family) -> Result<Box<Self>, OutOfMemory> {
        try_box(Self { payer, trees: [const { Ranges::new() }; 2], next: None })
    }

    /// The family that pays for them.
    #[must_use]
    pub fn payer(&self) -> Family {
        self.payer
    }

    /// Frees a portion of the ranges. Returns for how many bytes, and whether there are more.
    pub fn free_some(&mut self) -> (u64, bool) {
        let mut freed = 0;
        while freed < PORTION_RANGES && self.trees.iter_mut().any(Ranges::pop) {
            freed += 1;
        }
        (freed as u64 * RANGE_BYTES, !self.trees.iter().all(Ranges::is_empty))
    }
}

/// A list of [`Remains`], which needs no memory.
#[derive(Debug, Default)]
pub struct RemainsList(Option<Box<Remains>>);

impl RemainsList {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Adds `remains`.
    pub fn push(&mut self, mut remains: Box<Remains>) {
        remains.next = self.0.take();
        self.0 = Some(remains);
    }

    /// Removes the one that was added last.
    pub fn pop(&mut self) -> Option<Box<Remains>> {
        let mut first = self.0.take()?;
        self.0 = first.next.take();
        Some(first)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// What an operation has freed.
#[derive(Debug, Default)]
#[must_use]
pub struct Gone {
    /// Ranges that are too many for this portion.
    pub remains: Option<Box<Remains>>,
    /// Whether others that wait for the file may go on.
    pub must_wake: bool,
}

impl Gone {
    fn new(payer: Family, trees: [Ranges; 2], remains: Option<Box<Remains>>) -> Self {
        let count = trees.iter().map(Ranges::len).sum::<usize>();
        let remains = remains.filter(|_| count > PORTION_RANGES).map(|mut remains| {
            (remains.payer, remains.trees) = (payer, trees);
            remains
        });
        Self { remains, must_wake: count > 0 }
    }

    /// For how many bytes there are remains.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let trees = self.remains.iter().flat_map(|remains| &remains.trees);
        trees.map(|tree| tree.len() as u64 * RANGE_BYTES).sum()
    }
}

/// The owners of one file, and the queue `Q` of those that wait.
#[derive(Debug)]
struct Entry<Q> {
    owners: Map<Owner, Holder>,
    /// The sum of the weights of the owners.
    weight: usize,
    queue: Option<Q>,
    /// Number of calls that use the queue.
    waiting: usize,
}

impl<Q> Entry<Q> {
    const fn new() -> Self {
        Self { owners: Map::new(), weight: 0, queue: None, waiting: 0 }
    }

    fn conflict(&self, owner: Owner, kind: Kind, part: Range) -> Option<Conflict> {
        self.owners.iter().filter(|&(other, _)| *other != owner).find_map(|(&owner, holder)| {
            holder.forbids(kind, part).map(|(kind, range)| Conflict { owner, kind, range })
        })
    }
}

/// A wait of a process.
#[derive(Clone, Copy, Debug)]
struct Wait {
    file: File,
    kind: Kind,
    range: Range,
    /// The owner in its way.
    blocker: Owner,
}

type WaitKey = (u32, u64);

/// See the module. `Q` is the queue of the calls that wait for a file.
#[derive(Debug)]
pub struct FileLocks<Q> {
    files: Map<File, Entry<Q>>,
    waits: Map<WaitKey, Wait>,
}

impl<Q> Default for FileLocks<Q> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Q> FileLocks<Q> {
    /// No locks.
    #[must_use]
    pub const fn new() -> Self {
        Self { files: Map::new(), waits: Map::new() }
    }

    /// Whether there are no locks, and no calls that wait.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.waits.is_empty()
    }

    /// The family that pays for what `owner` has of `file`, if it has something, and the memory
    /// for it.
    #[must_use]
    pub fn charged(&self, file: File, owner: Owner) -> Option<(Family, u64)> {
        let holder = self.files.get(&file)?.owners.get(&owner)?;
        Some((holder.payer, OWNER_BYTES + holder.len() as u64 * RANGE_BYTES))
    }

    /// Whether `owner` has a range of this kind.
    #[must_use]
    pub fn has(&self, file: File, owner: Owner, kind: Kind) -> bool {
        let holder = self.files.get(&file).and_then(|entry| entry.owners.get(&owner));
        holder.is_some_and(|holder| match kind {
            Kind::Shared => !holder.shared.is_empty(),
            Kind::Exclusive => !holder.exclusive.is_empty(),
        })
    }

    /// A range of another owner that forbids `owner` one of this kind.
    #[must_use]
    pub fn conflict(&self, file: File, owner: Owner, kind: Kind, part: Range) -> Option<Conflict> {
        self.files.get(&file)?.conflict(owner, kind, part)
    }

    /// Gives `owner` this range, in the place of what it has there. `payer` pays if it has nothing
    /// of this file yet.
    ///
    /// # Errors
    /// See [`Refused`]; nothing has changed.
    pub fn set(
        &mut self,
        file: File,
        (owner, payer): (Owner, Family),
        kind: Kind,
        part: Range,
    ) -> Result<Gone, Refused> {
        let result = self.try_to_set(file, (owner, payer), kind, part);
        if result.is_err() {
            self.remove_if_unused(file);
        }
        result
    }

    fn try_to_set(
        &mut self,
        file: File,
        (owner, payer): (Owner, Family),
        kind: Kind,
        part: Range,
    ) -> Result<Gone, Refused> {
        let entry = self.entry(file)?;
        if let Some(conflict) = entry.conflict(owner, kind, part) {
            return Err(Refused::Conflict(conflict));
        }
        let node = Node::try_new(part)?;
        let Some(holder) = entry.owners.get_mut(&owner) else {
            let mut holder = Holder::new(payer);
            holder.of_kind(kind).insert(node);
            let weight = entry.weight + holder.weight();
            if weight > WEIGHT_MAX {
                return Err(Refused::Full);
            }
            entry.owners.try_insert(owner, holder)?;
            entry.weight = weight;
            return Ok(Gone::default());
        };
        // A cut and an insertion make each tree higher by one at most.
        if entry.weight + 2 > WEIGHT_MAX || holder.len() + 2 > RANGES_MAX {
            return Err(Refused::Full);
        }
        if holder.remains.is_none() && holder.len() + 2 > PORTION_RANGES {
            holder.remains = Some(Remains::try_new(holder.payer)?);
        }
        let prepared = holder.prepare(part)?;
        let before = holder.weight();
        let gone = holder.cut_out(part, prepared);
        holder.of_kind(kind).insert(node);
        entry.weight = entry.weight + holder.weight() - before;
        // A shared range in the place of an exclusive one lets others go on.
        Ok(Gone { must_wake: kind == Kind::Shared, ..gone })
    }

    /// Whether [`Self::unset`] of this range makes two ranges of one, and so needs memory for a
    /// range, [`RANGE_BYTES`].
    #[must_use]
    pub fn is_split_by(&self, file: File, owner: Owner, part: Range) -> bool {
        let holder = self.files.get(&file).and_then(|entry| entry.owners.get(&owner));
        holder.is_some_and(|holder| holder.is_split_by(part))
    }

    /// Takes this range from `owner`.
    ///
    /// # Errors
    /// [`Refused::Full`], only if a range becomes two. [`Refused::NoMemory`], only then, and if
    /// more than a portion of ranges goes and about as many stay.
    pub fn unset(&mut self, file: File, owner: Owner, part: Range) -> Result<Gone, Refused> {
        let Some(entry) = self.files.get_mut(&file) else { return Ok(Gone::default()) };
        let Some(holder) = entry.owners.get_mut(&owner) else { return Ok(Gone::default()) };
        let prepared = holder.prepare(part)?;
        if prepared.spare.is_some() {
            if entry.weight + 2 > WEIGHT_MAX || holder.len() + 1 > RANGES_MAX {
                return Err(Refused::Full);
            }
            if holder.remains.is_none() && holder.len() + 1 > PORTION_RANGES {
                holder.remains = Some(Remains::try_new(holder.payer)?);
            }
        }
        let before = holder.weight();
        let gone = holder.cut_out(part, prepared);
        entry.weight = entry.weight + holder.weight() - before;
        if holder.is_empty() {
            entry.weight -= holder.weight();
            entry.owners.remove(&owner);
        }
        self.remove_if_unused(file);
        // The whole of a range, or a part of one.
        Ok(Gone { must_wake: true, ..gone })
    }

    /// Takes all ranges of `file` from `owner`.
    pub fn release(&mut self, file: File, owner: Owner) -> Gone {
        let Some(entry) = self.files.get_mut(&file) else { return Gone::default() };
        let Some(holder) = entry.owners.remove(&owner) else { return Gone::default() };
        entry.weight -= holder.weight();
        self.remove_if_unused(file);
        Gone::new(holder.payer, [holder.shared, holder.exclusive], holder.remains)
    }

    /// The entry of a file.
    fn entry(&mut self, file: File) -> Result<&mut Entry<Q>, OutOfMemory> {
        if !self.files.contains_key(&file) {
            self.files.try_insert(file, Entry::new())?;
        }
        self.files.get_mut(&file).ok_or(OutOfMemory)
    }

    fn remove_if_unused(&mut self, file: File) {
        let is_unused = |entry: &Entry<Q>| entry.owners.is_empty() && entry.waiting == 0;
        if self.files.get(&file).is_some_and(is_unused) {
            self.files.remove(&file);
        }
    }

    /// The queue of a file, if calls use it.
    #[must_use]
    pub fn queue(&self, file: File) -> Option<&Q> {
        self.files.get(&file)?.queue.as_ref()
    }

    /// One more call uses the queue of a file, which `make` makes if there is none.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn join_queue(
        &mut self,
        file: File,
        make: impl FnOnce() -> Result<Q, OutOfMemory>,
    ) -> Result<Q, OutOfMemory>
    where
        Q: Clone,
    {
        let entry = self.entry(file)?;
        let made = match &entry.queue {
            Some(queue) => Ok(queue.clone()),
            None => make().inspect(|queue| entry.queue = Some(queue.clone())),
        };
        if made.is_ok() {
            entry.waiting += 1;
        }
        self.remove_if_unused(file);
        made
    }

    /// A call does not use the queue any more. Without calls there is none.
    pub fn leave_queue(&mut self, file: File) {
        if let Some(entry) = self.files.get_mut(&file) {
            entry.waiting -= 1;
            if entry.waiting == 0 {
                entry.queue = None;
            }
        }
        self.remove_if_unused(file);
    }

    /// Wait `number` of `process` is for this range, in the way of which `blocker` was a moment
    /// ago. If it is not any more, the process attempts again.
    ///
    /// Returns whether it would wait for itself; then it does not wait.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn wait(
        &mut self,
        (process, number): (u32, u64),
        file: File,
        (kind, range): (Kind, Range),
        blocker: Owner,
    ) -> Result<bool, OutOfMemory> {
        let wait = Wait { file, kind, range, blocker };
        // The blocker may have released the range since it was found, and wait for this process.
        if self.is_blocked(&wait) && self.waits_for(blocker, process) {
            self.waits.remove(&(process, number));
            return Ok(true);
        }
        self.waits.try_insert((process, number), wait)?;
        Ok(false)
    }

    /// Wait `number` of `process` is over.
    pub fn end_wait(&mut self, wait: (u32, u64)) {
        self.waits.remove(&wait);
    }

    /// Whether `from` waits for `process`, directly or through others.
    fn waits_for(&self, from: Owner, process: u32) -> bool {
        let mut at = from;
        for _ in 0..CHAIN_MAX {
            match at {
                Owner::Process(other) if other == process => return true,
                Owner::Process(other) => match self.blocker_of(other) {
                    Some(blocker) => at = blocker,
                    None => return false,
                },
                // An open file waits for nothing.
                Owner::OpenFile(_) => return false,
            }
        }
        false
    }

    /// The owner that a process waits for.
    fn blocker_of(&self, process: u32) -> Option<Owner> {
        let mut from = 0;
        for _ in 0..WAITS_EXAMINED {
            let (&(found, number), wait) = self.waits.at_or_after(&(process, from))?;
            if found != process {
                return None;
            }
            if self.is_blocked(wait) {
                return Some(wait.blocker);
            }
            from = number + 1;
        }
        None
    }

    fn is_blocked(&self, wait: &Wait) -> bool {
        let holder = self.files.get(&wait.file).and_then(|entry| entry.owners.get(&wait.blocker));
        holder.is_some_and(|holder| holder.forbids(wait.kind, wait.range).is_some())
    }
}

#[cfg(test)]
#[path = "file_locks_tests.rs"]
mod tests;
