//! Handing out slots: growth, reuse, exhaustion, races.

use std::alloc::{Layout, alloc_zeroed};
use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::vec::Vec;

use super::*;

/// Memory that can run out. Counts what is out; leaks it, as a slab does.
struct Memory {
    left: AtomicUsize,
    released: AtomicUsize,
}

unsafe extern "C" fn grow(context: *mut (), bytes: usize) -> *mut u8 {
    // SAFETY: `hooks` made the context of a `Memory` that outlives the slab.
    let memory = unsafe { &*context.cast::<Memory>() };
    let taken = memory
        .left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
    match taken {
        // SAFETY: the slab never requests zero bytes, which is all that `alloc_zeroed` requires.
        Ok(_) => unsafe { alloc_zeroed(Layout::from_size_align(bytes, 64).unwrap()) },
        Err(_) => ptr::null_mut(),
    }
}

unsafe extern "C" fn release(context: *mut (), _: *mut u8, bytes: usize) {
    // SAFETY: `hooks` made the context of a `Memory` that outlives the slab.
    unsafe { &*context.cast::<Memory>() }.released.fetch_add(bytes, Ordering::Relaxed);
}

unsafe extern "C" fn notify(_: *mut (), _: u32) {}

impl Memory {
    fn of(bytes: usize) -> Memory {
        Memory { left: AtomicUsize::new(bytes), released: AtomicUsize::new(0) }
    }

    fn hooks(&self) -> Hooks {
        let context = ptr::from_ref(self).cast_mut().cast();
        Hooks { context, grow, release, notify, preempt: None, external: None, relax: None }
    }
}

#[test]
fn a_coroutine_costs_40_bytes_and_an_eighth_of_a_pointer() {
    assert_eq!(size_of::<Segment>(), 256 * 40);
    assert_eq!(size_of::<Directory>(), 256 * 8);
}

#[test]
fn indices_are_distinct_and_lead_back() {
    let memory = Memory::of(usize::MAX);
    let hooks = memory.hooks();
    let slab = Slab::new();
    // More than one directory.
    for expected in 1..70_000 {
        let slot = slab.allocate(0, &hooks).unwrap();
        assert_eq!(slot.handle(), expected);
        assert!(ptr::eq(slab.get(expected).unwrap(), slot));
    }
    assert!(slab.get(70_000 + 256).is_none());
    assert!(slab.get(INDEX_LIMIT - 1).is_none());
}

#[test]
fn no_memory_is_an_answer_and_not_for_ever() {
    let memory = Memory::of(size_of::<Directory>() + size_of::<Segment>());
    let hooks = memory.hooks();
    let slab = Slab::new();
    for expected in 1..256 {
        assert_eq!(slab.allocate(0, &hooks).unwrap().handle(), expected);
    }
    assert!(slab.allocate(0, &hooks).is_none());
    memory.left.store(size_of::<Segment>(), Ordering::Relaxed);
    assert_eq!(slab.allocate(0, &hooks).unwrap().handle(), 256);
}

#[test]
fn no_index_is_an_answer() {
    let memory = Memory::of(usize::MAX);
    let hooks = memory.hooks();
    let slab = Slab::new();
    slab.fresh.store(INDEX_LIMIT - 2, Ordering::Relaxed);
    assert_eq!(slab.allocate(0, &hooks).unwrap().handle(), INDEX_LIMIT - 1);
    assert!(slab.allocate(0, &hooks).is_none());
}

#[test]
fn racing_threads_never_share_a_slot() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 2_000;
    let memory = Memory::of(usize::MAX);
    let hooks = memory.hooks();
    let slab = Slab::new();
    /// Hooks are shared by contract.
    struct Shared<'a>(&'a Hooks, &'a Slab);
    // SAFETY: `Memory` is all atomics, and the slab is.
    unsafe impl Sync for Shared<'_> {}
    let shared = Shared(&hooks, &slab);
    let start = Barrier::new(THREADS);
    let held: Vec<u32> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (shared, start) = (&shared, &start);
                scope.spawn(move || {
                    let shared: &Shared = shared;
                    start.wait();
                    let mut mine: Vec<&Slot> = Vec::new();
                    for _ in 0..ROUNDS {
                        // Mark it as ours, let others try to take it, and see that it still is.
                        let slot = shared.1.allocate(0, shared.0).unwrap();
                        assert_eq!(slot.previous.swap(thread as u32 + 1, Ordering::Relaxed), 0);
                        mine.push(slot);
                    }
                    mine.iter().for_each(|slot| {
                        assert_eq!(slot.previous.load(Ordering::Relaxed), thread as u32 + 1)
                    });
                    mine.iter().map(|slot| slot.handle()).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(held.iter().collect::<HashSet<_>>().len(), held.len());
    // Each thread that lost a race for a segment released its memory.
    let out =
        usize::MAX - memory.left.load(Ordering::Relaxed) - memory.released.load(Ordering::Relaxed);
    let segments =
        (1..INDEX_LIMIT).step_by(256).take_while(|&index| slab.get(index).is_some()).count();
    assert_eq!(out, size_of::<Directory>() + segments * size_of::<Segment>());
}
