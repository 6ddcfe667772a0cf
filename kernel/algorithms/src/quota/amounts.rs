//! What is counted: kinds of resources, and an amount of each kind.

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// Bytes of memory.
    Memory = 0,
    /// Processes. A process counts until it has been waited for.
    Processes = 1,
    /// Calls in flight.
    Calls = 2,
    /// Open files.
    Descriptors = 3,
    /// Virtual CPUs.
    Cpus = 4,
    /// Ports of TCP and UDP.
    Ports = 5,
}

impl Kind {
    /// The kinds, in the order of their numbers.
    pub(super) const ALL: [Self; KINDS] =
        [Self::Memory, Self::Processes, Self::Calls, Self::Descriptors, Self::Cpus, Self::Ports];
}

/// Number of kinds.
pub const KINDS: usize = 6;

/// An amount of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts(pub [u64; KINDS]);

impl Amounts {
    /// `amount` of one kind, and 0 of the others.
    #[must_use]
    pub const fn of(kind: Kind, amount: u64) -> Self {
        Self([0; KINDS]).and(kind, amount)
    }

    /// The same amounts, but with `amount` of `kind`.
    #[must_use]
    pub const fn and(mut self, kind: Kind, amount: u64) -> Self {
        self.0[kind as usize] = amount;
        self
    }

    /// The amount of `kind`.
    #[must_use]
    pub const fn get(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// Whether all amounts are 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; KINDS]
    }

    /// Adds `more`.
    pub fn add(&mut self, more: &Self) {
        for (mine, more) in self.0.iter_mut().zip(more.0) {
            *mine = mine.saturating_add(more);
        }
    }

    /// Subtracts `less`.
    pub fn subtract(&mut self, less: &Self) {
        for (mine, less) in self.0.iter_mut().zip(less.0) {
            debug_assert!(*mine >= less);
            *mine = mine.saturating_sub(less);
        }
    }
}
