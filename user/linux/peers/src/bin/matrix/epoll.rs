//! Event loops: each of some threads serves its share of the connections, by level-triggered epoll.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::spawn;

use matrix_message::as_bytes;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

use crate::accept;
use crate::message::{Incoming, answer};

/// Events of one wait.
const EVENTS: usize = 256;
/// The event of the descriptor that announces connections; the others have numbers of descriptors.
const BEGUN: u64 = u64::MAX;

/// The acceptor's side of an event loop.
struct Loop {
    begun: Sender<TcpStream>,
    /// Wakes the loop, which then takes what has begun.
    bell: Arc<OwnedFd>,
}

/// Event loops on `threads` threads; connections are dealt to them in turn.
pub fn serve(listener: &TcpListener, threads: usize) -> Result<()> {
    let loops = (0..threads).map(|_| start()).collect::<Result<Vec<_>>>()?;
    let mut turns = loops.iter().cycle();
    accept::each(listener, |stream| {
        stream.set_nonblocking(true)?;
        let Some(turn) = turns.next() else { return Err(ErrorKind::NotFound.into()) };
        turn.begun.send(stream).map_err(|_| ErrorKind::BrokenPipe)?;
        write(&turn.bell, &1_u64.to_ne_bytes())?;
        Ok(())
    })
}

fn start() -> Result<Loop> {
    let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
    let (begun, new) = channel();
    let of_loop = bell.clone();
    spawn(move || run(&of_loop, &new).expect("epoll works"));
    Ok(Loop { begun, bell })
}

fn run(bell: &OwnedFd, new: &Receiver<TcpStream>) -> Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, bell, EventData::new_u64(BEGUN), EventFlags::IN)?;
    // By their descriptors.
    let mut connections: Vec<Option<Box<Connection>>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            let data = event.data.u64();
            if data == BEGUN {
                read(bell, &mut [0; 8])?;
                for stream in new.try_iter() {
                    let number = stream.as_raw_fd() as usize;
                    if connections.len() <= number {
                        connections.resize_with(number + 1, || None);
                    }
                    let data = EventData::new_u64(number as u64);
                    epoll::add(&epoll, &stream, data, EventFlags::IN)?;
                    connections[number] = Some(Box::new(Connection::new(stream)));
                }
                continue;
            }
            let Some(entry) = connections.get_mut(data as usize) else { continue };
            let Some(connection) = entry else { continue };
            match connection.attend() {
                Ok(wanted) if wanted == connection.wanted => {}
                Ok(wanted) => {
                    connection.wanted = wanted;
                    epoll::modify(&epoll, &connection.stream, event.data, wanted)?;
                }
                // Closes it, which removes it from the epoll too.
                Err(_) => *entry = None,
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    incoming: Incoming,
    answers: Vec<u64>,
    /// How many bytes of the answers have been sent.
    sent: usize,
    /// What the epoll waits for.
    wanted: EventFlags,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        let (incoming, answers) = (Incoming::new(), Vec::new());
        Self { stream, incoming, answers, sent: 0, wanted: EventFlags::IN }
    }

    /// Receives once or sends, and returns what to wait for. A connection with unsent answers
    /// receives nothing.
    ///
    /// # Errors
    /// At the end of the connection, and after an invalid message.
    fn attend(&mut self) -> Result<EventFlags> {
        if self.answers.is_empty() {
            match self.stream.read(self.incoming.space()) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.incoming.received(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(EventFlags::IN),
                Err(error) => return Err(error),
            }
            while let Some(header) = self.incoming.message().map_err(|_| ErrorKind::InvalidData)? {
                answer(header, self.incoming.elements(header), &mut self.answers);
                self.incoming.remove(header);
            }
        }
        while self.sent < size_of_val(&*self.answers) {
            match self.stream.write(&as_bytes(&self.answers)[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(EventFlags::OUT),
                Err(error) => return Err(error),
            }
        }
        self.answers.clear();
        self.sent = 0;
        Ok(EventFlags::IN)
    }
}
