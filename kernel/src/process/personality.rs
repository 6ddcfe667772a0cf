//! The personality of a process: which system calls it makes, and what the kernel keeps for it
//! because of that (SPEC, appendix A; decision 27).
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use cops_abi::Errno;
use cops_fallible::try_box;
use cops_lock::Mutex;

use super::alarm::Alarm;
use super::limits::ResourceLimits;
use super::signals::Signals;
use super::tutorial::Tutorial;

/// What a program was built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// This kernel.
    Native,
    /// Linux.
    Linux,
    /// The kernel of rCore-Tutorial-v3.
    Tutorial,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Native, Self::Linux, Self::Tutorial];

    /// The kind with this name in lower case.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "native" => Some(Self::Native),
            "linux" => Some(Self::Linux),
            "tutorial" => Some(Self::Tutorial),
            _ => None,
        }
    }
}

/// What the program of a process was built for, and what is kept because of that. It changes when
/// the process executes another program.
pub struct Personality {
    /// A [`Kind`].
    kind: AtomicU8,
    /// Empty for other programs.
    linux: Linux,
    /// The threads and objects of a program of the tutorial, once it has asked for one.
    pub(super) tutorial: Mutex<Option<Box<Tutorial>>>,
}

/// What the kernel keeps for a Linux program.
pub struct Linux {
    /// From the start of the heap that `brk` moves the end of, to that end.
    pub heap: Mutex<Range<usize>>,
    /// Its signals; `None` while the program is a native one.
    pub signals: Mutex<Option<Box<Signals>>>,
    /// Its alarm, once it has set one.
    pub alarm: Mutex<Option<Box<Alarm>>>,
    /// Its limits, which a program that it executes has too, once it has set one.
    pub limits: Mutex<Option<Box<ResourceLimits>>>,
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
        Ok(Self::new(Kind::Linux, linux))
    }

    /// This kernel.
    pub fn native() -> Self {
        Self::new(Kind::Native, Linux::new(0..0))
    }

    /// The tutorial's kernel.
    pub fn tutorial() -> Self {
        Self::new(Kind::Tutorial, Linux::new(0..0))
    }

    fn new(kind: Kind, linux: Linux) -> Self {
        Self { kind: AtomicU8::new(kind as u8), linux, tutorial: Mutex::new(None) }
    }

    /// That of a copy of the process, for which no signal waits, and which has none of the threads
    /// and objects of a program of the tutorial.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn copy(&self) -> Result<Self, Errno> {
        let linux = Linux::new(self.linux.heap.lock().clone());
        let calls = linux.unknown_calls.0.iter().zip(&self.linux.unknown_calls.0);
        calls.for_each(|(copy, bits)| copy.store(bits.load(Relaxed), Relaxed));
        let limits = self.linux.limits.lock().as_deref().cloned();
        *linux.limits.lock() = limits.map(try_box).transpose()?;
        if let Some(signals) = &*self.linux.signals.lock() {
            let dispositions = signals.dispositions.clone();
            let copy = Signals { dispositions, ..Signals::default() };
            *linux.signals.lock() = Some(try_box(copy)?);
        }
        Ok(Self::new(self.kind(), linux))
    }

    /// The process executes a program with this personality.
    pub fn become_other(&self, other: Self) {
        self.kind.store(other.kind.into_inner(), Relaxed);
        *self.tutorial.lock() = other.tutorial.into_inner();
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

    /// What the program was built for.
    #[inline]
    pub fn kind(&self) -> Kind {
        Kind::ALL.get(usize::from(self.kind.load(Relaxed))).copied().unwrap_or(Kind::Native)
    }

    /// Whether it is this kernel.
    #[inline]
    pub fn is_native(&self) -> bool {
        self.kind.load(Relaxed) == Kind::Native as u8
    }

    /// Whether it is Linux.
    #[inline]
    pub fn is_linux(&self) -> bool {
        self.kind.load(Relaxed) == Kind::Linux as u8
    }

    /// The result of a call as the program expects it: all errors are one for the tutorial's.
    #[inline]
    pub fn result(&self, result: isize) -> isize {
        if result < 0 && self.kind() == Kind::Tutorial { -1 } else { result }
    }

    /// What the kernel keeps for a Linux program.
    pub fn as_linux(&self) -> Option<&Linux> {
        self.is_linux().then_some(&self.linux)
    }
}

impl Linux {
    fn new(heap: Range<usize>) -> Self {
        let unknown_calls = UnknownCalls([const { AtomicU64::new(0) }; UnknownCalls::WORDS]);
        let limits = Mutex::new(None);
        let (signals, alarm) = (Mutex::new(None), Mutex::new(None));
        Self { heap: Mutex::new(heap), signals, alarm, limits, unknown_calls }
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
