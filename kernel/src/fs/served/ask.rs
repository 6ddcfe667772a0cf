//! The client's side: the part of a call in requests to servers.
//!
//! An operation of a served node prepares a request at its first attempt. The request is sent when
//! the call registers as a waiter ([`Ask::insert_waiter`]): only then it is certain that the call
//! waits, and with which priority. A later attempt finds the reply.
//!
//! An attempt of a call may need several operations, and is repeated from its beginning. So the
//! replies are kept until the call says that it has used them ([`Ask::next_step`]): operation `n`
//! of a repeated attempt gets reply `n` again.
//!
//! The load of a program is a call in portions that the virtual CPU itself executes. While it
//! waits, it shares its `Ask` with an operation that sends the request and takes the reply
//! ([`SharedAsk`], decision 49).

use alloc::sync::Arc;
use core::mem::replace;

use cops_abi::Errno;
use cops_abi::served::Reply;
use cops_algorithms::requests::Room;
use cops_fallible::List;
use cops_lock::Mutex;

use super::connection::Connection;
use super::mapped::{MappedFile, Writing};
use super::node::ServedNode;
use super::pages::copy;
use super::request::{Answered, Draft, MADE_AGAIN, Request};
use crate::fs::file::File;
use crate::fs::node::{Attempt, NodeRef};
use crate::mm::frames::FRAME_BYTES;
use crate::mm::quota::Family;
use crate::mm::{Frame, PinnedBuffer};
use crate::sched::{ProcessId, Waiter};

/// The requests of a call that another one waits for.
pub type SharedAsk = Arc<Mutex<Ask>>;

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
    /// Places of the last request came too late: it asks for data from now on.
    wants_data: bool,
    /// To load, write, write back or resize a file of which pages are kept.
    turn: Turn<MappedFile>,
    /// The file of which it changes the length.
    resized: Option<Arc<Writing>>,
    /// To use the position of an open file.
    position: Turn<File>,
}

/// The call's turn to use what only one call at a time may use.
#[derive(Default)]
enum Turn<F> {
    #[default]
    None,
    /// It waits for it; in the file's queue with this number, if it has one.
    Wanted(Arc<F>, Option<u32>),
    /// It has it.
    Taken(Arc<F>),
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

    /// Copies `length` bytes of data of the reply, from `start` on, to `buffers`, from `at` on, as
    /// far as they are in frames of the kernel's. Returns their number.
    pub fn copy_data(
        &self,
        start: usize,
        (buffers, at): (&[PinnedBuffer], usize),
        length: usize,
    ) -> usize {
        let mut done = 0;
        while done < length {
            let within = (start + done) % FRAME_BYTES;
            let Some(frame) = self.frame((start + done) / FRAME_BYTES) else { break };
            let count = (FRAME_BYTES - within).min(length - done);
            copy((&frame, within), (buffers, at + done), count);
            done += count;
        }
        done
    }

    /// Whether the reply has less data than were asked for.
    pub fn is_short(&self) -> bool {
        (self.bytes as u64) < self.request.asked() && !self.request.is_partial(&self.reply)
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

    /// The replies so far have been used. The call does not wait for a turn any more: another one
    /// may have done what that was for.
    pub fn next_step(&mut self) {
        self.next = 0;
        self.remove_waiter();
        if !self.answers.is_empty() {
            self.answers.clear();
        }
    }

    /// Whether there is a request, sent or not.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The pages that an unsent request asks for: the first, and how many.
    pub fn unsent_pages(&self) -> Option<(u64, u64)> {
        let unsent = self.pending.as_ref().filter(|pending| pending.room.is_some());
        unsent.and_then(|pending| pending.request.pages())
    }

    /// Whether there is a request that has not been sent.
    pub fn is_unsent(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.room.is_some())
    }

    /// Whether nothing has been asked since the last step.
    pub fn is_fresh(&self) -> bool {
        self.pending.is_none() && self.answers.is_empty()
    }

