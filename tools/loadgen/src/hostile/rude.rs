//! Clients that use the format correctly but break off, stall or flood.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use matrix_message::{HEADER_BYTES, Operation, PATIENCE_SECONDS};

use super::client::{GoodClient, connect, expect_closed, is_timeout, reset};
use super::{Case, Failure, Suite};

/// Number of simultaneous silent connections.
const SILENT_CONNECTIONS: usize = 32;
/// Number of simultaneous large requests of which the rest does not come.
const LARGE_REQUESTS: usize = 4;
/// Number of connects and disconnects, and their time limit.
const DISCONNECTS: usize = 1_000;
const DISCONNECTS_TIME: Duration = Duration::from_secs(90);
/// Requests sent before the first answer is read.
const PIPELINED: usize = 200;
/// Rows of the matrices of a stream that is cut: runs of the shortest message, some that are a
/// little longer, and one that has nearly ten times its length.
const MIXED: [u16; 15] = [1, 1, 1, 1, 1, 1, 2, 1, 3, 6, 1, 2, 1, 1, 1];
/// Where one connection cuts it.
const PIECES_BYTES: [usize; 12] = [1, 7, 15, 16, 17, 31, 32, 33, 63, 255, 256, 257];
/// Time after which the rest of a request is sent: the server has taken what was there.
const TAKEN: Duration = Duration::from_millis(1);
/// Maximum number of bytes sent to a server without reading its answers.
const FLOOD_BYTES: usize = 64 << 20;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("largest-matrix", |suite| exchange_with(suite, 128, 0)),
        Case::new("highest-class", |suite| exchange_with(suite, 5, u8::MAX)),
        Case::new("half-header-and-silence", |suite| silence_after(suite, 8)),
        Case::new("header-and-silence", |suite| silence_after(suite, 16)),
        Case::new("half-body-and-silence", |suite| silence_after(suite, 16 + 100)),
        Case::beside("large-headers-and-silence", large_headers_and_silence),
        Case::new("many-silent-connections", many_silent_connections),
        Case::new("half-header-then-close", |suite| partial_request(suite, 8).map(drop)),
        Case::new("half-body-then-close", |suite| partial_request(suite, 16 + 100).map(drop)),
        Case::new("half-body-then-half-close", half_body_then_half_close),
        Case::new("half-body-then-reset", |suite| partial_request(suite, 16 + 100).and_then(reset)),
        Case::new("reset-before-answer", reset_before_answer),
        Case::new("reset-in-mid-answer", reset_in_mid_answer),
        Case::new("half-close-after-request", half_close_after_request),
        Case::new("connects-and-disconnects", connects_and_disconnects),
        Case::new("byte-at-a-time", byte_at_a_time),
        Case::new("pipelined-requests", pipelined_requests),
        Case::new("mixed-requests-in-pieces", mixed_requests_in_pieces),
        Case::new("mixed-requests-cut-once", mixed_requests_cut_once),
        Case::new("flood-without-reading", flood_without_reading),
    ]
}

fn exchange_with(suite: &Suite, side: u16, class: u8) -> Result<(), Failure> {
    GoodClient::with(suite, Operation::MultiplyU64, side, class)?.exchange()
}

/// A connection on which this many bytes of a request have been sent.
fn partial_request(suite: &Suite, bytes: usize) -> Result<TcpStream, Failure> {
    let mut client = GoodClient::with(suite, Operation::MultiplyU64, 15, 0)?;
    let request = client.next_request();
    client
        .stream
        .write_all(&request[..bytes])
        .map_err(|error| format!("sending part of a request: {error}"))?;
    Ok(client.stream)
}

fn silence_after(suite: &Suite, bytes: usize) -> Result<(), Failure> {
    let silent = partial_request(suite, bytes)?;
    suite.serves_a_new_client()?;
    drop(silent);
    Ok(())
}

/// Each of them makes the server keep memory for the largest message, but not for ever.
fn large_headers_and_silence(suite: &Suite) -> Result<(), Failure> {
    let partial = || {
        let mut client = GoodClient::with(suite, Operation::MultiplyU64, 128, 0)?;
        let request = client.next_request();
        let header = client.stream.write_all(&request[..HEADER_BYTES]);
        header.map_err(|error| format!("sending a header: {error}"))?;
        Ok::<_, Failure>(client.stream)
    };
    let silent = (0..LARGE_REQUESTS).map(|_| partial()).collect::<Result<Vec<_>, _>>()?;
    let give_up = Instant::now() + Duration::from_secs(PATIENCE_SECONDS) + suite.patience;
    for stream in &silent {
        // Zero would be no limit.
        let left = give_up.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
        expect_closed(stream)?;
    }
    Ok(())
}

fn many_silent_connections(suite: &Suite) -> Result<(), Failure> {
    let silent: Result<Vec<_>, _> =
        (0..SILENT_CONNECTIONS).map(|at| partial_request(suite, at % 16)).collect();
    let silent = silent?;
    suite.serves_a_new_client()?;
    drop(silent);
    Ok(())
}

/// The end of the stream within a message: the rest will never come, so the server must close the
/// connection.
fn half_body_then_half_close(suite: &Suite) -> Result<(), Failure> {
    let stream = partial_request(suite, 16 + 100)?;
    stream.shutdown(std::net::Shutdown::Write).map_err(|error| error.to_string())?;
    expect_closed(&stream)
}

fn reset_before_answer(suite: &Suite) -> Result<(), Failure> {
    let mut client = GoodClient::with(suite, Operation::MultiplyU64, 64, 0)?;
    client.send()?;
    reset(client.stream)
}

