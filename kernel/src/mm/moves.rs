//! Moves a mapping to other addresses, page by page and without copying, in portions (`mremap`).
//!
//! The target is *reserved* first, in place of what is mapped there: a region that no thread can
//! change, and that permits nothing.
//! Then the tables are made into which the pages will go. From then on nothing is allocated, unless
//! another thread changes the mapping meanwhile, so the move does not stop half-way. Each portion
//! moves the boundary between what is mapped at the target and what is still reserved, and takes
//! the same part from the source. Between two portions each page is mapped exactly once.
//!
//! - A call in flight has references to frames, not addresses, so it does not notice.
//! - Entries keep their rights: that of a common frame stays read-only, and so does that of a page
//!   of which writes are tracked.
//! - Pages stay charged as they are. What the target needs beyond that is charged before the first
//!   page moves.
//!
//! Rejected: moving the regions at once and the pages on access. Every function that looks at an
//! entry would have to know of moves.

use super::address_space::AddressSpace;
use super::contents::{Contents, check_range};
use super::layout::{self, LAZY_AREA, MAP_AREA, PAGE_BYTES};
use super::object::Mapping;
use super::region::{Backing, Region};
use super::{Frame, MapError, Replacement, Rights};
use crate::arch;
use cops_algorithms::promised::{is_promised, promised_pages};
use core::ops::Range;

/// Maximum number of pages that one portion moves.
const PORTION_PAGES: usize = 64;

/// Maximum number of holes without tables that are skipped in one portion.
const HOLES: usize = 64;

/// Maximum number of tables of the source that one portion prepares for.
const PORTION_TABLES: usize = 8;

/// A move, with what is left of it.
pub struct Move {
    /// What has not been moved yet.
    source: Range<usize>,
    /// The address that is asked for; any if it is `None`.
    wanted: Option<usize>,
    /// Bytes of the mapping after the move; not less than those of the source.
    length: usize,
    step: Step,
}

enum Step {
    /// Unmap this part of the source, which becomes shorter.
    Shrink(Range<usize>),
    /// Unmap what is at the target, and reserve that.
    Clear(Replacement),
    /// Reserve the target, unless that is done, and what its pages need.
    Reserve,
    /// Make tables for the pages of the source from this address on.
    Prepare(usize, Reserved),
    /// Move pages.
    Pages(Reserved),
}

/// A target.
#[derive(Clone)]
struct Reserved {
    /// Where the mapping begins.
    start: usize,
    /// What is still reserved.
    rest: Range<usize>,
    /// The properties at the source and at the target: they refer to different mappings of the same
    /// object.
    from: Region,
    to: Region,
    /// What the source is a mapping of, if it is one: the number of its region may be that of
    /// another mapping by now.
    object: Option<Part>,
    /// Promised pages that are charged for it beside those of the source.
    promised: usize,
}

/// A part of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Part {
    /// The number of the object.
    object: u64,
    /// Its first page.
    page: u64,
}

impl Move {
    /// A move of `source` to `wanted`, or anywhere. There it has `length` bytes, in whole pages.
    pub fn new(source: Range<usize>, wanted: Option<usize>, length: usize) -> Self {
        let kept = source.start..source.start + source.len().min(length);
        let step = if kept.len() < source.len() {
            Step::Shrink(kept.end..source.end)
        } else {
            Self::first_step(wanted, length)
        };
        Self { source: kept, wanted, length, step }
    }

    /// The first step once the source has the length that is moved.
    fn first_step(wanted: Option<usize>, length: usize) -> Step {
        let clear = |start| Step::Clear(Replacement::of(start..start + length));
        wanted.map_or(Step::Reserve, clear)
    }
}

impl AddressSpace {
    /// Whether something is mapped at `address`.
    pub fn is_mapped(&self, address: usize) -> bool {
        self.contents.lock().regions.at(address).is_some()
    }

    /// Whether all of `range` is within one mapping of the program.
    pub fn is_one_mapping(&self, range: &Range<usize>) -> bool {
        self.contents.lock().regions.around(range).is_some()
    }

    /// Executes a portion of a move. Returns the new address; `None` if there is more to do.
    ///
    /// # Errors
    /// `NotMapped` if the source is not within one region of the program, `Overlap` if it cannot be
    /// made longer; the others: see [`MapError`]. Then the source is as it was, unless another
    /// thread has changed it meanwhile: what has been moved until then stays at the target.
    pub fn move_some(&self, call: &mut Move) -> Result<Option<usize>, MapError> {
        match &mut call.step {
            Step::Shrink(rest) => match self.unmap_some(rest)? {
                Some(left) => *rest = left,
                None => call.step = Move::first_step(call.wanted, call.length),
            },
            Step::Clear(target) => {
                if target.reserve_some(self)? {
                    call.step = Step::Reserve;
                }
            }
            Step::Reserve => match self.reserve(call) {
                Ok(reserved) => call.step = Step::Prepare(call.source.start, reserved),
                Err(error) => {
                    if let Some(start) = call.wanted {
                        self.unreserve(start..start + call.length);
                    }
                    return Err(error);
                }
            },
            Step::Prepare(from, reserved) => {
                match self.prepare_some(&call.source, *from, reserved) {
                    Ok(Some(next)) => *from = next,
                    Ok(None) => call.step = Step::Pages(reserved.clone()),
                    Err(error) => return Err(self.give_up(reserved, error)),
                }
            }
            Step::Pages(reserved) => {
                let moved = self.move_pages(&call.source, reserved);
                match moved {
                    Ok(next) => call.source.start = next,
                    Err(error) => return Err(self.give_up(reserved, error)),
                }
                if call.source.is_empty() {
                    self.complete(reserved);
                    return Ok(Some(reserved.start));
                }
            }
        }
        Ok(None)
    }

