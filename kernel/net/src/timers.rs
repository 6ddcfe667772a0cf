//! The timer queue of an interface: which endpoint has to be polled next, and when.
//!
//! One entry per endpoint at most. A deadline that moves later leaves its entry where it is: when
//! the entry comes due, the endpoint is asked again. So the retransmission timer, which moves with
//! every packet, costs the tree nothing; only a deadline that moves earlier does.

use alloc::sync::Arc;

use cops_fallible::Map;
use cops_fallible::map::Spare;

use crate::endpoint::Endpoint;

/// Deadline in microseconds, and the endpoint's number to tell equal ones apart.
type Key = (u64, u64);

/// An endpoint's own note about its entry, kept under the endpoint's lock. Allocated with the endpoint, so that arming
/// a timer cannot fail.
pub(crate) struct Armed {
    /// The deadline of the entry.
    deadline: Option<u64>,
    /// Room for an entry, while there is none.
    room: Option<Spare<Key, Arc<Endpoint>>>,
}

impl Armed {
    pub(crate) fn try_new() -> Result<Armed, cops_fallible::OutOfMemory> {
        Ok(Armed { deadline: None, room: Some(Spare::try_new()?) })
    }
}

/// The entries, the next to come due first.
#[derive(Default)]
pub(crate) struct TimerQueue {
    entries: Map<Key, Arc<Endpoint>>,
}

/// An entry that has come due: the endpoint, and the room for its next entry.
pub(crate) struct Due {
    pub(crate) endpoint: Arc<Endpoint>,
    room: Spare<Key, Arc<Endpoint>>,
}

impl Due {
    /// Clears the endpoint's note, under its lock.
    pub(crate) fn note(self, armed: &mut Armed) -> Arc<Endpoint> {
        armed.deadline = None;
        armed.room = Some(self.room);
        self.endpoint
    }
}

impl TimerQueue {
    /// Makes sure that `endpoint` comes due no later than at `deadline`.
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

    /// Forgets `endpoint`.
    pub(crate) fn disarm(&mut self, endpoint: &Endpoint, armed: &mut Armed) {
        if let Some(current) = armed.deadline.take()
            && let Some((_, room)) = self.entries.take(&(current, endpoint.number))
        {
            armed.room = Some(room);
        }
    }

    /// Takes the first endpoint that is due at `now`. The caller has it [note](Due::note) that.
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
