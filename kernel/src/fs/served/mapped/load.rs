//! Reading the pages of a file that is to be mapped: those that are kept, and those that the server
//! is asked for. The call has the turn, so the file does not change meanwhile.

use alloc::sync::Arc;
use core::ops::Range;

use cops_abi::Errno;

use super::{MappedFile, PAGE};
use crate::fs::contents::Contents;
use crate::fs::node::Attempt;
use crate::fs::served::Ask;
use crate::mm::Frame;

/// Pages that are copied in one portion, and read with one request.
const PORTION_PAGES: usize = 4;
/// Pages that are found to exist in one portion.
const PORTION_FOUND: usize = 64;

/// What is missing.
enum Missing {
    /// The length.
    Length,
    /// Pages from this one on.
    Pages,
    /// There may be more behind a portion.
    Unknown,
    /// Nothing: all pages can be reached.
    Nothing,
}

impl MappedFile {
    /// Makes pages of `range`, from `next` on, which advances. Returns whether all of them exist,
    /// so that they can be mapped; if not, that was a portion.
    pub fn load_some(
        self: &Arc<Self>,
        range: &Range<u64>,
        next: &mut u64,
        ask: &mut Ask,
    ) -> Attempt<bool> {
        if !ask.take_turn(self) {
            return None;
        }
        let loaded = self.load_with_turn(range, next, ask)?;
        ask.next_step();
        ask.end_turn();
        Some(loaded)
    }

    fn load_with_turn(&self, range: &Range<u64>, next: &mut u64, ask: &mut Ask) -> Attempt<bool> {
        if !ask.is_pending() {
            let missing = match self.find_missing(range, next) {
                Ok(missing) => missing,
                Err(error) => return Some(Err(error)),
            };
            match missing {
                Missing::Nothing => return Some(Ok(true)),
                Missing::Unknown => return Some(Ok(false)),
                Missing::Length => {}
                Missing::Pages => {
                    let kept = self.kept_pages(*next, range.end);
                    if let [Some(_), ..] = kept {
                        return Some(self.put(&kept, next, ask));
                    }
                }
            }
        }
        let node = self.node.served()?;
        if self.state.lock().contents.is_none() {
            return Some(match node.length_of_server(ask)? {
                Ok(found) => self.begin_contents(found).map(|()| false),
                Err(error) => Err(error),
            });
        }
        let pages = (range.end - *next).min(PORTION_PAGES as u64);
        let answer = match node.read_pages(*next * PAGE, (pages * PAGE) as usize, ask)? {
            Ok(answer) => answer,
            Err(error) => return Some(Err(error)),
        };
        let frames: [_; PORTION_PAGES] = core::array::from_fn(|index| {
            let frame = answer.frame(index);
            frame.filter(|_| *next + (index as u64) < range.end)
        });
        if let [None, ..] = frames {
            return Some(Err(Errno::EIO));
        }
        Some(self.put(&frames, next, ask))
    }

    /// Finds what is missing of `range` from `next` on.
    fn find_missing(&self, range: &Range<u64>, next: &mut u64) -> Result<Missing, Errno> {
        let mut state = self.state.lock();
        let end = range.end.min(state.pages());
        let Some(contents) = &state.contents else { return Ok(Missing::Length) };
        for _ in 0..PORTION_FOUND {
            if *next >= end {
                state.loaded.insert(range.clone())?;
                return Ok(Missing::Nothing);
            }
            // Of a page that was loaded, and is not there, it is known what it is.
            if !contents.has(*next) && !state.loaded.contains(*next) {
                return Ok(Missing::Pages);
            }
            *next += 1;
        }
        Ok(Missing::Unknown)
    }

    /// The length is known, and how many bytes can be written without more space.
    pub(super) fn begin_contents(&self, (length, solid): (u64, u64)) -> Result<(), Errno> {
        let contents = Contents::with_length(length, None)?;
        let mut state = self.state.lock();
        if state.contents.is_none() {
            state.solid = solid;
            state.contents = Some(contents);
        }
        Ok(())
    }

    /// The pages from `first` on that are kept.
    fn kept_pages(&self, first: u64, end: u64) -> [Option<Frame>; PORTION_PAGES] {
        let kept = self.node.served().and_then(|node| node.pages());
        core::array::from_fn(|index| {
            let (pages, number) = kept?;
            let page = first + index as u64;
            let page = if page < end { pages.page(number, page) } else { None };
            page.map(|(frame, _)| frame)
        })
    }

    /// Puts pages in, from `next` on, which advances: as far as there are frames. Returns false:
    /// there may be more to load.
    fn put(
        &self,
        frames: &[Option<Frame>; PORTION_PAGES],
        next: &mut u64,
        ask: &Ask,
    ) -> Result<bool, Errno> {
        let owner = ask.payer().ok_or(Errno::EIO)?;
        let mut state = self.state.lock();
        let end = state.pages();
        let Some(contents) = &mut state.contents else { return Ok(false) };
        for frame in frames.iter().map_while(Option::as_ref) {
            if *next >= end {
                break;
            }
            contents.put_copy(*next, frame, owner).map_err(|error| match error {
                Errno::ENOSPC => Errno::ENOMEM,
                error => error,
            })?;
            *next += 1;
        }
        Ok(false)
    }
}
