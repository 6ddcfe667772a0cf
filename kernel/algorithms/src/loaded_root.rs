//! The root of page tables that a hart has loaded, and which harts must be interrupted when an
//! address space has changed.
//!
//! A hart keeps the root loaded after it has left user mode, together with what its cache has of
//! it. To interrupt another hart and to wait for it takes long. So a hart that runs no program is
//! not interrupted: its root is *withdrawn*, and it loads the root anew before it runs one.
//!
//! | transition | by | what it may meet |
//! | --- | --- | --- |
//! | [`begin_program`](LoadedRoot::begin_program), then [`is_current`](LoadedRoot::is_current) | the hart itself | `must_be_interrupted` |
//! | [`load`](LoadedRoot::load) | the hart itself, if the root is not current | `must_be_interrupted` |
//! | [`end_program`](LoadedRoot::end_program) | the hart itself | `must_be_interrupted` |
//! | [`must_be_interrupted`](LoadedRoot::must_be_interrupted) | a hart that has changed the space | all of these, and itself on another hart |
//!
//! Rules:
//!
//! 1. A hart changes the address space, marks the caches of all harts as out of date, and then asks
//!    here for each hart. A hart that loads the root does so, and then looks whether its cache is
//!    out of date. So at least one of the two sees the other.
//! 2. A hart that begins to run a program may find the root current while it is being withdrawn.
//!    Then it is interrupted, and runs on with the root although that is not current. So whether a
//!    hart has a root does not follow from whether that is current.

use crate::atomic::{AtomicU64, Ordering::*, const_unless_loom, fence};

/// What a hart has loaded; see the module. A root is a number other than 0.
#[derive(Debug)]
pub struct LoadedRoot {
    /// The root in the hart's register.
    active: AtomicU64,
    /// The same while the hart may enter user mode without a flush; 0 after it was withdrawn.
    current: AtomicU64,
    /// Whether the hart runs a program, so that it may be in user mode.
    runs_program: AtomicU64,
}

impl Default for LoadedRoot {
    fn default() -> Self {
        Self::new()
    }
}

impl LoadedRoot {
    const_unless_loom! {
        /// No root, and no program.
        #[must_use]
        pub fn new() -> Self {
            Self {
                active: AtomicU64::new(0),
                current: AtomicU64::new(0),
                runs_program: AtomicU64::new(0),
            }
        }
    }

    /// The hart begins to run a program: from now on flushes wait for it. It looks next whether the
    /// root [is current](Self::is_current).
    pub fn begin_program(&self) {
        self.runs_program.store(1, SeqCst);
        // Before `is_current`: either that sees what a flush has stored, or the flush sees this.
        fence(SeqCst);
    }

    /// The hart has stopped running a program.
    pub fn end_program(&self) {
        self.runs_program.store(0, Release);
    }

    /// Whether `root` is loaded, and was not withdrawn since.
    #[inline]
    #[must_use]
    pub fn is_current(&self, root: u64) -> bool {
        self.current.load(Relaxed) == root
    }

    /// The hart is about to load `root`. It looks next whether its cache is out of date.
    pub fn load(&self, root: u64) {
        self.active.store(root, SeqCst);
        self.current.store(root, SeqCst);
        fence(SeqCst);
    }

    /// Whether the hart has loaded `root`.
    #[must_use]
    pub fn has(&self, root: u64) -> bool {
        self.active.load(SeqCst) == root
    }

    /// Whether the hart runs a program with `root`.
    #[must_use]
    pub fn runs(&self, root: u64) -> bool {
        self.has(root) && self.runs_program.load(SeqCst) != 0
    }

    /// Whether the hart must be interrupted to flush what it has of `root`. Otherwise it does not
    /// have the root, or loads it anew before it runs a program.
    #[must_use]
    pub fn must_be_interrupted(&self, root: u64) -> bool {
        // After the caches were marked: partner of the fence in `load`.
        fence(SeqCst);
        self.has(root) && !self.withdraw(root)
    }

    fn withdraw(&self, root: u64) -> bool {
        let runs_program = || self.runs_program.load(SeqCst) != 0;
        if runs_program() {
            return false;
        }
        // It fails if another flush has done so, or the hart loads another root.
        let _ = self.current.compare_exchange(root, 0, SeqCst, SeqCst);
        // Partner of the fence in `begin_program`.
        fence(SeqCst);
        // The hart may have begun before the exchange, and have found the root current.
        !runs_program()
    }
}
