//! The personality of a process: which system calls it makes, and what the kernel keeps for it
//! because of that (SPEC, appendix A; decision 27).
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use cops_abi::Errno;
use cops_fallible::try_box;
use spin::Mutex;

use super::signals::Signals;

/// What the program of a process was built for: this kernel, or Linux. It changes when the process
/// executes another program.
pub struct Personality {
    is_linux: AtomicBool,
    /// Empty for a native program.
    linux: Linux,
}

/// What the kernel keeps for a Linux program.
pub struct Linux {
    /// From the start of the heap that `brk` moves the end of, to that end.
    pub heap: Mutex<Range<usize>>,
    /// Its signals; `None` while the program is a native one.
    pub signals: Mutex<Option<Box<Signals>>>,
    unknown_calls: UnknownCalls,
}

impl Personality {
    /// Linux, for a program of which the segments end at `end`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn linux(end: usize) -> Result<Self, Errno> {
        let linux = Linux::new(end..end);
        *linux.signals.lock() = Some(try_box(Signals::default())?);
        Ok(Self { is_linux: AtomicBool::new(true), linux })
    }

    /// This kernel.
    pub fn native() -> Self {
        Self { is_linux: AtomicBool::new(false), linux: Linux::new(0..0) }
    }

    /// That of a copy of the process, for which no signal waits.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn copy(&self) -> Result<Self, Errno> {
        let linux = Linux::new(self.linux.heap.lock().clone());
        let calls = linux.unknown_calls.0.iter().zip(&self.linux.unknown_calls.0);
        calls.for_each(|(copy, bits)| copy.store(bits.load(Relaxed), Relaxed));
        if let Some(signals) = &*self.linux.signals.lock() {
            let dispositions = signals.dispositions.clone();
            let copy = Signals { dispositions, ..Signals::default() };
            *linux.signals.lock() = Some(try_box(copy)?);
        }
        Ok(Self { is_linux: AtomicBool::new(self.is_linux()), linux })
    }

    /// The process executes a program with this personality.
    pub fn become_other(&self, other: Self) {
        self.is_linux.store(other.is_linux(), Relaxed);
        *self.linux.heap.lock() = other.linux.heap.into_inner();
        let mut signals = self.linux.signals.lock();
        match (&mut *signals, other.linux.signals.into_inner()) {
            // Signals that wait still wait.
            (Some(mine), Some(_)) => mine.dispositions.forget_handlers(),
            (mine, theirs) => *mine = theirs,
        }
        drop(signals);
        self.linux.unknown_calls.0.iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Whether it is Linux.
    #[inline]
    pub fn is_linux(&self) -> bool {
        self.is_linux.load(Relaxed)
    }

    /// What the kernel keeps for a Linux program.
    pub fn as_linux(&self) -> Option<&Linux> {
        self.is_linux().then_some(&self.linux)
    }
}

impl Linux {
    fn new(heap: Range<usize>) -> Self {
        let unknown_calls = UnknownCalls([const { AtomicU64::new(0) }; UnknownCalls::WORDS]);
        Self { heap: Mutex::new(heap), signals: Mutex::new(None), unknown_calls }
    }

    /// Whether the program makes the unknown call with this number for the first time. All numbers
    /// that are too large to be Linux's count as one.
    pub fn is_new_unknown_call(&self, number: usize) -> bool {
        let number = number.min(UnknownCalls::LAST);
        let bit = 1 << (number % 64);
        self.unknown_calls.0[number / 64].fetch_or(bit, Relaxed) & bit == 0
    }
}

/// A bit for each number of an unknown call that was logged.
struct UnknownCalls([AtomicU64; Self::WORDS]);

impl UnknownCalls {
    const WORDS: usize = 8;
    /// The last bit, which stands for all larger numbers.
    const LAST: usize = Self::WORDS * 64 - 1;
}
