//! Threads that block in the kernel.

use std::io::{Read, Result, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use matrix_message::{Header, as_bytes};

use crate::accept;
use crate::message::{Incoming, answer};

/// The threads keep their buffers in the heap.
const STACK_BYTES: usize = 16 * 1024;
/// Messages between two threads of a connection.
const QUEUED: usize = 4;

/// A thread for each connection.
pub fn one(listener: &TcpListener) -> Result<()> {
    accept::each(listener, |stream| start(move || drop(serve(stream))))
}

fn serve(mut stream: TcpStream) -> Result<()> {
    let (mut incoming, mut answers) = (Incoming::new(), Vec::new());
    while let Some(header) = receive(&mut stream, &mut incoming)? {
        answers.clear();
        answer(header, incoming.elements(header), &mut answers);
        incoming.remove(header);
        stream.write_all(as_bytes(&answers))?;
    }
    Ok(())
}

/// Three threads for each connection, as in the papers: one receives, one multiplies, one sends.
pub fn three(listener: &TcpListener) -> Result<()> {
    accept::each(listener, |stream| {
        let sending = stream.try_clone()?;
        let (requests, requested) = sync_channel(QUEUED);
        let (answers, answered) = sync_channel(QUEUED);
        // If one cannot be started, the others find their queues closed, and end.
        start(move || drop(send(sending, &answered)))?;
        start(move || multiply(&requested, &answers))?;
        start(move || drop(forward(stream, &requests)))
    })
}

type Request = (Header, Vec<u64>);

fn forward(mut stream: TcpStream, requests: &SyncSender<Request>) -> Result<()> {
    let mut incoming = Incoming::new();
    while let Some(header) = receive(&mut stream, &mut incoming)? {
        let request = (header, incoming.elements(header).to_vec());
        incoming.remove(header);
        if requests.send(request).is_err() {
            break;
        }
    }
    Ok(())
}

fn multiply(requests: &Receiver<Request>, answers: &SyncSender<Vec<u64>>) {
    while let Ok((header, elements)) = requests.recv() {
        let mut words = Vec::new();
        answer(header, &elements, &mut words);
        if answers.send(words).is_err() {
            break;
        }
    }
}

fn send(mut stream: TcpStream, answers: &Receiver<Vec<u64>>) -> Result<()> {
    let sent = answers.iter().try_for_each(|words| stream.write_all(as_bytes(&words)));
    // The receiving thread may wait for a client that is gone.
    let _ = stream.shutdown(Shutdown::Both);
    sent
}

/// The next request, or `None` at the end of the stream or after an invalid one.
fn receive(stream: &mut TcpStream, incoming: &mut Incoming) -> Result<Option<Header>> {
    loop {
        match incoming.message() {
            Ok(None) => {}
            Ok(Some(header)) => return Ok(Some(header)),
            Err(_) => return Ok(None),
        }
        let count = stream.read(incoming.space())?;
        if count == 0 {
            return Ok(None);
        }
        incoming.received(count);
    }
}

fn start(run: impl FnOnce() + Send + 'static) -> Result<()> {
    Builder::new().stack_size(STACK_BYTES).spawn(run).map(drop)
}
