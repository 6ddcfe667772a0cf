//! One request: what is sent to the server, the call that waits for it, and where the data of its
//! reply go.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;

use cops_abi::errno::CallResult;
use cops_abi::served::{
    self, DATA_BYTES_MAX, PLACED_BYTES_MAX, Reply, Request as Header, change, operation, read_value,
};
use cops_abi::{Errno, Priority};
use cops_algorithms::page_cache::{Fill, PAGE_BYTES};
use cops_algorithms::requests::{Room, Ticket};
use cops_executor::CoroutineId;
use cops_fallible::{List, Text, try_arc};
use cops_lock::Mutex;

use super::forget::Forget;
use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::mm::{self, Frame, PinnedBuffer, frames::FRAME_BYTES};
use crate::sched;

/// Memory that is charged for a request, besides its names.
const REQUEST_BYTES: u64 = (size_of::<Request>() + Room::<Arc<Request>>::BYTES + 64) as u64;

/// The same, for the coroutine that reads its data from the disk.
const READER_BYTES: u64 = 1024;

/// The answer to a request that is to be made again. No server can reply with it.
pub const MADE_AGAIN: Errno = Errno::EAGAIN;

/// What is asked of a server.
pub struct Draft<'a> {
    /// One of [`cops_abi::served::operation`].
    pub operation: u16,
    /// The node that it concerns.
    pub node: u64,
    /// These depend on the operation.
    pub flags: u32,
    pub first: u64,
    pub second: u64,
    /// A name, and a name or path.
    pub names: [&'a str; 2],
    /// What follows the names, or the reply.
    pub data: Data,
    /// Whether the reply names a node.
    pub names_node: bool,
    /// If the data of the reply are whole pages, which may be kept.
    pub fill: Option<Fill>,
    /// Whether it writes what is in pages that are dirty.
    pub is_write_back: bool,
}

impl Draft<'_> {
    /// A request without arguments.
    pub fn new(operation: u16, node: u64) -> Self {
        Self {
            operation,
            node,
            flags: 0,
            first: 0,
            second: 0,
            names: [""; 2],
            data: Data::Nothing,
            names_node: false,
            fill: None,
            is_write_back: false,
        }
    }

    /// The same, but to a read the reply must be data.
    pub fn for_data(mut self) -> Self {
        if self.operation == operation::READ {
            self.flags &= !served::TAKES_PLACES;
        }
        self
    }

    /// What it does to pages that are kept.
    fn effect(&self) -> Effect {
        match (self.operation, &self.data) {
            (operation::READ, _) => match self.fill {
                Some(fill) => Effect::Fills(fill, self.first / PAGE_BYTES as u64),
                None => Effect::None,
            },
            (operation::WRITE, &Data::From(_, length)) => {
                let bytes = self.first..self.first.saturating_add(length as u64);
                let is_at_end = self.flags & served::AT_END != 0;
                // Where that is, only the reply says, and not if it is an error.
                match (is_at_end, self.is_write_back) {
                    (true, _) => Effect::Changes,
                    (_, true) => Effect::WritesBack(bytes),
                    _ => Effect::Writes(bytes),
                }
            }
            (operation::SET_STATUS, _) if self.flags & change::LENGTH != 0 => Effect::Changes,
            (operation::CREATE | operation::MAKE_DIRECTORY | operation::MAKE_LINK, _) => {
                Effect::Makes
            }
            _ => Effect::None,
        }
    }
}

/// What a request does to pages that are kept, when it is answered.
pub enum Effect {
    /// Nothing.
    None,
    /// Its data are pages, from this one on.
    Fills(Fill, u64),
    /// It changes these bytes.
    Writes(Range<u64>),
    /// The same, to what is in pages that are dirty.
    WritesBack(Range<u64>),
    /// It changes any bytes of the node, or its length.
    Changes,
    /// It makes the node that the reply names.
    Makes,
}

