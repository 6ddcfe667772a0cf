//! Memory objects: what several address spaces can map, and where a space has mapped them
//! (decision 37).
//!
//! An object is a file or anonymous shared memory. It owns its pages and pays for them. A space
//! that maps it has a [`Mapping`] for each call of `mmap`, by number, and its regions refer to the
//! number. A mapping exists as long as there are pages in regions that refer to it; it keeps the
//! object alive.
//!
//! - A *shared* mapping has the object's own frames in its entries. Each entry has a reference to
//!   its frame, so a page that the object loses stays allocated until the last space has unmapped
//!   it. These frames are never common (`cops_algorithms::references`): they are writable in as
//!   many spaces as have the right.
//! - A page of a *private* mapping is a copy of the object's page, made on first access. From then
//!   on it is an ordinary anonymous page. If the object's page never changes and the program may
//!   not write to it, the space gets the object's frame, as a common one (decision 71).
//!
//! Lock order: an address space, then an object.

use super::frames::Frame;
use super::quota::{Charge, Family};
use super::{FaultError, OutOfMemory, layout};
use alloc::sync::Arc;
use cops_algorithms::numbered::Numbered;
use cops_fallible::Map;
use cops_fallible::map::Spare;
use core::any::Any;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Something that can be mapped.
pub trait MemoryObject: Send + Sync {
    /// Its number, which no other object has or will have. Not 0.
    fn number(&self) -> u64;

    /// A reference to the frame of its page `page`, which is allocated and charged to `payer` if it
    /// does not exist. Takes at most some microseconds.
    ///
    /// # Errors
    /// `NoPage` beyond its end, or if it may not grow; `OutOfMemory`.
    fn page(&self, page: u64, payer: Family) -> Result<Frame, FaultError>;

    /// A new frame with a copy of its page `page`; what is behind its end is zero.
    ///
    /// # Errors
    /// `NoPage` beyond its end; `OutOfMemory`.
    fn copy_page(&self, page: u64) -> Result<Frame, FaultError>;

    /// A reference to the common frame of its page `page`, if that never changes and is a frame of
    /// its own.
    fn constant_page(&self, _page: u64) -> Option<Frame> {
        None
    }

    /// Whether it must know which of its pages spaces can write to, because they are kept elsewhere
    /// too. Entries of such pages are not writable until [`Self::becomes_writable`].
    fn tracks_writes(&self) -> bool {
        false
    }

    /// A space is about to make its entry for this page writable. With the lock of the space.
    fn becomes_writable(&self, _page: u64) {}

    /// A space has made its entry for this page read-only. Others may have entries too, which the
    /// object sees by the references to the frame. With the lock of the space.
    fn becomes_read_only(&self, _page: u64) {}

    /// Whether a mapping may be made longer: pages behind it exist without further work.
    fn may_extend(&self) -> bool {
        true
    }

    /// The object itself, for the part of the kernel that has made it.
    fn as_any(&self) -> &dyn Any;
}

/// The number of a new object.
pub fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Relaxed) + 1
}

/// What a range of addresses is mapped from.
#[derive(Clone)]
pub enum Source {
    /// Zeroed memory of the process itself.
    Anonymous,
    /// Copies of an object's pages.
    Private(View),
    /// An object's pages.
    Shared(View),
}

/// A part of an object.
#[derive(Clone)]
pub struct View {
    pub object: Arc<dyn MemoryObject>,
    /// Its first page.
    pub first: u64,
    /// Of a shared mapping: pages that the object does not have yet are charged to the family of
    /// this charge.
    pub payer: Option<Arc<Charge>>,
    /// Whether the mapping may be, or become, writable.
    pub may_write: bool,
}

/// A view at an address.
#[derive(Clone)]
pub(super) struct Mapping {
    pub(super) view: View,
    /// All regions that refer to it are within this range, of which the start is that of the view.
    pub(super) range: Range<usize>,
    /// Number of pages in these regions.
    pages: usize,
    /// Whether they have the object's own frames.
    is_shared: bool,
}

impl Mapping {
    /// The number of the object's page at `address`.
    pub(super) fn page_at(&self, address: usize) -> u64 {
        let pages = address.wrapping_sub(self.range.start) / layout::PAGE_BYTES;
        self.view.first.saturating_add(pages as u64)
    }

    /// Its object, if the program shares its pages and may write to them.
    fn writable_object(&self) -> Option<u64> {
        (self.is_shared && self.view.may_write).then(|| self.view.object.number())
    }
}

/// The mappings of a space, by number.
pub(super) struct Mappings {
    all: Numbered<Mapping>,
    /// Number of those that are shared.
    shared: usize,
    /// The objects through which the program exchanges data with others: those with shared
    /// mappings that may be written, by number, and how many mappings each has.
    writable: Map<u64, usize>,
    /// The last mapping of another space that was adopted, and what it became, by number.
    adopted: Option<(u16, u16)>,
}

