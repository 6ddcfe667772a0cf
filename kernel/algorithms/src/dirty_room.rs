//! How many dirty pages the files of a file system may have in memory (decision 52).
//!
//! A file may have at most as many as are free of the room of all files. So one file alone leaves a
//! half for others, and `n` files that grow at the same time get one part in `n + 1` each. Nothing
//! has to be known of the files for that. A write that finds no room is a request to the server.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The room of all files together. Its counts order nothing else, so they are relaxed.
#[derive(Debug)]
pub struct DirtyRoom {
    limit: usize,
    used: AtomicUsize,
}

impl DirtyRoom {
    /// Room for `limit` pages.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0) }
    }

    /// Takes room for one more page of a file that has `own`. Returns whether there is some.
    #[must_use]
    pub fn take(&self, own: usize) -> bool {
        let more = |used: usize| (own < self.limit.saturating_sub(used)).then_some(used + 1);
        self.used.try_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Returns room for `count` pages.
    pub fn give(&self, count: usize) {
        self.used.fetch_sub(count, Relaxed);
    }

    /// Whether a file that has `own` pages has more than half of what it could have now.
    #[must_use]
    pub fn is_half_used(&self, own: usize) -> bool {
        own > self.limit.saturating_sub(self.used.load(Relaxed)) / 2
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    /// Takes for one file as long as there is room.
    fn fill(room: &DirtyRoom, own: &mut usize) {
        while room.take(*own) {
            *own += 1;
        }
    }

    #[test]
    fn one_file_after_the_other_gets_half_of_what_is_left() {
        let room = DirtyRoom::new(1000);
        let mut files = vec![0; 5];
        for file in &mut files {
            fill(&room, file);
            assert!(!room.take(*file));
        }
        assert_eq!(files, [500, 250, 125, 63, 31]);
        room.give(files.iter().sum());
        let mut again = 0;
        fill(&room, &mut again);
        assert_eq!(again, 500);
    }

    #[test]
    fn files_that_fill_in_turns_get_the_same() {
        let room = DirtyRoom::new(1000);
        let mut files = [0; 9];
        let mut has_taken = true;
        while has_taken {
            has_taken = false;
            for file in &mut files {
                if room.take(*file) {
                    *file += 1;
                    has_taken = true;
                }
            }
        }
        assert!(files.iter().all(|file| (100..=101).contains(file)), "{files:?}");
    }

    #[test]
    fn half_of_what_a_file_can_have() {
        let room = DirtyRoom::new(90);
        let mut own = 0;
        while !room.is_half_used(own) {
            assert!(room.take(own));
            own += 1;
        }
        // A third of all is half of what would be free then.
        assert_eq!(own, 31);
        assert!(!DirtyRoom::new(0).take(0));
    }

    proptest! {
        #[test]
        fn the_limit_holds(limit in 0..200usize, steps in prop::collection::vec((0..8usize, 0..4u8), 0..400)) {
            let room = DirtyRoom::new(limit);
            let mut files = [0usize; 8];
            for (file, step) in steps {
                let free = limit - files.iter().sum::<usize>();
                if step > 0 {
                    let has_room = room.take(files[file]);
                    prop_assert_eq!(has_room, files[file] < free);
                    files[file] += usize::from(has_room);
                } else {
                    room.give(files[file]);
                    files[file] = 0;
                }
                prop_assert!(files.iter().sum::<usize>() <= limit);
            }
        }
    }
}
