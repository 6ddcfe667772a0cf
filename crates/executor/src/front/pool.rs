//! Memory for boxed futures. With `std`, what a thread has used before it uses again: an allocator
//! that serves all sizes and threads takes some ninety instructions for a box and as many to take
//! it back, as much as all else that a short coroutine costs. Without `std`, the global allocator
//! is asked each time.
//!
//! A thread keeps blocks by size, in steps of 16 bytes up to 1 KiB, in two magazines of 32 KiB
//! each. A magazine that is full goes to a depot, which all threads share, and one that is empty is
//! replaced by one from there: so a block costs the same however many are in use, and blocks that
//! one thread allocates and another frees become available where they are needed. The depot keeps
//! at most 64 MiB of each size; the rest goes back to the global allocator. (Magazines and depot
//! are Bonwick's and Adams's, USENIX 2001.)
//!
//! Unsafe: memory by hand. What is in a list here is a block of that list's layout that is not in
//! use.
#![allow(unsafe_code)]

use ::core::alloc::Layout;
use ::core::ptr::{self, NonNull};

/// Memory for a `T`, uninitialised.
#[inline(always)]
pub(super) fn allocate<T>() -> NonNull<T> {
    kept::allocate(Layout::new::<T>()).cast()
}

/// Takes memory back.
///
/// # Safety
///
/// It is from `allocate::<T>`, and it is not used any more.
#[inline(always)]
pub(super) unsafe fn release<T>(memory: NonNull<T>) {
    // SAFETY: by contract the memory is from `allocate::<T>`, so it has this layout, and it is not
    // used any more.
    unsafe { kept::release(memory.cast(), Layout::new::<T>()) };
}

/// From the global allocator, or nowhere if there are no bytes.
#[cold]
#[inline(never)]
fn allocate_anew(layout: Layout) -> NonNull<u8> {
    if layout.size() == 0 {
        // `Layout::dangling_ptr` is newer than the oldest compiler that is promised.
        return NonNull::new(ptr::without_provenance_mut(layout.align()))
            .unwrap_or(NonNull::dangling());
    }
    // SAFETY: `alloc` requires a size other than zero, which was checked above.
    let memory = unsafe { alloc::alloc::alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| alloc::alloc::handle_alloc_error(layout))
}

/// # Safety
///
/// It is from `allocate_anew` with the same layout, and it is not used any more.
#[cold]
#[inline(never)]
unsafe fn release_for_good(memory: NonNull<u8>, layout: Layout) {
    if layout.size() != 0 {
        // SAFETY: from the global allocator with this layout, by contract.
        unsafe { alloc::alloc::dealloc(memory.as_ptr(), layout) };
    }
}

#[cfg(not(feature = "std"))]
mod kept {
    pub(super) use super::{allocate_anew as allocate, release_for_good as release};
}

#[cfg(feature = "std")]
mod kept {
    use std::alloc::Layout;
    use std::cell::Cell;
    use std::ptr::NonNull;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::{allocate_anew, release_for_good};

    /// Blocks are multiples of this, and aligned to it.
    const STEP: usize = 16;
    const CLASSES: usize = 64;
    const MAGAZINE_BYTES: usize = 32 << 10;
    const DEPOT_BYTES: usize = 64 << 20;

    /// Blocks of one size. Those in the first magazine are linked by their first words.
    struct Kept {
        /// Freed blocks are put here, and allocated ones are taken from here.
        first: Cell<Option<NonNull<Link>>>,
        /// How many more fit into the first magazine.
        room: Cell<usize>,
        /// Another magazine, full, or none.
        spare: Cell<Option<NonNull<Link>>>,
    }

    /// How a block begins that is not in use.
    struct Link {
        /// The next block of the magazine.
        next: Option<NonNull<Link>>,
        /// Written when a full magazine goes to the depot, in its first block: the magazine below
        /// it.
        below: Option<NonNull<Link>>,
    }

    const _: () = assert!(size_of::<Link>() <= STEP && align_of::<Link>() <= STEP);

