//! The memory of the cells in which calls wait: segments of 64, allocated and freed as the number
//! of calls grows and shrinks.
//!
//! The lowest free cell is allocated first, so the highest segments become free. Some free segments
//! are kept for the next calls; the memory of the others is freed.
//!
//! A segment may only be freed while no hart uses a cell in it. There are two ways to a cell:
//!
//! 1. By a [`CellIndex`]. It names a cell that is allocated: it is made by [`allocate`] and by
//!    [`look`], and not used after [`release`]. A segment with an allocated cell is not free.
//! 2. By a number that may be stale: a coroutine that outlives its call, a handle of a program, the
//!    search for the calls of a process that has ended. [`look`] holds `LOOKS` shared while it
//!    looks, and a segment is freed only while `LOOKS` is held exclusively.
//!
//! `LOOKS` is never waited for exclusively: if it is held, the segment stays, and a later call of
//! [`shrink`] frees it. Lock order: `FREE`, then `LOOKS`; `LOOKS`, then a cell.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use cops_abi::Errno;
use cops_algorithms::wait_list::Node;
use cops_fallible::try_box;
use cops_lock::{Mutex, MutexGuard};
use spin::RwLock;

use super::cell::Cell;

/// Names a cell that is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellIndex(u32);

impl CellIndex {
    /// The cell with this number, which is that of a call that waits, or of a result that is kept.
    pub(super) fn of_call(number: u32) -> Self {
        Self(number)
    }

    /// As a number: that of its wait node.
    pub fn number(self) -> u32 {
        self.0
    }

    fn place(self) -> &'static Place {
        match SEGMENTS.get(self.0 as usize / SEGMENT_CELLS).map(|segment| segment.load(Acquire)) {
            // SAFETY: a segment with an allocated cell is not freed, and a `CellIndex` names an
            // allocated cell.
            Some(segment) if !segment.is_null() => unsafe {
                &(*segment)[self.0 as usize % SEGMENT_CELLS]
            },
            _ => panic!("cell {} is allocated but does not exist", self.0),
        }
    }

    /// The node of its call.
    pub(super) fn wait_node(self) -> &'static Node {
        &self.place().wait_node
    }

    /// The cell, locked.
    pub(super) fn lock(self) -> MutexGuard<'static, Cell> {
        self.place().cell.lock()
    }
}

/// A cell, and the node of its call in the queue in which that waits.
struct Place {
    cell: Mutex<Cell>,
    /// Belongs to the call, and is protected by the lock of the queue; idle while the cell is free.
    wait_node: Node,
}

/// As many as a word has bits.
const SEGMENT_CELLS: usize = 64;
const SEGMENTS_MAX: usize = 4096;
const WORDS: usize = SEGMENTS_MAX / 64;
/// Segments without a call that are kept.
const SPARE_SEGMENTS: usize = 4;

type Segment = [Place; SEGMENT_CELLS];

/// Null: there is no such segment now.
static SEGMENTS: [AtomicPtr<Segment>; SEGMENTS_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENTS_MAX];
/// The highest generation that a cell of the segment had when the segment was freed. Its next cells
/// begin with it, so a handle never names a later call.
static GENERATIONS: [AtomicU32; SEGMENTS_MAX] = [const { AtomicU32::new(0) }; SEGMENTS_MAX];
static LOOKS: RwLock<()> = RwLock::new(());
static FREE: Mutex<Free> = Mutex::new(Free {
    cells: [0; SEGMENTS_MAX],
    with_free: Set::EMPTY,
    without_calls: Set::EMPTY,
    absent: Set::FULL,
    spare: 0,
});

/// A set of segments, in which the lowest and the highest are found in a few steps.
struct Set {
    words: [u64; WORDS],
    /// A bit for each word that is not 0.
    summary: u64,
}

impl Set {
    const EMPTY: Self = Self { words: [0; WORDS], summary: 0 };
    const FULL: Self = Self { words: [u64::MAX; WORDS], summary: u64::MAX };

    fn insert(&mut self, segment: usize) {
        self.words[segment / 64] |= 1 << (segment % 64);
        self.summary |= 1 << (segment / 64);
    }

    fn remove(&mut self, segment: usize) {
        let word = &mut self.words[segment / 64];
        *word &= !(1 << (segment % 64));
        if *word == 0 {
            self.summary &= !(1 << (segment / 64));
        }
    }

    fn lowest(&self) -> Option<usize> {
        let word = self.summary.trailing_zeros() as usize;
        self.words.get(word).map(|bits| word * 64 + bits.trailing_zeros() as usize)
    }

    /// The lowest segment from `segment` on that is not in the set.
    fn next_without(&self, segment: usize) -> Option<usize> {
        let mut rest = u64::MAX.checked_shl((segment % 64) as u32)?;
        for word in segment / 64..WORDS {
            let without = !self.words[word] & rest;
            if without != 0 {
                return Some(word * 64 + without.trailing_zeros() as usize);
            }
            rest = u64::MAX;
        }
        None
    }

    fn highest(&self) -> Option<usize> {
        let word = self.summary.checked_ilog2()? as usize;
        self.words[word].checked_ilog2().map(|bit| word * 64 + bit as usize)
    }
}

const _: () = assert!(WORDS == 64);

/// Which cells are free.
struct Free {
    /// A bit for each free cell of each segment.
    cells: [u64; SEGMENTS_MAX],
    with_free: Set,
    /// Segments in which all cells are free.
    without_calls: Set,
    absent: Set,
    /// How many there are in `without_calls`.
    spare: usize,
}

