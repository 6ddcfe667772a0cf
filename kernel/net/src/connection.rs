//! The handle of a TCP connection.
//!
//! Bytes are copied under the endpoint's own lock, so harts with different connections do not
//! contend. After that the interface is asked to send; its lock is only tried (see `link`).

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::net::SocketAddr;
use core::task::{Context, Poll, Waker};

use cops_lock::MutexGuard;
use smoltcp::socket::tcp::{Socket, State};

use crate::endpoint::{Endpoint, EndpointState, LinkKind, Protocol};
use crate::error::Error;
use crate::fast_path::FastPath;
use crate::keep_alive::KeepAlive;
use crate::link_core::LinkCore;
use crate::opening::{Claim, TcpBinding};
use crate::readiness::{Behind, Readiness};
use crate::stack::Stack;
use crate::stream::{Owner, Stream};

/// Direction to shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// The owner will not read any more. What arrives is still acknowledged while it fits the
    /// buffer.
    Read,
    /// The owner will not send any more: a FIN follows what has been queued.
    Write,
    /// Both.
    Both,
}

/// A TCP connection: connecting, open, or ended.
///
/// Any number of tasks may use it at once. Dropping it closes it in the background: with a FIN if
/// all received data was read, with a reset otherwise. The stack still sends what has been queued.
///
/// Every `poll_` method is cancel-safe: it consumes or queues bytes only if it returns that it has.
pub struct Connection {
    stack: Arc<Stack>,
    endpoint: Arc<Endpoint>,
    local: SocketAddr,
    remote: SocketAddr,
    /// The port, if it was bound explicitly.
    claim: Option<Claim>,
}

impl Connection {
    pub(crate) fn new(
        stack: Arc<Stack>,
        endpoint: Arc<Endpoint>,
        claim: Option<Claim>,
    ) -> Connection {
        let key = endpoint.state.lock().record().map(|stream| stream.key);
        let unspecified = SocketAddr::new(core::net::Ipv4Addr::UNSPECIFIED.into(), 0);
        let (local, remote) =
            key.map_or((unspecified, unspecified), |key| (key.local.into(), key.remote.into()));
        Connection { stack, endpoint, local, remote, claim }
    }

    /// The local address.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address, whether or not there is a connection ([`Self::is_connected`]).
    pub fn remote_address(&self) -> SocketAddr {
        self.remote
    }

    /// Whether there is a connection: it is established, and neither has failed nor ended in both
    /// directions.
    pub fn is_connected(&self) -> bool {
        let mut state = self.endpoint.state.lock();
        state.fast.is_some()
            || state.stream().is_some_and(|(socket, stream)| {
                stream.established && !matches!(socket.state(), State::Closed | State::TimeWait)
            })
    }

    /// Keeps `charge`, for the connection's memory, until the connection is freed. That may be long
    /// after this handle is dropped: the peer has to acknowledge what was sent, and to close its
    /// direction. The stack drops it under its locks, so that must neither wait nor use the stack.
    pub fn keep(&self, charge: Box<dyn Any + Send + Sync>) {
        if let Some(stream) = self.endpoint.state.lock().record() {
            stream.kept = Some(charge);
        }
    }

    /// Closes the connection. Returns the port that was bound for it explicitly, if there is one.
    pub fn into_binding(mut self) -> Option<TcpBinding> {
        self.claim.take().map(|claim| TcpBinding::new(self.stack.clone(), claim))
    }

