//! A matrix server for tests, correct or with a chosen fault: a thread per connection, without
//! shared state.
#![allow(dead_code, reason = "each user of this file needs only some of the faults")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use matrix_message::{
    Direction, HEADER_BYTES, HEADER_WORDS, Header, SHORT_BYTES, as_bytes, as_bytes_mut, perform,
};

/// The fault of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Every 50th answer (of all connections) has one bit wrong.
    WrongProduct,
    /// Every 50th answer has the sequence number of the next one.
    WrongSequence,
    /// Every 50th request is dropped, so all later answers are early.
    LostAnswer,
    /// One second after its start it pauses for half a second, and then catches up.
    Stall,
    /// From one second after its start it does nothing.
    Death,
    /// The reserved word is not checked.
    IgnoresReserved,
    /// A malformed frame ends the server.
    DiesOfMalformed,
    /// A malformed frame is not answered.
    KeepsMalformedOpen,
    /// A request is not answered if a malformed one has already arrived behind it.
    ForgetsBeforeMalformed,
    /// What has arrived together with a request, and is not a part of it, is lost.
    LosesWhatFollows,
    /// The end of the client's stream ends the connection at once.
    ForgetsOnHalfClose,
    /// Serves one client after the other.
    Sequential,
    /// Waits for the rest of a large request without end.
    WaitsForTheRest,
}

pub struct Server {
    pub address: SocketAddr,
}

struct Shared {
    fault: Fault,
    start: Instant,
    answers: AtomicU64,
    dead: AtomicU64,
}

/// Starts a server on a free port of the loopback interface; it ends with the test process.
pub fn start(fault: Fault) -> Server {
    start_on(TcpListener::bind("127.0.0.1:0").unwrap(), fault)
}

/// Starts a server on a listener.
pub fn start_on(listener: TcpListener, fault: Fault) -> Server {
    let address = listener.local_addr().unwrap();
    let shared = Arc::new(Shared {
        fault,
        start: Instant::now(),
        answers: AtomicU64::new(0),
        dead: AtomicU64::new(0),
    });
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if shared.dead.load(Ordering::Relaxed) > 0 {
                return;
            }
            if fault == Fault::Sequential {
                let _ = shared.serve(stream);
                continue;
            }
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.serve(stream));
        }
    });
    Server { address }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut header_bytes = [0; HEADER_BYTES];
        loop {
            // Field by field, so that an invalid one is rejected before the rest has arrived.
            for prefix in 0..HEADER_BYTES {
                stream.read_exact(&mut header_bytes[prefix..=prefix])?;
                if Header::parse(&header_bytes[..=prefix], Direction::Request).is_err() {
                    match self.fault {
                        Fault::IgnoresReserved if prefix == 15 => header_bytes[12..].fill(0),
                        Fault::DiesOfMalformed => {
                            self.dead.store(1, Ordering::Relaxed);
                            return Ok(());
                        }
                        Fault::KeepsMalformedOpen => thread::sleep(Duration::from_secs(60)),
                        _ => return Ok(()),
                    }
                }
            }
            let Ok(Some(header)) = Header::parse(&header_bytes, Direction::Request) else {
                return Ok(());
            };
            let mut request = vec![0; header.side.elements()];
            if header.side.message_bytes() > SHORT_BYTES && self.fault != Fault::WaitsForTheRest {
                // Earlier than it must, so that tests take less time.
                stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            }
            stream.read_exact(as_bytes_mut(&mut request))?;
            stream.set_read_timeout(None)?;
            if self.fault == Fault::LosesWhatFollows {
                discard(&mut stream)?;
            }
            if self.fault == Fault::ForgetsBeforeMalformed && is_malformed_next(&stream) {
                return Ok(());
            }
            if self.fault == Fault::ForgetsOnHalfClose && is_ended(&stream) {
                return Ok(());
            }
            if self.dead.load(Ordering::Relaxed) > 0 {
                return Ok(());
            }
            self.pause();
            self.answer(&mut stream, header, &request)?;
        }
    }

    fn pause(&self) {
        let age = self.start.elapsed();
        let (from, to) = (Duration::from_secs(1), Duration::from_millis(1500));
        match self.fault {
            Fault::Stall if age > from && age < to => thread::sleep(to - age),
            Fault::Death if age > from => thread::sleep(Duration::from_secs(60)),
            _ => {}
        }
    }

    fn answer(&self, stream: &mut TcpStream, header: Header, request: &[u64]) -> io::Result<()> {
        let is_bad = self.answers.fetch_add(1, Ordering::Relaxed) % 50 == 49;
        let mut header = header.answer();
        let mut answer = vec![0; HEADER_WORDS + request.len()];
        perform(header.operation, header.side, request, &mut answer[HEADER_WORDS..]).unwrap();
        match self.fault {
            Fault::LostAnswer if is_bad => return Ok(()),
            Fault::WrongSequence if is_bad => header.sequence = header.sequence.wrapping_add(1),
            Fault::WrongProduct if is_bad => answer[HEADER_WORDS] ^= 1 << 40,
            _ => {}
        }
        as_bytes_mut(&mut answer[..HEADER_WORDS]).copy_from_slice(&header.encode());
        stream.write_all(as_bytes(&answer))
    }
}

/// Whether the client has sent its last byte.
fn is_ended(stream: &TcpStream) -> bool {
    // A FIN directly after the request may need a moment.
    thread::sleep(Duration::from_millis(5));
    stream.set_nonblocking(true).unwrap();
    let ended = matches!(stream.peek(&mut [0]), Ok(0));
    stream.set_nonblocking(false).unwrap();
    ended
}

/// Reads what has arrived.
fn discard(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let _ = stream.read(&mut [0; 64]);
    stream.set_nonblocking(false)
}

/// Whether a malformed header has arrived.
fn is_malformed_next(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut header = [0; HEADER_BYTES];
    let count = stream.peek(&mut header).unwrap_or(0);
    stream.set_nonblocking(false).unwrap();
    Header::parse(&header[..count], Direction::Request).is_err()
}
