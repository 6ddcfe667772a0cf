//! Squaring a matrix in wire words. The result is exact to the bit on both ends, and the function
//! takes few instructions, because it is the main work of the service.

use crate::{Operation, Side};

/// The slices given do not hold `n²` words each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeMismatch;

impl core::fmt::Display for SizeMismatch {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("matrix and product must hold n² words each")
    }
}

impl core::error::Error for SizeMismatch {}

/// Performs a request: `answer` becomes the square of `request`, or its copy. Both contain only the
/// elements, in wire representation.
///
/// # Errors
///
/// [`SizeMismatch`] unless both have exactly `side.elements()` words; `answer` is unchanged.
pub fn perform(
    operation: Operation,
    side: Side,
    request: &[u64],
    answer: &mut [u64],
) -> Result<(), SizeMismatch> {
    match operation {
        Operation::MultiplyU64 => multiply_square::<WrappingU64>(request, answer, side),
        Operation::MultiplyF64 => multiply_square::<IeeeF64>(request, answer, side),
        Operation::Echo if request.len() != side.elements() || answer.len() != side.elements() => {
            Err(SizeMismatch)
        }
        Operation::Echo => {
            answer.copy_from_slice(request);
            Ok(())
        }
    }
}

/// Performs a request in its own memory, if its matrix is small enough to be copied into registers:
/// `elements` becomes the square. False if it is not, and nothing has happened.
///
/// Each of the small sizes has code of its own, with no loop and no slice.
#[must_use]
pub fn perform_in_place(operation: Operation, elements: &mut [u64]) -> bool {
    match operation {
        Operation::MultiplyU64 => square_in_place::<WrappingU64>(elements),
        Operation::MultiplyF64 => square_in_place::<IeeeF64>(elements),
        Operation::Echo => true,
    }
}

fn square_in_place<A: Arithmetic>(elements: &mut [u64]) -> bool {
    match elements.len() {
        1 => square_of_side::<A, 1>(elements),
        _ => square_of_several::<A>(elements),
    }
}

/// Apart: the larger ones use all registers, which the caller would save for each size.
#[inline(never)]
fn square_of_several<A: Arithmetic>(elements: &mut [u64]) -> bool {
    match elements.len() {
        4 => square_of_side::<A, 2>(elements),
        9 => square_of_side::<A, 3>(elements),
        16 => square_of_side::<A, 4>(elements),
        _ => false,
    }
}

/// False if there are not as many elements as belong to `SIDE`.
#[inline(always)]
fn square_of_side<A: Arithmetic, const SIDE: usize>(elements: &mut [u64]) -> bool {
    let (rows, _) = elements.as_chunks_mut::<SIDE>();
    let Some(product) = rows.first_chunk_mut::<SIDE>() else { return false };
    let matrix = *product;
    for (row, sums) in matrix.iter().zip(product) {
        *sums = [0; SIDE];
        for (left, other_row) in row.iter().zip(&matrix) {
            for (sum, right) in sums.iter_mut().zip(other_row) {
                *sum = A::multiply_add(*sum, u64::from_le(*left), u64::from_le(*right));
            }
        }
        *sums = sums.map(u64::to_le);
    }
    true
}

/// Multiplication and addition of two elements in the machine's byte order.
pub trait Arithmetic {
    /// `sum + left * right`. Zero is the word 0.
    fn multiply_add(sum: u64, left: u64, right: u64) -> u64;
}

/// Modulo 2⁶⁴.
pub struct WrappingU64;

impl Arithmetic for WrappingU64 {
    #[inline(always)]
    fn multiply_add(sum: u64, left: u64, right: u64) -> u64 {
        sum.wrapping_add(left.wrapping_mul(right))
    }
}

/// Words are the bits of an `f64`. Product and sum are rounded separately, because the result of a
/// fused operation would depend on the machine.
pub struct IeeeF64;

impl Arithmetic for IeeeF64 {
    #[inline(always)]
    fn multiply_add(sum: u64, left: u64, right: u64) -> u64 {
        (f64::from_bits(sum) + f64::from_bits(left) * f64::from_bits(right)).to_bits()
    }
}

/// Writes `matrix * matrix` to `product` with 2 n³ operations.
///
/// The product is computed in strips of eight columns, one cache line wide. A strip of one row is
/// eight sums in registers while `k` runs down the matrix, so an element of the left factor is
/// loaded once for eight products, and the inner loop stores nothing. (The row-by-row order i-k-j
/// loads and stores every sum `n` times; i-j-k strides by rows.)
///
/// # Errors
///
/// [`SizeMismatch`] unless both have exactly `side.elements()` words; `product` is unchanged.
pub fn multiply_square<A: Arithmetic>(
    matrix: &[u64],
    product: &mut [u64],
    side: Side,
) -> Result<(), SizeMismatch> {
    if matrix.len() != side.elements() || product.len() != side.elements() {
        return Err(SizeMismatch);
    }
    let side = usize::from(side.get());
    for (row, product_row) in matrix.chunks_exact(side).zip(product.chunks_exact_mut(side)) {
        let mut strips = product_row.chunks_exact_mut(8);
        let mut column = 0;
        for strip in strips.by_ref() {
            strip_of_row::<A, 8>(matrix, row, column, strip);
            column += 8;
        }
        // The rest is narrower than eight columns: four, two and one column, as needed.
        let rest = strips.into_remainder();
        let (four, rest) = rest.split_at_mut(rest.len() & 4);
        let (two, one) = rest.split_at_mut(rest.len() & 2);
        strip_of_row::<A, 4>(matrix, row, column, four);
        strip_of_row::<A, 2>(matrix, row, column + four.len(), two);
        strip_of_row::<A, 1>(matrix, row, column + four.len() + two.len(), one);
    }
    Ok(())
}

/// Computes `strip[c] = Σₖ row[k] * matrix[k][first_column + c]` for `WIDTH` columns or, when
/// `strip` is empty, none. `k` ascends, as [`Operation::MultiplyF64`] requires.
#[inline(always)]
fn strip_of_row<A: Arithmetic, const WIDTH: usize>(
    matrix: &[u64],
    row: &[u64],
    first_column: usize,
    strip: &mut [u64],
) {
    let Some(strip) = strip.first_chunk_mut::<WIDTH>() else { return };
    let mut sums = [0; WIDTH];
    for (left, other_row) in row.iter().zip(matrix.chunks_exact(row.len())) {
        // Always `Some`, because the strip is within the row.
        let Some(rights) =
            other_row.get(first_column..).and_then(|rest| rest.first_chunk::<WIDTH>())
        else {
            break;
        };
        for (sum, right) in sums.iter_mut().zip(rights) {
            *sum = A::multiply_add(*sum, u64::from_le(*left), u64::from_le(*right));
        }
    }
    *strip = sums.map(u64::to_le);
}