    struct Pool([Kept; CLASSES]);

    std::thread_local! {
        /// Without a destructor, so that it is reached without asking whether there is one to
        /// register or it has run.
        static POOL: Pool = const { Pool::new() };
        /// Empties `POOL` when the thread ends. Registered before there is anything in it; after
        /// it, each magazine is without blocks and without room, so all that follows comes here
        /// first, and finds it gone.
        static GUARD: Guard = const { Guard };
    }

    struct Guard;

    /// Whether the pool may be used: it may not while the thread ends.
    fn is_open() -> bool {
        GUARD.try_with(|_| ()).is_ok()
    }

    /// Full magazines of one size, in a stack.
    struct Stack {
        top: Option<NonNull<Link>>,
        magazines: usize,
    }

    // SAFETY: the blocks in the stack are free, so nothing but the stack refers to them, in any
    // thread.
    unsafe impl Send for Stack {}

    static DEPOT: [Mutex<Stack>; CLASSES] =
        [const { Mutex::new(Stack { top: None, magazines: 0 }) }; CLASSES];

    fn depot(class: usize) -> MutexGuard<'static, Stack> {
        DEPOT[class].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks of a full magazine.
    const fn capacity(class: usize) -> usize {
        MAGAZINE_BYTES / block(class).size()
    }

    impl Stack {
        /// A full magazine.
        fn take(&mut self) -> Option<NonNull<Link>> {
            let top = self.top?;
            // SAFETY: in the stack, so a block that begins with a link.
            self.top = unsafe { (*top.as_ptr()).below };
            self.magazines -= 1;
            Some(top)
        }

        /// False, and nothing has happened, if there are too many.
        ///
        /// # Safety
        ///
        /// `magazine` is full, of this stack's size, and the caller's alone.
        unsafe fn put(&mut self, magazine: NonNull<Link>) -> bool {
            if self.magazines >= DEPOT_BYTES / MAGAZINE_BYTES {
                return false;
            }
            // SAFETY: the contract: its first block is ours.
            unsafe { (&raw mut (*magazine.as_ptr()).below).write(self.top) };
            self.top = Some(magazine);
            self.magazines += 1;
            true
        }
    }

    /// The list that blocks for `layout` are in; `None` for none at all, and for what is large.
    const fn class_of(layout: Layout) -> Option<usize> {
        let class = layout.size().div_ceil(STEP);
        if layout.size() == 0 || layout.align() > STEP || class > CLASSES {
            None
        } else {
            Some(class - 1)
        }
    }

    /// The layout of all blocks in a list.
    const fn block(class: usize) -> Layout {
        match Layout::from_size_align((class + 1) * STEP, STEP) {
            Ok(layout) => layout,
            Err(_) => panic!("a power of two, and far from overflow"),
        }
    }

    #[inline(always)]
    pub fn allocate(layout: Layout) -> NonNull<u8> {
        let Some(class) = class_of(layout) else { return allocate_anew(layout) };
        POOL.with(|pool| pool.0[class].take(class))
    }

    /// # Safety
    ///
    /// It is from `allocate` with the same layout, and it is not used any more.
    #[inline(always)]
    pub unsafe fn release(memory: NonNull<u8>, layout: Layout) {
        let Some(class) = class_of(layout) else {
            // SAFETY: the caller's promise; such layouts come from there.
            return unsafe { release_for_good(memory, layout) };
        };
        // SAFETY: a block of this class, and unused, by contract.
        POOL.with(|pool| unsafe { pool.0[class].put(class, memory) });
    }

    impl Kept {
        /// A block of this class.
        #[inline(always)]
        fn take(&self, class: usize) -> NonNull<u8> {
            match self.first.get() {
                Some(first) => self.pop(first),
                None => self.take_slowly(class),
            }
        }

