//! Reading requests, and one coroutine for each of them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use cops_abi::Errno;
use cops_abi::file::{Status, Time};
use cops_abi::served::{
    ASKS_FOR_SOLID, AT_END, BUFFER_BYTES, DATA_BYTES_MAX, FORGET_MAX, NO_REPLACE, Place, Reply,
    Request, TAKES_PLACES, WRITTEN_AT, change, operation, read_value,
};

use super::handlers::Handlers;
use super::message::{Asked, Buffer, Entries, reply};
use super::{Change, FileSystem, Result};
use crate::call::Call;
use crate::io::{AsFd, Fd, ReadOwned};
use crate::lock::Lock;
use crate::sync::Semaphore;
use crate::system;
use crate::task::{self, CoroutineId, Priority};
use crate::time::{Duration, sleep};

/// More handlers than there can be at a time. The kernel bounds the requests that are with the
/// server, so that a more urgent one always has room; a bound of the server's own would make it
/// wait.
const HANDLERS: usize = usize::MAX / 2;

/// How long reading pauses when the kernel has no memory for it.
const RETRY: Duration = Duration::from_millis(1);

/// Maximum number of buffers that are kept for later requests.
const SPARE_MAX: usize = 16;

/// What the coroutines of a server share.
pub(super) struct Service<F> {
    fd: Fd,
    files: F,
    /// [`HANDLERS`] less those that there are.
    ended: Semaphore,
    /// Which coroutine handles which request.
    handlers: Handlers,
    /// Buffers of requests that are over: a new one would have to be cleared.
    spare: Lock<Vec<Buffer>>,
}

/// What a reply has besides the error.
enum Answer {
    Nothing,
    /// A status; with a name if the operation is `PLACE`.
    Named(Status, Vec<u8>),
    /// A status, and how many bytes need no more space, if that was asked for.
    Status(Status, u64),
    Written(super::Written),
    Data(Vec<u8>),
    /// So many bytes of data are in the buffer, behind the room for the header; whether there is
    /// more of what was asked for.
    Read(Buffer, usize, bool),
    /// The data are at these places of the disk.
    Places(Vec<(u64, u64)>),
}

impl<F: FileSystem> Service<F> {
    pub(super) fn new(fd: Fd, files: F) -> Self {
        let (ended, handlers) = (Semaphore::new(HANDLERS), Handlers::new());
        Self { fd, files, ended, handlers, spare: Lock::new(Vec::new()) }
    }

