//! Leaving the fast path: a socket of smoltcp in the state of the connection.

use alloc::sync::Arc;

use cops_fallible::List;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::wire::{IpListenEndpoint, TcpControl, TcpRepr, TcpSeqNumber};

use super::FastPath;
use super::enter::PeerOptions;
use crate::endpoint::{Endpoint, EndpointState, Protocol};
use crate::error::Error;
use crate::frame::Segment;
use crate::link_core::LinkCore;
use crate::script::{DATA_BYTES_MAX, FRAMES_OF_A_SCRIPT, Script};
use crate::shared::{BufferSlot, STALLED_MICROSECONDS, Shared};

/// Calls of smoltcp: at least two segments in and two attempts to send.
const POLLS_OF_A_SCRIPT: u64 = 4;
/// In place of bytes that the program has read.
static ZEROS: [u8; DATA_BYTES_MAX] = [0; DATA_BYTES_MAX];

impl Script<'_> {
    /// Brings the listening socket into the state of `fast`. Returns the number of its first byte
    /// to be sent.
    ///
    /// The conversation begins `waiting` bytes before its end, since `waiting_since`, also if the
    /// program has read them: what replaces these is read here.
    fn play(
        &mut self,
        handle: SocketHandle,
        fast: &FastPath,
        options: PeerOptions,
        (waiting, waiting_since): (usize, u64),
    ) -> Option<TcpSeqNumber> {
        let unread = fast.received.as_slice();
        let read = waiting.saturating_sub(unread.len());
        let replayed = (read + unread.len()) as u32;
        let mut next = TcpSeqNumber(fast.next_expected.wrapping_sub(replayed) as i32);
        self.receive(
            TcpRepr {
                control: TcpControl::Syn,
                seq_number: next - 1,
                window_len: fast.peer_window,
                window_scale: options.window_scale,
                max_seg_size: options.segment_bytes_max,
                sack_permitted: options.sack_permitted,
                ..self.segment()
            },
            fast.sent_at,
        );
        let first = self.send(fast.sent_at)? + 1;
        let plain =
            TcpRepr { ack_number: Some(first), window_len: fast.peer_window, ..self.segment() };
        self.receive(TcpRepr { seq_number: next, ..plain }, fast.sent_at);
        // Everything in flight was sent at once, whatever Nagle's algorithm says.
        let (in_flight, unsent) = fast.outgoing.as_slice().split_at_checked(fast.in_flight())?;
        let queue = |socket: &mut Socket<'_>, bytes: &[u8]| {
            socket.send_slice(bytes).is_ok_and(|queued| queued == bytes.len())
        };
        let socket = self.sockets.get_mut::<Socket<'static>>(handle);
        socket.set_nagle_enabled(false);
        if socket.state() != State::Established || !queue(socket, in_flight) {
            return None;
        }
        if !in_flight.is_empty() {
            while self.send(fast.sent_at).is_some() {}
        }
        // After that, since what was in flight did not acknowledge these bytes.
        if read > 0 {
            let payload = ZEROS.get(..read)?;
            self.receive(TcpRepr { seq_number: next, payload, ..plain }, waiting_since);
            next += read;
            let socket = self.sockets.get_mut::<Socket<'static>>(handle);
            socket.recv(|bytes| (bytes.len(), ())).ok()?;
        }
        for payload in unread.chunks(DATA_BYTES_MAX) {
            self.receive(TcpRepr { seq_number: next, payload, ..plain }, waiting_since);
            next += payload.len();
        }
        let socket = self.sockets.get_mut::<Socket<'static>>(handle);
        let complete = queue(socket, unsent) && socket.recv_queue() == unread.len();
        socket.set_nagle_enabled(fast.nagle);
        complete.then_some(first)
    }
}

