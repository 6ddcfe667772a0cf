//! Frames that violate the format, each in one field. The server must close their connection
//! without an answer.

use std::io::Write;

use matrix_message::{Direction, HEADER_BYTES, Header, Operation, Side};

use super::client::{GoodClient, connect, expect_closed};
use super::{Case, Failure, Suite};
use matrix_message::workload::mix;

/// Number of garbage bytes: more than any message has.
const GARBAGE_BYTES: u64 = 1 << 20;
/// Maximum number of good requests in one piece with a malformed one.
const GOOD_REQUESTS_MAX: usize = 12;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("length-zero", |suite| refused(suite, |header| set_length(header, 0))),
        Case::new("length-maximal", |suite| refused(suite, |header| set_length(header, u32::MAX))),
        Case::new("length-one-less", |suite| {
            refused(suite, |header| set_length(header, 12 + 8 * 225 - 1))
        }),
        Case::new("length-of-another-n", |suite| {
            refused(suite, |header| set_length(header, 12 + 8 * 196))
        }),
        Case::new("n-zero", |suite| {
            refused(suite, |header| {
                set_length(header, 12);
                set_side(header, 0);
            })
        }),
        Case::new("n-129", |suite| {
            refused(suite, |header| {
                set_length(header, 12 + 8 * 129 * 129);
                set_side(header, 129);
            })
        }),
        Case::new("n-maximal", |suite| refused(suite, |header| set_side(header, u16::MAX))),
        Case::new("operation-3", |suite| refused(suite, |header| header[5] = 3)),
        Case::new("operation-127", |suite| refused(suite, |header| header[5] = 127)),
        Case::new("operation-of-an-answer", |suite| refused(suite, |header| header[5] |= 0x80)),
        Case::new("reserved-lowest-bit", |suite| refused(suite, |header| header[12] = 1)),
        Case::new("reserved-highest-bit", |suite| refused(suite, |header| header[15] = 0x80)),
        Case::new("malformed-after-good", malformed_after_good),
        Case::new("malformed-behind-good", malformed_behind_good),
        Case::new("garbage-stream", garbage_stream),
    ]
}

fn set_length(header: &mut [u8; HEADER_BYTES], length: u32) {
    header[0..4].copy_from_slice(&length.to_le_bytes());
}

fn set_side(header: &mut [u8; HEADER_BYTES], side: u16) {
    header[6..8].copy_from_slice(&side.to_le_bytes());
}

/// The header of a 15 x 15 matrix, made invalid by `edit`.
fn edited_header(
    edit: impl FnOnce(&mut [u8; HEADER_BYTES]),
) -> Result<[u8; HEADER_BYTES], Failure> {
    let header = Header {
        class: 0,
        operation: Operation::MultiplyU64,
        direction: Direction::Request,
        side: Side::new(15).ok_or("15 is a side")?,
        sequence: 1,
    };
    let mut bytes = header.encode();
    edit(&mut bytes);
    match Header::parse(&bytes, Direction::Request) {
        Err(_) => Ok(bytes),
        Ok(_) => Err("the case is wrong: its frame is well formed".into()),
    }
}

fn refused(suite: &Suite, edit: impl FnOnce(&mut [u8; HEADER_BYTES])) -> Result<(), Failure> {
    let header = edited_header(edit)?;
    let mut stream = connect(suite)?;
    // With a body, so that a server that overlooks the field has something to answer. A correct
    // server may close the connection before the body is sent.
    let frame = [header.as_slice(), &[0; 8 * 225]].concat();
    let _ = stream.write_all(&frame);
    expect_closed(&stream)
}

fn malformed_after_good(suite: &Suite) -> Result<(), Failure> {
    let mut client = GoodClient::open(suite)?;
    client.exchange()?;
    client.exchange()?;
    let header = edited_header(|header| header[14] = 1)?;
    client
        .stream
        .write_all(&header)
        .map_err(|error| format!("sending the malformed header: {error}"))?;
    expect_closed(&client.stream)
}

/// In one piece with good requests, which must still be answered.
fn malformed_behind_good(suite: &Suite) -> Result<(), Failure> {
    let mut client = GoodClient::with(suite, Operation::MultiplyU64, 1, 0)?;
    for count in 1..=GOOD_REQUESTS_MAX {
        let mut bytes: Vec<u8> = (0..count).flat_map(|_| client.next_request()).collect();
        bytes.extend(edited_header(|header| header[14] = 1)?);
        client.stream.write_all(&bytes).map_err(|error| format!("sending: {error}"))?;
        for at in 0..count {
            client.receive().map_err(|failure| format!("answer {at} of {count}: {failure}"))?;
        }
        expect_closed(&client.stream)?;
        client = GoodClient::with(suite, Operation::MultiplyU64, 1, 0)?;
    }
    Ok(())
}

fn garbage_stream(suite: &Suite) -> Result<(), Failure> {
    let mut stream = connect(suite)?;
    let garbage: Vec<u8> =
        (0..GARBAGE_BYTES / 8).flat_map(|at| mix(suite.seed, at).to_le_bytes()).collect();
    let _ = stream.write_all(&garbage);
    expect_closed(&stream)
}
