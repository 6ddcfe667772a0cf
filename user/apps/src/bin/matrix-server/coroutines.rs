//! The service made of coroutines: a connection has three. One receives requests into a queue, one
//! multiplies and puts answers into another queue, one sends.
//!
//! If any of them stops, it drops its ends of the queues. Then the others stop too, after they have
//! processed what is in the queues: a client that has sent its last request still gets its answers.
//! Full queues make the receiver wait, and therefore the client.
//!
//! An idle connection has a buffer for a few of the shortest messages, into which one call that
//! stands reads what arrives. Requests that arrive together are taken from there without another
//! call. The rest of a longer one is read into the message's own memory once its length is known
//! to be valid. Short answers that wait together are sent with one write. So a client that sends
//! faster than it is answered costs less for each request: fewer calls, and fewer frames.

use alloc::boxed::Box;

use cops::io::{Read, Write};
use cops::net::{Incoming, OwnedWriteHalf, Shutdown, TcpStream};
use cops::sync::spsc::{Receiver, Sender, channel};
use cops::task::{self, Priority};
use cops::time::timeout;
use matrix_message::{Batch, Direction, Header, as_bytes, as_bytes_mut};

use crate::class;
use crate::message::{Message, PATIENCE, QUEUE_MESSAGES, SHORTEST_BYTES, SHORTEST_WORDS};

/// Bytes that a connection receives at once, before it is known what they are.
const BURST_BYTES: usize = 8 * SHORTEST_BYTES;
/// Words of the answers that are sent together: as many of the shortest ones as wait.
const BATCH_WORDS: usize = QUEUE_MESSAGES * SHORTEST_WORDS;

/// Receives until the client ends the stream, fails, or sends an invalid request. The first request
/// determines the connection's priority. Only then are the other two coroutines started.
pub async fn receive(stream: TcpStream) {
    let (reader, writer) = stream.into_split();
    let Ok(mut reader) = reader.incoming(BURST_BYTES) else { return };
    let mut writer = Some(writer);
    let mut requests = None;
    while let Some(request) = request(&mut reader).await {
        if let Some(writer) = writer.take() {
            let priority = class::priority(request.class());
            if let Some(id) = task::current() {
                task::set_priority(id, priority);
            }
            requests = start(writer, priority);
        }
        let Some(requests) = &mut requests else { return };
        if requests.send(request).await.is_err() {
            return;
        }
    }
}

/// Bytes of the futures of the three components: that which receives, multiplies, sends.
pub fn bytes() -> [usize; 3] {
    fn of<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }
    [of(receive), of(|(from, to)| multiply(from, to)), of(|(from, writer)| send(from, writer))]
}

/// Starts the other two coroutines. `None` if there is no memory for them.
fn start(writer: OwnedWriteHalf, priority: Priority) -> Option<Sender<Message>> {
    let (requests, waiting) = channel(QUEUE_MESSAGES);
    let (answers, finished) = channel(QUEUE_MESSAGES);
    task::try_spawn(multiply(waiting, answers), priority).ok()?;
    task::try_spawn(send(finished, writer), priority).ok()?;
    Some(requests)
}

/// The next request; `None` at the end of the stream, if the request is invalid, if there is no
/// memory for it, or if the rest of it does not come.
async fn request(reader: &mut Incoming) -> Option<Message> {
    // Words, as in the message that they become the beginning of.
    let mut words = [0; SHORTEST_WORDS];
    let mut received = 0;
    let header = loop {
        match reader.read(as_bytes_mut(&mut words).get_mut(received..)?).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => received += count,
        }
        // Checked after each piece, so that the rest of an invalid header is not waited for.
        if let Some(header) =
            Header::parse(as_bytes(&words).get(..received)?, Direction::Request).ok()?
        {
            break header;
        }
    };
    let mut request = Message::beginning_with(&words, header)?;
    if received < request.bytes().len() {
        let rest = reader.fill(request.take_words(), received);
        let (result, words) = if request.is_large() {
            // In a box: each idle connection would have the memory for it otherwise.
            Box::pin(timeout(PATIENCE, rest)).await.ok()?
        } else {
            rest.await
        };
        request.put_words(words);
        result.ok()?;
    }
    Some(request)
}

/// Multiplies requests and queues the answers.
async fn multiply(mut requests: Receiver<Message>, mut answers: Sender<Message>) {
    while let Some(request) = requests.receive().await {
        let Some(answer) = request.answer() else { return };
        if answers.send(answer).await.is_err() {
            return;
        }
    }
}

/// Sends answers. When it ends, it drops the stream's writing half, so the client sees the end.
async fn send(mut answers: Receiver<Message>, mut writer: OwnedWriteHalf) {
    while let Some(mut answer) = answers.receive().await {
        // More than once only for an answer that had no room in a batch.
        loop {
            let (batch, left);
            let bytes = if answers.seems_empty() {
                left = None;
                answer.bytes()
            } else {
                (batch, left) = gather(&answer, &mut answers);
                if batch.bytes().is_empty() { answer.bytes() } else { batch.bytes() }
            };
            match timeout(PATIENCE, writer.write_all(bytes)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                // The client has received nothing for this time. TCP alone would wait forever. The
                // shutdown also ends the receiver, which may be waiting for the next request.
                Err(_) => {
                    let _ = writer.shutdown(Shutdown::Both);
                    return;
                }
            }
            let Some(next) = left else { break };
            answer = next;
        }
    }
}

/// `first` and the answers that wait behind it, as far as they have room; none if `first` has none.
/// Also returns the answer that was taken and had no room.
///
/// Apart, because an answer is usually alone.
#[inline(never)]
fn gather(
    first: &Message,
    answers: &mut Receiver<Message>,
) -> (Batch<BATCH_WORDS>, Option<Message>) {
    let mut batch = Batch::new();
    if batch.append(first.words()) {
        while let Ok(next) = answers.try_receive() {
            if !batch.append(next.words()) {
                return (batch, Some(next));
            }
        }
    }
    (batch, None)
}