/// What a request or its reply has besides numbers and names.
pub enum Data {
    /// Nothing.
    Nothing,
    /// Numbers, which are sent.
    Words([u64; 4]),
    /// So many bytes of these buffers are sent.
    From(List<PinnedBuffer>, usize),
    /// There is room for so many bytes of the reply.
    Into(List<PinnedBuffer>, usize),
    /// There is room for so many bytes of the reply in frames of the kernel's, at most
    /// [`PLACED_BYTES_MAX`]. More than [`DATA_BYTES_MAX`] get their frames with the reply.
    Room(usize),
}

/// A request, shared by the call that waits for it and the connection.
pub struct Request {
    /// Without length, number and priority.
    header: Header,
    names: [Text; 2],
    /// What it does to pages that are kept.
    pub effect: Effect,
    /// Whether the reply names a node.
    pub names_node: bool,
    /// Its place among the requests of the connection.
    ticket: Ticket,
    progress: Mutex<Progress>,
    charge: Charge,
}

struct Progress {
    stage: Stage,
    data: Data,
    /// The charge for frames of the kernel's in `data`.
    room: Option<Charge>,
    /// The call's coroutine, woken by the reply.
    coroutine: Option<CoroutineId>,
    /// The kernel's coroutine that reads the data from the disk.
    reader: Option<CoroutineId>,
    /// See [`Request::resizes_before`].
    resizes: Option<u64>,
    /// For the node that the reply names. It stays here if the call goes before the reply.
    forget: Option<Box<Forget>>,
}

enum Stage {
    /// Not sent.
    New,
    /// The server has it, or will read it.
    Sent,
    /// With the number of bytes of data.
    Answered(Result<(Reply, usize), Errno>),
    /// The call does not wait any longer.
    Gone,
}

/// A reply, with the memory for the node that it names.
pub struct Answered {
    pub reply: Reply,
    pub bytes: usize,
    pub forget: Option<Box<Forget>>,
}

