//! The structures of `ppoll` (an array of descriptors with events) and of `pselect6` (three sets of
//! descriptors).

use cops_abi::Errno;
use cops_abi::poll::event::{
    ERROR, HANG_UP, IN, INVALID, OUT, PRIORITY, READ_BAND, READ_NORMAL, WRITE_BAND, WRITE_NORMAL,
};
use cops_abi::poll::{FOUND_AT, POLL_BYTES};

use super::STEP;
use crate::mm::UserRange;
use crate::process::Process;

/// Descriptors in a word of a set.
const WORD: usize = u64::BITS as usize;

/// The events that each of the three sets stands for.
const SETS: [u32; 3] = [
    IN | READ_NORMAL | READ_BAND | HANG_UP | ERROR,
    OUT | WRITE_NORMAL | WRITE_BAND | ERROR,
    PRIORITY,
];
/// One event that is asked for by each set, so that the sets can be told apart.
const ASKED: [u32; 3] = [IN, OUT, PRIORITY];

/// Where the descriptors of a call are, and where their events go.
pub enum Form {
    /// `ppoll`: the address of an array of so many `pollfd`.
    Array { address: usize, count: usize },
    /// `pselect6`.
    Sets(Sets),
}

/// The sets of `pselect6`.
pub struct Sets {
    /// To read, to write, and for exceptions; 0: none.
    pub addresses: [usize; 3],
    /// One more than the highest descriptor.
    pub count: usize,
    /// While storing: the first descriptor of the call that has not been stored.
    pub stored: usize,
}

fn range(address: usize, offset: usize, bytes: usize) -> Result<UserRange, Errno> {
    let address = address.checked_add(offset).ok_or(Errno::EFAULT)?;
    UserRange::new(address, bytes).ok_or(Errno::EFAULT)
}

impl Form {
    /// Calls `each(descriptor, events)` for some descriptors, from number `from` on. Returns where
    /// to continue; `None`: that was all.
    ///
    /// # Errors
    /// `EFAULT`, and those of `each`.
    pub fn gather(
        &self,
        process: &Process,
        from: usize,
        mut each: impl FnMut(usize, u32) -> Result<(), Errno>,
    ) -> Result<Option<usize>, Errno> {
        let count = match self {
            Form::Array { count, .. } => *count,
            Form::Sets(sets) => sets.count,
        };
        let end = (from + STEP).min(count);
        match self {
            Form::Array { address, .. } => {
                let mut bytes = [0; STEP * POLL_BYTES];
                let bytes = &mut bytes[..(end - from) * POLL_BYTES];
                if !bytes.is_empty() {
                    let place = range(*address, from * POLL_BYTES, bytes.len())?;
                    process.space.copy_in(place, bytes)?;
                }
                for &[a, b, c, d, low, high, _, _] in bytes.as_chunks().0 {
                    // A negative descriptor has no file, and is ignored by `count`.
                    let descriptor = i32::from_le_bytes([a, b, c, d]) as isize as usize;
                    each(descriptor, u16::from_le_bytes([low, high]).into())?;
                }
            }
            Form::Sets(sets) => {
                let words = sets.read(process, from)?;
                for descriptor in from..end {
                    let is_in = |set: usize| words[set] >> (descriptor % WORD) & 1 != 0;
                    let asked = (0..3).filter(|&set| is_in(set)).map(|set| ASKED[set]).sum();
                    if asked != 0 {
                        each(descriptor, asked)?;
                    }
                }
            }
        }
        Ok((end < count).then_some(end))
    }

    /// How much a descriptor adds to the result of the call.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn count(&self, (descriptor, asked): (usize, u32), found: u32) -> Result<usize, Errno> {
        match self {
            Form::Array { .. } if (descriptor as isize) < 0 => Ok(0),
            Form::Array { .. } => Ok((found != 0).into()),
            Form::Sets(_) if found & INVALID != 0 => Err(Errno::EBADF),
            Form::Sets(_) => Ok((0..3).filter(|&set| is_in_result(set, asked, found)).count()),
        }
    }

    /// Stores the events of some descriptors, from number `from` on; `get` returns a descriptor by
    /// its index, what was asked for, and what was found. Returns where to continue.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn store(
        &mut self,
        process: &Process,
        from: usize,
        get: impl Fn(usize) -> Option<(usize, u32, u32)>,
    ) -> Result<Option<usize>, Errno> {
        match self {
            Form::Array { address, count } => {
                let end = (from + STEP).min(*count);
                for index in from..end {
                    let Some((descriptor, _, found)) = get(index) else { break };
                    let found = if (descriptor as isize) < 0 { 0 } else { found as u16 };
                    let place = range(*address, index * POLL_BYTES + FOUND_AT, 2)?;
                    process.space.copy_out(place, &found.to_le_bytes())?;
                }
                Ok((end < *count).then_some(end))
            }
            Form::Sets(sets) => {
                let end = (from + WORD).min(sets.count);
                let mut words = [0_u64; 3];
                while let Some((descriptor, asked, found)) = get(sets.stored)
                    && descriptor < end
                {
                    for (set, word) in words.iter_mut().enumerate() {
                        if is_in_result(set, asked, found) {
                            *word |= 1 << (descriptor - from);
                        }
                    }
                    sets.stored += 1;
                }
                if end > from {
                    sets.write(process, from, &words)?;
                }
                Ok((end < sets.count).then_some(end))
            }
        }
    }
}

/// Whether a descriptor is in a set of the result.
fn is_in_result(set: usize, asked: u32, found: u32) -> bool {
    asked & ASKED[set] != 0 && found & SETS[set] != 0
}

impl Sets {
    /// The words of the three sets that have descriptor `first`.
    fn read(&self, process: &Process, first: usize) -> Result<[u64; 3], Errno> {
        let mut words = [0; 3];
        for (word, &address) in words.iter_mut().zip(&self.addresses) {
            if address != 0 && first < self.count {
                let mut bytes = [0; 8];
                process.space.copy_in(range(address, first / WORD * 8, 8)?, &mut bytes)?;
                *word = u64::from_le_bytes(bytes);
            }
        }
        Ok(words)
    }

    fn write(&self, process: &Process, first: usize, words: &[u64; 3]) -> Result<(), Errno> {
        for (word, &address) in words.iter().zip(&self.addresses) {
            if address != 0 {
                process.space.copy_out(range(address, first / 8, 8)?, &word.to_le_bytes())?;
            }
        }
        Ok(())
    }
}