    /// Calls `act` with the socket, which a connection on the fast path gets for that. Then it
    /// waits for the interface.
    fn with_socket<R>(
        &self,
        act: impl FnOnce(&mut Socket<'static>, &mut Stream) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.with_socket_or(act, |_, _, _, error| Err(error))
    }

    /// As [`Self::with_socket`]. Calls `without` if there is no memory for the socket, with the
    /// connection on the fast path and the time.
    fn with_socket_or<R>(
        &self,
        act: impl FnOnce(&mut Socket<'static>, &mut Stream) -> Result<R, Error>,
        without: impl FnOnce(&mut LinkCore, &mut EndpointState, u64, Error) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut state = self.endpoint.state.lock();
        if state.fast.is_none() {
            let (socket, stream) = state.stream().ok_or(Error::NotConnected)?;
            return act(socket, stream);
        }
        drop(state);
        let link = self.stack.link(self.endpoint.link).ok_or(Error::NotConnected)?;
        let (mut core, shared) = (link.lock(), &self.stack.shared);
        let now = core.now(shared);
        let mut state = self.endpoint.state.lock();
        if let Err(error) = core.leave_fast_path(shared, &self.endpoint, &mut state, now) {
            return without(&mut core, &mut state, now, error);
        }
        let (socket, stream) = state.stream().ok_or(Error::NotConnected)?;
        act(socket, stream)
    }

    /// Waits until the handshake is complete.
    ///
    /// # Errors
    /// [`Error::ConnectionRefused`], [`Error::TimedOut`], [`Error::ConnectionReset`], or how the
    /// connection ended later.
    pub fn poll_connected(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        pending_if_blocked(self.connected(Some(context.waker())))
    }

    /// Whether the connection is established.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if the handshake is not complete; otherwise how it failed.
    pub fn try_connected(&self) -> Result<(), Error> {
        self.connected(None)
    }

    fn connected(&self, waker: Option<&Waker>) -> Result<(), Error> {
        let mut state = self.endpoint.state.lock();
        if state.record().is_some_and(|stream| stream.established) {
            return Ok(());
        }
        if let Some((socket, stream)) = state.stream()
            && stream.begins(socket)
        {
            if let Some(waker) = waker {
                stream.senders.register(waker);
            }
            return Err(Error::WouldBlock);
        }
        let failure = state.record().and_then(|stream| stream.failure);
        Err(failure.unwrap_or(Error::NotConnected))
    }

    /// Queues the beginning of `data` for sending. Returns the number of bytes, which is 0 only if
    /// `data` is empty.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if the buffer is full, there is no memory for one, or the handshake is
    /// not complete;
    /// [`Error::BrokenPipe`] after a shutdown or the end of the connection; how it failed, once
    /// ([`Self::take_error`]).
    pub fn try_send(&self, data: &[u8]) -> Result<usize, Error> {
        self.send(None, data)
    }

    /// Like [`try_send`](Self::try_send), but `fill` writes directly into the buffer. It gets the
    /// contiguous free part, which is never empty and has at most `length` bytes, and returns how
    /// many bytes it has written, and a result.
    ///
    /// # Errors
    /// As `try_send`; then `fill` was not called.
    pub fn try_send_with<R>(
        &self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Result<R, Error> {
        self.send_with(None, length, fill)
    }

    /// Like [`try_send`](Self::try_send), but waits where that would block.
    pub fn poll_send(&self, context: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, Error>> {
        pending_if_blocked(self.send(Some(context.waker()), data))
    }

    /// Like [`try_send_with`](Self::try_send_with), but waits where that would block.
    pub fn poll_send_with<R>(
        &self,
        context: &mut Context<'_>,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Poll<Result<R, Error>> {
        pending_if_blocked(self.send_with(Some(context.waker()), length, fill))
    }

    fn send(&self, waker: Option<&Waker>, data: &[u8]) -> Result<usize, Error> {
        let mut state = self.endpoint.state.lock();
        let sent = if state.fast.is_some() {
            let sent = fast_send(&mut state, waker, data.len(), |buffer| {
                buffer.copy_from_slice(&data[..buffer.len()]);
                (buffer.len(), ())
            });
            match sent {
                Ok((sent, ())) => sent,
                Err(error) => return Err(self.after_failure(state, error)),
            }
        } else {
            let (socket, _) = state.sendable(waker)?;
            // `Err` cannot happen: the state is checked.
            socket.send_slice(data).map_err(|_| Error::BrokenPipe)?
        };
        drop(state);
        self.after_send(sent);
        Ok(sent)
    }

    fn send_with<R>(
        &self,
        waker: Option<&Waker>,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Result<R, Error> {
        let mut state = self.endpoint.state.lock();
        let (sent, result) = if state.fast.is_some() {
            match fast_send(&mut state, waker, length, fill) {
                Ok(sent) => sent,
                Err(error) => return Err(self.after_failure(state, error)),
            }
        } else {
            let (socket, _) = state.sendable(waker)?;
            let filled = socket.send(|buffer| {
                let end = buffer.len().min(length);
                let (count, result) = fill(&mut buffer[..end]);
                let count = count.min(end);
                (count, (count, result))
            });
            filled.map_err(|_| Error::BrokenPipe)?
        };
        drop(state);
        self.after_send(sent);
        Ok(result)
    }

    /// Nothing was sent. If that is for want of memory, the connection is served, so that it looks
    /// for some from then on.
    #[cold]
    fn after_failure(&self, state: MutexGuard<'_, EndpointState>, error: Error) -> Error {
        let begins = state.fast.as_ref().is_some_and(FastPath::begins_to_wait);
        drop(state);
        if begins {
            self.stack.kick(&self.endpoint);
        }
        error
    }

    fn after_send(&self, sent: usize) {
        if sent > 0 {
            self.stack.shared.counters.stream_bytes_sent.add(sent as u64);
            self.stack.kick(&self.endpoint);
        }
    }

    /// Reads received bytes. Returns their number; 0 means the end of the stream (or an empty
    /// `buffer`).
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if nothing has arrived. How the connection failed, once everything
    /// that arrived before has been read; that is reported once ([`Self::take_error`]), and then
    /// the stream has ended. [`Error::NotConnected`] if the connection was never established.
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        self.receive(None, buffer)
    }

    /// Like [`try_receive`](Self::try_receive), but `take` reads directly from the buffer. It gets
    /// the contiguous received bytes (none at the end of the stream) and returns how many it has
    /// consumed, and a result.
    ///
    /// # Errors
    /// As `try_receive`; then `take` was not called.
    pub fn try_receive_with<R>(&self, take: impl FnOnce(&[u8]) -> (usize, R)) -> Result<R, Error> {
        self.receive_with(None, take)
    }

    /// Like [`try_receive_with`](Self::try_receive_with). Registers `waker`, which is woken when
    /// anything arrives afterwards. Also returns what is left.
    ///
    /// # Errors
    /// As [`Self::try_receive`].
    pub fn receive_and_register<R>(
        &self,
        waker: &Waker,
        take: impl FnOnce(&[u8]) -> (usize, R),
    ) -> Result<(R, Behind), Error> {
        self.receive_then(Some(waker), take, |state| register_receiver(state, waker))
    }

    /// Like [`try_receive`](Self::try_receive), but the bytes stay and can be received again.
    ///
    /// [`Self::try_receive_with`] cannot replace this: its bytes end where the buffer wraps around,
    /// and those that are behind are not seen before these are consumed.
    ///
    /// # Errors
    /// As [`Self::try_receive`].
    pub fn try_peek(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut state = self.endpoint.state.lock();
        if state.fast.is_some() {
            // All of its bytes are contiguous.
            let copy = |bytes: &[u8]| {
                let count = bytes.len().min(buffer.len());
                buffer[..count].copy_from_slice(&bytes[..count]);
                (0, count)
            };
            return fast_receive(&mut state, None, copy).map(|(_, count, _)| count);
        }
        let Some((socket, _)) = state.receivable(None)? else { return Ok(0) };
        socket.peek_slice(buffer).map_err(|_| Error::NotConnected)
    }

    /// Like [`try_receive`](Self::try_receive), but waits where that would block.
    pub fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, Error>> {
        pending_if_blocked(self.receive(Some(context.waker()), buffer))
    }

    /// Like [`try_receive_with`](Self::try_receive_with), but waits where that would block.
    pub fn poll_receive_with<R>(
        &self,
        context: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> (usize, R),
    ) -> Poll<Result<R, Error>> {
        pending_if_blocked(self.receive_with(Some(context.waker()), take))
    }

    fn receive(&self, waker: Option<&Waker>, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut state = self.endpoint.state.lock();
        let (taken, serve) = if state.fast.is_some() {
            let (taken, (), serve) = fast_receive(&mut state, waker, |bytes| {
                let count = bytes.len().min(buffer.len());
                buffer[..count].copy_from_slice(&bytes[..count]);
                (count, ())
            })?;
            (taken, serve)
        } else {
            let Some((socket, stream)) = state.receivable(waker)? else { return Ok(0) };
            let before = socket.recv_queue();
            // `Err` cannot happen: there are bytes.
            let taken = socket.recv_slice(buffer).map_err(|_| Error::NotConnected)?;
            let link = self.endpoint.link;
            (taken, wants_service(socket, stream, link, before, taken))
        };
        drop(state);
        self.after_receive(taken, serve);
        Ok(taken)
    }

    fn receive_with<R>(
        &self,
        waker: Option<&Waker>,
        take: impl FnOnce(&[u8]) -> (usize, R),
    ) -> Result<R, Error> {
        self.receive_then(waker, take, |_| ()).map(|(result, ())| result)
    }

    /// Receives as the methods above do, then calls `then` under the same lock.
    fn receive_then<R, T>(
        &self,
        waker: Option<&Waker>,
        take: impl FnOnce(&[u8]) -> (usize, R),
        then: impl FnOnce(&mut EndpointState) -> T,
    ) -> Result<(R, T), Error> {
        let mut state = self.endpoint.state.lock();
        let (taken, result, serve) = if state.fast.is_some() {
            fast_receive(&mut state, waker, take)?
        } else {
            receive_from_socket(&mut state, self.endpoint.link, waker, take)?
        };
        let then = then(&mut state);
        drop(state);
        self.after_receive(taken, serve);
        Ok((result, then))
    }

    fn after_receive(&self, taken: usize, serve: bool) {
        self.stack.shared.counters.stream_bytes_received.add(taken as u64);
        if serve {
            self.stack.kick(&self.endpoint);
        }
    }

    /// What the connection is ready for. Consumes nothing.
    pub fn readiness(&self) -> Readiness {
        let mut state = self.endpoint.state.lock();
        if let Some(fast) = &state.fast {
            // It is open in both directions: a FIN, and a shutdown, need a socket.
            return Readiness {
                readable: fast.unread() > 0,
                writable: fast.room() > 0 && !fast.lacks_memory(),
                ..Readiness::default()
            };
        }
        let record = state.record().map(|stream| (stream.failure, stream.unreported));
        let (failure, unreported) = record.unwrap_or_default();
        let Some((socket, stream)) = state.stream() else {
            return Readiness::without_socket(failure.is_some(), unreported.is_some());
        };
        let over = socket.state() == State::Closed;
        let has_ended = over || stream.received_fin || stream.read_shut;
        Readiness {
            closed: over || (has_ended && stream.write_shut),
            readable: socket.can_recv() || has_ended,
            writable: socket.can_send() || stream.write_shut || over,
            end_of_stream: has_ended,
            failed: unreported.is_some(),
        }
    }

    /// Registers `waker` to be woken when receiving may have become possible. Returns whether it is
    /// possible already; then the waker may not be woken for that.
    pub fn register_receive_waker(&self, waker: &Waker) -> bool {
        register_receiver(&mut self.endpoint.state.lock(), waker).is_receivable()
    }

    /// Registers `waker` to be woken when sending may have become possible, or the handshake is
    /// complete. Check again afterwards.
    pub fn register_send_waker(&self, waker: &Waker) {
        if let Some(stream) = self.endpoint.state.lock().record() {
            stream.senders.register(waker);
        }
    }

    /// Shuts down one or both directions. What has been queued is still sent.
    ///
    /// A connection of which the handshake is not complete fails instead, whatever the direction,
    /// with [`Error::ConnectionAborted`]. Both are decided under the connection's lock, so one that
    /// is established meanwhile is not aborted.
    ///
    /// # Errors
    /// [`Error::NotConnected`] if the connection is not open.
    pub fn shutdown(&self, direction: Shutdown) -> Result<(), Error> {
        let counters = &self.stack.shared.counters;
        self.with_socket(|socket, stream| {
            if stream.begins(socket) {
                stream.abort(socket, Error::ConnectionAborted, counters);
                return Ok(());
            }
            if !stream.established || socket.state() == State::Closed {
                return Err(Error::NotConnected);
            }
            if direction != Shutdown::Write {
                stream.read_shut = true;
                stream.receivers.wake_all();
            }
            if direction != Shutdown::Read {
                stream.write_shut = true;
                stream.close(socket);
                stream.senders.wake_all();
            }
            Ok(())
        })?;
        self.stack.kick(&self.endpoint);
        Ok(())
    }

    /// Ends the connection at once with a reset. The peer does not get what is queued. Bytes
    /// received before can still be read.
    pub fn abort(&self) {
        let counters = &self.stack.shared.counters;
        self.end(|socket, stream| stream.abort(socket, Error::ConnectionAborted, counters));
    }

    /// How the connection failed (`SO_ERROR`); `None` if it did not, or if that was reported
    /// before: here, or by sending or receiving.
    pub fn take_error(&self) -> Option<Error> {
        self.endpoint.state.lock().record().and_then(|stream| stream.unreported.take())
    }

    /// The error `is_it`, which sending or receiving has returned, was not passed on: if it is how
    /// the connection failed, the next operation reports it.
    pub fn restore_error(&self, is_it: impl FnOnce(Error) -> bool) {
        if let Some(stream) = self.endpoint.state.lock().record()
            && stream.failure.is_some_and(is_it)
        {
            stream.unreported = stream.failure;
        }
    }

    /// Probes a silent peer from now on, or no longer, and ends the connection with
    /// [`Error::TimedOut`] if it does not answer.
    pub fn set_keep_alive(&self, keep_alive: Option<KeepAlive>) {
        // Without memory for a socket it stays as it was.
        let now = self.stack.shared.clock.now_microseconds();
        let _ = self.with_socket(|socket, stream| {
            (stream.keep_alive, stream.keep_alive_since) = (keep_alive, now);
            socket.set_keep_alive(None);
            Ok(())
        });
        self.stack.kick(&self.endpoint);
    }

    /// Sends small segments at once (`TCP_NODELAY`). By default (Nagle's algorithm) they wait,
    /// while data is in flight, until they fill a frame. Loopback never waits.
    pub fn set_no_delay(&self, no_delay: bool) {
        let nagle = !no_delay && self.endpoint.link == LinkKind::Ethernet;
        let mut state = self.endpoint.state.lock();
        if let Some(fast) = &mut state.fast {
            fast.set_nagle(nagle);
        } else if let Some((socket, _)) = state.stream() {
            socket.set_nagle_enabled(nagle);
        }
        drop(state);
        self.stack.kick(&self.endpoint);
    }

    /// Number of bytes received and not yet read.
    pub fn unread_bytes(&self) -> usize {
        let mut state = self.endpoint.state.lock();
        match &state.fast {
            Some(fast) => fast.unread(),
            None => state.stream().map_or(0, |(socket, _)| socket.recv_queue()),
        }
    }

    /// Number of bytes queued and not yet acknowledged by the peer.
    pub fn unacknowledged_bytes(&self) -> usize {
        let mut state = self.endpoint.state.lock();
        match &state.fast {
            Some(fast) => fast.queued(),
            None => state.stream().map_or(0, |(socket, _)| socket.send_queue()),
        }
    }

    /// Calls `act`, which ends the connection, with the socket. A connection on the fast path for
    /// which there is no memory for a socket is reset. Whichever it is, nothing comes in between.
    fn end(&self, act: impl FnOnce(&mut Socket<'static>, &mut Stream)) {
        let act = |socket: &mut Socket<'static>, stream: &mut Stream| {
            act(socket, stream);
            Ok(())
        };
        let ended = self.with_socket_or(act, |core, state, now, _| {
            if let Some(stream) = state.record() {
                stream.fail(Error::ConnectionAborted);
                stream.receivers.wake_all();
                stream.senders.wake_all();
            }
            core.reset_fast(&self.stack.shared, &self.endpoint, state, now);
            Ok(())
        });
        // What has failed before has nothing to send.
        if ended.is_ok() {
            self.stack.kick(&self.endpoint);
        }
    }
}

/// Queues bytes of a connection on the fast path.
fn fast_send<R>(
    state: &mut EndpointState,
    waker: Option<&Waker>,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> (usize, R),
) -> Result<(usize, R), Error> {
    let EndpointState { fast: Some(fast), protocol: Protocol::Stream(stream), .. } = state else {
        return Err(Error::NotConnected);
    };
    let written = if fast.room() > 0 { fast.write(length, fill).ok() } else { None };
    written.ok_or_else(|| {
        if let Some(waker) = waker {
            stream.senders.register(waker);
        }
        Error::WouldBlock
    })
}

/// Receives from the socket of a connection that is not on the fast path. Returns the number of
/// bytes, the result of `take`, and whether the connection has to be served.
///
/// # Errors
/// As [`Connection::try_receive`].
fn receive_from_socket<R>(
    state: &mut EndpointState,
    link: LinkKind,
    waker: Option<&Waker>,
    take: impl FnOnce(&[u8]) -> (usize, R),
) -> Result<(usize, R, bool), Error> {
    let Some((socket, stream)) = state.receivable(waker)? else {
        return Ok((0, take(&[]).1, false));
    };
    let before = socket.recv_queue();
    let received = socket.recv(|bytes| {
        let (length, result) = take(bytes);
        let length = length.min(bytes.len());
        (length, (length, result))
    });
    let (taken, result) = received.map_err(|_| Error::NotConnected)?;
    Ok((taken, result, wants_service(socket, stream, link, before, taken)))
}

/// Registers `waker` to be woken when more arrives than there is, and returns that.
///
/// On the path of each request, and as a call it would cost 35 instructions more.
#[inline(always)]
fn register_receiver(state: &mut EndpointState, waker: &Waker) -> Behind {
    if let EndpointState { fast: Some(fast), protocol: Protocol::Stream(stream), .. } = state {
        stream.receivers.register(waker);
        return Behind { bytes: fast.unread(), wakes: true };
    }
    register_at_socket(state, waker)
}

/// The same for a connection with a socket.
#[inline(never)]
fn register_at_socket(state: &mut EndpointState, waker: &Waker) -> Behind {
    let Some((socket, stream)) = state.stream() else { return Behind::default() };
    stream.receivers.register(waker);
    stream.behind(socket)
}

/// Reads bytes of a connection on the fast path. Returns their number, the result of `take`, and
/// whether the peer is to be told.
fn fast_receive<R>(
    state: &mut EndpointState,
    waker: Option<&Waker>,
    take: impl FnOnce(&[u8]) -> (usize, R),
) -> Result<(usize, R, bool), Error> {
    let EndpointState { fast: Some(fast), protocol: Protocol::Stream(stream), .. } = state else {
        return Err(Error::NotConnected);
    };
    if fast.unread() == 0 {
        if let Some(waker) = waker {
            stream.receivers.register(waker);
        }
        return Err(Error::WouldBlock);
    }
    let (taken, result) = fast.read(take);
    let room = fast.receive_room(stream.tracking.segment_bytes_max());
    Ok((taken, result, taken > 0 && stream.acknowledgements.has_news(room)))
}

impl Drop for Connection {
    fn drop(&mut self) {
        let shared = &self.stack.shared;
        self.end(|socket, stream| match stream.in_table {
            false => stream.owner = Owner::None,
            true => stream.disown(socket, shared.clock.now_microseconds()),
        });
    }
}

/// Whether reading `taken` of `before` bytes may change what the peer should be told. If the window
/// was still wide open, taking the interface's lock is not worthwhile: the next ACK announces the
/// window. While an acknowledgement waits for the answer, the window is still wide open, too. Over
/// loopback what the peer knows is not counted.
fn wants_service(
    socket: &Socket<'_>,
    stream: &Stream,
    link: LinkKind,
    before: usize,
    taken: usize,
) -> bool {
    let may_matter = before >= socket.recv_capacity() / 4
        && match link {
            LinkKind::Ethernet => stream.acknowledgements.may_have_news(stream.room(socket)),
            LinkKind::Loopback => true,
        };
    taken > 0 && (may_matter || socket.state() == State::TimeWait)
}

fn pending_if_blocked<R>(result: Result<R, Error>) -> Poll<Result<R, Error>> {
    match result {
        Err(Error::WouldBlock) => Poll::Pending,
        result => Poll::Ready(result),
    }
}
