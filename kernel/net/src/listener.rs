//! The handle of a listening TCP socket.

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::task::{Context, Poll, Waker};

use crate::backlog::Backlog;
use crate::connection::Connection;
use crate::error::Error;
use crate::opening::{Claim, TcpBinding};
use crate::readiness::Readiness;
use crate::stack::Stack;
use crate::stream::Owner;

/// A listening socket. Dropping it releases the port; the polling coroutine then resets all
/// connections that it has not returned.
pub struct Listener {
    stack: Arc<Stack>,
    local: SocketAddr,
    /// Only [`Self::into_binding`] takes it.
    claim: Option<Claim>,
    backlog: Arc<Backlog>,
}

impl Listener {
    pub(crate) fn new(stack: Arc<Stack>, claim: Claim, backlog: Arc<Backlog>) -> Listener {
        Listener { stack, local: claim.local, claim: Some(claim), backlog }
    }

    /// Stops listening, as by dropping it, but keeps the port.
    pub fn into_binding(mut self) -> Option<TcpBinding> {
        self.claim.take().map(|claim| TcpBinding::new(self.stack.clone(), claim))
    }

    /// Changes how many connections can be half open or wait; see [`TcpBinding::listen`]. Those
    /// that are beyond the new limit stay.
    pub fn set_backlog(&self, backlog: usize) {
        self.backlog.set_limit(backlog);
    }

    /// The address it listens at.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Takes the oldest connection with a complete handshake. The connection may have ended
    /// since.
    ///
    /// # Errors
    /// [`Error::WouldBlock`].
    pub fn try_accept(&self) -> Result<Connection, Error> {
        self.accept(None)
    }

    /// Waits for a connection. Cancel-safe: a connection is taken only if it is returned.
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Result<Connection, Error>> {
        match self.accept(Some(context.waker())) {
            Err(Error::WouldBlock) => Poll::Pending,
            accepted => Poll::Ready(accepted),
        }
    }

    fn accept(&self, waker: Option<&Waker>) -> Result<Connection, Error> {
        let endpoint = self.backlog.take(waker).ok_or(Error::WouldBlock)?;
        if let Some((_, stream)) = endpoint.state.lock().stream() {
            stream.owner = Owner::Handle;
        }
        if self.stack.shared.is_memory_short() {
            // If nothing arrives, it frees its buffers soon.
            self.stack.kick(&endpoint);
        }
        Ok(Connection::new(self.stack.clone(), endpoint, None))
    }

    /// `readable`: a connection waits to be accepted.
    pub fn readiness(&self) -> Readiness {
        Readiness { readable: self.backlog.is_ready(), ..Readiness::default() }
    }

    /// Registers `waker` to be woken at the next connection. Check [`readiness`](Self::readiness)
    /// afterwards.
    pub fn register_waker(&self, waker: &Waker) {
        self.backlog.register(waker);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stack.shared.registry.lock().set_listener(self.local, None);
        self.stack.shared.closed_listeners.add(self.backlog.clone());
        self.stack.shared.deadline.wake_poller_by(0);
    }
}
