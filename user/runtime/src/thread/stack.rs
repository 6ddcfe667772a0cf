//! Stacks of threads: a guard page, the stack, and the thread's [`Local`] at its top.
//!
//! A thread cannot unmap the stack that it runs on. So it puts it into the queue of *retired*
//! stacks, and the kernel sets the word `running` of its `Local` to 0 when it no longer runs. From
//! then on the stack may be taken out: when the next thread is started, or when the next one ends.
//! Some stacks are kept, so that starting a thread rarely maps memory.
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
    next: Option<NonNull<Node>>,
    bytes: usize,
}

/// Stacks in a list through their own memory, so that the end of a thread allocates nothing.
struct Queue {
    first: Option<NonNull<Node>>,
    last: Option<NonNull<Node>>,
    count: usize,
}

// SAFETY: the nodes are in memory that belongs to the queue alone.
unsafe impl Send for Queue {}

/// Stacks of threads that have ended, or are about to, in the order of their ends.
static RETIRED: Lock<Queue> = Lock::new(Queue::new());
/// Stacks for the next threads, all of the default size.
static FREE: Lock<Queue> = Lock::new(Queue::new());

impl Stack {
    /// One of at least `bytes` bytes. `None` if there is no memory.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        sweep();
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?.checked_add(PAGE_BYTES)?;
        if bytes == DEFAULT_STACK_BYTES + PAGE_BYTES
            && let Some(stack) = FREE.lock().pop()
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

impl Queue {
    const fn new() -> Self {
        Self { first: None, last: None, count: 0 }
    }

    fn push(&mut self, stack: Stack) {
        let node = stack.node();
        // SAFETY: the place is in the stack's memory. A thread that is about to end does not use
        // it: it is at the other end of its stack.
        unsafe { node.write(Node { next: None, bytes: stack.bytes }) };
        match self.last.replace(node) {
            None => self.first = Some(node),
            // SAFETY: what is in the queue is valid, and accessed only through the queue.
            Some(last) => unsafe { (*last.as_ptr()).next = Some(node) },
        }
        self.count += 1;
    }

    /// The first stack, which stays in the queue.
    fn first(&self) -> Option<Stack> {
        let node = self.first?;
        // SAFETY: what is in the queue is valid, and the guard page is below it.
        let (base, bytes) = unsafe { (node.cast::<u8>().sub(PAGE_BYTES), (*node.as_ptr()).bytes) };
        Some(Stack { base, bytes })
    }

    fn pop(&mut self) -> Option<Stack> {
        let stack = self.first()?;
        // SAFETY: what is in the queue is valid, and accessed only through the queue.
        self.first = unsafe { (*stack.node().as_ptr()).next };
        if self.first.is_none() {
            self.last = None;
        }
        self.count -= 1;
        Some(stack)
    }
}

/// The calling thread ends: its stack is free as soon as the kernel says so.
pub(super) fn retire(stack: Stack) {
    sweep();
    RETIRED.lock().push(stack);
}

/// Recycles the stacks of threads that have ended, up to the first that has not.
fn sweep() {
    loop {
        let mut retired = RETIRED.lock();
        let Some(first) = retired.first() else { return };
        // SAFETY: a thread that has started leaves its `Local` on its stack, which is mapped while
        // it is in the queue.
        if !unsafe { first.local().as_ref() }.has_ended() {
            return;
        }
        let stack = retired.pop();
        drop(retired);
        if let Some(stack) = stack {
            stack.recycle();
        }
    }
}
