//! Copies an address space for a child: its pages become common to both, and are copied when one of
//! the two writes to them (decision 28). Or lends them: then both write to the same pages, because
//! the child will soon have another program (decision 53).

use super::address_space::AddressSpace;
use super::contents::Contents;
use super::region::Backing;
use super::table::Slot;
use super::{Access, MapError, OutOfMemory, Rights, layout};
use crate::arch;
use cops_algorithms::promised::is_promised;

/// Maximum number of pages that one portion makes common.
const PORTION_PAGES: usize = 32;

/// Maximum number of holes without tables that are skipped in one portion.
const HOLES: usize = 64;

/// How a child gets the pages of its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copying {
    /// As copies.
    Copy,
    /// As long as it has the same program, the same pages.
    Lend,
}

/// Bytes from a stack pointer on that are lent in any case.
const LENT_STACK_BYTES: usize = 2 * layout::PAGE_BYTES;

impl AddressSpace {
    /// Makes the pages around a stack pointer own, so that what a child writes there is seen by
    /// this process: its library passes results of the child there.
    pub fn prepare_to_lend(&self, stack_pointer: usize) {
        for offset in (0..=LENT_STACK_BYTES).step_by(layout::PAGE_BYTES) {
            // What cannot be written to is not lent.
            drop(self.translate_for(stack_pointer.wrapping_add(offset), Access::Write));
        }
    }

    /// Copies the first memory at `from` or above into `child`, a space that nothing else uses yet,
    /// in a few microseconds. Returns the address to continue at; `None` if there is no more. Pages
    /// of the kernel are left out. Of a shared mapping the child gets the region without pages: it
    /// takes them from the object on first access. [`Self::end_copying`] follows after the last
    /// portion, and after an error.
    ///
    /// # Errors
    /// `OutOfMemory`. The child is to be dropped then.
    pub fn copy_some(
        &self,
        child: &AddressSpace,
        from: usize,
        how: Copying,
    ) -> Result<Option<usize>, MapError> {
        // Lock order: parent, child. Nothing else has the child.
        let mine = &mut *self.contents.lock();
        let theirs = &mut *child.contents.lock();
        let Some(span) = mine.regions.first_above(from) else { return Ok(None) };
        let (start, rights) = (span.start.max(from), span.value.rights);
        let backing = match span.value.backing {
            Backing::Kernel | Backing::Reserved(_) => return Ok(Some(span.end)),
            Backing::Anonymous => Backing::Anonymous,
            Backing::Private(number) => Backing::Private(theirs.adopt(number, mine)?),
            Backing::Shared(number) => {
                let backing = Backing::Shared(theirs.adopt(number, mine)?);
                theirs.insert_mapped(start..span.end, rights, backing)?;
                return Ok(Some(span.end));
            }
        };
        let (pages, _) = mine.table.first_pages(start..span.end, HOLES);
        let (mut end, mut count) = (pages.end, 0);
        mine.table.for_each_present(pages.clone(), |address, slot| {
            count += 1;
            // A page that a call in flight uses has to be copied, which takes long.
            if count == PORTION_PAGES || how == Copying::Copy && slot.is_in_use() {
                end = address + layout::PAGE_BYTES;
            }
            end > address + layout::PAGE_BYTES
        });
        theirs.insert_mapped(start..end, rights, backing)?;
        let (mut copied, mut left) = (Ok(()), count);
        if left != 0 {
            mine.table.for_each_present(pages.start..end, |address, mut slot| {
                copied = theirs.take_from(address, &mut slot, rights, how);
                left -= 1;
                // The rest of the table, which is known to be empty, is not searched again.
                copied.is_ok() && left != 0
            });
        }
        theirs.adjust_charge();
        copied?;
        Ok(Some(end))
    }

    /// After the last portion of a copy, and before the child runs: from here on no hart writes to
    /// a page of both.
    ///
    /// Once, and not after each portion: until then nothing of this process runs (decision 69), so
    /// nothing writes by an old translation.
    pub fn end_copying(&self) {
        self.flush(0..layout::USER_END);
    }
}

impl Contents {
    /// The number in this space of the mapping with this number in `parent`.
    fn adopt(&mut self, number: u16, parent: &Contents) -> Result<u16, MapError> {
        let mapping = parent.mappings.get(number).ok_or(MapError::NotMapped)?;
        Ok(self.mappings.adopt(number, mapping)?)
    }

    /// Takes the page in `slot`, of another space, into this one at `address`, which is mapped with
    /// `rights` and has not been accessed.
    fn take_from(
        &mut self,
        address: usize,
        slot: &mut Slot<'_>,
        rights: Rights,
        how: Copying,
    ) -> Result<(), OutOfMemory> {
        if !is_promised(address) {
            self.charge_page()?;
        }
        let mut place = self.table.find_or_make(address)?;
        // A common page of a third process stays one that is copied when it is written.
        let is_lent = how == Copying::Lend && (!slot.is_common() || slot.claim(rights));
        let lent = if is_lent { slot.share() } else { None };
        let is_lent = lent.is_some();
        match lent.or_else(|| slot.share_with_another_space(rights)) {
            Some(frame) if is_lent => place.put(frame, slot.get().rights()),
            Some(frame) => place.put(frame, rights.without_write()),
            None => {
                place.put(slot.try_copy()?, rights);
                if rights.execute {
                    arch::sync_instruction_stream();
                }
            }
        }
        self.count_page(address);
        Ok(())
    }
}