impl Free {
    fn take(&mut self) -> Option<CellIndex> {
        let segment = self.with_free.lowest()?;
        let cells = &mut self.cells[segment];
        if *cells == u64::MAX {
            self.without_calls.remove(segment);
            self.spare -= 1;
        }
        let cell = cells.trailing_zeros();
        *cells &= !(1 << cell);
        if *cells == 0 {
            self.with_free.remove(segment);
        }
        Some(CellIndex((segment * SEGMENT_CELLS) as u32 + cell))
    }

    fn put(&mut self, index: CellIndex) {
        let segment = index.0 as usize / SEGMENT_CELLS;
        self.cells[segment] |= 1 << (index.0 as usize % SEGMENT_CELLS);
        self.with_free.insert(segment);
        if self.cells[segment] == u64::MAX {
            self.without_calls.insert(segment);
            self.spare += 1;
        }
    }

    fn grow(&mut self) -> Result<(), Errno> {
        let segment = self.absent.lowest().ok_or(Errno::ENOMEM)?;
        let generation = GENERATIONS[segment].load(Relaxed);
        let cells: Box<Segment> = try_box(core::array::from_fn(|_| Place {
            cell: Mutex::new(Cell::new(generation)),
            wait_node: Node::default(),
        }))?;
        SEGMENTS[segment].store(Box::into_raw(cells), Release);
        self.absent.remove(segment);
        self.with_free.insert(segment);
        self.without_calls.insert(segment);
        self.spare += 1;
        self.cells[segment] = u64::MAX;
        Ok(())
    }

    /// Takes out the highest segment without calls, if there are more than are kept and no hart is
    /// looking.
    fn shrink(&mut self) -> Option<Box<Segment>> {
        if self.spare <= SPARE_SEGMENTS {
            return None;
        }
        let segment = self.without_calls.highest()?;
        let _exclusive = LOOKS.try_write()?;
        let cells = SEGMENTS[segment].swap(ptr::null_mut(), AcqRel);
        self.spare -= 1;
        self.without_calls.remove(segment);
        self.with_free.remove(segment);
        self.absent.insert(segment);
        self.cells[segment] = 0;
        // SAFETY: made by `grow` from a box, and taken out of the only place that had it. All of
        // its cells are free, so no `CellIndex` names one; no hart looks at a stale number, since
        // `LOOKS` is held exclusively.
        let mut cells = unsafe { Box::from_raw(cells) };
        let generation =
            cells.iter_mut().map(|place| place.cell.get_mut().generation).max().unwrap_or(0);
        GENERATIONS[segment].store(generation, Relaxed);
        Some(cells)
    }
}

/// Allocates a cell, and a segment if there is none.
///
/// # Errors
/// `ENOMEM`.
pub fn allocate() -> Result<CellIndex, Errno> {
    let mut free = FREE.lock();
    if let Some(index) = free.take() {
        return Ok(index);
    }
    free.grow()?;
    free.take().ok_or(Errno::ENOMEM)
}

/// Frees a cell without a call. [`shrink`] is called when some have been freed.
pub fn release(index: CellIndex) {
    FREE.lock().put(index);
}

/// As [`release`] and [`shrink`].
pub fn release_and_shrink(index: CellIndex) {
    let mut free = FREE.lock();
    free.put(index);
    let freed = free.shrink();
    drop(free);
    drop(freed);
}

/// Frees the memory of a segment that is not needed; false if there is none, or it is in use at the
/// moment. The caller holds no cell's lock.
pub fn shrink() -> bool {
    let freed = FREE.lock().shrink();
    freed.is_some()
}

/// What a number means now.
pub enum Looked {
    /// The cell that was looked for, locked.
    Found(CellIndex, MutexGuard<'static, Cell>),
    /// Something else; the highest generation that the cell may have had.
    Other(u32),
    /// There never was such a cell.
    Never,
}

/// Locks the cell with this number, which may be stale, if `is_it` says that it is the right one.
/// `is_it` says so only of a cell with a call: the cell is allocated then, and stays so while it is
/// locked.
pub fn look(number: u32, is_it: impl FnOnce(&Cell) -> bool) -> Looked {
    let (segment, cell) = (number as usize / SEGMENT_CELLS, number as usize % SEGMENT_CELLS);
    let Some(place) = SEGMENTS.get(segment) else { return Looked::Never };
    let looking = LOOKS.read();
    let cells = place.load(Acquire);
    if cells.is_null() {
        return match GENERATIONS[segment].load(Relaxed) {
            0 => Looked::Never,
            generation => Looked::Other(generation),
        };
    }
    // SAFETY: a segment is freed only while `LOOKS` is held exclusively; it is held shared until
    // the cell is known to be allocated, and a segment with an allocated cell is not freed.
    let guard = unsafe { &(*cells)[cell] }.cell.lock();
    if guard.call.is_some() && is_it(&guard) {
        drop(looking);
        return Looked::Found(CellIndex(number), guard);
    }
    Looked::Other(guard.generation)
}

/// The lowest number from `number` on of a cell that exists.
pub fn existing_from(number: usize) -> Option<usize> {
    let segment = FREE.lock().absent.next_without(number / SEGMENT_CELLS)?;
    // Its own segment exists, or it is the first of a later one.
    Some(number.max(segment * SEGMENT_CELLS))
}

/// The wait node of a call that waits.
///
/// # Panics
/// If there is no such cell: queues contain cells of calls only.
// SAFETY: the symbol and the signature are those that `sched` declares, and nothing else in the
// kernel defines this symbol.
#[unsafe(export_name = "cops_wait_node")]
fn wait_node(number: u32) -> &'static Node {
    CellIndex::of_call(number).wait_node()
}