    /// Reserves the target and charges what it needs.
    fn reserve(&self, call: &Move) -> Result<Reserved, MapError> {
        let contents = &mut *self.contents.lock();
        let from = contents.regions.around(&call.source).ok_or(MapError::NotMapped)?;
        let mapping = from.backing.mapping().and_then(|number| contents.mappings.get(number));
        let grows = call.length > call.source.len();
        if grows && mapping.is_some_and(|mapping| !mapping.view.object.may_extend()) {
            return Err(MapError::OutOfMemory);
        }
        let start = match call.wanted {
            Some(start) => start,
            None => {
                let is_lazy = call.source.start >= LAZY_AREA.start;
                let area = if is_lazy { LAZY_AREA } else { MAP_AREA };
                contents.regions.find_free(area, call.length).ok_or(MapError::OutOfMemory)?
            }
        };
        let rest = start..start + call.length;
        check_range(&rest)?;
        let promised = if from.backing.is_own() { growth(&call.source, &rest) } else { 0 };
        contents.hold_promised(promised)?;
        let to = match contents.reserve_region(call, from, &rest) {
            Ok(to) => to,
            Err(error) => {
                contents.release_promised(promised);
                return Err(error);
            }
        };
        contents.moving += 1;
        contents.adjust_charge();
        let object = contents.part_at(from, call.source.start);
        Ok(Reserved { start, rest, from, to, object, promised })
    }

    /// Makes the tables for some pages of `source`, from the address `from` on. Returns the address
    /// to continue at; `None` if all exist.
    fn prepare_some(
        &self,
        source: &Range<usize>,
        from: usize,
        reserved: &Reserved,
    ) -> Result<Option<usize>, MapError> {
        let contents = &mut *self.contents.lock();
        let span = arch::page_size_of_level(1);
        let mut at = from;
        let mut made = Ok(());
        for _ in 0..PORTION_TABLES {
            if at >= source.end || made.is_err() {
                break;
            }
            at = match contents.table.next_table(at) {
                Err(next) => next,
                Ok(()) => {
                    let end = ((at & !(span - 1)) + span).min(source.end);
                    for address in [at, end - PAGE_BYTES] {
                        let target = reserved.start + (address - source.start);
                        made = made.and(contents.table.find_or_make(target).map(drop));
                    }
                    end
                }
            };
        }
        contents.adjust_charge();
        made?;
        Ok((at < source.end).then_some(at))
    }

    /// Moves some pages of `source`. Returns where the rest of it begins.
    fn move_pages(
        &self,
        source: &Range<usize>,
        reserved: &mut Reserved,
    ) -> Result<usize, MapError> {
        let (next, ended) = self.move_first(&mut self.contents.lock(), source, reserved)?;
        // Without the lock: an object may end with its last mapping.
        drop(ended);
        Ok(next)
    }

    /// As [`Self::move_pages`]; also returns the mapping of the source if that is not needed any
    /// more.
    fn move_first(
        &self,
        contents: &mut Contents,
        source: &Range<usize>,
        reserved: &mut Reserved,
    ) -> Result<(usize, Option<Mapping>), MapError> {
        let (pages, covered) = contents.table.first_pages(source.clone(), HOLES);
        let (mut end, mut count) = (pages.end, 0);
        let mut addresses = [0; PORTION_PAGES];
        contents.table.for_each_present(pages, |address, _| {
            addresses[count] = address;
            count += 1;
            if count == PORTION_PAGES {
                end = address + PAGE_BYTES;
            }
            count < PORTION_PAGES
        });
        let part = source.start..end;
        if contents.regions.around(&part) != Some(reserved.from)
            || contents.part_at(reserved.from, part.start) != reserved.object
        {
            return Err(MapError::NotMapped);
        }
        let target = reserved.rest.start..reserved.rest.start + part.len();
        let distance = target.start.wrapping_sub(part.start);
        for &address in &addresses[..count] {
            contents.table.find_or_make(address.wrapping_add(distance))?;
        }
        contents.regions.give_boundary(target.clone(), reserved.to)?;
        contents.regions.remove(part.clone())?;
        // Nothing fails from here on.
        if let Some(number) = reserved.to.backing.mapping() {
            contents.mappings.hold(number, &target);
        }
        let number = reserved.from.backing.mapping();
        let pages = part.len() / PAGE_BYTES;
        let ended = number.and_then(|number| contents.mappings.release(number, pages));
        let mut touched = (0, 0);
        for &address in &addresses[..count] {
            let to = address.wrapping_add(distance);
            contents.move_page(address, to);
            touched.0 += usize::from(is_promised(address));
            touched.1 += usize::from(is_promised(to));
        }
        if count > 0 {
            self.flush(part.clone());
        }
        if reserved.from.backing.is_own() {
            let (left, arrived) = (promised_pages(&part), promised_pages(&target));
            let used = reserved.promised.min(arrived.saturating_sub(left));
            contents.promised -= left - touched.0 + used;
            contents.promised += arrived - touched.1;
            reserved.promised -= used;
        }
        if let Some(part) = &mut reserved.object {
            part.page = part.page.saturating_add(pages as u64);
        }
        reserved.rest.start = target.end;
        if end == covered || end == source.end {
            self.free_empty_tables(contents, &part);
        }
        contents.adjust_charge();
        Ok((end, ended))
    }

