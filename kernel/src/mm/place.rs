//! Where in an address space something is mapped: in a range that is free, in one of which the
//! mappings are replaced, or anywhere.
//!
//! Replacing has portions, as unmapping has: what is there may have many pages. The last portion
//! also maps, so a replacement of one portion is one step for the other threads.

use super::changes::Replaced;
use super::{AddressSpace, MapError, Rights, Source};
use core::ops::Range;

/// Where something is mapped.
pub enum Place {
    /// There, where nothing is mapped.
    Free(Range<usize>),
    /// There; what is mapped there is unmapped first.
    Replace(Replacement),
    /// There if that is free, otherwise anywhere in this area, with this length.
    Anywhere { hint: Option<Range<usize>>, area: Range<usize>, length: usize },
}

/// A range of which the mappings are replaced by another one. What has been unmapped of it stays
/// reserved meanwhile: another thread that maps something anywhere does not get these addresses.
pub struct Replacement {
    range: Range<usize>,
    /// What has not been unmapped yet.
    rest: Option<Range<usize>>,
    /// The number of the reservation, once there is one.
    number: Option<u16>,
}

impl Place {
    /// Maps `source` there. Returns the address; `None` if that was a portion, which only
    /// [`Place::Replace`] has.
    pub fn map(
        &mut self,
        space: &AddressSpace,
        rights: Rights,
        source: &Source,
    ) -> Result<Option<usize>, MapError> {
        match self {
            Place::Free(range) => {
                space.map(range.clone(), rights, source)?;
                Ok(Some(range.start))
            }
            Place::Replace(replacement) => replacement.map_some(space, rights, source),
            Place::Anywhere { hint, area, length } => {
                if let Some(range) = hint
                    && space.map(range.clone(), rights, source).is_ok()
                {
                    return Ok(Some(range.start));
                }
                Ok(Some(space.map_anywhere(area.clone(), *length, rights, source)?))
            }
        }
    }
}

impl Replacement {
    /// The mappings in `range` are to be replaced; none of them has been unmapped yet.
    pub fn of(range: Range<usize>) -> Self {
        Self { rest: Some(range.clone()), range, number: None }
    }

    /// Executes a portion: unmaps some of what is there, or maps `source`. Returns the address;
    /// `None` if there is more to do.
    pub fn map_some(
        &mut self,
        space: &AddressSpace,
        rights: Rights,
        source: &Source,
    ) -> Result<Option<usize>, MapError> {
        // After the last portion there is no other one.
        let Some(rest) = &self.rest else { return Err(MapError::BadRange) };
        let number = *self.number.get_or_insert_with(|| space.next_reservation());
        match space.replace_some(rest, number, (&self.range, rights, source)) {
            Ok(Replaced::Part(rest)) => {
                self.rest = Some(rest);
                Ok(None)
            }
            Ok(Replaced::All(result)) => {
                (self.rest, self.number) = (None, None);
                result.map(|()| Some(self.range.start))
            }
            Err(error) => {
                self.give_up(space);
                Err(error)
            }
        }
    }

    /// Executes a portion of unmapping and reserving the range. Returns whether all of it has been
    /// reserved before.
    ///
    /// # Errors
    /// See [`AddressSpace::unmap_some`]. Nothing is reserved then.
    pub(super) fn reserve_some(&mut self, space: &AddressSpace) -> Result<bool, MapError> {
        let Some(rest) = &self.rest else { return Ok(true) };
        let number = *self.number.get_or_insert_with(|| space.next_reservation());
        match space.reserve_some(rest, number) {
            Ok(left) => self.rest = left,
            Err(error) => {
                self.give_up(space);
                return Err(error);
            }
        }
        Ok(false)
    }

    /// Nothing will be mapped there, or it is: removes what is reserved.
    pub fn give_up(&mut self, space: &AddressSpace) {
        if self.number.take().is_some() {
            let end = self.rest.as_ref().map_or(self.range.end, |rest| rest.start);
            space.unreserve(self.range.start..end);
        }
    }
}
