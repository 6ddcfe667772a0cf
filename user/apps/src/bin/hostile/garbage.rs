//! Reproducible pseudo-random numbers, with a preference for values that are likely to cause harm.

/// A xorshift64 generator.
pub struct Garbage(u64);

impl Garbage {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number less than `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Any value; often a limit, a small number, a single bit, an address of this program or of the
    /// kernel, or a value that looks like a coroutine's id.
    pub fn nasty(&mut self) -> u64 {
        const EDGES: [u64; 10] = [
            0,
            1,
            u64::MAX,
            1 << 63,
            i64::MAX as u64,
            u32::MAX as u64,
            1 << 31,
            0xffff_ffc0_8020_0000, // the kernel's code
            0xffff_fff0_0000_0000, // the kernel's stacks
            cops::abi::layout::PROCESS_PAGE as u64,
        ];
        match self.below(8) {
            0 | 1 => EDGES[self.below(EDGES.len() as u64) as usize],
            2 => self.below(600),
            3 => 1 << self.below(64),
            4 => (Self::new as *const () as u64).wrapping_add(self.below(4096)),
            5 => (1 + self.below(3)) << 32 | self.below(64),
            _ => self.next(),
        }
    }
}
