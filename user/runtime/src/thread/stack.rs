//! Stacks of threads: a guard page, the stack, and the thread's [`Local`] at its top.
//!
//! A thread cannot unmap the stack that it runs on. So it puts it into the list of *retired*
//! stacks, and the kernel sets the word `running` of its `Local` to 0 when it no longer runs. From
//! then on the stack may be taken out: when the next thread is started, or when the next one ends.
//! Then the whole list is searched, so no stack in use keeps another one back. The list is short:
//! those in use belong to threads that were preempted within their last few instructions. Some
//! stacks are kept, so that starting a thread rarely maps memory.
//!
//! May touch: memory of stacks of which no thread runs.
#![allow(unsafe_code)]

use core::ptr::NonNull;

use cops_abi::layout::PAGE_BYTES;

use super::builder::DEFAULT_STACK_BYTES;
use super::start::Local;
use crate::lock::Lock;
use crate::system;

/// Number of stacks of the default size that are kept.
const KEPT: usize = 16;

/// Memory for the stack of a thread. Not freed when it is dropped: see [`Stack::recycle`].
pub(super) struct Stack {
    base: NonNull<u8>,
    /// With the guard page.
    bytes: usize,
}

// SAFETY: it is memory that belongs to this value alone.
unsafe impl Send for Stack {}

/// The head of a stack that waits or is kept, at its lowest address above the guard page.
struct Node {
    next: Link,
    bytes: usize,
}

/// Stacks in a list through their own memory, so that the end of a thread allocates nothing. The
/// last one that was added is the first.
struct Stacks {
    first: Link,
    count: usize,
}

type Link = Option<NonNull<Node>>;

// SAFETY: the nodes are in memory that belongs to the list alone.
unsafe impl Send for Stacks {}

/// Stacks of threads that have ended, or are about to.
static RETIRED: Lock<Stacks> = Lock::new(Stacks::new());
/// Stacks for the next threads, all of the default size.
static FREE: Lock<Stacks> = Lock::new(Stacks::new());

impl Stack {
    /// One of at least `bytes` bytes. `None` if there is no memory.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        sweep();
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?.checked_add(PAGE_BYTES)?;
        if bytes == DEFAULT_STACK_BYTES + PAGE_BYTES
            && let Some(stack) = FREE.lock().take(|_| true)
        {
            return Some(stack);
        }
        let stack = Self { base: system::map(bytes)?, bytes };
        // SAFETY: the page is the lowest one of memory that was just mapped.
        if unsafe { system::forbid(stack.base, PAGE_BYTES) }.is_err() {
            stack.free();
            return None;
        }
        Some(stack)
    }

    /// The place for the thread's [`Local`].
    pub(super) fn local(&self) -> NonNull<Local> {
        const { assert!(align_of::<Local>() == 16 && size_of::<Local>().is_multiple_of(16)) };
        // SAFETY: a stack is at least a page longer than its guard, so this is within it.
        unsafe { self.base.add(self.bytes - size_of::<Local>()) }.cast()
    }

    fn node(&self) -> NonNull<Node> {
        // SAFETY: a stack is at least a page longer than its guard.
        unsafe { self.base.add(PAGE_BYTES) }.cast()
    }

    /// Frees it, or keeps it for the next thread. No thread runs on it.
    pub(super) fn recycle(self) {
        if self.bytes == DEFAULT_STACK_BYTES + PAGE_BYTES {
            let mut free = FREE.lock();
            if free.count < KEPT {
                return free.push(self);
            }
        }
        self.free();
    }

    fn free(self) {
        // SAFETY: the whole mapping belongs to this value, which ends here.
        unsafe { system::unmap(self.base, self.bytes) };
    }
}

impl Stacks {
    const fn new() -> Self {
        Self { first: None, count: 0 }
    }

    fn push(&mut self, stack: Stack) {
        let node = stack.node();
        // SAFETY: the place is in the stack's memory. A thread that is about to end does not use
        // it: it is at the other end of its stack.
        unsafe { node.write(Node { next: self.first, bytes: stack.bytes }) };
        self.first = Some(node);
        self.count += 1;
    }

    /// Takes the first stack out that `suits`.
    fn take(&mut self, suits: impl Fn(&Stack) -> bool) -> Option<Stack> {
        let mut link = &mut self.first;
        while let Some(place) = *link {
            // SAFETY: what is in the list is valid, and accessed only through the list.
            let node = unsafe { &mut *place.as_ptr() };
            // SAFETY: the guard page is below the node.
            let base = unsafe { place.cast::<u8>().sub(PAGE_BYTES) };
            let stack = Stack { base, bytes: node.bytes };
            if suits(&stack) {
                *link = node.next;
                self.count -= 1;
                return Some(stack);
            }
            link = &mut node.next;
        }
        None
    }
}

/// The calling thread ends: its stack is free as soon as the kernel says so.
pub(super) fn retire(stack: Stack) {
    sweep();
    RETIRED.lock().push(stack);
}

/// Recycles the stacks of the retired threads that have ended.
fn sweep() {
    // SAFETY: a thread that has started leaves its `Local` on its stack, which is mapped while it
    // is in the list.
    let has_left = |stack: &Stack| unsafe { stack.local().as_ref() }.has_ended();
    loop {
        let ended = RETIRED.lock().take(has_left);
        let Some(stack) = ended else { return };
        stack.recycle();
    }
}