    /// Takes the turn of `file`, and keeps it until [`Self::end_turn`]. False: the call has to
    /// wait for it.
    pub fn take_turn(&mut self, file: &Arc<MappedFile>) -> bool {
        if self.has_turn_of(file) {
            return true;
        }
        if file.try_take_turn() {
            self.end_turn();
            self.turn = Turn::Taken(file.clone());
            return true;
        }
        if let Turn::Wanted(wanted, _) = &self.turn
            && Arc::ptr_eq(wanted, file)
        {
            return false;
        }
        self.end_turn();
        self.turn = Turn::Wanted(file.clone(), None);
        false
    }

    /// Takes the turn of a file to change its length, as [`Self::take_turn`].
    pub fn take_turn_to_resize(&mut self, file: Arc<Writing>) -> bool {
        let is_taken = self.take_turn(file.file());
        self.resized = Some(file);
        is_taken
    }

    /// This call has the turn of `file` from now on, which the caller has taken.
    pub fn adopt_turn(&mut self, file: Arc<MappedFile>) {
        self.turn = Turn::Taken(file);
    }

    /// The file of which the call has the turn.
    pub fn turn(&self) -> Option<&Arc<MappedFile>> {
        match &self.turn {
            Turn::Taken(file) => Some(file),
            Turn::None | Turn::Wanted(..) => None,
        }
    }

    /// Whether the call has the turn of `file`.
    pub fn has_turn_of(&self, file: &Arc<MappedFile>) -> bool {
        self.turn().is_some_and(|taken| Arc::ptr_eq(taken, file))
    }

    /// The call does not need the turn any more, or does not wait for it.
    pub fn end_turn(&mut self) {
        match core::mem::take(&mut self.turn) {
            Turn::None => {}
            Turn::Wanted(file, Some(number)) => file.turns.remove(number, true),
            Turn::Wanted(_, None) => {}
            Turn::Taken(file) => file.end_turn(),
        }
    }

    /// The call has ended. If the server has a change that the call has sent during its turn, the
    /// turn ends when that is answered: what is sent by the next turn must not overtake it.
    fn leave_in_turn(&mut self) {
        let change = self.pending.as_ref().map(|pending| pending.request.clone());
        let change = change.filter(|request| request.changes());
        let (Turn::Taken(file), Some(request)) = (&self.turn, change) else {
            self.leave();
            return;
        };
        let file = file.clone();
        // From now on its answer ends the turn.
        self.turn = Turn::None;
        file.turn_ends_with(&request);
        if !self.leave() {
            file.is_answered_at_last(&request);
        }
    }

    /// Takes the turn to use the position of `file`, which is one of a server, and keeps it until
    /// [`Self::end_position`]. Returns the position. `None`: the call has to wait for the turn.
    pub fn take_position(&mut self, file: &Arc<File>) -> Option<u64> {
        let served = file.served()?;
        if let Turn::Taken(_) = self.position {
            return Some(served.position());
        }
        let Some(position) = served.take_turn() else {
            if let Turn::None = self.position {
                self.position = Turn::Wanted(file.clone(), None);
            }
            return None;
        };
        let before = replace(&mut self.position, Turn::Taken(file.clone()));
        // The end of its own turn would wake this call instead of one that waits.
        if let Turn::Wanted(_, Some(number)) = before {
            served.turns.remove(number, false);
        }
        Some(position)
    }

    /// The turn to use the position is over, and that has moved; or the call does not wait for it.
    pub fn end_position(&mut self, moved_to: Option<u64>) {
        let before = replace(&mut self.position, Turn::None);
        let (Turn::Wanted(file, _) | Turn::Taken(file)) = &before else { return };
        let Some(served) = file.served() else { return };
        match before {
            Turn::Wanted(_, Some(number)) => served.turns.remove(number, true),
            Turn::Taken(_) => served.end_turn(moved_to),
            Turn::None | Turn::Wanted(_, None) => {}
        }
    }

    /// The call does not wait for a turn any more.
    pub fn remove_waiter(&mut self) {
        if let Turn::Wanted(..) = self.turn {
            self.end_turn();
        }
        if let Turn::Wanted(..) = self.position {
            self.end_position(None);
        }
    }

    /// Whether [`Self::insert_waiter`] would have something to wait for.
    pub fn must_wait(&self) -> bool {
        self.pending.is_some()
            || matches!(self.turn, Turn::Wanted(..))
            || matches!(self.position, Turn::Wanted(..))
    }

