//! For clients: which matrices are sent, and whether an answer is correct.
//!
//! Checking must be cheap; otherwise the client would be the bottleneck. And no two requests may be
//! equal; otherwise a server that answers from the wrong buffer would pass. So there is a pool of
//! random matrices with their squares, computed once, and each request adds a number `t` to the
//! element at (0, 0). With `E` the matrix that is 1 there and 0 elsewhere,
//!
//! ```text
//! (A + tE)² = A² + t(AE + EA) + t²E
//! ```
//!
//! differs from the known A² only in the first row and column. A check compares n² words and
//! computes 2n; nothing is multiplied twice.
//!
//! The `f64` matrices contain whole numbers that are not zero and so small that every sum is exact:
//! so the product is the same in every bit, in whatever order a server adds, fused or not.

use alloc::vec;
use alloc::vec::Vec;

use crate::{Direction, Header, Operation, Side, perform};

/// Number of matrices in the pool. Consecutive requests of a connection use consecutive ones.
const POOL: u64 = 16;
/// Largest absolute value of a whole number in an `f64` matrix: 128 * (2 * 2¹⁶)² < 2⁵³.
const F64_MAGNITUDE: u64 = 1 << 16;

struct PoolEntry {
    matrix: Vec<u64>,
    square: Vec<u64>,
}

/// All that is sent in a run, as a function of connection and request number.
pub struct Workload {
    operation: Operation,
    side: Side,
    seed: u64,
    pool: Vec<PoolEntry>,
}

impl Workload {
    /// Fills the pool: 2 n² words for each of 16 matrices, at most 4 MiB.
    #[must_use]
    pub fn new(operation: Operation, side: Side, seed: u64) -> Self {
        let pool = (0..POOL).map(|at| PoolEntry::new(operation, side, mix(seed, at))).collect();
        Self { operation, side, seed, pool }
    }

    /// The matrices' side.
    #[must_use]
    pub fn side(&self) -> Side {
        self.side
    }

    /// The header of a request. Sequence numbers begin at a different value for each connection, so
    /// that an answer on the wrong connection is detected.
    #[must_use]
    pub fn header(&self, connection: u32, class: u8, request: u64) -> Header {
        let first_sequence = mix(self.seed ^ 0x5eed, connection.into()) as u32;
        Header {
            class,
            operation: self.operation,
            direction: Direction::Request,
            side: self.side,
            sequence: first_sequence.wrapping_add(request as u32),
        }
    }

    /// Writes the elements of a request.
    ///
    /// # Panics
    ///
    /// If `body` does not have n² words.
    pub fn write_body(&self, connection: u32, request: u64, body: &mut [u64]) {
        let (entry, t) = self.choose(connection, request);
        body.copy_from_slice(&entry.matrix);
        body[0] = match self.operation {
            Operation::MultiplyF64 => float(from_float(body[0]) + t as f64),
            Operation::MultiplyU64 | Operation::Echo => {
                u64::from_le(body[0]).wrapping_add(t).to_le()
            }
        };
    }

    /// Checks that `body` (n² words) is the answer to that request.
    ///
    /// # Errors
    ///
    /// Index of the first wrong element, row major.
    pub fn check(&self, connection: u32, request: u64, body: &[u64]) -> Result<(), usize> {
        let (entry, t) = self.choose(connection, request);
        let side = usize::from(self.side.get());
        let matrix = &entry.matrix;
        let expected = |at: usize| {
            let (row, column) = (at / side, at % side);
            let square = entry.square[at];
            match self.operation {
                Operation::Echo if at == 0 => u64::from_le(matrix[0]).wrapping_add(t).to_le(),
                Operation::Echo => matrix[at],
                _ if row > 0 && column > 0 => square,
                Operation::MultiplyU64 => {
                    let added = if at == 0 {
                        t.wrapping_mul(u64::from_le(matrix[0]).wrapping_mul(2).wrapping_add(t))
                    } else {
                        t.wrapping_mul(u64::from_le(matrix[at]))
                    };
                    u64::from_le(square).wrapping_add(added).to_le()
                }
                Operation::MultiplyF64 => {
                    let t = t as f64;
                    let element = from_float(matrix[at]);
                    float(
                        from_float(square)
                            + if at == 0 { t * (2.0 * element + t) } else { t * element },
                    )
                }
            }
        };
        // The rows below the first are compared as slices except for their first element.
        let known = if self.operation == Operation::Echo { matrix } else { &entry.square };
        for row in 0..side {
            let start = row * side;
            let computed = if row == 0 { start..start + side } else { start..start + 1 };
            let compared = computed.end..start + side;
            if let Some(at) = computed.clone().find(|at| body[*at] != expected(*at)) {
                return Err(at);
            }
            if body[compared.clone()] != known[compared.clone()] {
                return Err(compared
                    .clone()
                    .find(|at| body[*at] != known[*at])
                    .unwrap_or(compared.start));
            }
        }
        Ok(())
    }

