//! Summary of many measurements.

use alloc::vec::Vec;

/// Sorted measurements.
pub struct Summary {
    sorted: Vec<u64>,
}

impl Summary {
    pub fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        Self { sorted: values }
    }

    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The smallest value that this many thousandths of all values do not exceed; 0 if there are
    /// none.
    pub fn at(&self, thousandths: usize) -> u64 {
        let rank = (self.sorted.len() * thousandths).div_ceil(1000).max(1);
        self.sorted.get(rank - 1).copied().unwrap_or(0)
    }

    /// Prints a line for one operation, with all numbers in instructions.
    pub fn print_cost(&self, operation: &str) {
        cops::println!(
            "cost: op={operation} count={} min={} p50={} p99={} max={}",
            self.count(),
            self.at(0),
            self.at(500),
            self.at(990),
            self.at(1000)
        );
    }
}