impl Request {
    /// Makes a request.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(draft: Draft<'_>, payer: Family) -> Result<Arc<Self>, Errno> {
        // What writes pages back makes memory free.
        if !draft.is_write_back {
            mm::admit()?;
        }
        let effect = draft.effect();
        let Draft { operation, node, flags, first, second, names, data, names_node, .. } = draft;
        let lengths = names.map(str::len);
        let mut bytes = REQUEST_BYTES + (lengths[0] + lengths[1]) as u64;
        if operation == operation::READ && flags & served::TAKES_PLACES != 0 {
            bytes += READER_BYTES;
        }
        let charge = Charge::new(payer, &Amounts::of(Kind::Memory, bytes))?;
        let room = match data {
            Data::Room(length) => {
                let bytes = length.next_multiple_of(FRAME_BYTES) as u64;
                Some(Charge::new(payer, &Amounts::of(Kind::Memory, bytes))?)
            }
            _ => None,
        };
        let forget = if names_node { Some(Forget::new(payer)?) } else { None };
        let data = match data {
            Data::Room(length) if length <= DATA_BYTES_MAX => {
                Data::Into(frames_for(length)?, length)
            }
            Data::Room(length) => Data::Room(length.min(PLACED_BYTES_MAX)),
            other => other,
        };
        let header = Header {
            operation,
            node,
            flags,
            first,
            second,
            name_bytes: lengths[0] as u32,
            second_name_bytes: lengths[1] as u32,
            ..Header::default()
        };
        let names = [Text::try_from_str(names[0])?, Text::try_from_str(names[1])?];
        let (stage, coroutine, reader) = (Stage::New, None, None);
        let resizes = None;
        let progress =
            Mutex::new(Progress { stage, data, room, coroutine, reader, resizes, forget });
        let ticket = Ticket::new();
        Ok(try_arc(Self { header, names, effect, names_node, ticket, progress, charge })?)
    }

    /// It is about to be sent. `coroutine`: that of the call that waits for it, if one does.
    pub fn sends(&self, coroutine: Option<CoroutineId>) {
        let mut progress = self.progress.lock();
        progress.stage = Stage::Sent;
        progress.coroutine = coroutine;
    }

    /// Whether the reply may be places on the disk.
    fn takes_places(&self) -> bool {
        self.header.operation == operation::READ && self.header.flags & served::TAKES_PLACES != 0
    }

    /// If the reply may be places on the disk: how many changes of lengths the server had answered
    /// when it read the request.
    pub fn resizes_before(&self) -> Option<u64> {
        self.progress.lock().resizes
    }

    /// Whether it changes the length of a file.
    pub fn resizes(&self) -> bool {
        self.header.operation == operation::SET_STATUS && self.header.flags & change::LENGTH != 0
    }

    /// Whether this is a reply with the beginning of the data.
    pub fn is_partial(&self, reply: &Reply) -> bool {
        self.header.operation == operation::READ
            && self.asked() > DATA_BYTES_MAX as u64
            && reply.value == read_value::MORE
    }

    /// A coroutine of the kernel reads the data.
    pub fn is_read_by(&self, coroutine: CoroutineId) {
        self.progress.lock().reader = Some(coroutine);
        // The priority may have changed before the coroutine was known.
        self.set_priority_of_reader();
    }

    /// The coroutine that reads the data, if there is one, is as urgent as the request is now.
    pub fn set_priority_of_reader(&self) {
        // The lock orders this beside others: the last one loads the last priority.
        let progress = self.progress.lock();
        if let Some(reader) = progress.reader {
            sched::set_priority(reader, self.ticket.priority());
        }
    }

    /// Makes frames for `bytes` bytes of the data, if there are none yet. No effect if its call has
    /// gone.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn make_room(&self, bytes: usize) -> Result<(), Errno> {
        if !matches!(self.progress.lock().data, Data::Room(_)) {
            return Ok(());
        }
        let frames = frames_for(bytes)?;
        let mut progress = self.progress.lock();
        if let Data::Room(_) = progress.data {
            progress.data = Data::Into(frames, bytes);
        }
        Ok(())
    }

    /// Stores data at `at`, if its call has not gone.
    ///
    /// # Panics
    /// Beyond the room for the data.
    pub fn write_data(&self, at: usize, from: &[u8]) {
        let Data::Into(buffers, _) = &self.progress.lock().data else { return };
        let (mut at, mut from) = (at, from);
        for buffer in buffers.iter() {
            if at >= buffer.len() {
                at -= buffer.len();
                continue;
            }
            let (part, rest) = from.split_at(from.len().min(buffer.len() - at));
            buffer.write_at(at, part);
            (at, from) = (0, rest);
        }
        assert!(from.is_empty(), "{} bytes behind the room for data", from.len());
    }

    /// If it asks for whole pages, which may be kept: the first, and how many.
    pub fn pages(&self) -> Option<(u64, u64)> {
        match self.effect {
            Effect::Fills(_, first) => Some((first, self.asked() / PAGE_BYTES as u64)),
            _ => None,
        }
    }

    /// The node that it concerns.
    pub fn node(&self) -> u64 {
        self.header.node
    }

    /// Whether it changes a file, even if its call does not wait for that any longer.
    pub fn changes(&self) -> bool {
        !matches!(self.effect, Effect::None | Effect::Fills(..))
    }

    /// Whether it writes at the end of the file.
    pub fn writes_at_end(&self) -> bool {
        self.header.operation == operation::WRITE
    }

    /// The family that pays for it.
    pub fn payer(&self) -> Family {
        self.charge.family()
    }

    /// Calls `visit` with what it has sent and the number of its bytes, if its call has not gone.
    pub fn with_sent(&self, visit: impl FnOnce(&[PinnedBuffer], usize)) {
        match &self.progress.lock().data {
            Data::From(buffers, length) => visit(buffers, *length),
            _ => visit(&[], 0),
        }
    }

    /// Number of bytes that it asks for, or the length that it sets.
    pub fn asked(&self) -> u64 {
        self.header.second
    }

    /// A frame with data of the reply, if they are in frames of the kernel's.
    pub fn frame(&self, index: usize) -> Option<Frame> {
        match &self.progress.lock().data {
            Data::Into(buffers, _) => {
                let buffer = buffers.get(index / BUFFER_FRAMES)?;
                buffer.frame(index % BUFFER_FRAMES).cloned()
            }
            _ => None,
        }
    }

    /// By which its connection finds it.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Whether the server has it or will read it.
    pub fn is_sent(&self) -> bool {
        matches!(self.progress.lock().stage, Stage::Sent)
    }

    /// Copies it to a server's buffer of at least [`cops_abi::served::BUFFER_BYTES_MIN`]. Returns
    /// its length; `None` if its call has gone. It is given to the server with this id and this
    /// priority, although that may have changed since. `resizes`: how many changes of lengths the
    /// server has answered; `None`: it may be making one, so that the reply must not be places.
    pub fn send(
        &self,
        buffer: &PinnedBuffer,
        (id, priority): (u64, Priority),
        resizes: Option<u64>,
    ) -> Option<usize> {
        let mut progress = self.progress.lock();
        let Stage::Sent = progress.stage else { return None };
        let mut header = Header { id, priority: priority.level().into(), ..self.header };
        if self.takes_places() {
            progress.resizes = resizes;
            header.flags = if resizes.is_some() { served::TAKES_PLACES } else { 0 };
        }
        let mut at = Header::BYTES;
        for name in &self.names {
            buffer.write_at(at, name.as_bytes());
            at += name.len();
        }
        match &mut progress.data {
            Data::Words(words) => {
                for word in words {
                    buffer.write_at(at, &word.to_le_bytes());
                    at += 8;
                }
            }
            Data::From(buffers, length) => {
                *length = (*length).min(buffer.len() - at).min(DATA_BYTES_MAX);
                let mut rest = *length;
                for from in buffers.iter() {
                    let count = rest.min(from.len());
                    buffer.copy_from(at, (from, 0), count);
                    (at, rest) = (at + count, rest - count);
                }
                if header.flags & served::WRITTEN_AT == 0 {
                    header.second = *length as u64;
                }
            }
            Data::Nothing | Data::Into(..) | Data::Room(_) => {}
        }
        header.length = at as u32;
        buffer.write_at(0, &header.to_bytes());
        Some(at)
    }

    /// Takes the reply in `buffer`. Returns the coroutine to wake, and the result of the server's
    /// write.
    ///
    /// # Errors
    /// `ENOENT` if the call has gone, or has its reply.
    pub fn answer(
        &self,
        reply: &Reply,
        buffer: &PinnedBuffer,
    ) -> Result<(Option<CoroutineId>, CallResult), Errno> {
        let mut progress = self.progress.lock();
        let Stage::Sent = progress.stage else { return Err(Errno::ENOENT) };
        let bytes = buffer.len() - Reply::BYTES;
        let room = match &progress.data {
            Data::Into(_, length) | Data::Room(length) if reply.error == 0 => *length,
            _ => 0,
        };
        // There would be no end of it.
        let is_no_part =
            self.is_partial(reply) && (bytes == 0 || !bytes.is_multiple_of(FRAME_BYTES));
        let is_whole = reply.length as usize == buffer.len() && bytes <= room && !is_no_part;
        if let (true, Data::Room(_)) = (is_whole, &progress.data) {
            match frames_for(bytes) {
                Ok(frames) => progress.data = Data::Into(frames, bytes),
                Err(error) => {
                    progress.stage = Stage::Answered(Err(error));
                    return Ok((progress.coroutine.take(), Ok(buffer.len())));
                }
            }
        }
        if let (true, Data::Into(buffers, _)) = (is_whole, &progress.data) {
            let mut at = Reply::BYTES;
            for into in buffers.iter() {
                let count = (buffer.len() - at).min(into.len());
                into.copy_from(0, (buffer, at), count);
                at += count;
            }
        }
        let (result, told) = match (is_whole, reply.error) {
            (false, _) => (Err(Errno::EIO), Err(Errno::EINVAL)),
            (true, 0) => (Ok((*reply, bytes)), Ok(buffer.len())),
            (true, error) => (Err(error_of(error)), Ok(buffer.len())),
        };
        progress.stage = Stage::Answered(result);
        Ok((progress.coroutine.take(), told))
    }

    /// Its data have been read, or not. Returns the coroutine to wake.
    pub fn end(&self, reply: &Reply, result: Result<usize, Errno>) -> Option<CoroutineId> {
        let mut progress = self.progress.lock();
        let Stage::Sent = progress.stage else { return None };
        progress.stage = Stage::Answered(result.map(|bytes| (*reply, bytes)));
        progress.reader = None;
        progress.coroutine.take()
    }

    /// It fails, because the server is gone. Returns the coroutine to wake; `None` if the call has
    /// gone, or has its reply.
    pub fn fail(&self) -> Option<CoroutineId> {
        let mut progress = self.progress.lock();
        let Stage::Sent = progress.stage else { return None };
        progress.stage = Stage::Answered(Err(Errno::EIO));
        progress.coroutine.take()
    }

    /// It cannot be sent: its call finds an error.
    pub fn refuse(&self) {
        self.progress.lock().stage = Stage::Answered(Err(Errno::EIO));
    }

    /// The reply, once; `None` if there is none yet.
    pub fn take_answer(&self) -> Option<Result<Answered, Errno>> {
        let mut progress = self.progress.lock();
        if !matches!(progress.stage, Stage::Answered(_)) {
            return None;
        }
        match core::mem::replace(&mut progress.stage, Stage::Gone) {
            Stage::Answered(Ok((reply, bytes))) => {
                Some(Ok(Answered { reply, bytes, forget: progress.forget.take() }))
            }
            Stage::Answered(Err(error)) => Some(Err(error)),
            _ => None,
        }
    }

    /// The call does not wait any longer. From now on its buffers are not accessed. Returns whether
    /// the server has it or will read it, and a reply that it has not taken.
    pub fn leave(&self) -> (bool, Option<Answered>) {
        let mut progress = self.progress.lock();
        let stage = core::mem::replace(&mut progress.stage, Stage::Gone);
        let data = core::mem::replace(&mut progress.data, Data::Nothing);
        let room = progress.room.take();
        let left = match stage {
            Stage::Sent => (true, None),
            Stage::Answered(Ok((reply, bytes))) => {
                (false, Some(Answered { reply, bytes, forget: progress.forget.take() }))
            }
            _ => (false, None),
        };
        drop(progress);
        drop((data, room));
        left
    }

    /// The node that `reply`, of `bytes` bytes, names although the call has gone before it: the
    /// memory for the message that the node is not used.
    pub fn take_unused(&self, reply: &Reply, bytes: usize) -> Option<Box<Forget>> {
        let mut progress = self.progress.lock();
        let is_late = matches!(progress.stage, Stage::Gone);
        if !is_late || reply.error != 0 || reply.length as usize != bytes {
            return None;
        }
        let mut forget = progress.forget.take()?;
        forget.number = reply.status.number;
        Some(forget)
    }

    /// Copies data of the reply from `at` on.
    ///
    /// # Panics
    /// Beyond the room for the data.
    pub fn read_data(&self, at: usize, into: &mut [u8]) {
        if let Data::Into(buffers, _) = &self.progress.lock().data
            && let Some(buffer) = buffers.first()
        {
            buffer.read_at(at, into);
        }
    }
}

/// Frames of one of several buffers.
const BUFFER_FRAMES: usize = DATA_BYTES_MAX / FRAME_BYTES;

/// Buffers of zeros for `length` bytes, each but the last one of [`DATA_BYTES_MAX`].
fn frames_for(length: usize) -> Result<List<PinnedBuffer>, Errno> {
    let mut buffers = List::new();
    let mut rest = length;
    loop {
        let part = rest.min(DATA_BYTES_MAX);
        buffers.try_push(PinnedBuffer::gathered(part)?)?;
        rest -= part;
        if rest == 0 {
            return Ok(buffers);
        }
    }
}

/// The error with this number, as far as it may be the result of a call on files: not those that
/// have a meaning for calls as such.
fn error_of(number: u32) -> Errno {
    let error = i32::try_from(number).ok().and_then(Errno::from_number);
    error.filter(|error| !matches!(error, Errno::EAGAIN | Errno::EINTR)).unwrap_or(Errno::EIO)
}
