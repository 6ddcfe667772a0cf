//! What ends a sleep in the reactor: a byte that a worker sends to itself.
//!
//! To ring is one `write` that does not block, so a signal handler may. (`eventfd` would save the
//! socket, but is Linux's only.)

use std::io::{self, Read, Write};
use std::task::{Context, Poll};

use async_io::Async;

#[cfg(unix)]
mod line {
    use std::io;
    pub use std::os::unix::net::UnixStream as End;

    pub fn ends() -> io::Result<(End, End)> {
        let ends = End::pair()?;
        ends.1.set_nonblocking(true)?;
        Ok(ends)
    }
}

#[cfg(not(unix))]
mod line {
    use std::io;
    use std::net::TcpListener;
    pub use std::net::TcpStream as End;

    pub fn ends() -> io::Result<(End, End)> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let ours = End::connect(listener.local_addr()?)?;
        // Another program may have been quicker to connect.
        loop {
            let (theirs, from) = listener.accept()?;
            if from == ours.local_addr()? {
                theirs.set_nonblocking(true)?;
                theirs.set_nodelay(true)?;
                return Ok((ours, theirs));
            }
        }
    }
}

/// See the head of the file.
pub(super) struct Bell {
    /// Where the bytes arrive; the reactor watches it.
    heard: Async<line::End>,
    rope: line::End,
}

impl Bell {
    /// # Panics
    ///
    /// If the system gives no socket, or the reactor does not take it.
    pub fn new() -> Bell {
        let bell =
            line::ends().and_then(|(heard, rope)| Ok(Bell { heard: Async::new(heard)?, rope }));
        bell.unwrap_or_else(|error| panic!("a worker cannot sleep in the reactor: {error}"))
    }

    /// Has `poll_rung` be ready. What is in the socket already does as well as another byte, so no
    /// error matters.
    pub fn ring(&self) {
        let _ = (&self.rope).write(&[0]);
    }

    /// Ready if it was rung since the last time, or may have been.
    pub fn poll_rung(&self, context: &mut Context<'_>) -> Poll<()> {
        // On an error to be polled again at once would be no better.
        let readable = self.heard.poll_readable(context);
        if readable.is_ready() {
            let mut bytes = [0; 64];
            let _: io::Result<usize> = self.heard.get_ref().read(&mut bytes);
        }
        readable.map(|_| ())
    }
}
