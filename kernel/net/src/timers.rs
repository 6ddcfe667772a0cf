//! The timer queue of an interface: the next endpoint to be polled, and when.
//!
//! Each endpoint has at most one entry. When a deadline becomes later, the entry stays where it is;
//! when the entry is due, it is put back for the later deadline. So the retransmission timer, which
//! moves with every packet, does not change the tree, and a delayed acknowledgement that went out
//! with an answer costs one step of the tree but no service of its endpoint.

use alloc::sync::Arc;

use cops_fallible::Map;
use cops_fallible::map::Spare;

use crate::endpoint::Endpoint;

/// The deadline in microseconds, and the endpoint's number to distinguish equal deadlines.
type Key = (u64, u64);

/// An endpoint's record of its entry, protected by the endpoint's lock. Its memory is allocated
/// with the endpoint, so that arming a timer cannot fail.
pub(crate) struct Armed {
    /// The deadline of the entry: at most `wanted`, if there is one.
    deadline: Option<u64>,
    /// When the endpoint is next to be served.
    wanted: Option<u64>,
    /// Memory for an entry, while there is none.
    room: Option<Spare<Key, Arc<Endpoint>>>,
}

impl Armed {
    pub(crate) fn try_new() -> Result<Armed, cops_fallible::OutOfMemory> {
        Ok(Armed { deadline: None, wanted: None, room: Some(Spare::try_new()?) })
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

impl TimerQueue {
    /// `endpoint` is to be served at `deadline`, and not because of an earlier call; `None`: not
    /// because of the time.
    pub(crate) fn arm(
        &mut self,
        endpoint: &Arc<Endpoint>,
        armed: &mut Armed,
        deadline: Option<u64>,
    ) {
        armed.wanted = deadline;
        let Some(deadline) = deadline else { return };
        if armed.deadline.is_some_and(|current| current <= deadline) {
            return;
        }
        self.remove(endpoint, armed);
        if let Some(room) = armed.room.take() {
            self.entries.insert_with(room, (deadline, endpoint.number), endpoint.clone());
            armed.deadline = Some(deadline);
        }
    }

    /// Removes the entry of `endpoint`.
    pub(crate) fn disarm(&mut self, endpoint: &Endpoint, armed: &mut Armed) {
        armed.wanted = None;
        self.remove(endpoint, armed);
    }

    fn remove(&mut self, endpoint: &Endpoint, armed: &mut Armed) {
        if let Some(current) = armed.deadline.take()
            && let Some((_, room)) = self.entries.take(&(current, endpoint.number))
        {
            armed.room = Some(room);
        }
    }

    /// Takes the first entry that is due at `now`. The caller passes it to [`is_wanted`] with the
    /// endpoint's record.
    ///
    /// [`is_wanted`]: Self::is_wanted
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Due> {
        let (&key, _) = self.entries.first()?;
        if key.0 > now {
            return None;
        }
        let (endpoint, room) = self.entries.take(&key)?;
        Some(Due { endpoint, room })
    }

    /// Whether the endpoint of `due` is to be served at `now`. If it is to be served later, it gets
    /// its entry back.
    pub(crate) fn is_wanted(&mut self, due: Due, armed: &mut Armed, now: u64) -> bool {
        armed.deadline = None;
        armed.room = Some(due.room);
        let is_wanted = armed.wanted.is_some_and(|at| at <= now);
        if !is_wanted {
            self.arm(&due.endpoint, armed, armed.wanted);
        }
        is_wanted
    }

    /// The earliest deadline of an entry.
    pub(crate) fn earliest(&self) -> Option<u64> {
        self.entries.first().map(|((deadline, _), _)| *deadline)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
