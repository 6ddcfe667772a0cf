//! Where in an address space something is mapped: in a range that is free, in one of which the
//! mappings are replaced, or anywhere.
//!
//! Replacing has portions, as unmapping has: what is there may have many pages.

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

/// A range of which the mappings are replaced by another one.
pub struct Replacement {
    range: Range<usize>,
    /// What has not been unmapped yet.
    rest: Option<Range<usize>>,
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
        Self { rest: Some(range.clone()), range }
    }

    /// Executes a portion: unmaps some of what is there, or maps `source`. Returns the address;
    /// `None` if there is more to do.
    pub fn map_some(
        &mut self,
        space: &AddressSpace,
        rights: Rights,
        source: &Source,
    ) -> Result<Option<usize>, MapError> {
        if let Some(rest) = &self.rest {
            self.rest = space.unmap_some(rest)?;
            return Ok(None);
        }
        match space.map(self.range.clone(), rights, source) {
            Ok(()) => Ok(Some(self.range.start)),
            // Another thread has mapped something there in the meantime.
            Err(MapError::Overlap) => {
                self.rest = Some(self.range.clone());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
