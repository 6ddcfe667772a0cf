//! Memory for boxed futures. With `std`, what a thread has used before it uses again: an allocator that serves all
//! sizes and threads takes some ninety instructions for a box and as many to take it back, as much as all else that a
//! short coroutine costs. Without `std`, the global allocator is asked each time.
//!
//! A thread keeps blocks by size, in steps of 16 bytes up to 1 KiB, at most 64 KiB of each; the rest goes back
//! to the global allocator, and all of it when the thread ends. A block may be used on one thread and given back on another.
//!
//! Unsafe: memory by hand. What is in a list here is a block of that list's layout that nobody else has.
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
/// It is from `allocate::<T>`, and nobody uses it any more.
#[inline(always)]
pub(super) unsafe fn release<T>(memory: NonNull<T>) {
    // SAFETY: the caller's promise.
    unsafe { kept::release(memory.cast(), Layout::new::<T>()) };
}

/// From the global allocator, or nowhere if there are no bytes.
#[cold]
#[inline(never)]
fn allocate_anew(layout: Layout) -> NonNull<u8> {
    if layout.size() == 0 {
        // `Layout::dangling_ptr` is newer than the oldest compiler that is promised.
        return NonNull::new(ptr::without_provenance_mut(layout.align())).unwrap_or(NonNull::dangling());
    }
    // SAFETY: there are bytes.
    let memory = unsafe { alloc::alloc::alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| alloc::alloc::handle_alloc_error(layout))
}

/// # Safety
///
/// It is from `allocate_anew` with the same layout, and nobody uses it any more.
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

    use super::{allocate_anew, release_for_good};

    /// Blocks are multiples of this, and aligned to it.
    const STEP: usize = 16;
    const CLASSES: usize = 64;
    const BYTES_KEPT: usize = 64 << 10;

    /// Blocks of one size, linked by their first words.
    struct Kept {
        first: Cell<Option<NonNull<Link>>>,
        /// How many more may be kept.
        room: Cell<usize>,
    }

    struct Link {
        next: Option<NonNull<Link>>,
    }

    struct Pool([Kept; CLASSES]);

    std::thread_local! {
        static POOL: Pool = const { Pool::new() };
    }

    /// The list that blocks for `layout` are in; `None` for none at all, and for what is large.
    const fn class_of(layout: Layout) -> Option<usize> {
        let class = layout.size().div_ceil(STEP);
        if layout.size() == 0 || layout.align() > STEP || class > CLASSES { None } else { Some(class - 1) }
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
        // While a thread ends there may be no pool any more.
        let kept = POOL.try_with(|pool| pool.0[class].take()).ok().flatten();
        kept.unwrap_or_else(|| allocate_anew(block(class)))
    }

    /// # Safety
    ///
    /// It is from `allocate` with the same layout, and nobody uses it any more.
    #[inline(always)]
    pub unsafe fn release(memory: NonNull<u8>, layout: Layout) {
        let Some(class) = class_of(layout) else {
            // SAFETY: the caller's promise; such layouts come from there.
            return unsafe { release_for_good(memory, layout) };
        };
        // SAFETY: a block of this class, and nobody's, by contract.
        let kept = POOL.try_with(|pool| unsafe { pool.0[class].put(memory) }).unwrap_or(false);
        if !kept {
            // SAFETY: all blocks of a class come from there with that class's layout.
            unsafe { release_for_good(memory, block(class)) };
        }
    }

    impl Kept {
        #[inline(always)]
        fn take(&self) -> Option<NonNull<u8>> {
            let first = self.first.get()?;
            // SAFETY: in the list, so a block that begins with a link, and ours.
            self.first.set(unsafe { first.as_ref() }.next);
            self.room.set(self.room.get() + 1);
            Some(first.cast())
        }

        /// False, and nothing has happened, if there is no room.
        ///
        /// # Safety
        ///
        /// `memory` is a block of this list's class that nobody uses.
        #[inline(always)]
        unsafe fn put(&self, memory: NonNull<u8>) -> bool {
            let Some(room) = self.room.get().checked_sub(1) else { return false };
            self.room.set(room);
            let link = memory.cast::<Link>();
            // SAFETY: a block is at least 16 bytes, aligned to 16, and ours by contract.
            unsafe { link.write(Link { next: self.first.get() }) };
            self.first.set(Some(link));
            true
        }
    }

    impl Pool {
        const fn new() -> Pool {
            let mut pool = Pool([const { Kept { first: Cell::new(None), room: Cell::new(0) } }; CLASSES]);
            let mut class = 0;
            while class < CLASSES {
                pool.0[class].room = Cell::new(BYTES_KEPT / block(class).size());
                class += 1;
            }
            pool
        }
    }

    impl Drop for Pool {
        fn drop(&mut self) {
            for (class, kept) in self.0.iter().enumerate() {
                while let Some(memory) = kept.take() {
                    // SAFETY: as in `release`.
                    unsafe { release_for_good(memory, block(class)) };
                }
            }
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
            // SAFETY: from `allocate` with this layout, used by nobody.
            unsafe { release(first, layout) };
            // 32 bytes are the same class as 24.
            let again = allocate(Layout::new::<[u64; 4]>());
            assert_eq!(first, again);
            let other = allocate(layout);
            assert_ne!(other, again);
            for memory in [again, other] {
                // SAFETY: as above; both are blocks of one class.
                unsafe { release(memory, layout) };
            }
        }

        #[test]
        fn a_block_may_be_given_back_elsewhere_and_when_the_room_is_used_up() {
            /// Memory that nobody uses may go anywhere.
            struct Blocks(Vec<NonNull<u8>>);
            // SAFETY: plain memory that the vector alone refers to.
            unsafe impl Send for Blocks {}
            let layout = Layout::new::<[u8; 1024]>();
            let mut blocks = Blocks((0..100).map(|_| allocate(layout)).collect());
            blocks.0.iter().for_each(|block| {
                // SAFETY: a block of this size, ours.
                unsafe { block.write_bytes(0xa5, 1024) };
            });
            std::thread::spawn(move || {
                let all = &mut blocks;
                for block in all.0.drain(..) {
                    // SAFETY: from `allocate` with this layout, used by nobody.
                    unsafe { release(block, layout) };
                }
                POOL.with(|pool| assert_eq!(pool.0[63].room.get(), 0));
            })
            .join()
            .unwrap();
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
                // SAFETY: from `allocate` with this layout, used by nobody.
                unsafe { release(memory, layout) };
            }
        }
    }
}
