//! The references to a frame of memory, whether several address spaces have it, and whether a
//! family is charged for the frame itself.
//!
//! A frame is *own* or *common*:
//!
//! - An own frame is in the page table of at most one address space. Further references are those
//!   of calls in flight of that space, which may write to it.
//! - A common frame may be in several page tables, and is writable in none. Calls in flight only
//!   read it, and they may be those of any of these spaces, or of one that has unmapped it.
//!
//! The frames of a memory object (`mm::MemoryObject` in the kernel) are own too, but in the page
//! tables of all spaces that have mapped it as shared. They never become common, and are in use as
//! long as the object or one of these entries has a reference.
//!
//! So a frame may become common only while its one page-table entry has the only reference
//! ([`References::share`]), and becomes own again only when there is a single reference
//! ([`References::claim`]). Both are called under the lock of an address space that has the frame
//! in its table, so no new reference can appear at that moment: the one that exists is the entry's.
//!
//! A space is charged for the frames in its table, and an object for its own. When a frame leaves
//! one of them while calls in flight have references to it, it becomes *kept*
//! ([`References::keep`]): a family is charged for it until its last reference goes. The other
//! references to an own frame are those of calls. Of a common frame they may be entries of other
//! spaces, which pay for themselves, so it becomes kept only if a call has ever had a reference to
//! it. That may have been a call that has ended: then the frame is charged twice.

use core::sync::atomic::{AtomicU32, Ordering::*, fence};

/// The number of references to a frame, and what is known of the frame.
#[derive(Debug)]
pub struct References(AtomicU32);

/// Set while the frame is common.
const COMMON: u32 = 1 << 31;
/// A call has, or has had, a reference to the common frame.
const PINNED: u32 = 1 << 30;
/// A family is charged for the frame until its last reference goes.
const KEPT: u32 = 1 << 29;
const COUNT: u32 = KEPT - 1;

impl References {
    /// A single reference to an own frame.
    #[must_use]
    pub const fn one() -> Self {
        Self(AtomicU32::new(1))
    }

    /// Back to a single reference to an own frame. The caller has just allocated the frame.
    #[inline]
    pub fn reset(&self) {
        self.0.store(1, Relaxed);
    }

    /// Adds a reference, of a common frame one for a call. The caller has one already.
    #[inline]
    pub fn add(&self) {
        // Relaxed is enough: the reference that the caller has keeps the frame allocated.
        let before = self.0.fetch_add(1, Relaxed);
        debug_assert!(before & COUNT > 0);
        if before & COMMON != 0 {
            // Relaxed is enough: the space of the call looks at this bit, under the lock under
            // which the call gets its reference.
            self.0.fetch_or(PINNED, Relaxed);
        }
    }

    /// Removes a reference. Returns whether it was the last one, and the frame is free now.
    #[inline]
    #[must_use]
    pub fn remove(&self) -> bool {
        // Every decrement is a Release and the last one is followed by an Acquire fence, so all
        // uses of the frame happen before its next allocation.
        let is_last = self.0.fetch_sub(1, Release) & COUNT == 1;
        if is_last {
            fence(Acquire);
        }
        is_last
    }

