//! A UDP socket as a file: each write is a datagram to one peer, each read one from it.

use core::net::SocketAddr;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::poll::bits_if;
use cops_abi::poll::event::{READABLE, WRITABLE};
use cops_fallible::List;
use cops_net::{Error, UdpSocket};

use super::queues::Queues;
use super::socket::errno;
use super::stack;
use crate::mm::PinnedBuffer;
use crate::sched::{WaitQueue, Waiting};

/// Datagrams of others that one attempt drops.
const PORTION_DROPPED: usize = 16;

/// A UDP socket that knows one peer.
pub struct Datagrams {
    socket: UdpSocket,
    peer: SocketAddr,
    queues: Queues,
}

impl Datagrams {
    /// A socket at `local`, of which port 0 is any free one, that exchanges datagrams with `peer`.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`, `ENOMEM`, `EINVAL` for port 0 of the peer.
    pub fn new(local: SocketAddr, peer: SocketAddr) -> Result<Self, Errno> {
        if peer.port() == 0 {
            return Err(Errno::EINVAL);
        }
        let queues = Queues::new()?;
        let socket = stack()?.bind_udp(local).map_err(errno)?;
        Ok(Self { socket, peer, queues })
    }

    /// Stores the next datagram of the peer, cut to the size of `buffer`; `None` if there is none
    /// yet. Datagrams of others are dropped.
    pub fn attempt_read(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        for _ in 0..PORTION_DROPPED {
            let taken = self.socket.try_receive_with(|data, sender| {
                let data = &data[..data.len().min(buffer.len())];
                (sender == self.peer).then(|| {
                    buffer.write_at(0, data);
                    data.len()
                })
            });
            match taken {
                Ok(None) => {}
                Ok(Some(count)) => return Some(Ok(count)),
                Err(Error::WouldBlock) => return None,
                Err(error) => return Some(Err(errno(error))),
            }
        }
        // There may be more, of which the next call hears: the stack's queue is short.
        self.queues.of(Waiting::ToRead).wake_one();
        None
    }

    /// Sends `buffer` as one datagram; `None` if there is no room for it yet.
    pub fn attempt_write(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        match self.send(buffer) {
            Err(Errno::EAGAIN) => None,
            result => Some(result),
        }
    }

    fn send(&self, buffer: &PinnedBuffer) -> CallResult {
        let mut data = List::try_with_capacity(buffer.len())?;
        let mut piece = [0; 512];
        while data.len() < buffer.len() {
            let count = piece.len().min(buffer.len() - data.len());
            buffer.read_at(data.len(), &mut piece[..count]);
            data.try_extend_from_slice(&piece[..count])?;
        }
        self.socket.try_send_to(&data, self.peer).map_err(errno)
    }

    /// The events of `ppoll` that it has.
    pub fn readiness(&self) -> u32 {
        let ready = self.socket.readiness();
        bits_if(ready.readable, READABLE) | bits_if(ready.writable, WRITABLE)
    }

    /// The calls that wait for this direction.
    pub fn queue(&self, waiting: Waiting) -> &WaitQueue {
        self.queues.of(waiting)
    }

    /// Registers with the stack, which wakes one call of this direction's queue, once, when an
    /// attempt may succeed. Returns true: one may succeed now.
    pub fn listen_for(&self, waiting: Waiting) -> bool {
        let waker = self.queues.waker(waiting);
        match waiting {
            Waiting::ToRead => self.socket.register_receive_waker(&waker),
            Waiting::ToWrite => self.socket.register_send_waker(&waker),
        }
        true
    }
}
