//! A connection: the requests of the callers of one served file system, and its server's side.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};

use cops_abi::errno::CallResult;
use cops_abi::served::{
    BUFFER_BYTES_MIN, FORGET_MAX, Reply, Request as Header, id_of, number_and_level, operation,
    read_value,
};
use cops_abi::{CoroutineId, Errno, Priority};
use cops_algorithms::requests::{Message, Requests, Room};
use cops_fallible::try_arc;
use cops_lock::Mutex;
use spin::Once;

use super::ahead::Ahead;
use super::closed;
use super::forget::{Forget, Forgotten, sweep};
use super::mapped::{MappedFiles, WriteBack};
use super::pages::Pages;
use super::places;
use super::request::Request;
use super::{Keep, Terms};
use crate::fs::memory::next_number;
use crate::mm::PinnedBuffer;
use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::sched::{WaitQueue, Waiter};

/// Memory that is charged for a connection.
const CONNECTION_BYTES: u64 = size_of::<Connection>() as u64 + 64;
/// Requests that are freed in one portion. One with a name, and room for a node, takes some 1,700
/// instructions.
const PORTION_REQUESTS: usize = 16;
/// The priority of messages about nodes that are not used any more.
const FORGET_PRIORITY: Priority = Priority::DEFAULT;

/// The requests to one server.
pub struct Connection {
    /// The number of its file system.
    pub number: u64,
    state: Mutex<State>,
    /// Calls of the server that wait for a request.
    readers: WaitQueue,
    last_request: AtomicU64,
    /// As in `requests`; read without the lock.
    is_closed: AtomicBool,
    /// Pages of files, if the file system was mounted so.
    pages: Once<Pages>,
    /// Whether replies may name places on the disk.
    has_disk: AtomicBool,
    /// Requests to change a length that the server may see, and the number of those that it has
    /// answered.
    resizing: AtomicUsize,
    resized: AtomicU64,
    /// Requests for pages that a reader will need.
    pub(super) ahead: Ahead,
    /// Files that are mapped, of those of which pages are kept.
    pub(super) mapped: MappedFiles,
    /// In the list of closed connections: the next one.
    pub(super) next_closed: Mutex<Option<Arc<Connection>>>,
    charge: Charge,
}

struct State {
    requests: Requests<Arc<Request>>,
    forgotten: Forgotten,
    /// Whether the server was told of forgotten nodes after the last request.
    has_told: bool,
    /// Nodes in use; `None` before it is mounted.
    nodes: Option<usize>,
}

impl State {
    /// Whether a read of the server returns at once.
    fn has_something(&self) -> bool {
        self.requests.has_next() || self.can_tell() || self.is_at_end()
    }

    /// Whether the server can read now which nodes are not used any more.
    fn can_tell(&self) -> bool {
        self.forgotten.len() > 0 && self.requests.has_room(FORGET_PRIORITY)
    }

    /// Whether this is what the server reads next: if there is nothing else, or there are many and
    /// it was not the last thing.
    fn must_tell(&self) -> bool {
        let is_due = self.forgotten.len() >= FORGET_MAX && !self.has_told;
        self.can_tell() && (is_due || !self.requests.has_next())
    }

    /// Whether there will be no more requests, because nothing refers to the file system.
    fn is_over(&self) -> bool {
        self.nodes == Some(0)
    }

    /// Whether there will be nothing to read any more. Something that has to wait for room is still
    /// to be read.
    fn is_at_end(&self) -> bool {
        self.is_over() && self.forgotten.len() == 0 && self.requests.is_all_read()
    }
}

