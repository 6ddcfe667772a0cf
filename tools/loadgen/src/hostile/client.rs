//! Blocking sockets for the hostile cases, and a correct client.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use matrix_message::{
    Direction, HEADER_BYTES, HEADER_WORDS, Header, Operation, Side, as_bytes, as_bytes_mut,
};
use rustix::net::sockopt::set_socket_linger;

use super::{Failure, Suite};
use matrix_message::workload::Workload;

/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(5);
/// Time limit of one attempt to connect.
const ATTEMPT: Duration = Duration::from_millis(25);

/// Connects within the suite's patience. Refused attempts are repeated, because a backlog may be
/// full. Reads and writes on the stream fail after the same time.
///
/// QEMU's user network accepts with a backlog of one: a connection attempt that comes too early is
/// dropped, and the host would repeat it after a second. Giving up early and retrying is faster.
pub(super) fn connect(suite: &Suite) -> Result<TcpStream, Failure> {
    let give_up = Instant::now() + suite.patience;
    loop {
        match TcpStream::connect_timeout(&suite.address, suite.patience.min(ATTEMPT)) {
            Ok(stream) => {
                let prepare = || {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(suite.patience))?;
                    stream.set_write_timeout(Some(suite.patience))
                };
                return prepare().map(|()| stream).map_err(|error| error.to_string());
            }
            Err(error) if Instant::now() > give_up => return Err(format!("connect: {error}")),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Closes with a reset: unread and unsent data are dropped.
pub(super) fn reset(stream: TcpStream) -> Result<(), Failure> {
    set_socket_linger(&stream, Some(Duration::ZERO)).map_err(|error| error.to_string())
}

/// Checks that the server closes the connection without an answer.
pub(super) fn expect_closed(mut stream: &TcpStream) -> Result<(), Failure> {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(0) => Ok(()),
        Ok(_) => Err("the server answered".into()),
        Err(error) if is_timeout(&error) => Err("the server left the connection open".into()),
        // Reset: closed with some of our bytes unread.
        Err(_) => Ok(()),
    }
}

/// Whether an operation failed because of its timeout and not because of the peer.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A connection that sends requests and checks the answers.
pub(super) struct GoodClient {
    pub(super) stream: TcpStream,
    workload: Workload,
    class: u8,
    sent: u64,
    answered: u64,
}

impl GoodClient {
    /// Connects; requests are small matrices of class 0.
    pub(super) fn open(suite: &Suite) -> Result<Self, Failure> {
        Self::with(suite, Operation::MultiplyU64, 5, 0)
    }

    pub(super) fn with(
        suite: &Suite,
        operation: Operation,
        side: u16,
        class: u8,
    ) -> Result<Self, Failure> {
        let side = Side::new(side).ok_or("a case with an impossible side")?;
        let workload = Workload::new(operation, side, suite.seed);
        Ok(Self { stream: connect(suite)?, workload, class, sent: 0, answered: 0 })
    }

    /// A client of the same connection with matrices of another size. Answers come in the
    /// order of the requests of both.
    pub(super) fn beside(&self, suite: &Suite, side: u16) -> Result<Self, Failure> {
        let side = Side::new(side).ok_or("a case with an impossible side")?;
        let stream = self.stream.try_clone().map_err(|error| error.to_string())?;
        let workload = Workload::new(Operation::MultiplyU64, side, suite.seed);
        Ok(Self { stream, workload, class: self.class, sent: 0, answered: 0 })
    }

    /// The bytes of the next request.
    pub(super) fn next_request(&mut self) -> Vec<u8> {
        let mut message = vec![0; self.workload.side().message_words()];
        let header = self.workload.header(0, self.class, self.sent);
        as_bytes_mut(&mut message[..HEADER_WORDS]).copy_from_slice(&header.encode());
        self.workload.write_body(0, self.sent, &mut message[HEADER_WORDS..]);
        self.sent += 1;
        as_bytes(&message).to_vec()
    }

    pub(super) fn send(&mut self) -> Result<(), Failure> {
        let request = self.next_request();
        self.stream.write_all(&request).map_err(|error| format!("sending a request: {error}"))
    }

    /// Reads the next answer and checks that it is correct.
    pub(super) fn receive(&mut self) -> Result<(), Failure> {
        let mut answer = vec![0; self.workload.side().message_words()];
        self.stream.read_exact(as_bytes_mut(&mut answer)).map_err(|error| match error.kind() {
            _ if is_timeout(&error) => "no answer in time".into(),
            ErrorKind::UnexpectedEof => "the connection was closed instead of answered".into(),
            _ => format!("receiving an answer: {error}"),
        })?;
        let expected = self.workload.header(0, self.class, self.answered).answer();
        let header = Header::parse(&as_bytes(&answer)[..HEADER_BYTES], Direction::Answer);
        if header != Ok(Some(expected)) {
            return Err(format!("answered {header:?} instead of {expected:?}"));
        }
        let product = self.workload.check(0, self.answered, &answer[HEADER_WORDS..]);
        self.answered += 1;
        product.map_err(|at| format!("wrong product, element {at}"))
    }

    /// One request and its correct answer.
    pub(super) fn exchange(&mut self) -> Result<(), Failure> {
        self.send()?;
        self.receive()
    }

    /// Shuts down the sending direction.
    pub(super) fn half_close(&self) -> Result<(), Failure> {
        self.stream.shutdown(Shutdown::Write).map_err(|error| format!("half-closing: {error}"))
    }
}
