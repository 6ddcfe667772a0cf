//! Blocks that are released are allocated again, on the same thread and on others.
#![allow(unsafe_code)]

use super::*;
use std::vec::Vec;

fn allocate(layout: Layout) -> NonNull<u8> {
    super::allocate(layout).unwrap()
}

#[test]
fn what_was_released_is_used_again_on_the_same_thread() {
    let layout = Layout::new::<[u64; 3]>();
    let first = allocate(layout);
    // SAFETY: from `allocate` with this layout, not in use.
    unsafe { release(first, layout) };
    // 32 bytes are the same class as 24.
    let again = allocate(Layout::new::<[u64; 4]>());
    assert_eq!(first, again);
    let other = allocate(layout);
    assert_ne!(other, again);
    for memory in [again, other] {
        // SAFETY: from `allocate`, not in use; 24 and 32 bytes are layouts of the same
        // class.
        unsafe { release(memory, layout) };
    }
}

#[test]
fn a_block_may_be_released_elsewhere_and_when_the_room_is_used_up() {
    /// Memory that is not in use may go anywhere.
    struct Blocks(Vec<NonNull<u8>>);
    // SAFETY: plain memory that the vector alone refers to.
    unsafe impl Send for Blocks {}
    let layout = Layout::new::<[u8; 1024]>();
    let mut blocks = Blocks((0..100).map(|_| allocate(layout)).collect());
    blocks.0.iter().for_each(|block| {
        // SAFETY: `allocate` returned a block of 1024 bytes, and only this test refers to
        // it.
        unsafe { block.write_bytes(0xa5, 1024) };
    });
    std::thread::spawn(move || {
        let all = &mut blocks;
        for block in all.0.drain(..) {
            // SAFETY: from `allocate` with this layout, not in use.
            unsafe { release(block, layout) };
        }
        POOL.with(|pool| {
            assert!(pool.0[63].spare.get().is_some());
            assert_eq!(pool.0[63].room.get(), 4 * capacity(63) - 100);
        });
        assert_eq!(depot(63).magazines, 2);
    })
    .join()
    .unwrap();
    // One of them comes here, so its blocks are served before the global allocator is
    // asked.
    let block = allocate(layout);
    assert_eq!(depot(63).magazines, 1);
    // SAFETY: from `allocate` with this layout in this test, and not in use.
    unsafe { release(block, layout) };
}

#[test]
fn whatever_is_released_is_served_again() {
    let layout = Layout::new::<[u64; 60]>();
    // Ten magazines and a half, twice: the second time all come from where the first went.
    let count = capacity(29) * 10 + capacity(29) / 2;
    let mut first: Vec<_> = (0..count).map(|_| allocate(layout)).collect();
    for block in &first {
        // SAFETY: from `allocate` with this layout, not in use.
        unsafe { release(*block, layout) };
    }
    let mut second: Vec<_> = (0..count).map(|_| allocate(layout)).collect();
    for block in &second {
        // SAFETY: from `allocate` with this layout in this test, and not in use.
        unsafe { release(*block, layout) };
    }
    first.sort_unstable();
    second.sort_unstable();
    assert_eq!(first, second);
}

#[test]
fn a_thread_that_ends_keeps_nothing() {
    const LAYOUT: Layout = Layout::new::<[u64; 20]>();
    static FOUND: Mutex<Vec<(bool, bool)>> = Mutex::new(Vec::new());

    /// Uses the pool when the thread ends.
    struct AtEnd;

    impl Drop for AtEnd {
        fn drop(&mut self) {
            let memory = allocate(LAYOUT);
            // SAFETY: from `allocate` with this layout, not in use.
            unsafe { release(memory, LAYOUT) };
            let class = class_of(LAYOUT).unwrap();
            let is_empty = POOL.with(|pool| pool.0[class].first.get().is_none());
            FOUND.lock().unwrap().push((is_open(), is_empty));
        }
    }

    std::thread_local! {
        static BEFORE: AtEnd = const { AtEnd };
        static AFTER: AtEnd = const { AtEnd };
    }
    let uses = || {
        BEFORE.with(|_| ());
        let memory = allocate(LAYOUT);
        // SAFETY: from `allocate` with this layout just above, and not in use.
        unsafe { release(memory, LAYOUT) };
        AFTER.with(|_| ());
    };
    std::thread::spawn(uses).join().unwrap();
    let mut found = FOUND.lock().unwrap().clone();
    found.sort_unstable();
    // The pool is closed between the two, whichever comes first.
    assert_eq!(found, [(false, true), (true, false)]);
}

#[test]
fn odd_layouts_are_served_too() {
    for layout in [
        Layout::new::<()>(),
        Layout::from_size_align(1, 1).unwrap(),
        Layout::from_size_align(64, 64).unwrap(),
        Layout::from_size_align(1 << 20, 8).unwrap(),
    ] {
        let memory = allocate(layout);
        assert_eq!(memory.as_ptr().addr() % layout.align(), 0);
        // SAFETY: from `allocate` with this layout, not in use.
        unsafe { release(memory, layout) };
    }
}