impl Connection {
    /// Changes the state, and wakes a reader if a read finds something afterwards and would have
    /// found nothing before.
    ///
    /// No wake is lost: a reader is inserted, and attempts afterwards, so it sees the change or is
    /// woken. If there was something before, a reader has been woken for that, and has not
    /// attempted yet or attempts again; it wakes the next one if it leaves something.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let had_something = state.has_something();
        let result = change(&mut state);
        let wakes = !had_something && state.has_something();
        drop(state);
        if wakes {
            self.readers.wake_one();
        }
        result
    }

    /// Sends `request` for the call of `waiter`, which attempts once more afterwards.
    pub fn send(&self, request: &Arc<Request>, room: Room<Arc<Request>>, waiter: &Waiter) {
        self.send_for(request, room, (waiter.priority, Some(waiter.coroutine)));
    }

    /// Sends `request`, for which no call waits. Returns whether it has.
    pub fn send_alone(
        &self,
        request: &Arc<Request>,
        room: Room<Arc<Request>>,
        priority: Priority,
    ) -> bool {
        self.send_for(request, room, (priority, None))
    }

    fn send_for(
        &self,
        request: &Arc<Request>,
        room: Room<Arc<Request>>,
        (priority, coroutine): (Priority, Option<CoroutineId>),
    ) -> bool {
        let number = self.last_request.fetch_add(1, Relaxed) + 1;
        request.sends(coroutine);
        if request.resizes() {
            self.resizing.fetch_add(1, SeqCst);
        }
        let (ticket, place) = (request.ticket(), (priority, number));
        let mut state = self.state.lock();
        let inserted = state.requests.insert(room, ticket, place, request.clone());
        let has_something = state.has_something();
        drop(state);
        match inserted {
            Ok(()) if has_something => self.readers.wake_one(),
            // There is no room for it. A reader is woken with the reply that makes some.
            Ok(()) => {}
            Err(request) => {
                self.will_not_resize(&request);
                request.refuse();
                return false;
            }
        }
        true
    }

    /// The server will not see `request`, or has answered it.
    fn will_not_resize(&self, request: &Request) {
        if request.resizes() {
            self.resizing.fetch_sub(1, SeqCst);
        }
    }

    /// How many changes of lengths the server has answered; `None` while it may be making one.
    pub(super) fn resizes(&self) -> Option<u64> {
        let resized = self.resized.load(SeqCst);
        let is_resizing = self.resizing.load(SeqCst) > 0;
        // What has begun and ended between the two loads shows here.
        (!is_resizing && self.resized.load(SeqCst) == resized).then_some(resized)
    }

    /// Whether replies may name places on the disk.
    pub(super) fn has_disk(&self) -> bool {
        self.has_disk.load(Relaxed)
    }

    /// The call of `request` has another priority.
    pub fn set_priority(&self, request: &Request, priority: Priority) {
        self.change(|state| state.requests.set_priority(request.ticket(), priority));
        request.set_priority_of_reader();
    }

    /// A call of this priority waits for `request`.
    pub fn hurry(&self, request: &Request, priority: Priority) {
        let is_raised = self.change(|state| state.requests.raise(request.ticket(), priority));
        if is_raised {
            request.set_priority_of_reader();
        }
    }

    /// Removes a request of which the call does not wait any longer. It stays until it is answered
    /// if the server may still change a file of which pages are kept, or name a node, which nothing
    /// uses then. Returns whether the server will never see it.
    pub fn remove(&self, request: &Request) -> bool {
        let ticket = request.ticket();
        let must_stay = request.changes() && self.pages.is_completed();
        // What is dropped is dropped without the lock. The end may be what is left to be read.
        let removed = self.change(|state| {
            let stays = must_stay || request.names_node && state.requests.may_abandon();
            if stays { state.requests.abandon(ticket) } else { state.requests.remove(ticket) }
        });
        if removed.is_some() {
            self.will_not_resize(request);
        }
        removed.is_some()
    }

    /// The family that pays for it.
    pub fn payer(&self) -> Family {
        self.charge.family()
    }

    /// The pages of files, if they are kept.
    pub fn pages(&self) -> Option<&Pages> {
        self.pages.get()
    }

    /// Frees some of what a closed connection has kept. Returns whether there may be more.
    pub(super) fn free_some(&self) -> bool {
        for _ in 0..PORTION_REQUESTS {
            let request = self.state.lock().requests.pop_abandoned();
            let Some(request) = request else {
                return self.pages.get().is_some_and(Pages::free_some);
            };
            self.ends_turn_of(&request);
        }
        true
    }

    /// `request` will not be performed any more. If its call has left a turn to its answer, the
    /// turn ends.
    fn ends_turn_of(&self, request: &Arc<Request>) {
        if let Some(file) = self.mapped.get(request.node()) {
            file.is_answered_at_last(request);
        }
    }

    /// A call has stopped waiting. If the server is gone, the next one fails.
    pub fn has_left(&self) {
        if self.is_closed.load(Acquire) {
            self.fail_next();
        }
    }

    /// Fails one of the requests of a closed connection.
    fn fail_next(&self) {
        loop {
            let request = self.state.lock().requests.next_to_fail();
            let Some(request) = request else { return };
            // A request without a coroutine is leaving, and so fails the next one too.
            if let Some(coroutine) = request.fail() {
                cops_executor::wake_up(coroutine);
                return;
            }
            self.ends_turn_of(&request);
            self.ahead.ends(&request);
        }
    }

    /// Whether the server is gone.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    /// It is mounted, and its root is in use.
    ///
    /// # Errors
    /// `EBUSY` if it has been mounted before, `EIO` if the server is gone, `ENOMEM`.
    pub fn begin(self: &Arc<Self>, Terms { keep, has_disk }: Terms) -> Result<(), Errno> {
        let pages = match keep {
            Keep::Nothing => None,
            Keep::Pages | Keep::Writes => Some(Pages::new(self.charge.family())?),
        };
        let mut state = self.state.lock();
        if state.requests.is_closed() {
            return Err(Errno::EIO);
        }
        if state.nodes.is_some() {
            return Err(Errno::EBUSY);
        }
        state.nodes = Some(1);
        drop(state);
        // No node is in use yet, so nothing has been read.
        if let Some(pages) = pages {
            if let Err(error) = WriteBack::start(self) {
                self.state.lock().nodes = None;
                return Err(error);
            }
            self.pages.call_once(|| pages);
            self.has_disk.store(has_disk, Relaxed);
        }
        if keep == Keep::Writes {
            self.mapped.keep_writes();
        }
        Ok(())
    }

    /// One more node is in use.
    pub fn uses_node(&self) {
        if let Some(nodes) = &mut self.state.lock().nodes {
            *nodes += 1;
        }
    }

    /// A node is not used any more. `forget`: the server knows that it is used.
    pub fn forgets(&self, forget: Option<alloc::boxed::Box<Forget>>, was_counted: bool) {
        let mut state = self.state.lock();
        if let Some(nodes) = &mut state.nodes
            && was_counted
        {
            *nodes = nodes.saturating_sub(1);
        }
        if state.requests.is_closed() {
            drop(state);
            drop(forget);
            return;
        }
        if let Some(forget) = forget {
            state.forgotten.push(forget);
        }
        let is_first = state.forgotten.len() == 1 && state.can_tell();
        let is_over = state.is_over();
        drop(state);
        if is_over {
            // Each of them reads the end.
            self.readers.wake_all();
        } else if is_first {
            self.readers.wake_one();
        }
    }

    /// Copies what the server is to do next to its buffer; `None` if there is nothing.
    fn fetch(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        if buffer.len() < BUFFER_BYTES_MIN {
            return Some(Err(Errno::EINVAL));
        }
        loop {
            let mut state = self.state.lock();
            state.has_told = state.must_tell() && state.requests.give_other(FORGET_PRIORITY);
            if state.has_told {
                drop(state);
                return Some(Ok(self.tell_forgotten(buffer)));
            }
            let message = state.requests.take();
            let is_at_end = state.is_at_end();
            drop(state);
            let (id, priority, request) = match message {
                Some(Message::Request(id, priority, request)) => (id, priority, request),
                Some(Message::Raise(id, priority)) => return Some(Ok(raise(buffer, id, priority))),
                None => return is_at_end.then_some(Ok(0)),
            };
            if let Some(count) = request.send(buffer, (id, priority), self.resizes()) {
                return Some(Ok(count));
            }
            // Its call is leaving. The server does not see it, and so will not answer it. What that
            // makes room for is read here, or by the next reader.
            let removed = self.state.lock().requests.answered(id);
            if let Some(request) = removed {
                self.will_not_resize(&request);
                self.ends_turn_of(&request);
            }
        }
    }

    /// Tells the server which nodes are not used any more.
    fn tell_forgotten(&self, buffer: &PinnedBuffer) -> usize {
        let mut count = 0;
        while count < FORGET_MAX {
            let forget = self.state.lock().forgotten.pop();
            let Some(forget) = forget else { break };
            let at = Header::BYTES + 16 * count;
            buffer.write_at(at, &forget.number.to_le_bytes());
            buffer.write_at(at + 8, &1u64.to_le_bytes());
            count += 1;
        }
        let length = Header::BYTES + 16 * count;
        let header = Header {
            length: length as u32,
            operation: operation::FORGET,
            id: id_of(0, FORGET_PRIORITY),
            priority: FORGET_PRIORITY.level().into(),
            first: count as u64,
            ..Header::default()
        };
        buffer.write_at(0, &header.to_bytes());
        length
    }

    /// Takes a reply of the server.
    fn answer(self: &Arc<Self>, buffer: &PinnedBuffer) -> CallResult {
        let mut bytes = [0; Reply::BYTES];
        if buffer.len() < bytes.len() {
            return Err(Errno::EINVAL);
        }
        buffer.read_at(0, &mut bytes);
        let reply = Reply::from_bytes(&bytes).ok_or(Errno::EINVAL)?;
        let request = self.change(|state| state.requests.answered(reply.id));
        if let (0, _) = number_and_level(reply.id) {
            // To what was not used any more.
            return Ok(buffer.len());
        }
        let request = request.ok_or(Errno::ENOENT)?;
        if reply.error == 0
            && reply.value == read_value::PLACES
            && let Some(resizes) = request.resizes_before()
        {
            return places::begin(self, (&request, resizes), &reply, buffer);
        }
        let answered = request.answer(&reply, buffer);
        if request.resizes() {
            self.resized.fetch_add(1, SeqCst);
            self.will_not_resize(&request);
        }
        if let Some(pages) = self.pages.get() {
            // Before the call is woken, and also if it does not wait any longer.
            let bytes = buffer.len() - Reply::BYTES;
            let is_data = reply.error == 0 && matches!(answered, Ok((_, Ok(_))));
            pages.answered(&request, &reply, is_data.then_some(bytes));
            if request.pages().is_some() {
                self.ahead.ends(&request);
            }
            if request.changes()
                && let Some(file) = self.mapped.get(request.node())
            {
                request.with_sent(|data, sent| file.answered(&request, &reply, data, sent));
                self.ends_turn_of(&request);
                // A page may have moved to the table in the meantime.
                pages.answered(&request, &reply, None);
            }
        }
        if answered.is_err()
            && let Some(forget) = request.take_unused(&reply, buffer.len())
        {
            // Not the server itself, which would have to wait for that in the call's stead, and has
            // room for the next request already.
            self.forgets(Some(forget), false);
            return Ok(buffer.len());
        }
        let (coroutine, told) = answered?;
        if let Some(coroutine) = coroutine {
            cops_executor::wake_up(coroutine);
        }
        told
    }

    /// `request` has been answered with places, and its data have been read, or not.
    pub(super) fn ends_placed(
        &self,
        request: &Request,
        reply: &Reply,
        result: Result<usize, Errno>,
    ) {
        if let Some(pages) = self.pages.get() {
            // Before the call is woken, and also if it does not wait any longer.
            pages.answered(request, reply, result.ok());
        }
        let coroutine = request.end(reply, result);
        self.ahead.ends(request);
        if let Some(coroutine) = coroutine {
            cops_executor::wake_up(coroutine);
        }
    }

    /// The server is gone.
    fn close(&self) {
        let mut state = self.state.lock();
        state.requests.close();
        self.is_closed.store(true, Release);
        let forgotten = core::mem::replace(&mut state.forgotten, Forgotten::new());
        drop(state);
        sweep(forgotten);
        self.fail_next();
        self.mapped.write_back.close();
    }
}