    /// The number of references.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        // Acquire: what those have done that have removed theirs happens before what the caller
        // does next.
        (self.0.load(Acquire) & COUNT) as usize
    }

    /// Whether the frame is common.
    #[inline]
    #[must_use]
    pub fn is_common(&self) -> bool {
        self.0.load(Relaxed) & COMMON != 0
    }

    /// Whether [`Self::share`] would succeed now.
    #[must_use]
    pub fn can_be_shared(&self) -> bool {
        let now = self.0.load(Relaxed);
        now & COUNT == 1 || now & COMMON != 0
    }

    /// Adds a reference for a second address space, and makes the frame common. Returns false, and
    /// does nothing, if a call in flight may write to the frame.
    #[must_use]
    pub fn share(&self) -> bool {
        let next = |now: u32| (now & COUNT == 1 || now & COMMON != 0).then_some((now | COMMON) + 1);
        self.0.fetch_update(Relaxed, Relaxed, next).is_ok()
    }

    /// As [`Self::share`], for a frame that is never free, so that no charge for it would end.
    #[must_use]
    pub fn share_constant(&self) -> bool {
        let is_shared = self.share();
        if is_shared {
            self.0.fetch_or(KEPT, Relaxed);
        }
        is_shared
    }

    /// Makes a common frame own if the caller has the only reference. Returns whether it is own
    /// now.
    #[must_use]
    pub fn claim(&self) -> bool {
        // Acquire: pairs with the Release of the decrements. What others have read from the frame
        // happens before the caller writes to it.
        let next =
            |now: u32| (now & (COMMON | COUNT) == COMMON | 1).then_some(now & !(COMMON | PINNED));
        self.0.fetch_update(Acquire, Relaxed, next).is_ok()
    }

    /// The caller is about to remove a reference that has been charged. Returns whether the frame
    /// has to be charged itself, from now on: calls have references to it, and it is not yet.
    #[must_use]
    pub fn keep(&self) -> bool {
        let next = |now: u32| {
            let is_used = now & COUNT > 1 && (now & COMMON == 0 || now & PINNED != 0);
            (is_used && now & KEPT == 0).then_some(now | KEPT)
        };
        self.0.fetch_update(Relaxed, Relaxed, next).is_ok()
    }

    /// Whether a family is charged for the frame, of which the last reference has been removed.
    #[inline]
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.0.load(Relaxed) & KEPT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_free_when_its_last_reference_goes() {
        let own = References::one();
        own.add();
        assert!(!own.remove());
        assert!(own.remove());
        let common = References::one();
        assert!(common.share() && common.share());
        assert!(!common.remove() && !common.remove());
        assert!(common.remove());
    }

    #[test]
    fn a_frame_of_a_call_in_flight_is_not_shared() {
        let frame = References::one();
        frame.add();
        assert!(!frame.share() && !frame.is_common());
        assert!(!frame.remove());
        assert!(frame.share() && frame.is_common());
    }

    #[test]
    fn only_the_last_holder_claims() {
        let frame = References::one();
        assert!(frame.share());
        assert!(!frame.claim(), "two spaces have it");
        frame.add();
        assert!(!frame.remove());
        assert!(!frame.remove());
        assert!(frame.claim() && !frame.is_common());
        // Own again, so a call in flight prevents the next share.
        frame.add();
        assert!(!frame.share());
    }

    #[test]
    fn an_allocated_frame_is_own() {
        let frame = References::one();
        assert!(frame.share());
        assert!(!frame.remove());
        assert!(frame.remove());
        frame.reset();
        assert!(!frame.is_common());
    }

    #[test]
    fn a_frame_is_kept_while_calls_have_it_and_no_entry() {
        let own = References::one();
        assert!(!own.keep(), "no call has it");
        own.add();
        assert!(own.keep() && !own.keep(), "it is charged once");
        assert!(!own.remove() && own.remove());
        assert!(own.is_kept());
        own.reset();
        assert!(!own.is_kept());
        let common = References::one();
        assert!(common.share());
        assert!(!common.keep(), "the other reference is an entry");
        common.add();
        assert!(common.keep());
        let constant = References::one();
        assert!(constant.share_constant());
        constant.add();
        assert!(!constant.keep(), "it is never free");
    }

    /// What a model of two address spaces and their calls in flight allows: every order of steps,
    /// and after each of them nothing that can write to the frame shares it with another space, and
    /// a frame that only calls have is kept.
    #[test]
    fn no_order_of_steps_lets_a_space_write_what_another_sees() {
        #[derive(Clone, Copy, Default)]
        struct Space {
            /// Its page table has the frame, and whether the entry permits writing.
            mapped: bool,
            writable: bool,
            readers: u32,
            writers: u32,
        }
        #[derive(Clone, Copy)]
        enum Step {
            Fork,
            Store,
            PinToRead,
            PinToWrite,
            Unpin,
            Unmap,
        }
        const STEPS: [Step; 6] =
            [Step::Fork, Step::Store, Step::PinToRead, Step::PinToWrite, Step::Unpin, Step::Unmap];
        fn explore(word: u32, spaces: [Space; 2], depth: usize, seen: &mut usize) {
            *seen += 1;
            let sees = |space: &Space| space.mapped || space.readers + space.writers > 0;
            let writes = |space: &Space| space.writable || space.writers > 0;
            for (one, other) in [(0, 1), (1, 0)] {
                assert!(
                    !(writes(&spaces[one]) && sees(&spaces[other])),
                    "one space writes what another sees"
                );
            }
            let has_calls = spaces.iter().any(|it| it.readers + it.writers > 0);
            if has_calls && !spaces.iter().any(|it| it.mapped) {
                assert!(word & KEPT != 0, "a frame that only calls have is charged to no family");
            }
            if depth == 0 {
                return;
            }
            for one in 0..2 {
                for step in STEPS {
                    let (frame, mut spaces) = (References(AtomicU32::new(word)), spaces);
                    let other = 1 - one;
                    match step {
                        // A store or a pin for writing first makes the entry writable, or gives the
                        // space another frame.
                        Step::Store | Step::PinToWrite if spaces[one].mapped => {
                            if !spaces[one].writable {
                                if frame.claim() {
                                    spaces[one].writable = true;
                                } else {
                                    spaces[one].mapped = false;
                                    let _ = frame.keep();
                                    let _ = frame.remove();
                                }
                            }
                            if spaces[one].writable && matches!(step, Step::PinToWrite) {
                                frame.add();
                                spaces[one].writers += 1;
                            }
                        }
                        Step::PinToRead if spaces[one].mapped => {
                            frame.add();
                            spaces[one].readers += 1;
                        }
                        Step::Fork if spaces[one].mapped && !spaces[other].mapped => {
                            if frame.share() {
                                spaces[one].writable = false;
                                spaces[other].mapped = true;
                            }
                        }
                        Step::Unpin if spaces[one].readers > 0 => {
                            spaces[one].readers -= 1;
                            let _ = frame.remove();
                        }
                        Step::Unpin if spaces[one].writers > 0 => {
                            spaces[one].writers -= 1;
                            let _ = frame.remove();
                        }
                        Step::Unmap if spaces[one].mapped => {
                            spaces[one] = Space { mapped: false, writable: false, ..spaces[one] };
                            let _ = frame.keep();
                            let _ = frame.remove();
                        }
                        _ => continue,
                    }
                    explore(frame.0.into_inner(), spaces, depth - 1, seen);
                }
            }
        }
        let mut seen = 0;
        let first = Space { mapped: true, writable: true, ..Space::default() };
        explore(1, [first, Space::default()], 7, &mut seen);
        assert!(seen > 5_000, "only {seen} states");
    }
}
