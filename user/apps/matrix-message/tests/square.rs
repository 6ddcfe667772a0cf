//! Squaring compared with the definition, exactly, for every width of the last strip.

use matrix_message::{MAX_SIDE, Operation, Side, SizeMismatch, perform, perform_in_place};
use proptest::prelude::*;

fn square_by_definition<T: Copy>(
    matrix: &[T],
    side: usize,
    zero: T,
    multiply_add: impl Fn(T, T, T) -> T,
) -> Vec<T> {
    (0..side * side)
        .map(|at| {
            let (row, column) = (at / side, at % side);
            (0..side).fold(zero, |sum, k| {
                multiply_add(sum, matrix[row * side + k], matrix[k * side + column])
            })
        })
        .collect()
}

fn perform_to_vec(operation: Operation, side: u16, request: &[u64]) -> Vec<u64> {
    let mut answer = vec![0xdead; request.len()];
    perform(operation, Side::new(side).unwrap(), request, &mut answer).unwrap();
    let mut place = request.to_vec();
    if perform_in_place(operation, &mut place) {
        assert_eq!(place, answer, "in place, side {side}");
    } else {
        assert_eq!(place, request, "nothing has happened, side {side}");
    }
    answer
}

fn check(side: u16, matrix: &[u64]) {
    let wrapping = square_by_definition(matrix, side.into(), 0, |sum: u64, a, b| {
        sum.wrapping_add(a.wrapping_mul(b))
    });
    assert_eq!(perform_to_vec(Operation::MultiplyU64, side, matrix), wrapping);

    let floats: Vec<f64> = matrix.iter().map(|word| (*word as i64) as f64 * 1e-9).collect();
    let bits: Vec<u64> = floats.iter().map(|float| float.to_bits()).collect();
    let squared = square_by_definition(&floats, side.into(), 0.0, |sum, a, b| sum + a * b);
    let squared: Vec<u64> = squared.iter().map(|float| float.to_bits()).collect();
    assert_eq!(perform_to_vec(Operation::MultiplyF64, side, &bits), squared);

    assert_eq!(perform_to_vec(Operation::Echo, side, matrix), matrix);
}

#[test]
fn every_small_side_and_the_largest() {
    for side in (1..=33).chain([127, MAX_SIDE]) {
        let elements = u64::from(side) * u64::from(side);
        let matrix: Vec<u64> =
            (1..=elements).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        check(side, &matrix);
    }
}

#[test]
fn a_two_by_two_matrix_by_hand() {
    assert_eq!(perform_to_vec(Operation::MultiplyU64, 2, &[1, 2, 3, 4]), [7, 10, 15, 22]);
    assert_eq!(perform_to_vec(Operation::MultiplyU64, 1, &[1 << 32]), [0], "wraps");
}

#[test]
fn small_matrices_are_squared_in_place_and_no_others() {
    for operation in [Operation::MultiplyU64, Operation::MultiplyF64] {
        for elements in 0..100 {
            let is_small = [1, 4, 9, 16].contains(&elements);
            assert_eq!(perform_in_place(operation, &mut vec![3; elements]), is_small);
        }
    }
}

#[test]
fn slices_of_another_size_are_refused_untouched() {
    let side = Side::new(2).unwrap();
    for operation in [Operation::MultiplyU64, Operation::MultiplyF64, Operation::Echo] {
        for (request_words, answer_words) in [(3, 4), (5, 4), (4, 3), (4, 5), (0, 0)] {
            let mut answer = vec![9; answer_words];
            assert_eq!(
                perform(operation, side, &vec![1; request_words], &mut answer),
                Err(SizeMismatch)
            );
            assert!(answer.iter().all(|word| *word == 9));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn random_matrices(
        (side, matrix) in (1..=20_u16).prop_flat_map(|side| {
            (Just(side), prop::collection::vec(any::<u64>(), usize::from(side).pow(2)))
        })
    ) {
        check(side, &matrix);
    }
}
