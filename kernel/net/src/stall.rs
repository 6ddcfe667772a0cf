//! Connections that smoltcp has forgotten.
//!
//! smoltcp 0.14 replaces its retransmission timer by the timer of window probes when the peer's
//! window is closed, also while data is in flight, and has no timer at all after the window has
//! opened. If that data was lost, nothing happens any more. Such a socket has bytes that are not
//! acknowledged, and wants to be polled at no time. After a second it gets duplicate
//! acknowledgements that are made up, and sends the first segment again, which starts its timer.
//!
//! smoltcp ignores these in LAST-ACK, and if only a FIN is in flight. Only a peer that takes back a
//! window which it has announced brings that about. Then the connection ends when the peer has been
//! silent for too long.

use smoltcp::socket::tcp::State;
use smoltcp::wire::{TcpRepr, TcpSeqNumber};

use crate::endpoint::EndpointState;
use crate::link_core::LinkCore;
use crate::script::Script;
use crate::shared::Shared;

/// How long a socket is without a timer before it is reminded: the shortest retransmission timeout.
const STALL_MICROSECONDS: u64 = 1_000_000;

impl LinkCore {
    /// When a connection for which smoltcp has no timer is to be reminded; `None` if it has nothing
    /// to send. If that time is `now`, it has been reminded, and has something to send.
    pub(crate) fn remind(
        &mut self,
        shared: &Shared,
        state: &mut EndpointState,
        now: u64,
    ) -> Option<u64> {
        let shift = state.shift;
        let (socket, stream) = state.stream()?;
        let listens = matches!(
            socket.state(),
            State::Established | State::CloseWait | State::FinWait1 | State::Closing
        );
        if !listens || socket.send_queue() == 0 {
            stream.stalled_since = None;
            return None;
        }
        let since = *stream.stalled_since.get_or_insert(now);
        if now < since + STALL_MICROSECONDS {
            return Some(since + STALL_MICROSECONDS);
        }
        stream.stalled_since = None;
        let tracking = &stream.tracking;
        let (acknowledged, expected, window) = tracking.last();
        let key = stream.key;
        let capabilities = self.transport.direct_capabilities();
        let interface = self.direct.as_mut()?;
        let (sockets, memory) = (&mut state.sockets, &mut self.memory);
        let mut script = Script { interface, capabilities, sockets, key, memory };
        // The change of the window makes smoltcp count from the beginning. The third duplicate is
        // the sign of a loss.
        for window in [window ^ 1, window, window, window, window] {
            let segment = TcpRepr {
                seq_number: TcpSeqNumber(expected as i32),
                ack_number: Some(TcpSeqNumber(acknowledged.wrapping_sub(shift) as i32)),
                window_len: window,
                ..script.segment()
            };
            script.receive(segment, now);
        }
        shared.counters.stalls.add(1);
        Some(now)
    }
}
