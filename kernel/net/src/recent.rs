//! The connections for which segments arrived lately, by a few bits of their addresses.
//!
//! The table of flows hashes with a secret, since a peer may choose its addresses, and compares
//! keys of any IP version. For the next segment of a connection in use this finds the endpoint with
//! a few instructions. Peers that choose addresses with the same bits only find the table instead.

use alloc::sync::Arc;

use cops_fallible::{List, OutOfMemory};

use crate::endpoint::Endpoint;
use crate::frame::{FlowKey, FlowWords};

/// Number of slots, of 24 bytes: a thousand connections with random ports share few.
const SLOTS: usize = 4096;

#[derive(Default)]
struct Slot {
    words: FlowWords,
    endpoint: Option<Arc<Endpoint>>,
}

/// A slot for each value of the bits; none without memory, or for an interface without a fast path.
#[derive(Default)]
pub(crate) struct Recent(List<Slot>);

fn slot_of(words: FlowWords) -> usize {
    usize::from(words.remote_port() ^ u16::from(words.remote_host()) << 4) % SLOTS
}

impl Recent {
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn try_new() -> Result<Recent, OutOfMemory> {
        let mut slots = List::try_with_capacity(SLOTS)?;
        for _ in 0..SLOTS {
            slots.try_push(Slot::default())?;
        }
        Ok(Recent(slots))
    }

    /// The endpoint with these addresses, if it is known here.
    #[inline]
    pub(crate) fn get(&self, words: FlowWords) -> Option<&Arc<Endpoint>> {
        let slot = self.0.get(slot_of(words))?;
        slot.endpoint.as_ref().filter(|_| slot.words == words)
    }

    /// `endpoint` is the one with these addresses in the table of flows, and stays it until
    /// [`remove`](Self::remove).
    pub(crate) fn insert(&mut self, words: FlowWords, endpoint: &Arc<Endpoint>) {
        if let Some(slot) = self.0.get_mut(slot_of(words)) {
            *slot = Slot { words, endpoint: Some(endpoint.clone()) };
        }
    }

    /// The connection with this key is removed from the table of flows.
    pub(crate) fn remove(&mut self, key: &FlowKey) {
        if let Some(words) = key.words()
            && let Some(slot) = self.0.get_mut(slot_of(words))
            && slot.words == words
        {
            *slot = Slot::default();
        }
    }
}
