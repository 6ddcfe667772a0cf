//! Rings: each of some threads serves its share of the connections by io_uring. In the steady
//! state, one call submits and awaits for all of them.

use std::io::{Error, ErrorKind, Result};
use std::mem::ManuallyDrop;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::spawn;

use io_uring::squeue::Entry;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use matrix_message::as_bytes;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::write;

use crate::accept;
use crate::message::{Incoming, answer};

/// Operations that are submitted with one call.
const SUBMITTED: u32 = 1024;
/// Results that the kernel keeps in the ring: two operations of each of 4,096 connections.
const COMPLETED: u32 = 8192;
/// Send all of it: `MSG_WAITALL`.
const WHOLE: i32 = 0x100;

/// What an operation is for: the lowest bits of its number; above them is the descriptor.
const RECEIVE: u64 = 0;
const SEND: u64 = 1;
const BEGUN: u64 = 2;
const KIND_BITS: u32 = 2;

/// The acceptor's side of a thread.
struct Worker {
    begun: Sender<TcpStream>,
    /// Wakes the thread, which then takes what has begun.
    bell: Arc<OwnedFd>,
}

/// Rings on `threads` threads; connections are dealt to them in turn.
pub fn serve(listener: &TcpListener, threads: usize) -> Result<()> {
    let workers = (0..threads).map(|_| start()).collect::<Result<Vec<_>>>()?;
    let mut turns = workers.iter().cycle();
    accept::each(listener, |stream| {
        let Some(turn) = turns.next() else { return Err(ErrorKind::NotFound.into()) };
        turn.begun.send(stream).map_err(|_| ErrorKind::BrokenPipe)?;
        write(&turn.bell, &1_u64.to_ne_bytes())?;
        Ok(())
    })
}

fn start() -> Result<Worker> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
    let (begun, new) = channel();
    let of_worker = bell.clone();
    spawn(move || run(&of_worker, &new).expect("io_uring works"));
    Ok(Worker { begun, bell })
}

struct Connection {
    stream: TcpStream,
    incoming: Incoming,
    answers: Vec<u64>,
    /// Whether the kernel has the space of `incoming`, which must not change until it is back.
    is_receiving: bool,
    /// Whether the kernel has `answers`, which must not change until they are back.
    is_sending: bool,
    /// Nothing more is submitted. The buffers are freed when the kernel has none of them.
    has_ended: bool,
}

fn run(bell: &OwnedFd, new: &Receiver<TcpStream>) -> Result<()> {
    // The ring belongs to this thread, and results are delivered when it asks for them.
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_defer_taskrun()
        .setup_cqsize(COMPLETED)
        .build(SUBMITTED)?;
    let mut operations = Operations { ring, count: Box::leak(Box::new([0; 8])) };
    operations.await_bell(bell.as_raw_fd())?;
    // By their descriptors. Not freed if this fails, because the kernel may have their buffers.
    let mut connections = ManuallyDrop::new(Vec::<Option<Box<Connection>>>::new());
    let mut done = Vec::new();
    loop {
        operations.ring.submit_and_wait(1)?;
        done.extend(operations.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (number, result) in done.drain(..) {
            let kind = number & ((1 << KIND_BITS) - 1);
            if kind == BEGUN {
                for stream in new.try_iter() {
                    let place = stream.as_raw_fd() as usize;
                    if connections.len() <= place {
                        connections.resize_with(place + 1, || None);
                    }
                    let connection = connections[place].insert(Box::new(Connection::new(stream)));
                    operations.receive(connection)?;
                }
                operations.await_bell(bell.as_raw_fd())?;
                continue;
            }
            let Some(entry) = connections.get_mut((number >> KIND_BITS) as usize) else { continue };
            let Some(connection) = entry else { continue };
            connection.completed(kind, result);
            if !connection.has_ended {
                connection.resume(&mut operations)?;
            }
            if connection.has_ended && !connection.is_receiving && !connection.is_sending {
                *entry = None;
            }
        }
    }
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            incoming: Incoming::new(),
            answers: Vec::new(),
            is_receiving: false,
            is_sending: false,
            has_ended: false,
        }
    }

    fn completed(&mut self, kind: u64, result: i32) {
        if kind == SEND {
            self.is_sending = false;
            // With `WHOLE`, fewer are an error.
            self.has_ended |= usize::try_from(result).ok() != Some(size_of_val(&*self.answers));
            self.answers.clear();
            return;
        }
        self.is_receiving = false;
        match usize::try_from(result) {
            Ok(count) if count > 0 => self.incoming.received(count),
            _ => self.has_ended = true,
        }
    }

    /// Answers what has arrived, and receives when the answers are sent. Both at the same time
    /// would save nothing: the receive would find nothing yet, and make the kernel watch the
    /// connection.
    fn resume(&mut self, operations: &mut Operations) -> Result<()> {
        if self.is_receiving || self.is_sending {
            return Ok(());
        }
        loop {
            match self.incoming.message() {
                Ok(Some(header)) => {
                    answer(header, self.incoming.elements(header), &mut self.answers);
                    self.incoming.remove(header);
                }
                Ok(None) => break,
                Err(_) => {
                    self.has_ended = true;
                    return Ok(());
                }
            }
        }
        if self.answers.is_empty() { operations.receive(self) } else { operations.send(self) }
    }
}

struct Operations {
    ring: IoUring,
    /// Of the bell: what the kernel reads.
    count: &'static mut [u8; 8],
}

impl Operations {
    fn await_bell(&mut self, bell: RawFd) -> Result<()> {
        let read = opcode::Read::new(Fd(bell), self.count.as_mut_ptr(), 8);
        self.submit(&read.build().user_data(BEGUN))
    }

    fn receive(&mut self, connection: &mut Connection) -> Result<()> {
        let descriptor = connection.stream.as_raw_fd();
        let space = connection.incoming.space();
        let receive = opcode::Recv::new(Fd(descriptor), space.as_mut_ptr(), length(space)?);
        connection.is_receiving = true;
        self.submit(&receive.build().user_data((descriptor as u64) << KIND_BITS | RECEIVE))
    }

    fn send(&mut self, connection: &mut Connection) -> Result<()> {
        let descriptor = connection.stream.as_raw_fd();
        let answers = as_bytes(&connection.answers);
        let send = opcode::Send::new(Fd(descriptor), answers.as_ptr(), length(answers)?);
        connection.is_sending = true;
        self.submit(&send.flags(WHOLE).build().user_data((descriptor as u64) << KIND_BITS | SEND))
    }

    fn submit(&mut self, operation: &Entry) -> Result<()> {
        loop {
            // SAFETY: the memory of the operation is the bell's count, which is never freed and
            // which nothing reads, or a buffer of a connection, which is neither changed nor freed
            // while the operation is not complete (`is_receiving`, `is_sending`, `run`).
            if unsafe { self.ring.submission().push(operation) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }
}

fn length(bytes: &[u8]) -> Result<u32> {
    u32::try_from(bytes.len()).map_err(Error::other)
}