impl Mappings {
    /// The most memory that adding one takes.
    pub(super) const GROWTH_BYTES: usize = Numbered::<Mapping>::CHUNK_BYTES + Self::WRITABLE_BYTES;
    /// Memory for an entry of `writable`.
    const WRITABLE_BYTES: usize = 64;

    pub(super) const fn new() -> Self {
        Self { all: Numbered::new(), shared: 0, writable: Map::new(), adopted: None }
    }

    /// Whether one is shared. The program itself is a private one.
    pub(super) fn has_shared(&self) -> bool {
        self.shared > 0
    }

    /// Memory for the records.
    pub(super) fn bytes(&self) -> usize {
        self.all.bytes() + self.writable.len() * Self::WRITABLE_BYTES
    }

    /// Whether the program can have written to this object through a shared mapping that it still
    /// has.
    pub(super) fn may_write(&self, object: u64) -> bool {
        self.writable.contains_key(&object)
    }

    pub(super) fn get(&self, number: u16) -> Option<&Mapping> {
        self.all.get(number)
    }

    /// Adds one for `range`, in which there are no regions yet. Returns its number.
    pub(super) fn add(
        &mut self,
        view: &View,
        range: &Range<usize>,
        is_shared: bool,
    ) -> Result<u16, OutOfMemory> {
        self.insert(Mapping { view: view.clone(), range: range.clone(), pages: 0, is_shared })
    }

    fn insert(&mut self, mapping: Mapping) -> Result<u16, OutOfMemory> {
        let is_shared = mapping.is_shared;
        let object = mapping.writable_object();
        // Memory first: nothing has changed then if there is none.
        let place = object.map(|_| Spare::try_new()).transpose()?;
        let number = self.all.insert(mapping)?;
        self.shared += usize::from(is_shared);
        if let (Some(object), Some(place)) = (object, place) {
            match self.writable.get_mut(&object) {
                Some(count) => *count += 1,
                None => _ = self.writable.insert_with(place, object, 1),
            }
        }
        Ok(number)
    }

    /// The number of a mapping of this space that is equal to `other`, which has the number
    /// `number` in another space. It is the same one for regions of `other` that follow each other,
    /// also if it is a free number because `number` is not the lowest one.
    pub(super) fn adopt(&mut self, number: u16, other: &Mapping) -> Result<u16, OutOfMemory> {
        let is_equal = |mine: &Mapping| {
            mine.view.object.number() == other.view.object.number()
                && mine.view.first == other.view.first
                && mine.view.may_write == other.view.may_write
                && mine.is_shared == other.is_shared
                && mine.range.start == other.range.start
        };
        let last = self.adopted.filter(|&(of_other, _)| of_other == number);
        let own = last.map_or(number, |(_, own)| own);
        if let Some(mine) = self.all.get_mut(own)
            && is_equal(mine)
        {
            mine.range.end = mine.range.end.max(other.range.end);
            return Ok(own);
        }
        let own = self.insert(Mapping { pages: 0, ..other.clone() })?;
        self.adopted = Some((number, own));
        Ok(own)
    }

    /// There is a region for `range` that refers to this mapping.
    pub(super) fn hold(&mut self, number: u16, range: &Range<usize>) {
        if let Some(mapping) = self.all.get_mut(number) {
            mapping.pages += range.len() / layout::PAGE_BYTES;
            mapping.range.end = mapping.range.end.max(range.end);
        }
    }

    /// There are no regions any more for `pages` pages that referred to this mapping. Returns it if
    /// it is not needed any more; the caller drops it without the lock of the space.
    pub(super) fn release(&mut self, number: u16, pages: usize) -> Option<Mapping> {
        let mapping = self.all.get_mut(number)?;
        mapping.pages = mapping.pages.saturating_sub(pages);
        if mapping.pages > 0 {
            return None;
        }
        let removed = self.all.remove(number);
        self.count_removed(removed)
    }

    /// Takes out a mapping of a space that no longer exists.
    pub(super) fn pop(&mut self) -> Option<Mapping> {
        let removed = self.all.pop();
        self.count_removed(removed)
    }

    fn count_removed(&mut self, removed: Option<Mapping>) -> Option<Mapping> {
        self.shared -= usize::from(removed.as_ref().is_some_and(|mapping| mapping.is_shared));
        if let Some(object) = removed.as_ref().and_then(Mapping::writable_object)
            && let Some(count) = self.writable.get_mut(&object)
        {
            *count -= 1;
            if *count == 0 {
                self.writable.remove(&object);
            }
        }
        removed
    }
}
