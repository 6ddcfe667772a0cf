//! The personality of a process: which system calls it makes, and what the kernel keeps for it
//! because of that (SPEC, appendix A; decision 27).
#![forbid(unsafe_code)]

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spin::Mutex;

/// What a program was built for.
pub enum Personality {
    /// This kernel.
    Native,
    /// Linux.
    Linux(Linux),
}

/// What the kernel keeps for a Linux program.
pub struct Linux {
    /// From the start of the heap that `brk` moves the end of, to that end.
    pub heap: Mutex<Range<usize>>,
    unknown_calls: UnknownCalls,
}

impl Personality {
    /// Linux, for a program of which the segments end at `end`.
    pub fn linux(end: usize) -> Self {
        let unknown_calls = UnknownCalls([const { AtomicU64::new(0) }; UnknownCalls::WORDS]);
        Self::Linux(Linux { heap: Mutex::new(end..end), unknown_calls })
    }

    /// That of a copy of the process.
    pub fn copy(&self) -> Self {
        match self {
            Self::Native => Self::Native,
            Self::Linux(linux) => {
                let copy = Self::linux(0);
                if let Self::Linux(copy) = &copy {
                    *copy.heap.lock() = linux.heap.lock().clone();
                    let calls = copy.unknown_calls.0.iter().zip(&linux.unknown_calls.0);
                    calls.for_each(|(copy, bits)| copy.store(bits.load(Relaxed), Relaxed));
                }
                copy
            }
        }
    }

    /// Whether it is Linux.
    #[inline]
    pub fn is_linux(&self) -> bool {
        matches!(self, Self::Linux(_))
    }

    /// What the kernel keeps for a Linux program.
    pub fn as_linux(&self) -> Option<&Linux> {
        match self {
            Self::Native => None,
            Self::Linux(linux) => Some(linux),
        }
    }
}

impl Linux {
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
