//! The service made of threads: a connection has three, with the same work as the three coroutines
//! of [`coroutines`](crate::coroutines), and the same ends.

use cops::abi::Errno;
use cops::io::{self, AsFd};
use cops::net::{OwnedReadHalf, OwnedWriteHalf, Shutdown, TcpStream};
use cops::task::Priority;
use cops::thread::{self, Builder};
use matrix_message::{Direction, Header, as_bytes, as_bytes_mut};

use crate::class;
use crate::message::{Message, PATIENCE, QUEUE_MESSAGES, SHORTEST_WORDS};
use crate::queue::{Receiver, Sender, Waiting, channel};

/// Size of each stack: that of the papers' configuration.
const STACK_BYTES: usize = 16 * 1024;

/// Starts the first thread of a connection.
///
/// # Errors
/// As [`Builder::spawn`]; then the connection is closed.
pub fn start(stream: TcpStream, waiting: Waiting) -> io::Result<()> {
    spawn(class::UNKNOWN, move || receive(stream, waiting))
}

fn spawn(priority: Priority, act: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Builder::new().stack_size(STACK_BYTES).priority(priority).spawn(act).map(drop)
}

/// Receives until the client ends the stream, fails, or sends an invalid request. The first request
/// determines the connection's priority. Only then are the other two threads started.
fn receive(stream: TcpStream, waiting: Waiting) {
    if stream.set_write_timeout(Some(PATIENCE)).is_err() {
        return;
    }
    let (reader, writer) = stream.into_split();
    let Some(mut request) = request(&reader) else { return };
    let priority = class::priority(request.class());
    if thread::current().set_priority(priority).is_err() {
        return;
    }
    let Ok(requests) = start_others(writer, priority, waiting) else { return };
    while requests.send(request).is_ok() {
        match self::request(&reader) {
            Some(next) => request = next,
            None => return,
        }
    }
}

/// Starts the other two threads.
fn start_others(
    writer: OwnedWriteHalf,
    priority: Priority,
    waiting: Waiting,
) -> io::Result<Sender<Message>> {
    let (requests, incoming) = channel(QUEUE_MESSAGES, waiting);
    let (answers, finished) = channel(QUEUE_MESSAGES, waiting);
    spawn(priority, move || multiply(&incoming, &answers))?;
    spawn(priority, move || send(&finished, &writer))?;
    Ok(requests)
}

/// The next request; `None` at the end of the stream, if the request is invalid, if there is no
/// memory for it, or if nothing more of it comes for a while.
fn request(reader: &OwnedReadHalf) -> Option<Message> {
    // Words, as in the message that they become the beginning of.
    let mut words = [0; SHORTEST_WORDS];
    let mut received = 0;
    let header = loop {
        received += read(reader, as_bytes_mut(&mut words).get_mut(received..)?)?;
        // Checked after each piece, so that the rest of an invalid header is not waited for.
        if let Some(header) =
            Header::parse(as_bytes(&words).get(..received)?, Direction::Request).ok()?
        {
            break header;
        }
    };
    let mut request = Message::beginning_with(&words, header)?;
    let is_limited = request.is_large();
    if is_limited {
        reader.set_read_timeout(Some(PATIENCE)).ok()?;
    }
    while received < request.bytes().len() {
        received += read(reader, request.bytes_mut().get_mut(received..)?)?;
    }
    if is_limited {
        reader.set_read_timeout(None).ok()?;
    }
    Some(request)
}

/// Waits for bytes. `None`: there are none any more.
fn read(reader: &OwnedReadHalf, buffer: &mut [u8]) -> Option<usize> {
    cops::read!(reader.as_fd(), buffer).ok().filter(|count| *count > 0)
}

/// Multiplies requests and queues the answers.
fn multiply(requests: &Receiver<Message>, answers: &Sender<Message>) {
    while let Some(request) = requests.receive() {
        let Some(answer) = request.answer() else { return };
        if answers.send(answer).is_err() {
            return;
        }
    }
}

/// Sends answers. When it ends, it drops the stream's writing half, so the client sees the end.
fn send(answers: &Receiver<Message>, writer: &OwnedWriteHalf) {
    while let Some(answer) = answers.receive() {
        let mut rest = answer.bytes();
        while !rest.is_empty() {
            match cops::write!(writer.as_fd(), rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                // As in the coroutine. The shutdown also ends the receiver.
                Err(Errno::EAGAIN) => {
                    let _ = writer.shutdown(Shutdown::Both);
                    return;
                }
                Err(_) => return,
            }
        }
    }
}