/// Several large answers are in flight when the connection is reset.
fn reset_in_mid_answer(suite: &Suite) -> Result<(), Failure> {
    let mut client = GoodClient::with(suite, Operation::Echo, 128, 0)?;
    client.send()?;
    let mut part = [0; 1000];
    client
        .stream
        .read_exact(&mut part)
        .map_err(|error| format!("receiving part of an answer: {error}"))?;
    client.send()?;
    reset(client.stream)
}

/// A client may shut down its sending direction at once; the answer must still come, and then the
/// end.
fn half_close_after_request(suite: &Suite) -> Result<(), Failure> {
    let mut client = GoodClient::with(suite, Operation::MultiplyF64, 15, 0)?;
    client.send()?;
    client.half_close()?;
    client.receive()?;
    expect_closed(&client.stream)
}

/// Disconnects normally and by reset, alternately.
fn connects_and_disconnects(suite: &Suite) -> Result<(), Failure> {
    let give_up = Instant::now() + DISCONNECTS_TIME;
    for at in 0..DISCONNECTS {
        if Instant::now() > give_up {
            return Err(format!(
                "only {at} of {DISCONNECTS} connects in {} s",
                DISCONNECTS_TIME.as_secs()
            ));
        }
        let stream = connect(suite).map_err(|failure| format!("connect {at}: {failure}"))?;
        if at % 2 == 0 {
            reset(stream)?;
        }
    }
    Ok(())
}

fn byte_at_a_time(suite: &Suite) -> Result<(), Failure> {
    let mut client = GoodClient::with(suite, Operation::MultiplyU64, 2, 0)?;
    for byte in client.next_request() {
        client.stream.write_all(&[byte]).map_err(|error| format!("sending a byte: {error}"))?;
        thread::sleep(Duration::from_millis(1));
    }
    client.receive()
}

/// Many requests in one write, with the answers read only afterwards: all must come, in order.
fn pipelined_requests(suite: &Suite) -> Result<(), Failure> {
    let mut client = GoodClient::with(suite, Operation::MultiplyU64, 3, 0)?;
    let requests: Vec<u8> = (0..PIPELINED).flat_map(|_| client.next_request()).collect();
    client.stream.write_all(&requests).map_err(|error| format!("sending requests: {error}"))?;
    (0..PIPELINED)
        .try_for_each(|at| client.receive().map_err(|failure| format!("answer {at}: {failure}")))
}

/// Requests of several sizes on one connection, one behind the other.
struct Mixed {
    /// By the first request of their size.
    clients: Vec<(u16, GoodClient)>,
}

impl Mixed {
    fn open(suite: &Suite) -> Result<Self, Failure> {
        let first = GoodClient::with(suite, Operation::MultiplyU64, MIXED[0], 0)?;
        let mut clients = vec![(MIXED[0], first)];
        for side in MIXED {
            if clients.iter().all(|(known, _)| *known != side) {
                let client = clients[0].1.beside(suite, side)?;
                clients.push((side, client));
            }
        }
        Ok(Self { clients })
    }

    fn of(&mut self, side: u16) -> &mut GoodClient {
        let found = self.clients.iter_mut().find(|(known, _)| *known == side);
        &mut found.expect("there is a client for each size").1
    }

    fn requests(&mut self) -> Vec<u8> {
        MIXED.iter().flat_map(|side| self.of(*side).next_request()).collect()
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let stream = &mut self.clients[0].1.stream;
        stream.write_all(bytes).map_err(|error| format!("sending requests: {error}"))
    }

    fn receive(&mut self) -> Result<(), Failure> {
        for (at, side) in MIXED.into_iter().enumerate() {
            self.of(side).receive().map_err(|failure| format!("answer {at}: {failure}"))?;
        }
        Ok(())
    }
}

/// Requests of several sizes, in pieces of each of some lengths: no byte of a following request may
/// be lost, and all answers must come, in order.
fn mixed_requests_in_pieces(suite: &Suite) -> Result<(), Failure> {
    let mut mixed = Mixed::open(suite)?;
    for length in PIECES_BYTES {
        let requests = mixed.requests();
        for piece in requests.chunks(length) {
            mixed.send(piece)?;
        }
        mixed.receive().map_err(|failure| format!("in pieces of {length} bytes: {failure}"))?;
    }
    Ok(())
}

/// The same in two pieces, cut at each byte. The second comes when the server has taken the first.
fn mixed_requests_cut_once(suite: &Suite) -> Result<(), Failure> {
    let mut mixed = Mixed::open(suite)?;
    let length = mixed.requests().len();
    // Those were not sent.
    let mut mixed = Mixed::open(suite)?;
    for cut in 1..length {
        let requests = mixed.requests();
        mixed.send(&requests[..cut])?;
        thread::sleep(TAKEN);
        mixed.send(&requests[cut..])?;
        mixed.receive().map_err(|failure| format!("cut at byte {cut}: {failure}"))?;
    }
    Ok(())
}

/// Large requests without end and without reading answers: the server must stop reading at some
/// point, and still have memory for others.
fn flood_without_reading(suite: &Suite) -> Result<(), Failure> {
    let mut client = GoodClient::with(suite, Operation::Echo, 128, 0)?;
    client.stream.set_write_timeout(Some(suite.patience / 4)).map_err(|error| error.to_string())?;
    let request = client.next_request();
    let mut sent = 0;
    while sent < FLOOD_BYTES {
        match client.stream.write_all(&request) {
            Ok(()) => sent += request.len(),
            Err(error) if is_timeout(&error) => break,
            // The server may also disconnect this client, as long as others are served.
            Err(_) => return Ok(()),
        }
    }
    suite.serves_a_new_client()
}
