//! Which coroutine handles which request, so that it becomes more urgent with the request.
//!
//! A reader notes a request ([`Handlers::begin`]) before it spawns the handler, and the handler
//! notes its end. A message that a request is more urgent may be read by another reader, before the
//! one that has read the request has noted it. Then the level is kept for that one: until each of
//! the other readers has noted what it had, because each has one message at a time. So such a level
//! does not stay when the request had ended already.
//!
//! Without memory for a note, a request is handled at the level at which it was read.

use alloc::vec::Vec;

use crate::lock::Lock;
use crate::task::{self, CoroutineId, Priority};

/// The requests that are being handled.
#[derive(Debug)]
pub(super) struct Handlers(Lock<State>);

#[derive(Debug)]
struct State {
    places: Vec<Place>,
    /// The first free place, or the number of places.
    free: usize,
    early: Vec<Early>,
    /// A bit for each reader.
    readers: u32,
}

#[derive(Debug)]
enum Place {
    /// The next free one.
    Free(usize),
    /// The request with this id.
    Taken { id: u64, priority: Priority, coroutine: Option<CoroutineId> },
}

/// A level of a request that no reader has noted.
#[derive(Debug)]
struct Early {
    id: u64,
    priority: Priority,
    /// The readers that may have it.
    readers: u32,
}

/// Where a request is noted; `None`: nowhere.
pub(super) type Noted = Option<usize>;

impl Handlers {
    /// None.
    pub(super) const fn new() -> Self {
        Self(Lock::new(State { places: Vec::new(), free: 0, early: Vec::new(), readers: 0 }))
    }

    /// Reader `reader`, a number below 32, begins to read.
    pub(super) fn add_reader(&self, reader: usize) {
        self.0.lock().readers |= 1 << reader;
    }

    /// Reader `reader` has read request `id` of this level, and is about to spawn its handler.
    /// Returns the level that it has now.
    pub(super) fn begin(&self, reader: usize, id: u64, priority: Priority) -> (Noted, Priority) {
        let state = &mut *self.0.lock();
        let early = state.early.iter().position(|early| early.id == id);
        let priority = match early {
            Some(at) => priority.more_urgent_of(state.early.swap_remove(at).priority),
            None => priority,
        };
        state.has_noted(reader);
        let place = state.free;
        if place == state.places.len() {
            if state.places.try_reserve(1).is_err() {
                return (None, priority);
            }
            state.places.push(Place::Free(place + 1));
        }
        if let Some(free) = state.places.get_mut(place) {
            let taken = Place::Taken { id, priority, coroutine: None };
            if let Place::Free(next) = core::mem::replace(free, taken) {
                state.free = next;
            }
        }
        (Some(place), priority)
    }

    /// Reader `reader` has read something else than a request.
    pub(super) fn has_read(&self, reader: usize) {
        self.0.lock().has_noted(reader);
    }

    /// Request `id` is handled by `coroutine`, which was spawned at this level, and may have ended.
    pub(super) fn is_handled_by(
        &self,
        noted: Noted,
        id: u64,
        (coroutine, spawned): (CoroutineId, Priority),
    ) {
        let Some(at) = noted else { return };
        let mut state = self.0.lock();
        if let Some(Place::Taken { id: found, priority, coroutine: handler }) =
            state.places.get_mut(at)
            && *found == id
        {
            *handler = Some(coroutine);
            let priority = *priority;
            drop(state);
            if priority.is_more_urgent_than(spawned) {
                self.raise_at(at, id);
            }
        }
    }

    /// The request that is noted here has been answered.
    pub(super) fn end(&self, noted: Noted) {
        let Some(at) = noted else { return };
        let state = &mut *self.0.lock();
        if let Some(place) = state.places.get_mut(at) {
            *place = Place::Free(core::mem::replace(&mut state.free, at));
        }
    }

    /// Reader `reader` has read that request `id` has this level now.
    pub(super) fn raise(&self, reader: usize, id: u64, raised: Priority) {
        let mut state = self.0.lock();
        state.has_noted(reader);
        let found = state.places.iter_mut().enumerate().find_map(|(at, place)| match place {
            Place::Taken { id: found, priority, .. } if *found == id => Some((at, priority)),
            _ => None,
        });
        if let Some((at, priority)) = found {
            if raised.is_more_urgent_than(*priority) {
                *priority = raised;
                drop(state);
                self.raise_at(at, id);
            }
            return;
        }
        // Another reader has it, or it has been answered.
        let readers = state.readers & !(1 << reader);
        if let Some(early) = state.early.iter_mut().find(|early| early.id == id) {
            early.priority = early.priority.more_urgent_of(raised);
        } else if readers != 0 && state.early.try_reserve(1).is_ok() {
            state.early.push(Early { id, priority: raised, readers });
        }
    }

    /// The handler of request `id`, which is noted at `at`, becomes as urgent as the request. A
    /// handler that is not known yet does so when it is.
    fn raise_at(&self, at: usize, id: u64) {
        let mut last = None;
        loop {
            let (priority, coroutine) = match self.0.lock().places.get(at) {
                Some(&Place::Taken { id: found, priority, coroutine: Some(coroutine) })
                    if found == id =>
                {
                    (priority, coroutine)
                }
                _ => return,
            };
            // Another reader may have set a less urgent one after its look, so that this one looks
            // again after it has set its own.
            if last.replace(priority) == Some(priority) {
                return;
            }
            task::set_priority(coroutine, priority);
        }
    }
}

impl State {
    /// A reader has noted what it has read.
    fn has_noted(&mut self, reader: usize) {
        if !self.early.is_empty() {
            self.early.retain_mut(|early| {
                early.readers &= !(1 << reader);
                early.readers != 0
            });
        }
    }
}
