//! Replies that say where on the disk the data of a file are (decision 64): a coroutine of the
//! kernel reads them into the frames of the request, which is answered then. The server is not
//! asked again, and nothing is copied through its memory.
//!
//! The blocks of a file become those of another one only after the file was made shorter. So what
//! was read is discarded, and the request made again, if the server may have made a file shorter
//! since it read the request.

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::inspect::coroutine_kind;
use cops_abi::served::{PLACES_MAX, Place, Reply};

use super::connection::Connection;
use super::request::{MADE_AGAIN, Request};
use crate::disk::direct;
use crate::mm::PinnedBuffer;
use crate::sched;
use crate::trace;

/// Places, in the order of the file.
struct Places {
    places: [Place; PLACES_MAX],
    count: usize,
}

impl Places {
    /// Those in the reply that is `buffer`, if they can be: at most `most` bytes of the disk, of
    /// which only the last ones may be less than a sector.
    fn parse(reply: &Reply, buffer: &PinnedBuffer, most: u64) -> Option<Self> {
        let bytes = buffer.len() - Reply::BYTES;
        let count = bytes / Place::BYTES;
        let is_possible = reply.length as usize == buffer.len()
            && bytes.is_multiple_of(Place::BYTES)
            && (1..=PLACES_MAX).contains(&count);
        if !is_possible {
            return None;
        }
        let mut places = [Place::default(); PLACES_MAX];
        let mut total = 0u64;
        for (index, place) in places.iter_mut().take(count).enumerate() {
            let mut encoded = [0; Place::BYTES];
            buffer.read_at(Reply::BYTES + index * Place::BYTES, &mut encoded);
            *place = Place::from_bytes(&encoded);
            let Place { position, bytes } = *place;
            let may_be_part = index + 1 == count;
            let is_possible = direct::can_read(position, bytes)
                && (may_be_part || bytes.is_multiple_of(direct::UNIT_BYTES));
            total = total.checked_add(bytes)?;
            if !is_possible || total > most {
                return None;
            }
        }
        Some(Self { places, count })
    }

    /// Positions and numbers of bytes.
    fn iter(&self) -> impl Iterator<Item = (u64, usize)> {
        self.places.iter().take(self.count).map(|place| (place.position, place.bytes as usize))
    }

    /// Number of bytes in all of them.
    fn total(&self) -> usize {
        self.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Begins to read what the places in `buffer` have, the reply to `request`. `resizes`: how many
/// changes of lengths the server had answered when it read the request. Returns the result of the
/// server's write.
pub fn begin(
    connection: &Arc<Connection>,
    (request, resizes): (&Arc<Request>, u64),
    reply: &Reply,
    buffer: &PinnedBuffer,
) -> CallResult {
    let Some(places) = Places::parse(reply, buffer, request.asked()) else {
        connection.ends_placed(request, reply, Err(Errno::EIO));
        return Err(Errno::EINVAL);
    };
    if !request.is_sent() {
        return Err(Errno::ENOENT);
    }
    let priority = request.ticket().priority();
    const KIND: usize = coroutine_kind::SERVICE as usize;
    let future = read(connection.clone(), (request.clone(), resizes), *reply, places);
    let future = trace::traced::<_, KIND>(future);
    match sched::executor().spawn_of_kind::<_, KIND>(future, priority) {
        Ok(coroutine) => request.is_read_by(coroutine),
        Err(_) => connection.ends_placed(request, reply, Err(Errno::ENOMEM)),
    }
    Ok(buffer.len())
}

/// Reads the places, and answers the request.
async fn read(
    connection: Arc<Connection>,
    (request, resizes): (Arc<Request>, u64),
    reply: Reply,
    places: Places,
) {
    let read = read_all(&request, &places).await;
    let is_valid = connection.resizes() == Some(resizes);
    let result = if is_valid { read } else { Err(MADE_AGAIN) };
    connection.ends_placed(&request, &reply, result);
}

async fn read_all(request: &Request, places: &Places) -> Result<usize, Errno> {
    let total = places.total();
    request.make_room(total)?;
    let mut done = 0;
    for (position, bytes) in places.iter() {
        let mut loan = direct::read(position, bytes).await?;
        request.write_data(done, loan.bytes().get(..bytes).unwrap_or(&[]));
        drop(loan);
        done += bytes;
        // Each copy is a portion.
        cops_executor::yield_now().await;
    }
    Ok(total)
}
