//! The client's side: the part of a call in requests to servers.
//!
//! An operation of a served node prepares a request at its first attempt. The request is sent when
//! the call registers as a waiter ([`Ask::insert_waiter`]): only then it is certain that the call
//! waits, and with which priority. A later attempt finds the reply.
//!
//! An attempt of a call may need several operations, and is repeated from its beginning. So the
//! replies are kept until the call says that it has used them ([`Ask::next_step`]): operation `n`
//! of a repeated attempt gets reply `n` again.

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::served::Reply;
use cops_algorithms::requests::Room;
use cops_fallible::List;

use super::connection::Connection;
use super::node::ServedNode;
use super::request::{Answered, Draft, Request};
use crate::fs::node::{Attempt, NodeRef};
use crate::mm::Frame;
use crate::mm::quota::Family;
use crate::sched::{ProcessId, Waiter};

/// The requests of one call; dropping it takes them back.
#[derive(Default)]
pub struct Ask {
    /// The family that pays; `None`: the call cannot wait, so nothing is asked.
    payer: Option<Family>,
    /// The process that makes the call; 0: the kernel itself.
    caller: ProcessId,
    answers: List<Result<Answer, Errno>>,
    /// The number of the next operation.
    next: usize,
    pending: Option<Pending>,
}

/// A request that is not answered.
struct Pending {
    connection: Arc<Connection>,
    request: Arc<Request>,
    /// Until it is sent.
    room: Option<Room<Arc<Request>>>,
}

/// The reply to a request.
#[derive(Clone)]
pub struct Answer {
    pub reply: Reply,
    /// Number of bytes of data.
    pub bytes: usize,
    /// The node that the reply names.
    pub node: Option<NodeRef>,
    request: Arc<Request>,
}

impl Answer {
    /// Copies data of the reply from `at` on.
    ///
    /// # Panics
    /// Beyond the room for the data.
    pub fn read_data(&self, at: usize, into: &mut [u8]) {
        self.request.read_data(at, into);
    }

    /// Whether the reply has less data than were asked for.
    pub fn is_short(&self) -> bool {
        (self.bytes as u64) < self.request.asked()
    }

    /// A frame with data of the reply, if there was room for them in frames of the kernel's.
    pub fn frame(&self, index: usize) -> Option<Frame> {
        self.request.frame(index)
    }
}

impl Ask {
    /// Of a call of process `caller` that cannot wait.
    pub fn of(caller: ProcessId) -> Self {
        let mut ask = Self::default();
        ask.caller = caller;
        ask
    }

    /// Begins an attempt, on behalf of process `caller` and `payer`, its family.
    pub fn begin(&mut self, caller: ProcessId, payer: Family) {
        self.caller = caller;
        self.payer = Some(payer);
        self.next = 0;
    }

    /// The process that makes the call; 0: the kernel itself.
    pub fn caller(&self) -> ProcessId {
        self.caller
    }

    /// The family that pays for what the call makes, if there is one.
    pub fn payer(&self) -> Option<Family> {
        self.payer
    }

    /// The replies so far have been used.
    pub fn next_step(&mut self) {
        self.next = 0;
        if !self.answers.is_empty() {
            self.answers.clear();
        }
    }

    /// Whether there is a request, sent or not.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether there is a request that has not been sent.
    pub fn is_unsent(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.room.is_some())
    }

    /// The reply to the request `draft`; `None` if there is none yet.
    pub fn ask<'d>(
        &mut self,
        connection: &Arc<Connection>,
        draft: impl FnOnce() -> Result<Draft<'d>, Errno>,
    ) -> Attempt<Answer> {
        let index = self.next;
        self.next += 1;
        if let Some(answer) = self.answers.get(index) {
            return Some(answer.clone());
        }
        match &self.pending {
            None => match prepare(connection, self.payer?, draft) {
                Ok(pending) => {
                    self.pending = Some(pending);
                    None
                }
                Err(error) => Some(Err(error)),
            },
            Some(pending) => {
                let answered = pending.request.take_answer()?;
                let answer = self.receive(answered).unwrap_or(Err(Errno::EIO));
                match self.answers.try_push(answer.clone()) {
                    Ok(()) => Some(answer),
                    Err(error) => Some(Err(error.into())),
                }
            }
        }
    }

    /// The request that was pending has this reply.
    fn receive(&mut self, answered: Result<Answered, Errno>) -> Option<Result<Answer, Errno>> {
        let Pending { connection, request, .. } = self.pending.take()?;
        connection.has_left();
        let receive = || {
            let Answered { reply, bytes, forget } = answered?;
            let node = match forget {
                Some(forget) => Some(ServedNode::named(&connection, &reply.status, forget)?),
                None => None,
            };
            Ok(Answer { reply, bytes, node, request })
        };
        Some(receive())
    }

    /// Sends the request that the last attempt has prepared, or gives it the priority of `waiter`.
    /// Returns whether there is one.
    pub fn insert_waiter(&mut self, waiter: &Waiter) -> bool {
        let Some(Pending { connection, request, room }) = &mut self.pending else { return false };
        match room.take() {
            Some(room) => connection.send(request, room, waiter),
            None => connection.set_priority(request, waiter.priority),
        }
        true
    }
}

/// The request `draft`, which is not sent.
fn prepare<'d>(
    connection: &Arc<Connection>,
    payer: Family,
    draft: impl FnOnce() -> Result<Draft<'d>, Errno>,
) -> Result<Pending, Errno> {
    if connection.is_closed() {
        return Err(Errno::EIO);
    }
    let request = Request::new(draft()?, payer)?;
    let room = Some(Room::try_new()?);
    Ok(Pending { connection: connection.clone(), request, room })
}

impl Drop for Ask {
    fn drop(&mut self) {
        let Some(Pending { connection, request, .. }) = self.pending.take() else { return };
        let (ticket, answered) = request.leave();
        if let Some(ticket) = ticket {
            connection.remove(&request, ticket);
        }
        // The server has counted the node that the reply names.
        if let Some(Answered { reply, forget: Some(mut forget), .. }) = answered {
            forget.number = reply.status.number;
            connection.forgets(Some(forget), false);
        }
        connection.has_left();
    }
}
