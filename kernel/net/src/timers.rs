//! The timer queue of an interface: which endpoint has to be polled next, and when.
//!
//! One entry per endpoint at most. A deadline that moves later leaves its entry where it is: when
//! the entry comes due, the endpoint is asked again. So the retransmission timer, which moves with
//! every packet, costs the tree nothing; only a deadline that moves earlier does.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::endpoint::Endpoint;

/// Deadlines in microseconds, each with the endpoint's number to tell equal ones apart.
#[derive(Default)]
pub(crate) struct TimerQueue {
    entries: BTreeMap<(u64, u64), Arc<Endpoint>>,
}

impl TimerQueue {
    /// Makes sure that `endpoint` comes due no later than at `deadline`. `armed` is the endpoint's
    /// own note of its entry, kept under the endpoint's lock.
    pub(crate) fn arm(&mut self, endpoint: &Arc<Endpoint>, armed: &mut Option<u64>, deadline: u64) {
        match *armed {
            Some(current) if current <= deadline => return,
            Some(current) => drop(self.entries.remove(&(current, endpoint.number))),
            None => {}
        }
        self.entries.insert((deadline, endpoint.number), endpoint.clone());
        *armed = Some(deadline);
    }

    /// Forgets `endpoint`.
    pub(crate) fn disarm(&mut self, endpoint: &Endpoint, armed: &mut Option<u64>) {
        if let Some(current) = armed.take() {
            self.entries.remove(&(current, endpoint.number));
        }
    }

    /// Takes the first endpoint that is due at `now`. The caller clears the endpoint's note.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Arc<Endpoint>> {
        let entry = self.entries.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// The earliest deadline.
    pub(crate) fn earliest(&self) -> Option<u64> {
        self.entries.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