impl LinkCore {
    /// Replaces the fast path of a connection by a socket in the same state. Does nothing for a
    /// connection that has a socket.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; the connection is as it was.
    pub(crate) fn leave_fast_path(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        now: u64,
    ) -> Result<(), Error> {
        let Some(fast) = &mut state.fast else { return Ok(()) };
        // The socket replaces the queues, so what these are charged counts for it.
        let of_queues = fast.charge.suspend();
        let socket = BufferSlot::take(shared).map_err(Error::from).and_then(|slot| {
            let socket = Endpoint::stream_socket(shared, endpoint.link)?;
            Ok((slot, Endpoint::socket_set(socket)?))
        });
        let (slot, (mut sockets, handle)) =
            socket.inspect_err(|_| fast.charge.resume(of_queues))?;
        state.buffers = Some(slot);
        let EndpointState { fast, protocol: Protocol::Stream(stream), .. } = state else {
            return Ok(());
        };
        let (Some(fast), Some(interface)) = (fast.take(), &mut self.direct) else { return Ok(()) };
        let key = stream.key;
        let listening = IpListenEndpoint { addr: Some(key.local.addr), port: key.local.port };
        // Cannot fail: the socket is closed and the port is not 0.
        let _ = sockets.get_mut::<Socket<'static>>(handle).listen(listening);
        let capabilities = self.transport.direct_capabilities();
        let mut script = Script {
            interface,
            capabilities,
            sockets: &mut sockets,
            key,
            memory: &mut self.memory,
        };
        let options = stream.tracking.options;
        let room = fast.receive_room(stream.tracking.segment_bytes_max());
        let waiting = stream.acknowledgements.to_replay(room, now);
        let first = options.and_then(|options| script.play(handle, &fast, options, waiting));
        shared.counters.socket_polls.add(POLLS_OF_A_SCRIPT);
        self.frames_moved += FRAMES_OF_A_SCRIPT;
        debug_assert!(first.is_some(), "smoltcp does not take part in a handshake: {fast:?}");
        match first {
            Some(first) => state.shift = fast.unacknowledged.wrapping_sub(first.0 as u32),
            // Nothing is known that would bring this about. It is not worth a panic.
            None => {
                stream.fail(Error::ConnectionAborted);
                sockets.get_mut::<Socket<'static>>(handle).abort();
                stream.receivers.wake_all();
                stream.senders.wake_all();
            }
        }
        if fast.lacks_memory() {
            // The socket has a buffer.
            stream.senders.wake_all();
        }
        stream.tracking.leave(&fast);
        state.sockets = sockets;
        state.handle = Some(handle);
        shared.counters.fast_path_left.add(1);
        Ok(())
    }

    /// A connection found no memory to leave the fast path for `segment`. If that is a reset, the
    /// connection ends without: a reset is not repeated. Returns whether it was.
    ///
    /// Its number must be exactly the next one (RFC 5961, section 3.2). smoltcp accepts any number
    /// in the window. What has arrived before can be read, as with a socket.
    pub(crate) fn end_if_reset(
        &mut self,
        shared: &Shared,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        segment: Option<&Segment<'_>>,
    ) -> bool {
        let EndpointState { fast: Some(fast), protocol: Protocol::Stream(stream), .. } = state
        else {
            return false;
        };
        let Some(segment) = segment else { return false };
        let is_reset = segment.reset && !(segment.synchronize || segment.finish);
        if !is_reset || segment.sequence.0 as u32 != fast.next_expected {
            return false;
        }
        shared.counters.resets_received.add(1);
        stream.fail(Error::ConnectionReset);
        stream.receivers.wake_all();
        stream.senders.wake_all();
        if let Some(mut fast) = state.fast.take().filter(|fast| fast.unread() > 0) {
            let bytes = fast.outgoing.len();
            fast.outgoing.consume(bytes);
            fast.release_queues();
            let nothing = SocketBuffer::new(List::new().into_vec());
            let socket = Socket::new(fast.received.into_buffer(), nothing);
            // Without memory even for this, the bytes are lost, as RFC 9293 allows (3.10.7.4).
            if let Ok((sockets, handle)) = Endpoint::socket_set(socket) {
                state.sockets = sockets;
                state.handle = Some(handle);
                state.buffers = Some(BufferSlot::of_queue(fast.charge));
            }
        }
        self.retire(endpoint, state);
        true
    }

    /// A connection found no memory to leave the fast path. If its peer has long acknowledged none
    /// of the bytes that wait for it, it is reset, as one with a socket. Returns whether it was.
    pub(crate) fn reset_if_stalled(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        now: u64,
    ) -> bool {
        let EndpointState { fast: Some(fast), protocol: Protocol::Stream(stream), .. } = state
        else {
            return false;
        };
        let is_stalled = fast.queued() > 0 && fast.sent_at + STALLED_MICROSECONDS <= now;
        if !(is_stalled && shared.is_memory_used_up()) {
            return false;
        }
        shared.counters.timeouts.add(1);
        stream.fail(Error::TimedOut);
        stream.receivers.wake_all();
        stream.senders.wake_all();
        self.reset_fast(shared, endpoint, state, now);
        true
    }
}
