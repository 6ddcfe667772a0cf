//! Blocks of memory that a thread has released and allocates again, by size: see `pool`.
//!
//! A thread keeps blocks in steps of 16 bytes up to 1 KiB, in two magazines of 32 KiB for each
//! size. A full magazine goes to a depot, which all threads share, and an empty one is replaced by
//! one from there: so a block costs the same however many are in use, and blocks that one thread
//! allocates and another releases become available where they are needed. The depot keeps at most
//! 64 MiB of each size; the rest returns to the global allocator. (Magazines and depot are
//! Bonwick's and Adams's, USENIX 2001.)
//!
//! Unsafe: memory by hand. What is in a list here is a block of that list's layout that is not in
//! use.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::pool::{allocate_anew, release_for_good};

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
pub fn allocate(layout: Layout) -> Option<NonNull<u8>> {
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
    /// A block of this class; `None` if there is no memory for one.
    #[inline(always)]
    fn take(&self, class: usize) -> Option<NonNull<u8>> {
        match self.first.get() {
            Some(first) => Some(self.pop(first)),
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
    fn take_slowly(&self, class: usize) -> Option<NonNull<u8>> {
        let magazine =
            if is_open() { self.spare.take().or_else(|| depot(class).take()) } else { None };
        let Some(magazine) = magazine else { return allocate_anew(block(class)) };
        self.room.set(0);
        Some(self.pop(magazine))
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
#[path = "magazines_tests.rs"]
mod tests;
