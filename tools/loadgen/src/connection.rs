//! One connection: sends requests and receives answers. It does not use time or statistics: its
//! caller decides when a request is due and what an answer means.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

use matrix_message::{Direction, HEADER_BYTES, HEADER_WORDS, Header, as_bytes, as_bytes_mut};
use mio::net::TcpStream;

use matrix_message::workload::Workload;

/// The reason why a connection can no longer be used.
#[derive(Debug)]
pub enum Loss {
    /// The server closed it.
    Closed,
    /// A network error.
    Network(io::Error),
    /// What arrived is not the expected answer, so later bytes cannot be interpreted.
    Protocol(String),
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => formatter.write_str("closed by the server"),
            Self::Network(error) => write!(formatter, "{error}"),
            Self::Protocol(what) => formatter.write_str(what),
        }
    }
}

impl From<io::Error> for Loss {
    fn from(error: io::Error) -> Self {
        Self::Network(error)
    }
}

/// An answer with the correct header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Number of the request on this connection, from zero.
    pub request: u64,
    /// Index of the first wrong element; `None` if the product is correct.
    pub wrong_element: Option<usize>,
}

/// A non-blocking connection. Any number of requests may be outstanding: answers are matched in
/// order, and a request that the socket does not take yet is created when it does.
pub struct Connection {
    index: u32,
    class: u8,
    stream: TcpStream,
    /// Number of requests that were requested by the caller, that were written or begun, and that
    /// were answered.
    requested: u64,
    written: u64,
    answered: u64,
    /// The message being written, and its first unwritten byte; the message being received, and the
    /// number of bytes received.
    outgoing: Vec<u64>,
    outgoing_from: usize,
    incoming: Vec<u64>,
    incoming_bytes: usize,
}

impl Connection {
    /// Takes over a stream that is connected or connecting.
    #[must_use]
    pub fn new(index: u32, class: u8, stream: TcpStream, workload: &Workload) -> Self {
        let words = workload.side().message_words();
        Self {
            index,
            class,
            stream,
            requested: 0,
            written: 0,
            answered: 0,
            outgoing: vec![0; words],
            outgoing_from: words * size_of::<u64>(),
            incoming: vec![0; words],
            incoming_bytes: 0,
        }
    }

    /// Its index among all connections, which determines what it sends.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The priority class in its messages.
    #[must_use]
    pub fn class(&self) -> u8 {
        self.class
    }

    /// Number of requests so far, which is the number of the next one.
    #[must_use]
    pub fn requested(&self) -> u64 {
        self.requested
    }

    /// Number of requests without an answer.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.requested - self.answered
    }

    /// The socket, for registering it.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Makes one more request, and writes what the socket takes.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    pub fn request(&mut self, workload: &Workload) -> Result<(), Loss> {
        self.requested += 1;
        self.flush(workload)
    }

    /// Writes pending requests as far as the socket takes them. Must be called when it becomes
    /// writable.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    pub fn flush(&mut self, workload: &Workload) -> Result<(), Loss> {
        loop {
            let unsent = &as_bytes(&self.outgoing)[self.outgoing_from..];
            if unsent.is_empty() {
                if self.written == self.requested {
                    return Ok(());
                }
                self.make_next(workload);
                continue;
            }
            match self.stream.write(unsent) {
                Ok(bytes) => self.outgoing_from += bytes,
                // Not connected: some systems return this for a socket that is still connecting.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) =>
                {
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn make_next(&mut self, workload: &Workload) {
        let header = workload.header(self.index, self.class, self.written);
        as_bytes_mut(&mut self.outgoing[..HEADER_WORDS]).copy_from_slice(&header.encode());
        workload.write_body(self.index, self.written, &mut self.outgoing[HEADER_WORDS..]);
        self.written += 1;
        self.outgoing_from = 0;
    }

    /// Reads what has arrived. Must be called when the socket becomes readable. `buffer` is scratch
    /// space; a read that does not fill it has emptied the socket (and, with edge-triggered
    /// polling, a new arrival raises a new event), unless `until_end` says that the end of the
    /// stream has been announced and must be read too. Calls `on_answer` for each answer as soon as
    /// it is complete.
    ///
    /// # Errors
    ///
    /// The connection is lost, after the answers that were reported.
    pub fn receive(
        &mut self,
        workload: &Workload,
        buffer: &mut [u8],
        until_end: bool,
        mut on_answer: impl FnMut(Answer),
    ) -> Result<(), Loss> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(Loss::Closed),
                Ok(bytes) => {
                    self.take(workload, &buffer[..bytes], &mut on_answer)?;
                    if bytes < buffer.len() && !until_end {
                        return Ok(());
                    }
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) =>
                {
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take(
        &mut self,
        workload: &Workload,
        mut bytes: &[u8],
        on_answer: &mut impl FnMut(Answer),
    ) -> Result<(), Loss> {
        while !bytes.is_empty() {
            if self.answered == self.written {
                return Err(Loss::Protocol("an answer without a request".into()));
            }
            // First the header alone, so that a wrong one is not taken for a long message.
            let in_header = self.incoming_bytes < HEADER_BYTES;
            let end = if in_header { HEADER_BYTES } else { size_of_val(self.incoming.as_slice()) };
            let (now, later) = bytes.split_at(bytes.len().min(end - self.incoming_bytes));
            let filled = self.incoming_bytes + now.len();
            as_bytes_mut(&mut self.incoming)[self.incoming_bytes..filled].copy_from_slice(now);
            self.incoming_bytes = filled;
            bytes = later;

            if in_header {
                self.check_header(workload)?;
            }
            if filled == size_of_val(self.incoming.as_slice()) {
                let request = self.answered;
                let wrong_element =
                    workload.check(self.index, request, &self.incoming[HEADER_WORDS..]).err();
                self.answered += 1;
                self.incoming_bytes = 0;
                on_answer(Answer { request, wrong_element });
            }
        }
        Ok(())
    }

    fn check_header(&self, workload: &Workload) -> Result<(), Loss> {
        let received = &as_bytes(&self.incoming)[..self.incoming_bytes];
        let expected = workload.header(self.index, self.class, self.answered).answer();
        match Header::parse(received, Direction::Answer) {
            Ok(None) => Ok(()),
            Ok(Some(header)) if header == expected => Ok(()),
            Ok(Some(header)) => {
                Err(Loss::Protocol(format!("answered {header:?} instead of {expected:?}")))
            }
            Err(malformed) => Err(Loss::Protocol(format!("malformed answer: {malformed}"))),
        }
    }
}