    /// All pages are at the target: what is still reserved behind them becomes part of the mapping.
    fn complete(&self, reserved: &Reserved) {
        let contents = &mut *self.contents.lock();
        let rest = reserved.rest.clone();
        if !rest.is_empty() {
            // A whole span, so this allocates nothing.
            let given = contents.regions.give_boundary(rest.clone(), reserved.to);
            if given.is_ok() && reserved.from.backing.is_own() {
                contents.promised += promised_pages(&rest);
            }
            if given.is_ok()
                && let Some(number) = reserved.to.backing.mapping()
            {
                contents.mappings.hold(number, &rest);
            }
        }
        contents.moving -= 1;
        contents.release_promised(reserved.promised);
    }

    /// Removes what is still reserved. Returns `error`.
    fn give_up(&self, reserved: &Reserved, error: MapError) -> MapError {
        let mut contents = self.contents.lock();
        contents.unreserve(reserved.rest.clone());
        let number = reserved.to.backing.mapping();
        let ended = number.and_then(|number| contents.mappings.release(number, 0));
        contents.moving -= 1;
        contents.release_promised(reserved.promised);
        drop(contents);
        drop(ended);
        error
    }
}

impl Contents {
    /// Makes the region of a target, and the mapping that it will refer to. Returns the properties
    /// that pages get there.
    fn reserve_region(
        &mut self,
        call: &Move,
        from: Region,
        range: &Range<usize>,
    ) -> Result<Region, MapError> {
        let number = match from.backing.mapping().and_then(|number| self.mappings.get(number)) {
            None => None,
            Some(mapping) => {
                let mut view = mapping.view.clone();
                view.first = mapping.page_at(call.source.start);
                let is_shared = !from.backing.is_own();
                Some(self.add_mapping(&view, range, is_shared)?)
            }
        };
        let to = Region { backing: from.backing.with_mapping(number), ..from };
        let inserted = if call.wanted.is_some() {
            Ok(())
        } else {
            let number = self.next_reservation();
            self.insert(range.clone(), Rights::NONE, Backing::Reserved(number))
        };
        if let (Err(_), Some(number)) = (&inserted, number) {
            // Not the last reference to its object: the source has one.
            drop(self.mappings.release(number, 0));
        }
        inserted.map(|()| to)
    }

    /// What of an object is mapped at `address`, which is in this region.
    fn part_at(&self, region: Region, address: usize) -> Option<Part> {
        let mapping = self.mappings.get(region.backing.mapping()?)?;
        Some(Part { object: mapping.view.object.number(), page: mapping.page_at(address) })
    }

    /// Charges pages that will be promised.
    fn hold_promised(&mut self, pages: usize) -> Result<(), MapError> {
        self.charge_promised(pages)?;
        self.promised += pages;
        Ok(())
    }

    /// The reverse of [`Self::hold_promised`].
    fn release_promised(&mut self, pages: usize) {
        self.promised -= pages;
        self.adjust_charge();
    }

    /// Moves the entry for `from` to `to`, which is empty and has a table. The caller flushes.
    fn move_page(&mut self, from: usize, to: usize) {
        let taken = self.table.find(from).and_then(|mut slot| {
            let rights = slot.get().rights();
            slot.take().map(|frame: Frame| (frame, rights))
        });
        if let (Some((frame, rights)), Some(mut slot)) = (taken, self.table.find(to)) {
            slot.put(frame, rights);
        }
    }
}

/// How many pages are charged for a target beside those that are charged for the source: what it is
/// longer, if all pages of the source are charged; otherwise all.
fn growth(source: &Range<usize>, target: &Range<usize>) -> usize {
    let is_charged = promised_pages(source) == source.len() / layout::PAGE_BYTES;
    let kept = if is_charged { source.len() } else { 0 };
    promised_pages(&(target.start + kept..target.end))
}
