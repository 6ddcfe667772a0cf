//! Physical memory in frames of 4 KiB with reference counts.
//!
//! Free frames are in a [`Buddy`] behind one lock and in a small [`FrameCache`] per hart that needs
//! no lock. Both are bookkeeping only, in `cops_algorithms`; this module is responsible for the
//! memory of the frames and for their reference counts.
//!
//! A [`Frame`] is one reference to a frame; dropping the last one frees it. So pinning a program's
//! buffer, sharing a page with a program and mapping a page twice are only clones.

use super::quota::{self, Family};
use super::{OutOfMemory, layout};
use crate::arch::{self, HartSlot, HartSlots, MAX_HARTS};
use crate::machine::image;
use cops_algorithms::buddy::{self, Buddy, Links, ORDERS};
use cops_algorithms::fixed_list::FixedList;
use cops_algorithms::frame_cache::{BATCH, FrameCache};
use cops_algorithms::holes::{first_hole, for_each_hole};
use cops_algorithms::references::References;
use cops_lock::{AtBoot, Mutex};
use core::mem::{ManuallyDrop, MaybeUninit};
use core::num::NonZeroU32;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use spin::Once;

/// Bytes in a frame.
pub const FRAME_BYTES: usize = layout::PAGE_BYTES;

/// The record of a frame.
struct FrameRecord {
    /// The [`Frame`]s for it. At boot, one for each frame that is not free.
    references: References,
    /// While the frame is kept, they have the numbers of the family that is charged for it.
    links: Links,
}

impl FrameRecord {
    const fn in_use() -> Self {
        Self { references: References::one(), links: Links::in_use() }
    }
}

impl AsRef<Links> for FrameRecord {
    fn as_ref(&self) -> &Links {
        &self.links
    }
}

/// All frames between the lowest and the highest byte of RAM.
struct Table {
    /// Physical address of frame 0.
    base: usize,
    records: &'static [FrameRecord],
    buddy: Mutex<Buddy>,
    /// Frames that were free at the end of the boot.
    total: usize,
}

static TABLE: AtBoot<Table> = AtBoot::unset();

#[inline]
fn table() -> &'static Table {
    TABLE.get().expect("no frame is used before `frames::initialise`")
}

static CACHES: HartSlots<FrameCache> =
    HartSlots::new([const { HartSlot::new(FrameCache::EMPTY) }; MAX_HARTS]);

/// Frames in all caches together.
static CACHED: AtomicUsize = AtomicUsize::new(0);

/// Whether freed frames are overwritten, so that a use after free shows (boot argument `junk=on`).
static JUNK_ON_FREE: AtomicBool = AtomicBool::new(false);
const JUNK: u8 = 0xa5;

/// Takes over the memory in `ram`, except the ranges in `reserved`, which has room for one more.
/// The records of all frames are put into the first hole with enough room. Called once, by the boot
/// hart.
///
/// # Safety
/// Every byte of `ram` outside `reserved` is unused memory, mapped in the direct map. The other
/// harts have not been started.
pub unsafe fn initialise<const N: usize>(
    ram: &[Range<usize>],
    mut reserved: FixedList<Range<usize>, N>,
    junk_on_free: bool,
) {
    let base = layout::page_down(
        ram.iter().map(|range| range.start).min().expect("the tree names memory"),
    );
    let end = layout::page_down(ram.iter().map(|range| range.end).max().unwrap_or(base));
    let count = (end - base) / FRAME_BYTES;
    let record_bytes = (count * size_of::<FrameRecord>()).next_multiple_of(FRAME_BYTES);
    let place = first_hole(ram, &reserved, record_bytes, FRAME_BYTES)
        .expect("no room for the frame records");

    let first = layout::direct(place).cast::<FrameRecord>();
    // SAFETY: the hole is unused, mapped, page aligned and large enough for all records.
    let records = unsafe {
        for index in 0..count {
            first.add(index).write(FrameRecord::in_use());
        }
        core::slice::from_raw_parts(first, count)
    };

    let mut buddy = Buddy::new();
    assert!(reserved.push(place..place + record_bytes), "more reserved ranges than expected");
    for range in ram {
        for_each_hole(range, &reserved, |hole| {
            let number = |address: usize| ((address - base) / FRAME_BYTES) as u32;
            let (start, end) =
                (hole.start.next_multiple_of(FRAME_BYTES), layout::page_down(hole.end));
            if start < end {
                buddy.free_range(records, number(start)..number(end));
            }
        });
    }
    JUNK_ON_FREE.store(junk_on_free, Ordering::Relaxed);
    let total = buddy.free_frames();
    FREE.store(total, Ordering::Relaxed);
    static MADE: Once<Table> = Once::new();
    let table = MADE.call_once(|| Table { base, records, buddy: Mutex::new(buddy), total });
    // SAFETY: no other hart runs, by this function's contract.
    unsafe { TABLE.set(table) };
}