    /// A buffer with any contents.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn buffer(&self) -> Result<Buffer> {
        let spare = self.spare.lock().pop();
        spare.map_or_else(Buffer::new, Ok)
    }

    /// Keeps a buffer that is not needed any more, or frees it.
    fn keep(&self, buffer: Buffer) {
        let mut spare = self.spare.lock();
        if spare.len() < SPARE_MAX && spare.try_reserve(1).is_ok() {
            spare.push(buffer);
        }
    }

    /// Performs a request.
    async fn perform(&self, asked: &Asked, buffer: &mut Option<Buffer>) -> Result<Answer> {
        let Asked { header, name, second_name, .. } = asked;
        let Request { node, flags, first, second, .. } = *header;
        let permissions = first as u32;
        let named = |status| Answer::Named(status, Vec::new());
        let done = |()| Answer::Nothing;
        let files = &self.files;
        match header.operation {
            operation::LOOK_UP => files.look_up(node, name).await.map(named),
            operation::GET_STATUS => {
                let status = files.status(node).await?;
                let asked = flags & ASKS_FOR_SOLID != 0;
                Ok(Answer::Status(status, if asked { files.solid(node).await } else { 0 }))
            }
            operation::SET_STATUS => {
                files.change(node, self.change(asked, buffer.as_ref())?).await.map(done)
            }
            operation::READ_LINK => {
                files.read_link(node).await.map(|path| Answer::Data(path.into_bytes()))
            }
            operation::MAKE_LINK => files.make_link(node, name, second_name).await.map(named),
            operation::MAKE_DIRECTORY => {
                files.make_directory(node, name, permissions).await.map(named)
            }
            operation::CREATE => files.create(node, name, permissions).await.map(named),
            operation::UNLINK => files.unlink(node, name).await.map(done),
            operation::REMOVE_DIRECTORY => files.remove_directory(node, name).await.map(done),
            operation::LINK => files.link(first, node, name).await.map(done),
            operation::RENAME => {
                let (from, to) = ((node, name.as_str()), (first, second_name.as_str()));
                files.rename(from, to, flags & NO_REPLACE != 0).await.map(done)
            }
            operation::READ => {
                if flags & TAKES_PLACES != 0
                    && let Some(places) = files.places(node, first, second as usize).await
                {
                    return Ok(Answer::Places(places));
                }
                let mut place = match buffer.take() {
                    Some(buffer) => buffer,
                    None => self.buffer()?,
                };
                let length = (second as usize).min(DATA_BYTES_MAX);
                let end = Reply::BYTES + length;
                let into = place.bytes_mut().get_mut(Reply::BYTES..end).unwrap_or_default();
                match files.read(node, first, into).await {
                    Ok(count) => {
                        let has_more = second > length as u64 && count >= length;
                        Ok(Answer::Read(place, count.min(length), has_more))
                    }
                    Err(error) => {
                        *buffer = Some(place);
                        Err(error)
                    }
                }
            }
            operation::WRITE => {
                let buffer = buffer.as_ref().ok_or(Errno::EIO)?;
                let bytes = buffer.bytes().get(asked.data.clone()).unwrap_or_default();
                let written = if flags & WRITTEN_AT != 0 {
                    let (seconds, nanoseconds) = (second / 1_000_000_000, second % 1_000_000_000);
                    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
                    let time = Time { seconds, nanoseconds: nanoseconds as u32 };
                    files.write_kept(node, first, bytes, time).await
                } else {
                    let offset = (flags & AT_END == 0).then_some(first);
                    files.write(node, offset, bytes).await
                };
                written.map(Answer::Written)
            }
            operation::LIST => {
                let mut entries = Entries::new(second as usize);
                files.list(node, first, &mut entries).await?;
                Ok(Answer::Data(entries.records()?.to_vec()))
            }
            operation::PLACE => {
                let (parent, name) = files.place(node).await?;
                Ok(Answer::Named(parent, name.into_bytes()))
            }
            operation::USAGE => {
                let usage = files.usage().await?;
                let words = [usage.kind, usage.blocks, usage.free_blocks];
                Ok(Answer::Data(words.into_iter().flat_map(u64::to_le_bytes).collect()))
            }
            operation::SYNCHRONISE => files.synchronise(node).await.map(done),
            operation::SYNCHRONISE_ALL => files.synchronise_all().await.map(done),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// What `SET_STATUS` is to change.
    fn change(&self, asked: &Asked, buffer: Option<&Buffer>) -> Result<Change> {
        let buffer = buffer.ok_or(Errno::EIO)?;
        let data = buffer.bytes().get(asked.data.clone()).unwrap_or_default();
        let word = |index: usize| {
            let bytes = data.get(8 * index..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let time =
            |index| Time { seconds: word(index) as i64, nanoseconds: word(index + 1) as u32 };
        let Request { flags, first, second, .. } = asked.header;
        let has = |flag| flags & flag != 0;
        Ok(Change {
            permissions: has(change::PERMISSIONS).then_some(first as u32),
            length: has(change::LENGTH).then_some(second),
            accessed: has(change::ACCESSED).then(|| time(0)),
            modified: has(change::MODIFIED).then(|| time(2)),
        })
    }

    /// Sends the reply to request `id`.
    async fn send(&self, id: u64, answer: Result<Answer>) {
        let mut header = Reply { id, ..Reply::default() };
        let mut named = None;
        let sent = match answer {
            Err(error) => {
                header.error = error as u32;
                self.write(header, &[])
            }
            Ok(Answer::Nothing) => self.write(header, &[]),
            Ok(Answer::Status(status, value)) => self.write(Reply { status, value, ..header }, &[]),
            Ok(Answer::Data(data)) => self.write(header, &data),
            Ok(Answer::Written(written)) => {
                (header.value, header.place) = (written.count as u64, written.end);
                self.write(header, &[])
            }
            Ok(Answer::Named(status, data)) => {
                named = Some(status.number);
                self.write(Reply { status, ..header }, &data)
            }
            Ok(Answer::Places(places)) => {
                header.value = read_value::PLACES;
                let places = places.into_iter().map(|(position, bytes)| Place { position, bytes });
                let data: Vec<u8> = places.flat_map(|place| place.to_bytes()).collect();
                self.write(header, &data)
            }
            Ok(Answer::Read(mut buffer, count, has_more)) => {
                header.value = if has_more { read_value::MORE } else { 0 };
                header.length = (Reply::BYTES + count) as u32;
                let bytes = buffer.bytes_mut();
                if let Some(place) = bytes.first_chunk_mut() {
                    *place = header.to_bytes();
                }
                let bytes = bytes.get(..Reply::BYTES + count).unwrap_or_default();
                let sent = system::write(self.fd.raw(), bytes);
                self.keep(buffer);
                sent
            }
        };
        // The call was cancelled, or has got an error, so that it does not use the node.
        if let (Err(_), Some(node)) = (sent, named) {
            self.files.forget(node, 1).await;
        }
    }

    /// Writes a reply. Without memory for it, the reply is `ENOMEM`, which is the result, too.
    fn write(&self, header: Reply, data: &[u8]) -> Result<usize> {
        let bytes = match reply(header, data) {
            Ok(bytes) => bytes,
            Err(error) => {
                let (id, length) = (header.id, Reply::BYTES as u32);
                let header = Reply { id, length, error: error as u32, ..Reply::default() };
                system::write(self.fd.raw(), &header.to_bytes())?;
                return Err(error);
            }
        };
        system::write(self.fd.raw(), &bytes)
    }

    /// Handles nodes that the kernel does not use any more, and replies to message `id` about them.
    async fn forget(&self, id: u64, forgotten: &Forgotten) {
        for &(node, count) in forgotten.0.iter().filter(|&&(_, count)| count > 0) {
            self.files.forget(node, count).await;
        }
        // Without an allocation, which could fail.
        let header = Reply { id, length: Reply::BYTES as u32, ..Reply::default() };
        let _ = system::write(self.fd.raw(), &header.to_bytes());
    }

    /// Spawns the handler of a message, and counts it. Returns what handles the message, or `None`
    /// without memory for that.
    fn spawn(
        self: &Arc<Self>,
        handler: impl Future<Output = ()> + Send + 'static,
        priority: Priority,
    ) -> Option<CoroutineId> {
        if let Some(permit) = self.ended.try_acquire(1) {
            permit.forget();
        }
        let service = self.clone();
        let counted = async move {
            handler.await;
            service.ended.add_permits(1);
        };
        let spawned = task::try_spawn(counted, priority).ok();
        if spawned.is_none() {
            self.ended.add_permits(1);
        }
        spawned
    }
}

/// Nodes that the kernel does not use any more, each with a number of uses. The kernel says so only
/// once, so they are kept without an allocation, which could fail.
#[derive(Clone, Copy)]
struct Forgotten([(u64, u64); FORGET_MAX]);

impl Forgotten {
    /// Reads pairs of a node and a count.
    fn parse(pairs: &[u8]) -> Self {
        let mut forgotten = Self([(0, 0); FORGET_MAX]);
        let pairs = pairs.as_chunks::<8>().0.as_chunks::<2>().0;
        for (place, pair) in forgotten.0.iter_mut().zip(pairs) {
            *place = pair.map(u64::from_le_bytes).into();
        }
        forgotten
    }
}

/// Number of coroutines that read requests. As long as one of them waits in the kernel, what the
/// others have got makes this process as urgent as the requests are. So it can get several at a
/// time from callers that are as urgent as each other.
const READERS: usize = 16;

/// Reads requests until there will be no more, and spawns a coroutine for each.
pub(super) async fn serve<F: FileSystem>(service: Arc<Service<F>>) -> crate::io::Result<()> {
    let mut readers = Vec::new();
    for number in 0..READERS {
        match Buffer::new() {
            Ok(buffer) => {
                service.handlers.add_reader(number);
                let reader = read_requests(service.clone(), number, buffer);
                readers.push(task::spawn_join(reader, Priority::MOST_URGENT));
            }
            Err(error) if number == 0 => return Err(error.into()),
            // Fewer will do.
            Err(_) => break,
        }
    }
    let mut outcome = Ok(());
    for reader in readers {
        outcome = outcome.and(reader.await.unwrap_or(Err(Errno::ECANCELED.into())));
    }
    // What is still handled writes its replies first.
    service.ended.acquire(HANDLERS).await.forget();
    outcome
}

/// Reads requests until there will be no more, and spawns a coroutine for each. It is the reader
/// with number `reader`.
async fn read_requests<F: FileSystem>(
    service: Arc<Service<F>>,
    reader: usize,
    mut buffer: Buffer,
) -> crate::io::Result<()> {
    loop {
        let (memory, range) = buffer.into_parts();
        let read = ReadOwned::new(service.fd.as_fd(), memory, range);
        let (count, memory) = Call::new(read).await;
        buffer = Buffer::from_parts(memory);
        let count = match count {
            // The kernel has no memory for the call at the moment.
            Err(Errno::ENOMEM) => {
                sleep(RETRY).await;
                continue;
            }
            count => count?,
        };
        if count == 0 {
            return Ok(());
        }
        let Some(asked) = Asked::parse(buffer.bytes(), count) else { continue };
        let (id, priority) = (asked.header.id, Priority::saturating(asked.header.priority));
        match asked.header.operation {
            operation::RAISE => service.handlers.raise(reader, id, priority),
            operation::FORGET => {
                service.handlers.has_read(reader);
                let pairs = buffer.bytes().get(asked.data).unwrap_or_default();
                forget(&service, id, Forgotten::parse(pairs), priority).await;
            }
            _ => buffer = handle(&service, reader, asked, buffer).await,
        }
        // Another one may have got a more urgent request.
        task::yield_now().await;
    }
}

/// Spawns the handler of a request, with its data in `buffer`. Returns a buffer for the next one.
async fn handle<F: FileSystem>(
    service: &Arc<Service<F>>,
    reader: usize,
    asked: Asked,
    mut buffer: Buffer,
) -> Buffer {
    let (id, priority) = (asked.header.id, Priority::saturating(asked.header.priority));
    // The buffer goes with its data, if there is memory for another one.
    let handed = match (!asked.data.is_empty()).then(|| service.buffer()) {
        Some(Ok(other)) => Some(core::mem::replace(&mut buffer, other)),
        Some(Err(error)) => {
            service.send(id, Err(error)).await;
            return buffer;
        }
        None => None,
    };
    let (noted, priority) = service.handlers.begin(reader, id, priority);
    let handler = {
        let service = service.clone();
        async move {
            let mut handed = handed;
            let answer = service.perform(&asked, &mut handed).await;
            service.send(id, answer).await;
            service.handlers.end(noted);
            if let Some(buffer) = handed {
                service.keep(buffer);
            }
        }
    };
    match service.spawn(handler, priority) {
        Some(coroutine) => service.handlers.is_handled_by(noted, id, (coroutine, priority)),
        None => {
            service.handlers.end(noted);
            service.send(id, Err(Errno::ENOMEM)).await;
        }
    }
    buffer
}

/// Handles nodes that the kernel does not use any more, in a coroutine of this level. Without
/// memory for that, the caller handles them itself.
async fn forget<F: FileSystem>(
    service: &Arc<Service<F>>,
    id: u64,
    forgotten: Forgotten,
    priority: Priority,
) {
    let handler = {
        let service = service.clone();
        async move { service.forget(id, &forgotten).await }
    };
    if service.spawn(handler, priority).is_none() {
        service.forget(id, &forgotten).await;
    }
}

const _: () = assert!(Reply::BYTES + DATA_BYTES_MAX <= BUFFER_BYTES);
