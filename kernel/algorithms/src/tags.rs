//! A pool of small numbers, such as the tags of translation caches.

const WORDS: usize = 65536 / 64;

/// A bit for each number in use. 0 is always in use: it is the answer when no other is free.
#[derive(Debug)]
pub struct Tags {
    used: [u64; WORDS],
    /// Where the search begins. Moving on postpones the reuse of a freed number.
    next_word: usize,
}

impl Tags {
    /// All numbers but 0 are free.
    pub const NEW: Self = {
        let mut used = [0; WORDS];
        used[0] = 1;
        Self { used, next_word: 0 }
    };

    /// A free number below `limit`, or 0 if there is none.
    pub fn allocate(&mut self, limit: usize) -> u16 {
        let words = limit.div_ceil(64);
        for step in 0..words {
            let word = (self.next_word + step) % words;
            let bit = self.used[word].trailing_ones() as usize;
            if bit < 64 && word * 64 + bit < limit {
                self.used[word] |= 1 << bit;
                self.next_word = word;
                return (word * 64 + bit) as u16;
            }
        }
        0
    }

    /// Frees a number from [`Self::allocate`]; 0 stays in use.
    pub fn free(&mut self, tag: u16) {
        if tag != 0 {
            self.used[usize::from(tag) / 64] &= !(1 << (tag % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn numbers_are_distinct_and_none_is_lost(
            limit in prop_oneof![0..200usize, Just(65536)],
            steps in prop::collection::vec(any::<(bool, usize)>(), 0..600),
        ) {
            let (mut tags, mut used) = (Tags::NEW, BTreeSet::new());
            for (frees, which) in steps {
                if frees && !used.is_empty() {
                    let tag = *used.iter().nth(which % used.len()).unwrap();
                    used.remove(&tag);
                    tags.free(tag);
                } else {
                    let tag = tags.allocate(limit);
                    if tag == 0 {
                        prop_assert!(used.len() + 1 >= limit);
                    } else {
                        prop_assert!(usize::from(tag) < limit && used.insert(tag));
                    }
                }
            }
        }
    }

    #[test]
    fn a_freed_number_is_not_reused_at_once() {
        let mut tags = Tags::NEW;
        let all: std::vec::Vec<u16> = (1..129).map(|_| tags.allocate(256)).collect();
        tags.free(all[0]);
        assert_ne!(tags.allocate(256), all[0]);
        tags.free(0);
        assert_ne!(tags.allocate(1), 1);
    }
}
