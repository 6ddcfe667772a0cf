//! Memory in a static for the executor itself, and hooks over it: starting without an allocator and
//! without `unsafe`.
//!
//! Unsafe: handing out parts of the bytes. Each part is handed out once, since `used` only grows
//! past it.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::ptr;

use super::executor::Executor;
use super::outcome::StartError;
use crate::core::Hooks;
use crate::core::atomic::unmodelled::{AtomicBool, AtomicU32, Ordering};

const ALIGNMENT: usize = 64;

/// Memory of an executor: for its workers and for the control blocks of its coroutines. Their
/// futures are not in it.
///
/// [`memory_for`](crate::memory_for) says how much is needed.
///
/// ```
/// use cops_executor::{Executor, Priority, SpawnError, StaticMemory, StaticTask, WorkerState, memory_for};
///
/// static EXECUTOR: Executor = Executor::new();
/// static WORKER: WorkerState = WorkerState::new();
/// // One worker, ten coroutines at once.
/// static MEMORY: StaticMemory<{ memory_for(1, 10) }> = StaticMemory::new();
/// static TASK: StaticTask<8> = StaticTask::new();
///
/// EXECUTOR.start_static(&MEMORY, |_worker| { /* make it return from its sleep */ })?;
/// EXECUTOR.add_worker(0, &WORKER)?;
/// EXECUTOR.spawn_static(&TASK, async {}, Priority::DEFAULT)?;
/// EXECUTOR.run_until_stalled(0);
/// assert!(!TASK.is_occupied());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// All zeroes at first, so a static of it is no part of a program's image.
#[repr(C, align(64))]
pub struct StaticMemory<const BYTES: usize> {
    bytes: UnsafeCell<[u8; BYTES]>,
    used: AtomicU32,
    taken: AtomicBool,
    /// Written by the thread that has set `taken`, before the executor is started.
    notify: UnsafeCell<Option<fn(u32)>>,
}

// SAFETY: `used` says which bytes have been handed out; those belong to the executor; `notify` is
// not written once it can be read.
unsafe impl<const BYTES: usize> Sync for StaticMemory<BYTES> {}

impl<const BYTES: usize> StaticMemory<BYTES> {
    /// Memory of which nothing is used.
    ///
    /// ```
    /// # use cops_executor::{StaticMemory, memory_for};
    /// static MEMORY: StaticMemory<{ memory_for(1, 15) }> = StaticMemory::new();
    /// assert_eq!(MEMORY.used(), 0);
    /// ```
    pub const fn new() -> Self {
        StaticMemory {
            bytes: UnsafeCell::new([0; BYTES]),
            used: AtomicU32::new(0),
            taken: AtomicBool::new(false),
            notify: UnsafeCell::new(None),
        }
    }

    /// How many bytes the executor has taken.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::{Executor, StaticMemory, WorkerState, memory_for};
    /// static EXECUTOR: Executor = Executor::new();
    /// static WORKER: WorkerState = WorkerState::new();
    /// static MEMORY: StaticMemory<{ memory_for(1, 15) }> = StaticMemory::new();
    /// EXECUTOR.start_static(&MEMORY, |_worker| ())?;
    /// EXECUTOR.add_worker(0, &WORKER)?;
    /// assert!(MEMORY.used() > 0 && MEMORY.used() <= memory_for(1, 15));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed) as usize
    }

    /// Bytes for this caller alone, zeroed, aligned to 64; null if there are not so many.
    fn take(&self, bytes: usize) -> *mut u8 {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let after = (used as usize).saturating_add(bytes.next_multiple_of(ALIGNMENT));
            let (true, Ok(next)) = (after <= BYTES, u32::try_from(after)) else {
                return ptr::null_mut();
            };
            match self.used.compare_exchange_weak(used, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                // In bounds: `used` is at most `after`.
                Ok(_) => return self.bytes.get().cast::<u8>().wrapping_add(used as usize),
                Err(now) => used = now,
            }
        }
    }
}

impl<const BYTES: usize> Default for StaticMemory<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

/// # Safety
///
/// `context` points to a `StaticMemory<BYTES>` that lives for ever.
unsafe extern "C" fn grow<const BYTES: usize>(context: *mut (), bytes: usize) -> *mut u8 {
    // SAFETY: by contract the context is a `StaticMemory<BYTES>` that lives for ever.
    unsafe { &*context.cast::<StaticMemory<BYTES>>() }.take(bytes)
}

/// Two workers, or one and an interrupt handler, have wanted the same memory at once. Happens once
/// in an executor's life, or never: not worth a list.
unsafe extern "C" fn release(_: *mut (), _: *mut u8, _: usize) {}

/// # Safety
///
/// As `grow`, and `notify` is not written any more.
unsafe extern "C" fn notify<const BYTES: usize>(context: *mut (), worker: u32) {
    // SAFETY: by contract the context is a `StaticMemory<BYTES>` that lives for ever, and `notify`
    // is only read from now on.
    if let Some(notify) = unsafe { *(*context.cast::<StaticMemory<BYTES>>()).notify.get() } {
        notify(worker);
    }
}

impl Executor {
    /// Starts it on memory of its own: ids lead to it from now on.
    ///
    /// `notify_worker` makes the worker of that number return from its sleep, or not begin it (see
    /// [`prepare_park`](Executor::prepare_park)). It may be called in interrupt handlers, and must
    /// not block. Where there is one worker, which sleeps with interrupts masked until one is
    /// pending, it has nothing to do.
    ///
    /// # Errors
    ///
    /// [`StartError::MemoryTaken`] if another executor was given this memory, or is being started
    /// on it; and as [`start`](Executor::start). After an error the memory is as before.
    ///
    /// ```
    /// use cops_executor::{Executor, StartError, StaticMemory, memory_for};
    /// static EXECUTOR: Executor = Executor::new();
    /// static MEMORY: StaticMemory<{ memory_for(1, 15) }> = StaticMemory::new();
    /// EXECUTOR.start_static(&MEMORY, |_worker| ())?;
    /// assert_eq!(EXECUTOR.start_static(&MEMORY, |_worker| ()), Err(StartError::MemoryTaken));
    /// # Ok::<(), StartError>(())
    /// ```
    pub fn start_static<const BYTES: usize>(
        &'static self,
        memory: &'static StaticMemory<BYTES>,
        notify_worker: fn(u32),
    ) -> Result<(), StartError> {
        if memory.taken.swap(true, Ordering::Acquire) {
            return Err(StartError::MemoryTaken);
        }
        // SAFETY: we alone have set `taken`, and no hooks lead here yet.
        unsafe { *memory.notify.get() = Some(notify_worker) };
        let hooks = Hooks {
            context: ptr::from_ref(memory).cast_mut().cast(),
            grow: grow::<BYTES>,
            release,
            notify: notify::<BYTES>,
            preempt: None,
            external: None,
            relax: None,
        };
        // SAFETY: `grow` hands out zeroed bytes of a static, aligned (the type is, and every part's
        // size is made a multiple), each once; `release` and `notify` touch nothing else.
        let result = unsafe { self.start(&hooks) };
        if result.is_err() {
            // The hooks were not kept, so nothing uses the memory or calls `notify`.
            memory.taken.store(false, Ordering::Release);
        }
        result
    }
}