        #[inline(always)]
        fn pop(&self, first: NonNull<Link>) -> NonNull<u8> {
            // SAFETY: in the list, so a block that begins with a link, and ours.
            self.first.set(unsafe { (*first.as_ptr()).next });
            self.room.set(self.room.get() + 1);
            first.cast()
        }

        /// As `take`, while the first magazine is empty: another becomes the first.
        #[cold]
        #[inline(never)]
        fn take_slowly(&self, class: usize) -> NonNull<u8> {
            let magazine =
                if is_open() { self.spare.take().or_else(|| depot(class).take()) } else { None };
            let Some(magazine) = magazine else { return allocate_anew(block(class)) };
            self.room.set(0);
            self.pop(magazine)
        }

        /// # Safety
        ///
        /// `memory` is a block of this class that is not in use.
        #[inline(always)]
        unsafe fn put(&self, class: usize, memory: NonNull<u8>) {
            if self.room.get() == 0 {
                // SAFETY: by contract `memory` is a block of this class that is not in use.
                return unsafe { self.put_slowly(class, memory) };
            }
            // SAFETY: by contract `memory` is a block of this class that is not in use; the
            // magazine has room (checked above).
            unsafe { self.push(memory) };
        }

        /// # Safety
        ///
        /// As `put`; and there is room.
        #[inline(always)]
        unsafe fn push(&self, memory: NonNull<u8>) {
            self.room.set(self.room.get() - 1);
            let link = memory.cast::<Link>();
            // SAFETY: a block is at least 16 bytes, aligned to 16, and ours by contract.
            unsafe { (&raw mut (*link.as_ptr()).next).write(self.first.get()) };
            self.first.set(Some(link));
        }

        /// As `put`, while the first magazine has no room: it goes elsewhere.
        ///
        /// # Safety
        ///
        /// As `put`.
        #[cold]
        #[inline(never)]
        unsafe fn put_slowly(&self, class: usize, memory: NonNull<u8>) {
            if !is_open() {
                // SAFETY: all blocks of a class come from there with that class's layout.
                return unsafe { release_for_good(memory, block(class)) };
            }
            let full = self.first.take();
            self.room.set(capacity(class));
            if let Some(spare) = self.spare.replace(full) {
                // SAFETY: this magazine was full when it became the spare one, and only this thread
                // refers to it.
                let is_kept = unsafe { depot(class).put(spare) };
                if !is_kept {
                    // SAFETY: the depot did not keep the magazine, so still only this thread refers
                    // to its blocks.
                    unsafe { release_all(class, Some(spare)) };
                }
            }
            // SAFETY: by contract `memory` is a block of this class that is not in use; the
            // magazine is new and has room.
            unsafe { self.push(memory) };
        }
    }

    /// Gives blocks back to the global allocator.
    ///
    /// # Safety
    ///
    /// They are blocks of this class, linked, and not in use.
    unsafe fn release_all(class: usize, mut next: Option<NonNull<Link>>) {
        while let Some(here) = next {
            // SAFETY: by contract these are linked blocks of this class that are not in use; all
            // blocks of a class have the class's layout.
            unsafe {
                next = (*here.as_ptr()).next;
                release_for_good(here.cast(), block(class));
            }
        }
    }

    impl Pool {
        /// No magazine has room: the first block that is put makes some.
        const fn new() -> Pool {
            Pool(
                [const { Kept { first: Cell::new(None), room: Cell::new(0), spare: Cell::new(None) } };
                    CLASSES],
            )
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            POOL.with(|pool| {
                for (class, kept) in pool.0.iter().enumerate() {
                    kept.room.set(0);
                    for magazine in [kept.first.take(), kept.spare.take()] {
                        // SAFETY: this thread alone owns what is in its lists.
                        unsafe { release_all(class, magazine) };
                    }
                }
            });
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::vec::Vec;

        #[test]
        fn what_was_given_back_is_used_again_on_the_same_thread() {
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
        fn a_block_may_be_given_back_elsewhere_and_when_the_room_is_used_up() {
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
        fn whatever_is_given_back_is_served_again() {
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
    }
}
