//! The table against a server that performs requests in any order, with replies that arrive in any
//! order.

extern crate std;

use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const PAGE: u64 = PAGE_BYTES as u64;
const FILES: usize = 3;
const FILE_PAGES: u64 = 5;

/// A page as the server has it: by which change it was written.
type Page = u64;

/// A file of the server: its length, and the pages.
#[derive(Clone, Debug, Default)]
struct File {
    length: u64,
    pages: BTreeMap<u64, Page>,
}

impl File {
    fn page(&self, number: u64) -> Option<(Page, usize)> {
        let bytes = self.length.saturating_sub(number * PAGE).min(PAGE) as usize;
        (bytes > 0).then(|| (self.pages.get(&number).copied().unwrap_or(0), bytes))
    }

    fn write(&mut self, bytes: Range<u64>, by: Page) {
        for number in bytes.start / PAGE..bytes.end.div_ceil(PAGE) {
            self.pages.insert(number, by);
        }
        if bytes.end > self.length {
            // The page of the former end has zeros behind it now.
            self.pages.insert(self.length / PAGE, by);
            self.length = bytes.end;
        }
    }
}

#[derive(Clone, Debug)]
enum What {
    /// Pages from this one on, so many; and what the server has found.
    Fill {
        fill: Fill,
        first: u64,
        count: u64,
        found: Option<File>,
    },
    Write {
        bytes: Range<u64>,
        by: Page,
        is_performed: bool,
    },
    /// Another file gets the number.
    New {
        length: u64,
        by: Page,
        is_performed: bool,
    },
}

#[derive(Clone, Debug)]
struct Sent {
    node: usize,
    what: What,
}