    /// Pool entry and `t` of a request.
    fn choose(&self, connection: u32, request: u64) -> (&PoolEntry, u64) {
        let at = (u64::from(connection).wrapping_mul(7).wrapping_add(request) % POOL) as usize;
        let random = mix(self.seed ^ u64::from(connection).rotate_left(32), request);
        let t =
            if self.operation == Operation::MultiplyF64 { random % F64_MAGNITUDE } else { random };
        (&self.pool[at], t)
    }
}

impl PoolEntry {
    fn new(operation: Operation, side: Side, seed: u64) -> Self {
        let element = |at: usize| {
            let random = mix(seed, at as u64);
            if operation != Operation::MultiplyF64 {
                return random.to_le();
            }
            // Never zero, and positive at (0, 0), where t is added: a product of zeros could be -0
            // for one server and +0 for another.
            let magnitude = (random % F64_MAGNITUDE + 1) as f64;
            float(if at > 0 && random >> 63 == 1 { -magnitude } else { magnitude })
        };
        let matrix: Vec<u64> = (0..side.elements()).map(element).collect();
        let mut square = vec![0; side.elements()];
        perform(operation, side, &matrix, &mut square).expect("both have n² words");
        Self { matrix, square }
    }
}

fn float(value: f64) -> u64 {
    value.to_bits().to_le()
}

fn from_float(word: u64) -> f64 {
    f64::from_bits(u64::from_le(word))
}

/// A pseudo-random function of two numbers (the finalizer of SplitMix64).
#[must_use]
pub fn mix(seed: u64, number: u64) -> u64 {
    let mut word = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATIONS: [Operation; 3] =
        [Operation::MultiplyU64, Operation::MultiplyF64, Operation::Echo];

    /// The answer of a correct server, computed directly.
    fn answer(workload: &Workload, connection: u32, request: u64) -> Vec<u64> {
        let mut body = vec![0; workload.side.elements()];
        workload.write_body(connection, request, &mut body);
        let mut answer = vec![0; body.len()];
        perform(workload.operation, workload.side, &body, &mut answer).unwrap();
        answer
    }

    #[test]
    fn the_shortcut_agrees_with_multiplying() {
        for operation in OPERATIONS {
            for side in [1, 2, 3, 15, 31, 128] {
                let workload = Workload::new(operation, Side::new(side).unwrap(), 7);
                for (connection, request) in [(0, 0), (0, 1), (3, 17), (u32::MAX, u64::MAX)] {
                    let answer = answer(&workload, connection, request);
                    assert_eq!(
                        workload.check(connection, request, &answer),
                        Ok(()),
                        "{operation:?} {side}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_wrong_element_is_found_where_it_is() {
        for operation in OPERATIONS {
            let workload = Workload::new(operation, Side::new(4).unwrap(), 7);
            for at in 0..16 {
                let mut answer = answer(&workload, 2, 5);
                answer[at] ^= 1 << (at * 4);
                assert_eq!(workload.check(2, 5, &answer), Err(at));
            }
        }
    }

    #[test]
    fn answers_to_other_requests_are_wrong() {
        for operation in OPERATIONS {
            let workload = Workload::new(operation, Side::new(2).unwrap(), 7);
            for (connection, request) in [(0, 1), (0, 16), (1, 0), (16, 0)] {
                assert!(workload.check(0, 0, &answer(&workload, connection, request)).is_err());
            }
            assert_ne!(workload.header(0, 0, 0).sequence, workload.header(1, 0, 0).sequence);
        }
    }

    #[test]
    fn f64_squares_do_not_depend_on_the_order_of_summation() {
        let side = Side::new(128).unwrap();
        let workload = Workload::new(Operation::MultiplyF64, side, 3);
        let mut body = vec![0; side.elements()];
        workload.write_body(0, 0, &mut body);
        let backwards_and_fused: Vec<u64> = (0..side.elements())
            .map(|at| {
                let product = |k: usize| {
                    (from_float(body[at / 128 * 128 + k]), from_float(body[k * 128 + at % 128]))
                };
                let sum = (0..128)
                    .rev()
                    .map(product)
                    .fold(0.0_f64, |sum, (left, right)| left.mul_add(right, sum));
                float(sum)
            })
            .collect();
        assert_eq!(workload.check(0, 0, &backwards_and_fused), Ok(()));
    }
}