/// The amount of memory, in frames.
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    /// All frames that the kernel can allocate.
    pub total: usize,
    /// Free frames, those in the harts' caches included.
    pub free: usize,
}

/// The current figures; exact while no other hart allocates.
pub fn statistics() -> Statistics {
    let table = table();
    let free = table.buddy.lock().free_frames() + CACHED.load(Ordering::Relaxed);
    Statistics { total: table.total, free }
}

/// Programs do not get this share of all frames, so that the kernel can continue when they have
/// used up the rest.
const RESERVE_DIVISOR: usize = 64;

/// Whether the free frames (without the harts' caches) are only the kernel's reserve.
pub(super) fn is_down_to_reserve() -> bool {
    let table = table();
    FREE.load(Ordering::Relaxed) <= table.total / RESERVE_DIVISOR
}

/// Free frames of the buddy, readable without its lock.
static FREE: AtomicUsize = AtomicUsize::new(0);

impl Table {
    /// The number of the frame at `physical`.
    fn number_at(&self, physical: usize) -> usize {
        (physical - self.base) / FRAME_BYTES
    }

    /// Calls `work` on the buddy and publishes its number of free frames.
    fn with_buddy<R>(&self, work: impl FnOnce(&mut Buddy) -> R) -> R {
        let mut buddy = self.buddy.lock();
        let answer = work(&mut buddy);
        FREE.store(buddy.free_frames(), Ordering::Relaxed);
        answer
    }
}

/// Takes one frame out of this hart's cache, refilling an empty cache.
fn take_frame() -> Option<u32> {
    CACHES.with(|cache| {
        if cache.is_empty() {
            if is_down_to_reserve() {
                return None;
            }
            let table = table();
            let moved = table.with_buddy(|buddy| cache.refill(|| buddy.allocate(table.records, 0)));
            CACHED.fetch_add(moved, Ordering::Relaxed);
        }
        let number = cache.take()?;
        CACHED.fetch_sub(1, Ordering::Relaxed);
        Some(number)
    })
}

/// Puts a frame into this hart's cache, making room in a full one.
fn give_frame(number: u32) {
    CACHES.with(|cache| {
        if cache.is_full() {
            let table = table();
            table.with_buddy(|buddy| cache.drain(|frame| buddy.free(table.records, frame, 0)));
            CACHED.fetch_sub(BATCH, Ordering::Relaxed);
        }
        cache.put(number);
        CACHED.fetch_add(1, Ordering::Relaxed);
    });
}

/// A reference to one frame of memory.
///
/// The contents may change at any time, because a program or a device may use the frame too. So the
/// kernel never makes references to the bytes; it only copies them in and out.
#[derive(Debug)]
pub struct Frame(NonZeroU32);

const _: () = assert!(size_of::<Option<Frame>>() == 4);

impl Frame {
    /// A new frame, all zero.
    pub fn allocate_zeroed() -> Result<Self, OutOfMemory> {
        let frame = Self::allocate()?;
        // SAFETY: the frame is mapped in the direct map, and `allocate` has just returned its only
        // reference, so no program and no device uses it.
        unsafe { arch::clear(frame.bytes(), FRAME_BYTES) };
        Ok(frame)
    }

    /// A new frame that begins with `bytes`; the rest is zero.
    ///
    /// # Panics
    /// If there are more bytes than in a frame.
    pub fn with_bytes(bytes: &[u8]) -> Result<Self, OutOfMemory> {
        assert_within(0, bytes.len());
        let frame = if bytes.len() < FRAME_BYTES {
            Self::allocate_zeroed()?
        } else {
            // All of it is written below.
            Self::allocate()?
        };
        frame.write(0, bytes);
        Ok(frame)
    }

    /// A new frame with its previous contents.
    fn allocate() -> Result<Self, OutOfMemory> {
        if super::heap::is_to_fail() {
            return Err(OutOfMemory);
        }
        let number = take_frame().ok_or(OutOfMemory)?;
        table().records[number as usize].references.reset();
        Ok(Self::from_number(number))
    }

    fn from_number(number: u32) -> Self {
        Self(NonZeroU32::new(number + 1).expect("frame numbers are below u32::MAX"))
    }

    fn number(&self) -> usize {
        self.0.get() as usize - 1
    }

    /// A new frame with the contents of this one, as of some moment during the call.
    pub fn try_copy(&self) -> Result<Self, OutOfMemory> {
        let copy = Self::allocate()?;
        // SAFETY: both frames are mapped in the direct map as long as these references exist, and
        // `allocate` has just returned the only reference to the copy. `copy_shared` permits
        // concurrent writes by others.
        unsafe { arch::copy_shared(copy.bytes(), self.bytes(), FRAME_BYTES) };
        Ok(copy)
    }