#[derive(Clone, Debug)]
enum Step {
    Fill {
        node: usize,
        first: u64,
        count: u64,
    },
    Write {
        node: usize,
        bytes: Range<u64>,
    },
    New {
        node: usize,
        length: u64,
    },
    /// The server performs one of the requests.
    Perform(prop::sample::Index),
    /// The reply to one that it has performed arrives.
    Reply(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..FILES;
    let end = FILE_PAGES * PAGE;
    prop_oneof![
        3 => (node.clone(), 0..FILE_PAGES, 1..5u64)
            .prop_map(|(node, first, count)| Step::Fill { node, first, count }),
        2 => (node.clone(), 0..end - 1, 1..3 * PAGE).prop_map(move |(node, start, count)| {
            Step::Write { node, bytes: start..(start + count).min(end) }
        }),
        1 => (node, 0..end).prop_map(|(node, length)| Step::New { node, length }),
        5 => any::<prop::sample::Index>().prop_map(Step::Perform),
        5 => any::<prop::sample::Index>().prop_map(Step::Reply),
    ]
}

/// The pages of a reply are kept.
fn keep_all(cache: &mut PageCache<Page>, fill: Fill, first: u64, count: u64, found: &File) {
    let asked = first * PAGE..(first + count) * PAGE;
    for number in first..first + count {
        let Some((page, bytes)) = found.page(number) else { break };
        cache.grow(fill, number).unwrap();
        cache.keep(fill, number, page, bytes);
    }
    if asked.contains(&found.length) {
        cache.ends(fill, found.length);
    } else if found.length < asked.start {
        cache.ends_before(fill, asked.start);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// What is found is what the server has, or had before a change that it has not answered.
    #[test]
    fn nothing_old_is_found(pages in 1..200usize, steps in prop::collection::vec(step(), 1..120)) {
        let mut cache = PageCache::try_new(pages).unwrap();
        let mut files: [File; FILES] = Default::default();
        let mut sent: Vec<Sent> = Vec::new();
        for (by, step) in (1..).zip(steps) {
            match step {
                Step::Fill { node, first, count } => {
                    let fill = cache.begin_fill(node as u64);
                    sent.push(Sent { node, what: What::Fill { fill, first, count, found: None } });
                }
                Step::Write { node, bytes } => {
                    sent.push(Sent { node, what: What::Write { bytes, by, is_performed: false } });
                }
                Step::New { node, length } => {
                    sent.push(Sent { node, what: What::New { length, by, is_performed: false } });
                }
                Step::Perform(index) if !sent.is_empty() => {
                    let index = index.index(sent.len());
                    let file = &mut files[sent[index].node];
                    match &mut sent[index].what {
                        What::Fill { found, .. } => *found = Some(file.clone()),
                        What::Write { is_performed: true, .. }
                        | What::New { is_performed: true, .. } => {}
                        What::Write { bytes, by, is_performed } => {
                            file.write(bytes.clone(), *by);
                            *is_performed = true;
                        }
                        What::New { length, by, is_performed } => {
                            *file = File::default();
                            if *length > 0 {
                                file.write(0..*length, *by);
                            }
                            *is_performed = true;
                        }
                    }
                }
                Step::Reply(index) if !sent.is_empty() => {
                    let index = index.index(sent.len());
                    let Sent { node, what } = sent[index].clone();
                    let node = node as u64;
                    match what {
                        What::Fill { fill, first, count, found: Some(found) } => {
                            keep_all(&mut cache, fill, first, count, &found);
                        }
                        What::Write { bytes, is_performed: true, .. } => {
                            cache.has_changed(node, bytes, drop);
                        }
                        What::New { is_performed: true, .. } => cache.forget(node),
                        _ => continue,
                    }
                    sent.swap_remove(index);
                }
                _ => continue,
            }
            for (node, file) in files.iter().enumerate() {
                if sent.iter().any(|it| it.node == node && !matches!(it.what, What::Fill { .. })) {
                    continue;
                }
                for number in 0..=FILE_PAGES {
                    match cache.find(node as u64, number) {
                        Found::Page(page, bytes) => {
                            prop_assert_eq!(Some((page, bytes)), file.page(number));
                        }
                        Found::End => prop_assert_eq!(None, file.page(number)),
                        Found::Nothing => {}
                    }
                }
            }
        }
    }
}

fn filled(cache: &mut PageCache<Page>, node: u64, pages: Range<u64>) {
    let fill = cache.begin_fill(node);
    for number in pages {
        cache.grow(fill, number).unwrap();
        cache.keep(fill, number, number, PAGE_BYTES);
    }
}

fn count(cache: &mut PageCache<Page>, node: u64, pages: Range<u64>) -> usize {
    pages.filter(|&number| matches!(cache.find(node, number), Found::Page(..))).count()
}

#[test]
fn a_file_as_large_as_the_table_is_kept_whole() {
    let mut cache = PageCache::try_new(1024).unwrap();
    filled(&mut cache, 7, 0..1024);
    assert_eq!(count(&mut cache, 7, 0..2000), 1024);
    // One page more takes the place of one page.
    filled(&mut cache, 7, 1024..1025);
    assert_eq!(count(&mut cache, 7, 0..1025), 1024);
}

#[test]
fn what_was_not_used_for_the_longest_time_makes_room() {
    let mut cache = PageCache::try_new(CHUNK_PAGES).unwrap();
    filled(&mut cache, 1, 0..CHUNK_PAGES as u64);
    // The first half is used again, and stays.
    let half = CHUNK_PAGES as u64 / 2;
    assert_eq!(count(&mut cache, 1, 0..half), half as usize);
    filled(&mut cache, 2, 0..half);
    assert_eq!(count(&mut cache, 1, 0..half), half as usize);
    assert_eq!(count(&mut cache, 1, half..2 * half), 0);
    assert_eq!(count(&mut cache, 2, 0..half), half as usize);
}

#[test]
fn nothing_is_kept_where_there_is_no_room() {
    let mut cache = PageCache::try_new(CHUNK_PAGES).unwrap();
    let fill = cache.begin_fill(1);
    assert!(!cache.has_room(fill, 3));
    assert_eq!(cache.keep(fill, 3, 9, PAGE_BYTES), Some(9));
    cache.grow(fill, 3).unwrap();
    assert!(cache.has_room(fill, 3));
    assert_eq!(cache.keep(fill, 3, 9, PAGE_BYTES), None);
    // What another reply has brought before stays.
    assert_eq!(cache.keep(fill, 3, 10, PAGE_BYTES), Some(10));
    assert_eq!(cache.find(1, 3), Found::Page(9, PAGE_BYTES));
    assert!(cache.free_some() && !cache.free_some());
    assert_eq!(cache.find(1, 3), Found::Nothing);
}

#[test]
fn many_files_do_not_grow_the_table() {
    let mut cache = PageCache::try_new(CHUNK_PAGES).unwrap();
    for node in 1..10_000 {
        filled(&mut cache, node, 0..2);
        assert_eq!(count(&mut cache, node, 0..2), 2);
    }
    assert_eq!((cache.files.len(), cache.chunks.len()), (1, 1));
}

#[test]
fn an_empty_file_ends_at_once() {
    let mut cache = PageCache::<Page>::try_new(1).unwrap();
    let fill = cache.begin_fill(4);
    cache.ends(fill, 0);
    assert_eq!(cache.find(4, 0), Found::End);
    cache.has_changed(4, 0..1, drop);
    assert_eq!(cache.find(4, 0), Found::Nothing);
}

/// A reply tells of the length after a write that is not answered yet. What was the end of the file
/// is kept as a part of a page, and another reply brings the whole one.
#[test]
fn a_part_of_a_page_is_found_only_at_the_end() {
    let mut cache = PageCache::try_new(1).unwrap();
    let fill = cache.begin_fill(4);
    cache.grow(fill, 0).unwrap();
    assert_eq!(cache.keep(fill, 0, 1, 100), None);
    assert_eq!(cache.find(4, 0), Found::Nothing, "the length is not known");
    cache.ends(fill, 100);
    assert_eq!(cache.find(4, 0), Found::Page(1, 100));
    cache.ends_before(fill, 8192);
    assert_eq!(cache.find(4, 0), Found::Page(1, 100), "no byte is there, nor before");
    cache.ends(fill, 5000);
    assert_eq!(cache.find(4, 0), Found::Nothing);
    cache.has_changed(4, 4999..5000, drop);
    assert_eq!(cache.find(4, 0), Found::Nothing);
    let fill = cache.begin_fill(4);
    assert_eq!(cache.keep(fill, 0, 2, PAGE_BYTES), Some(1));
    assert_eq!(cache.find(4, 0), Found::Page(2, PAGE_BYTES));
    assert_eq!(cache.keep(fill, 0, 3, 100), Some(3), "less than what is kept");
}

#[test]
fn the_memory_of_the_table_is_known_before_it_is_made() {
    for pages in [0, 1, 64, 65, 8192, 16_384] {
        let table = PageCache::<u32>::try_new(pages).unwrap();
        let bytes = size_of_val(&table.files[..]) + size_of_val(&table.chunks[..]);
        assert_eq!(PageCache::<u32>::table_bytes(pages), bytes, "{pages}");
    }
}
