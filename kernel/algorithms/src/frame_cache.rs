//! A small stack of free frames, so that most allocations of one frame need no lock.
//!
//! Each hart has one. Frames move between it and the allocator behind it (a
//! [`Buddy`](crate::buddy::Buddy)) in batches of [`BATCH`], half of its [`CAPACITY`]. So of `BATCH`
//! successive calls at most one moves a batch and needs the lock, whatever their order, as long as
//! the allocator has frames.

/// Maximum number of frames in a cache.
pub const CAPACITY: usize = 64;

/// How many frames move between a cache and the allocator at a time.
pub const BATCH: usize = CAPACITY / 2;

/// Numbers of free frames, at most [`CAPACITY`].
#[derive(Debug)]
pub struct FrameCache {
    frames: [u32; CAPACITY],
    count: usize,
}

impl FrameCache {
    /// A cache without frames.
    pub const EMPTY: Self = Self { frames: [crate::buddy::NONE; CAPACITY], count: 0 };

    /// Whether it has no frames, so that [`FrameCache::take`] needs a [`FrameCache::refill`] first.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether it has no room, so that [`FrameCache::put`] needs a [`FrameCache::drain`] first.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.count == CAPACITY
    }

    /// Takes the frame that was put in last.
    pub fn take(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        Some(self.frames[self.count])
    }

    /// Puts a frame in.
    ///
    /// # Panics
    /// If the cache is full.
    pub fn put(&mut self, frame: u32) {
        self.frames[self.count] = frame;
        self.count += 1;
    }

    /// Puts in a batch of frames from `allocate`, fewer if that returns `None`. Returns how many.
    /// The cache is empty.
    pub fn refill(&mut self, mut allocate: impl FnMut() -> Option<u32>) -> usize {
        debug_assert!(self.is_empty());
        while self.count < BATCH
            && let Some(frame) = allocate()
        {
            self.frames[self.count] = frame;
            self.count += 1;
        }
        self.count
    }

    /// Takes out a batch of frames and passes each to `free`. The cache is full.
    pub fn drain(&mut self, mut free: impl FnMut(u32)) {
        debug_assert!(self.is_full());
        for _ in 0..BATCH {
            self.count -= 1;
            free(self.frames[self.count]);
        }
    }
}
