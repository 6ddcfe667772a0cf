//! The timer queue of an interface: the next endpoint to be polled, and when.
//!
//! Each endpoint has at most one entry. When a deadline becomes later, the entry stays where it is;
//! when the entry is due, the endpoint is asked again. So the retransmission timer, which moves
//! with every packet, does not change the tree; only a deadline that becomes earlier does.

use alloc::sync::Arc;

use cops_fallible::Map;
use cops_fallible::map::Spare;

use crate::endpoint::Endpoint;

/// The deadline in microseconds, and the endpoint's number to distinguish equal deadlines.
type Key = (u64, u64);

/// An endpoint's record of its entry, protected by the endpoint's lock. Its memory is allocated
/// with the endpoint, so that arming a timer cannot fail.
pub(crate) struct Armed {
    /// The deadline of the entry.
    deadline: Option<u64>,
    /// Memory for an entry, while there is none.
    room: Option<Spare<Key, Arc<Endpoint>>>,
}

impl Armed {
    pub(crate) fn try_new() -> Result<Armed, cops_fallible::OutOfMemory> {
        Ok(Armed { deadline: None, room: Some(Spare::try_new()?) })
    }
}

/// The entries, ordered by deadline.
#[derive(Default)]
pub(crate) struct TimerQueue {
    entries: Map<Key, Arc<Endpoint>>,
}

/// A due entry: the endpoint, and the memory for its next entry.
pub(crate) struct Due {
    pub(crate) endpoint: Arc<Endpoint>,
    room: Spare<Key, Arc<Endpoint>>,
}

impl Due {
    /// Clears the endpoint's record, under its lock.
    pub(crate) fn note(self, armed: &mut Armed) -> Arc<Endpoint> {
        armed.deadline = None;
        armed.room = Some(self.room);
        self.endpoint
    }
}

impl TimerQueue {
    /// Makes sure that `endpoint` is due no later than `deadline`.
    pub(crate) fn arm(&mut self, endpoint: &Arc<Endpoint>, armed: &mut Armed, deadline: u64) {
        if armed.deadline.is_some_and(|current| current <= deadline) {
            return;
        }
        self.disarm(endpoint, armed);
        if let Some(room) = armed.room.take() {
            self.entries.insert_with(room, (deadline, endpoint.number), endpoint.clone());
            armed.deadline = Some(deadline);
        }
    }

    /// Removes the entry of `endpoint`.
    pub(crate) fn disarm(&mut self, endpoint: &Endpoint, armed: &mut Armed) {
        if let Some(current) = armed.deadline.take()
            && let Some((_, room)) = self.entries.take(&(current, endpoint.number))
        {
            armed.room = Some(room);
        }
    }

    /// Takes the first endpoint that is due at `now`. The caller must pass its record to
    /// [`Due::note`].
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Due> {
        let (&key, _) = self.entries.first()?;
        if key.0 > now {
            return None;
        }
        let (endpoint, room) = self.entries.take(&key)?;
        Some(Due { endpoint, room })
    }

    /// The earliest deadline.
    pub(crate) fn earliest(&self) -> Option<u64> {
        self.entries.first().map(|((deadline, _), _)| *deadline)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