/// Writes to a server's buffer that request `id` is as urgent as this now.
fn raise(buffer: &PinnedBuffer, id: u64, priority: Priority) -> usize {
    let header = Header {
        length: Header::BYTES as u32,
        operation: operation::RAISE,
        id,
        priority: priority.level().into(),
        ..Header::default()
    };
    buffer.write_at(0, &header.to_bytes());
    Header::BYTES
}

/// The server's end of a connection, which an open file of `/dev/fs` has. Dropping it closes the
/// connection.
pub struct FileServer(Arc<Connection>);

impl FileServer {
    /// A new connection, for which `payer` pays.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(payer: Family) -> Result<Self, Errno> {
        let charge = Charge::new(payer, &Amounts::of(Kind::Memory, CONNECTION_BYTES))?;
        Ok(Self(try_arc(Connection {
            number: next_number(),
            state: Mutex::new(State {
                requests: Requests::new(),
                forgotten: Forgotten::new(),
                has_told: false,
                nodes: None,
            }),
            readers: WaitQueue::new(),
            last_request: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            pages: Once::new(),
            has_disk: AtomicBool::new(false),
            resizing: AtomicUsize::new(0),
            resized: AtomicU64::new(0),
            ahead: Ahead::new(),
            mapped: MappedFiles::new(),
            next_closed: Mutex::new(None),
            charge,
        })?))
    }

    /// The connection.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.0
    }

    /// Reads a request; `None` if there is none, and the call has to wait.
    pub fn attempt_read(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        self.0.fetch(buffer)
    }

    /// The priority of the request that was read into `buffer`, if another call waits for the next
    /// request.
    ///
    /// The server need not be more urgent than what it is asked for, as long as something more
    /// urgent would find a call that waits. The last one is as urgent as the server has made it.
    pub fn priority_of_request(&self, buffer: &PinnedBuffer) -> Option<Priority> {
        if self.0.readers.is_empty() || buffer.len() < Header::BYTES {
            return None;
        }
        let mut bytes = [0; Header::BYTES];
        buffer.read_at(0, &mut bytes);
        Header::from_bytes(&bytes).map(|header| Priority::saturating(header.priority))
    }

    /// Writes a reply.
    pub fn write(&self, buffer: &PinnedBuffer) -> CallResult {
        self.0.answer(buffer)
    }

    /// The waiting reads, and whether an attempt would succeed now.
    ///
    /// Apart, because what it needs of registers would be saved for all other files too.
    #[inline(never)]
    pub fn queue(&self) -> (&WaitQueue, bool) {
        let has_something = self.0.state.lock().has_something();
        (&self.0.readers, has_something)
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.0.close();
        closed::sweep(self.0.clone());
    }
}
