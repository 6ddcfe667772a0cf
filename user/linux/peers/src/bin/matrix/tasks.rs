//! Tasks of tokio.

use std::io::Result;
use std::net::TcpListener as StdListener;
use std::time::Duration;

use matrix_message::{Header, as_bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::{spawn, time::sleep};

use crate::message::{Incoming, answer};

/// Messages between two tasks of a connection.
const QUEUED: usize = 4;

/// Tasks of each connection.
#[derive(Clone, Copy)]
pub enum Tasks {
    One,
    /// One receives, one multiplies, one sends, as the coroutines of COPS.
    Three,
}

/// Serves with `workers` threads.
pub fn serve(listener: StdListener, workers: usize, tasks: Tasks) -> Result<()> {
    listener.set_nonblocking(true)?;
    runtime(workers)?.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => begin(stream, tasks),
                Err(error) => {
                    eprintln!("matrix: cannot accept: {error}");
                    sleep(Duration::from_millis(10)).await;
                }
            }
        }
    })
}

fn runtime(workers: usize) -> Result<Runtime> {
    if workers == 1 {
        return Builder::new_current_thread().enable_all().build();
    }
    Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

fn begin(stream: TcpStream, tasks: Tasks) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (reading, writing) = stream.into_split();
    match tasks {
        Tasks::One => drop(spawn(one(reading, writing))),
        Tasks::Three => {
            let (requests, requested) = channel(QUEUED);
            let (answers, answered) = channel(QUEUED);
            spawn(forward(reading, requests));
            spawn(multiply(requested, answers));
            spawn(send(writing, answered));
        }
    }
}

async fn one(mut reading: OwnedReadHalf, mut writing: OwnedWriteHalf) -> Result<()> {
    let (mut incoming, mut answers) = (Incoming::new(), Vec::new());
    while let Some(header) = receive(&mut reading, &mut incoming).await? {
        answers.clear();
        answer(header, incoming.elements(header), &mut answers);
        incoming.remove(header);
        writing.write_all(as_bytes(&answers)).await?;
    }
    Ok(())
}

type Request = (Header, Vec<u64>);

async fn forward(mut reading: OwnedReadHalf, requests: Sender<Request>) -> Result<()> {
    let mut incoming = Incoming::new();
    while let Some(header) = receive(&mut reading, &mut incoming).await? {
        let request = (header, incoming.elements(header).to_vec());
        incoming.remove(header);
        if requests.send(request).await.is_err() {
            break;
        }
    }
    Ok(())
}

async fn multiply(mut requests: Receiver<Request>, answers: Sender<Vec<u64>>) {
    while let Some((header, elements)) = requests.recv().await {
        let mut words = Vec::new();
        answer(header, &elements, &mut words);
        if answers.send(words).await.is_err() {
            break;
        }
    }
}

/// Dropping the half at the end shuts the connection down.
async fn send(mut writing: OwnedWriteHalf, mut answers: Receiver<Vec<u64>>) -> Result<()> {
    while let Some(words) = answers.recv().await {
        writing.write_all(as_bytes(&words)).await?;
    }
    Ok(())
}

/// The next request, or `None` at the end of the stream or after an invalid one.
async fn receive(reading: &mut OwnedReadHalf, incoming: &mut Incoming) -> Result<Option<Header>> {
    loop {
        match incoming.message() {
            Ok(None) => {}
            Ok(Some(header)) => return Ok(Some(header)),
            Err(_) => return Ok(None),
        }
        let count = reading.read(incoming.space()).await?;
        if count == 0 {
            return Ok(None);
        }
        incoming.received(count);
    }
}