    /// The count of references to this frame.
    pub(super) fn references(&self) -> &'static References {
        &table().records[self.number()].references
    }

    /// Whether there is no other reference to the frame.
    pub fn is_only_reference(&self) -> bool {
        self.references().count() == 1
    }

    /// Whether there is exactly one other reference to the frame.
    pub fn is_one_of_two_references(&self) -> bool {
        self.references().count() == 2
    }

    /// The caller is about to drop this reference, which `family` is charged for. Returns whether
    /// the charge is to stay because calls in flight have the frame too: it ends with the last
    /// reference then (decision 16).
    pub fn keep_charged(&self, family: Family) -> bool {
        let record = &table().records[self.number()];
        let is_kept = record.references.keep();
        if is_kept {
            // The last reference is not dropped before this one, which is a Release.
            record.links.set_numbers(family.numbers());
        }
        is_kept
    }

    /// Another reference to the frame at `physical`.
    ///
    /// # Safety
    /// The frame has a reference that is not dropped during this call, such as the one of a page
    /// table's entry.
    pub(super) unsafe fn share_of(physical: usize) -> Self {
        let table = table();
        let number = table.number_at(physical);
        table.records[number].references.add();
        Self::from_number(number as u32)
    }

    /// The count of references to the frame at `physical`.
    pub(super) fn references_at(physical: usize) -> &'static References {
        let table = table();
        &table.records[table.number_at(physical)].references
    }

    /// A reference to the frame at `physical` in the kernel's image.
    ///
    /// # Panics
    /// If that is not in the image.
    pub(super) fn of_image(physical: usize) -> Self {
        assert!(image::physical().contains(&physical), "{physical:#x} is not in the image");
        // SAFETY: the frames of the image are reserved at boot. Their records begin with one
        // reference (`FrameRecord::in_use`), which is never dropped.
        unsafe { Self::share_of(physical) }
    }

    /// A reference to the frame with these bytes, which is common: they never change, so no program
    /// gets the right to write there. `None` if they are not one whole frame.
    pub fn of_constant(bytes: &'static [u8]) -> Option<Self> {
        let address = bytes.as_ptr().addr();
        if bytes.len() != FRAME_BYTES || !address.is_multiple_of(FRAME_BYTES) {
            return None;
        }
        let physical = layout::physical_of(address);
        let is_shared = Self::references_at(physical).share_constant();
        // SAFETY: a frame with bytes that live forever is never freed: it keeps the reference that
        // it had when they were made. `share_constant` has added the one of the result.
        is_shared.then(|| unsafe { Self::from_physical(physical) })
    }

    /// Restores the reference that [`Frame::into_physical`] turned into an address.
    ///
    /// # Safety
    /// `physical` is the result of `into_physical`, and nothing else restores or uses that
    /// reference any more.
    pub(super) unsafe fn from_physical(physical: usize) -> Self {
        let table = table();
        debug_assert!(physical >= table.base && physical.is_multiple_of(FRAME_BYTES));
        Self::from_number(table.number_at(physical) as u32)
    }

    /// Turns this reference into the frame's address, for an entry of a page table, which then owns
    /// it. The frame stays allocated until [`Frame::from_physical`] restores the reference.
    pub(super) fn into_physical(self) -> usize {
        ManuallyDrop::new(self).physical()
    }

    /// The physical address, as devices and page tables use it.
    pub fn physical(&self) -> usize {
        table().base + self.number() * FRAME_BYTES
    }

    pub(super) fn bytes(&self) -> *mut u8 {
        layout::direct(self.physical())
    }

    /// Copies bytes out of the frame.
    ///
    /// # Panics
    /// If `offset + into.len()` is beyond the frame.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert_within(offset, into.len());
        // SAFETY: the frame is mapped in the direct map as long as this reference exists, and the
        // range is within it (checked above). `copy_shared` permits concurrent writes by others.
        unsafe { arch::copy_shared(into.as_mut_ptr(), self.bytes().add(offset), into.len()) };
    }

    /// As [`Self::read`], into memory that need not be initialised. Returns all of it.
    ///
    /// # Panics
    /// As [`Self::read`].
    pub fn read_into<'a>(&self, offset: usize, into: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8] {
        assert_within(offset, into.len());
        // SAFETY: as in `read`, and a store does not need initialised memory. All of `into` is
        // written.
        unsafe {
            arch::copy_shared(into.as_mut_ptr().cast(), self.bytes().add(offset), into.len());
            into.assume_init_mut()
        }
    }

    /// The aligned word at `offset`, which programs may change at any time.
    ///
    /// # Panics
    /// If it is not aligned or beyond the frame.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert_within(offset, size_of::<u32>());
        assert!(offset.is_multiple_of(size_of::<u32>()), "a word at {offset}");
        // SAFETY: the frame is mapped in the direct map as long as this reference exists, and the
        // word is aligned and within it (checked above). What the kernel shares with programs it
        // accesses atomically or through `copy_shared`, and never by another kind of reference.
        unsafe { AtomicU32::from_ptr(self.bytes().add(offset).cast()) }
    }

    /// Copies `length` bytes of `from`, from `start` on, into this frame at `offset`.
    ///
    /// # Panics
    /// If they are not within both frames.
    pub fn copy_from(&self, offset: usize, (from, start): (&Self, usize), length: usize) {
        assert_within(offset, length);
        assert_within(start, length);
        if self.number() == from.number() {
            // Parts of one frame may overlap.
            let mut piece = [0; 256];
            for done in (0..length).step_by(piece.len()) {
                let piece = &mut piece[..(length - done).min(256)];
                from.read(start + done, piece);
                self.write(offset + done, piece);
            }
            return;
        }
        // SAFETY: both frames are mapped in the direct map as long as these references exist, they
        // are different (checked above), and both ranges are within them. Nothing makes Rust
        // references to their bytes, and `copy_shared` permits concurrent accesses by others.
        unsafe {
            arch::copy_shared(self.bytes().add(offset), from.bytes().add(start), length);
        }
    }

    /// Copies bytes into the frame.
    ///
    /// # Panics
    /// If `offset + from.len()` is beyond the frame.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert_within(offset, from.len());
        // SAFETY: the frame is mapped in the direct map as long as this reference exists, and the
        // range is within it (checked above). Nothing makes Rust references to a frame that
        // programs or devices use.
        unsafe { arch::copy_shared(self.bytes().add(offset), from.as_ptr(), from.len()) };
    }
}

