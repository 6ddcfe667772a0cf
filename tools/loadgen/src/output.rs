//! Standard output and standard error of the program, which may be closed.

use std::io::{self, ErrorKind, Write};

/// A stream that drops what is written to it once its reader has closed it (`| head`): the rest of
/// the work is done all the same.
pub struct MayBeClosed<W>(pub W);

impl<W: Write> Write for MayBeClosed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}