    /// Whether an event will wake the call, which has attempted again after
    /// [`Self::insert_waiter`]: its request is sent, or it is in the queue for a turn.
    pub fn is_registered(&self) -> bool {
        match (&self.pending, &self.turn, &self.position) {
            (Some(pending), ..) => pending.room.is_none(),
            (None, Turn::Wanted(_, number), _) => number.is_some(),
            (None, _, Turn::Wanted(_, number)) => number.is_some(),
            (None, ..) => false,
        }
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
        if self.is_pending() {
            self.take_reply();
            if self.is_pending() || self.answers.len() > index {
                return self.answers.get(index).cloned();
            }
            // It is made again.
        }
        // It does not need a turn for which it waits: another call has done what that was for.
        self.remove_waiter();
        let wants_data = self.wants_data;
        let draft = || draft().map(|draft| if wants_data { draft.for_data() } else { draft });
        let payer = self.payer?;
        let room = self.answers.try_reserve(1).map_err(Errno::from);
        match room.and_then(|()| prepare(connection, payer, draft)) {
            Ok(pending) => {
                self.pending = Some(pending);
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Takes what the last attempt waits for: the reply to its request, or the turn. Returns
    /// whether the call has to wait no longer.
    pub fn take_event(&mut self) -> bool {
        match &self.turn {
            Turn::Wanted(file, _) if self.pending.is_none() => {
                let file = file.clone();
                self.take_turn(&file)
            }
            _ => self.take_reply(),
        }
    }

    /// Takes the reply to the pending request, if there is one: the next attempt finds it. Returns
    /// whether no request is pending any more.
    fn take_reply(&mut self) -> bool {
        let Some(pending) = &self.pending else { return true };
        let Some(answered) = pending.request.take_answer() else { return false };
        self.wants_data = matches!(answered, Err(MADE_AGAIN));
        if self.wants_data {
            if let Some(Pending { connection, .. }) = self.pending.take() {
                connection.has_left();
            }
            return true;
        }
        let answer = self.receive(answered).unwrap_or(Err(Errno::EIO));
        // There is room since the request was prepared.
        let _ = self.answers.push_within_capacity(answer);
        true
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

    /// Sends the request that the last attempt has prepared, or gives it the priority of `waiter`;
    /// or waits for a turn. Returns whether there is something to wait for.
    pub fn insert_waiter(&mut self, waiter: &Waiter) -> bool {
        if let (None, Turn::Wanted(file, number)) = (&self.pending, &mut self.turn) {
            *number = Some(waiter.number);
            file.turns.insert(*waiter);
            file.hurry(waiter.priority);
            return true;
        }
        if let (None, Turn::Wanted(file, number)) = (&self.pending, &mut self.position)
            && let Some(served) = file.served()
        {
            *number = Some(waiter.number);
            served.turns.insert(*waiter);
            return true;
        }
        let Some(Pending { connection, request, room }) = &mut self.pending else { return false };
        let mut waiter = *waiter;
        let turn = match &self.turn {
            Turn::Taken(file) => Some(file),
            Turn::None | Turn::Wanted(..) => None,
        };
        if let Some(file) = turn {
            waiter.priority = file.priority_of(request, waiter.priority);
        }
        match room.take() {
            Some(room) => connection.send(request, room, &waiter),
            None => connection.set_priority(request, waiter.priority),
        }
        // A call that has begun to wait for the turn may have found no request.
        if let Some(file) = turn {
            connection.hurry(request, file.priority_of(request, waiter.priority));
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
        self.leave_in_turn();
        // After what was under way: its file may be written by the next one.
        self.end_turn();
        self.end_position(None);
    }
}

impl Ask {
    /// Takes back a request that is not answered. Returns whether the server may still perform it:
    /// then it will be answered, or the connection will be closed.
    fn leave(&mut self) -> bool {
        let Some(Pending { connection, request, .. }) = self.pending.take() else { return false };
        let (is_sent, answered) = request.leave();
        let is_left = is_sent && !connection.remove(&request);
        // The server has counted the node that the reply names.
        if let Some(Answered { reply, forget: Some(mut forget), .. }) = answered {
            forget.number = reply.status.number;
            connection.forgets(Some(forget), false);
        }
        connection.has_left();
        is_left
    }
}