#[track_caller]
fn assert_within(offset: usize, length: usize) {
    assert!(
        offset <= FRAME_BYTES && length <= FRAME_BYTES - offset,
        "{length} bytes at {offset} of a frame"
    );
}

impl Clone for Frame {
    fn clone(&self) -> Self {
        self.references().add();
        Self(self.0)
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.references().remove() {
            if self.references().is_kept() {
                release_kept(self.number());
            }
            if JUNK_ON_FREE.load(Ordering::Relaxed) {
                // SAFETY: the count has just become zero, so nothing else uses the frame, and it is
                // not yet in the cache of free frames.
                unsafe { self.bytes().write_bytes(JUNK, FRAME_BYTES) };
            }
            give_frame(self.number() as u32);
        }
    }
}

/// The last reference to a kept frame has gone: its charge ends.
#[cold]
fn release_kept(number: usize) {
    let family = Family::of_numbers(table().records[number].links.numbers());
    quota::release_memory(family, FRAME_BYTES as u64);
}

/// Takes a contiguous block of `2^order` frames, aligned to its size, and returns its physical
/// address. The contents are undefined.
pub(crate) fn allocate_block(order: usize) -> Result<usize, OutOfMemory> {
    if order >= ORDERS {
        return Err(OutOfMemory);
    }
    let table = table();
    let block =
        table.with_buddy(|buddy| buddy.allocate(table.records, order)).ok_or(OutOfMemory)?;
    Ok(table.base + block as usize * FRAME_BYTES)
}

/// Frees a block from [`allocate_block`].
///
/// # Safety
/// The block was allocated with this order and is not used any more.
pub(crate) unsafe fn free_block(physical: usize, order: usize) {
    let table = table();
    let block = ((physical - table.base) / FRAME_BYTES) as u32;
    table.with_buddy(|buddy| buddy.free(table.records, block, order));
}

/// Takes `count` contiguous frames for the kernel itself, if necessary out of the reserve. Returns
/// the physical address of the first frame, which is aligned to their total size rounded up to a
/// power of two. The contents are undefined.
pub(super) fn allocate_run(count: usize) -> Result<usize, OutOfMemory> {
    let table = table();
    if count == 1
        && let Some(number) = take_frame()
    {
        return Ok(table.base + number as usize * FRAME_BYTES);
    }
    let first = table.with_buddy(|buddy| buddy.allocate_run(table.records, count));
    first.map(|first| table.base + first as usize * FRAME_BYTES).ok_or(OutOfMemory)
}

/// Frees frames from [`allocate_run`].
///
/// # Safety
/// They were allocated with this count and are not used any more.
pub(super) unsafe fn free_run(physical: usize, count: usize) {
    let table = table();
    let first = ((physical - table.base) / FRAME_BYTES) as u32;
    match count {
        1 => give_frame(first),
        _ => table.with_buddy(|buddy| buddy.free_range(table.records, first..first + count as u32)),
    }
}

/// The order of the smallest block with at least `bytes` bytes.
pub(crate) const fn order_for(bytes: usize) -> usize {
    buddy::order_for(bytes.div_ceil(FRAME_BYTES))
}
