//! A connection: one coroutine receives requests into a queue, one multiplies and puts answers into another, one sends.
//!
//! Whichever of the three stops drops its ends of the queues, and so the others stop as well, after what is in
//! the queues: a client that has sent its last request still gets its answers. Full queues make the receiver wait, and
//! the client with it.
//!
//! While nothing arrives a connection holds no buffer: a header is read into memory of its call, and the rest of a
//! message into memory of its own once its length is known to be possible.

use cops::io::{Read, Write};
use cops::net::{OwnedReadHalf, OwnedWriteHalf, Shutdown, TcpStream};
use cops::sync::{Receiver, Sender, channel};
use cops::task::{self, Priority};
use cops::time::{Duration, timeout};
use matrix_message::{Direction, ELEMENT_BYTES, HEADER_BYTES, Header};

use crate::class;
use crate::message::Message;

/// Requests, and answers, that wait in a connection.
const QUEUE_MESSAGES: usize = 4;

/// How long a client may take over one answer, the longest being 131 kilobytes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of the shortest message: one element. No read for the beginning of a message asks for more, so none takes
/// a byte of the next message.
const SHORTEST_BYTES: usize = HEADER_BYTES + ELEMENT_BYTES;

/// Receives until the client ends, fails, or sends what is no request. The first request tells how urgent the
/// connection is, and brings its other two coroutines to life: until then it is only this one.
pub async fn receive(stream: TcpStream) {
    let (mut reader, writer) = stream.into_split();
    let Some((first, mut request)) = request(&mut reader).await else { return };
    let priority = class::priority(first.class);
    if let Some(id) = task::current() {
        task::set_priority(id, priority);
    }
    let Some(requests) = start(writer, priority) else { return };
    while requests.send(request).await.is_ok() {
        match self::request(&mut reader).await {
            Some((_, next)) => request = next,
            None => return,
        }
    }
}

/// Starts the other two. `None` if there is no memory for them.
fn start(writer: OwnedWriteHalf, priority: Priority) -> Option<Sender<Message>> {
    let (requests, waiting) = channel(QUEUE_MESSAGES);
    let (answers, finished) = channel(QUEUE_MESSAGES);
    task::try_spawn(multiply(waiting, answers), priority).ok()?;
    task::try_spawn(send(finished, writer), priority).ok()?;
    Some(requests)
}

/// The next request and its header; `None` at the end of the stream, if it is none, and if there is no memory for it.
async fn request(reader: &mut OwnedReadHalf) -> Option<(Header, Message)> {
    let mut bytes = [0; SHORTEST_BYTES];
    let mut received = 0;
    let header = loop {
        match reader.read(bytes.get_mut(received..)?).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => received += count,
        }
        // After each piece, so that nonsense is not waited for.
        if let Some(header) = Header::parse(bytes.get(..received)?, Direction::Request).ok()? {
            break header;
        }
    };
    let mut request = Message::new(header)?;
    request.bytes_mut().get_mut(..received)?.copy_from_slice(bytes.get(..received)?);
    let (result, words) = reader.fill(request.take_words(), received).await;
    request.put_words(words);
    result.ok().map(|()| (header, request))
}

/// Takes requests, puts answers.
async fn multiply(requests: Receiver<Message>, answers: Sender<Message>) {
    while let Some(request) = requests.receive().await {
        let Some(answer) = request.answer() else { return };
        if answers.send(answer).await.is_err() {
            return;
        }
    }
}

/// Sends answers. Ending drops the stream's writing half, which tells the client that no more will come.
async fn send(answers: Receiver<Message>, mut writer: OwnedWriteHalf) {
    while let Some(answer) = answers.receive().await {
        match timeout(PATIENCE, writer.write_all(answer.bytes())).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            // It has taken nothing for so long that it may as well be gone; TCP alone would wait for ever. The
            // receiver, which may be waiting for its next request, is told by the end of the stream.
            Err(_) => {
                let _ = writer.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}
