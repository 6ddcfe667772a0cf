//! The format compared with its description: round trips, each field alone made invalid, random
//! bytes, and prefixes.

use matrix_message::{
    Direction, HEADER_BYTES, Header, MAX_MESSAGE_BYTES, MAX_SIDE, Malformed, Operation, Side,
    as_bytes, as_bytes_mut,
};
use proptest::prelude::*;

fn example() -> Header {
    Header {
        class: 7,
        operation: Operation::MultiplyF64,
        direction: Direction::Request,
        side: Side::new(15).unwrap(),
        sequence: 0x0403_0201,
    }
}

/// The example's bytes after `edit`, parsed as a request.
fn parse_edited(edit: impl FnOnce(&mut [u8; HEADER_BYTES])) -> Result<Option<Header>, Malformed> {
    let mut bytes = example().encode();
    edit(&mut bytes);
    Header::parse(&bytes, Direction::Request)
}

#[test]
fn the_example_lies_on_the_wire_as_specified() {
    // 12 + 8 * 225 = 1812 = 0x0714.
    assert_eq!(example().encode(), [0x14, 0x07, 0, 0, 7, 1, 15, 0, 1, 2, 3, 4, 0, 0, 0, 0]);
    assert_eq!(example().answer().encode()[5], 0x81);
    assert_eq!(Side::new(MAX_SIDE).unwrap().message_bytes(), MAX_MESSAGE_BYTES);
}

#[test]
fn each_malformed_field_is_refused_with_its_reason() {
    let length =
        |length: u32| parse_edited(|bytes| bytes[..4].copy_from_slice(&length.to_le_bytes()));
    for found in [0, 11, 12, 19, 1811, 1813, 12 + 8 * 129 * 129, u32::MAX] {
        assert_eq!(length(found), Err(Malformed::Length { found }));
    }
    let fifteen = example().side;
    assert_eq!(length(20), Err(Malformed::LengthOfSide { length: 20, side: fifteen }));

    for found in [3, 0x7f, 0x83, 0xff] {
        assert_eq!(parse_edited(|bytes| bytes[5] = found), Err(Malformed::Operation { found }));
    }
    let turned = parse_edited(|bytes| bytes[5] |= 0x80);
    assert_eq!(turned, Err(Malformed::Direction { found: Direction::Answer }));
    assert_eq!(
        Header::parse(&example().encode(), Direction::Answer),
        Err(Malformed::Direction { found: Direction::Request })
    );

    for found in [0, 129, u16::MAX] {
        let parsed = parse_edited(|bytes| bytes[6..8].copy_from_slice(&found.to_le_bytes()));
        assert_eq!(parsed, Err(Malformed::Side { found }));
    }
    for position in 12..16 {
        let parsed = parse_edited(|bytes| bytes[position] = 1);
        assert_eq!(parsed, Err(Malformed::Reserved { found: 1 << (8 * (position - 12)) }));
    }
}

#[test]
fn exactly_128_lengths_are_possible() {
    let mut accepted = 0;
    for length in 0..=200_000_u32 {
        accepted += u32::from(Header::parse(&length.to_le_bytes(), Direction::Request).is_ok());
    }
    assert_eq!(accepted, 128);
}

#[test]
fn words_and_bytes_are_the_same_memory() {
    let mut words = [0; 2];
    as_bytes_mut(&mut words).copy_from_slice(&example().encode());
    assert_eq!(as_bytes(&words), example().encode());
    assert_eq!(words, example().words());
}

fn any_header() -> impl Strategy<Value = Header> {
    let operation = prop_oneof![
        Just(Operation::MultiplyU64),
        Just(Operation::MultiplyF64),
        Just(Operation::Echo)
    ];
    let direction = prop_oneof![Just(Direction::Request), Just(Direction::Answer)];
    (any::<u8>(), operation, direction, 1..=MAX_SIDE, any::<u32>()).prop_map(
        |(class, operation, direction, side, sequence)| Header {
            class,
            operation,
            direction,
            side: Side::new(side).unwrap(),
            sequence,
        },
    )
}

proptest! {
    #[test]
    fn what_is_encoded_is_parsed(header in any_header(), body in any::<Vec<u8>>()) {
        let mut received = header.encode().to_vec();
        received.extend(body);
        prop_assert_eq!(Header::parse(&received, header.direction), Ok(Some(header)));
    }

    #[test]
    fn a_prefix_of_a_valid_header_asks_for_more(header in any_header(), bytes in 0..HEADER_BYTES) {
        prop_assert_eq!(Header::parse(&header.encode()[..bytes], header.direction), Ok(None));
    }

    /// Each header has one encoding: bytes that can be parsed are those that encoding produces. And
    /// a rejected prefix stays rejected when more arrives.
    #[test]
    fn random_bytes_are_refused_or_canonical(
        mut bytes in any::<[u8; HEADER_BYTES]>(),
        template in any_header(),
        keep in any::<u16>(),
    ) {
        // Random headers are never valid: take about half the bytes from a valid one.
        for (position, byte) in template.encode().into_iter().enumerate() {
            if keep >> position & 1 == 1 { bytes[position] = byte }
        }
        let whole = Header::parse(&bytes, template.direction);
        match whole {
            Ok(Some(header)) => prop_assert_eq!(header.encode(), bytes),
            Ok(None) => prop_assert!(false, "a whole header leaves nothing to wait for"),
            Err(_) => {}
        }
        for prefix in 0..HEADER_BYTES {
            if let Err(reason) = Header::parse(&bytes[..prefix], template.direction) {
                prop_assert_eq!(whole, Err(reason));
            }
        }
    }
}
