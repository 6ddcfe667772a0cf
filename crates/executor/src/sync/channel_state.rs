//! What the two kinds of ends of a channel share: its values, and the claims that are waited for.

use alloc::collections::VecDeque;

use super::monitor::{Line, Resource, Wakes};
use crate::core::CoroutineId;

/// What an end of the channel asks for.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Send,
    Receive,
}

#[derive(Clone, Copy)]
pub(super) enum Grant {
    /// A free place, or a value.
    Claim,
    /// There will never be one.
    Closed,
}

pub(super) struct State<T> {
    pub buffer: VecDeque<T>,
    capacity: usize,
    /// Free places, and values, that were granted to a future which has not been polled since.
    places_claimed: usize,
    values_claimed: usize,
    pub closed: bool,
    pub senders: usize,
    pub receivers: usize,
    send_line: Line<State<T>>,
    receive_line: Line<State<T>>,
}

impl<T> State<T> {
    /// Of a channel with an end of each kind. Allocates for all values.
    pub fn new(capacity: usize) -> State<T> {
        State {
            buffer: VecDeque::with_capacity(capacity),
            capacity,
            places_claimed: 0,
            values_claimed: 0,
            closed: false,
            senders: 1,
            receivers: 1,
            send_line: Line::new(),
            receive_line: Line::new(),
        }
    }

    fn free_places(&self) -> usize {
        self.capacity.saturating_sub(self.buffer.len() + self.places_claimed)
    }

    fn free_values(&self) -> usize {
        // Less than zero after a claim that was leaked, once the buffer is gone.
        self.buffer.len().saturating_sub(self.values_claimed)
    }

    /// There will never be another value. Not while one is claimed: a receiver that is dropped
    /// returns it.
    fn has_ended(&self) -> bool {
        self.closed && self.buffer.is_empty()
    }

    /// A sender uses its grant.
    pub fn push(&mut self, grant: Grant, value: &mut Option<T>) -> Result<(), ()> {
        if let Grant::Claim = grant {
            self.places_claimed -= 1;
            if !self.closed {
                self.buffer.extend(value.take());
                return Ok(());
            }
        }
        Err(())
    }

    /// A receiver uses its grant.
    pub fn pop(&mut self, grant: Grant) -> Option<T> {
        match grant {
            Grant::Claim => {
                self.values_claimed -= 1;
                self.buffer.pop_front()
            }
            Grant::Closed => None,
        }
    }
}

impl<T> Resource for State<T> {
    type Demand = Side;
    type Grant = Grant;

    fn accept(&mut self, _: u64) {}

    fn try_now(&mut self, side: &mut Side, owner: Option<CoroutineId>) -> Option<Grant> {
        match side {
            Side::Send if self.closed => Some(Grant::Closed),
            Side::Send if self.free_places() != 0 && self.send_line.lets_pass(owner) => {
                self.places_claimed += 1;
                Some(Grant::Claim)
            }
            Side::Receive if self.free_values() != 0 && self.receive_line.lets_pass(owner) => {
                self.values_claimed += 1;
                Some(Grant::Claim)
            }
            Side::Receive if self.has_ended() => Some(Grant::Closed),
            _ => None,
        }
    }

    fn line(&mut self, side: Side) -> &mut Line<Self> {
        match side {
            Side::Send => &mut self.send_line,
            Side::Receive => &mut self.receive_line,
        }
    }

    fn distribute(&mut self, wakes: &mut Wakes) {
        while !wakes.is_full() && self.receive_line.first().is_some() {
            if self.free_values() != 0 {
                self.values_claimed += 1;
                self.receive_line.grant_first(Grant::Claim, wakes);
            } else if self.has_ended() {
                self.receive_line.grant_first(Grant::Closed, wakes);
            } else {
                break;
            }
        }
        while !wakes.is_full() && self.send_line.first().is_some() {
            if self.closed {
                self.send_line.grant_first(Grant::Closed, wakes);
            } else if self.free_places() != 0 {
                self.places_claimed += 1;
                self.send_line.grant_first(Grant::Claim, wakes);
            } else {
                break;
            }
        }
    }

    fn release_grant(&mut self, side: Side, grant: Grant, _: &mut Wakes) {
        match (side, grant) {
            (Side::Send, Grant::Claim) => self.places_claimed -= 1,
            (Side::Receive, Grant::Claim) => self.values_claimed -= 1,
            (_, Grant::Closed) => {}
        }
    }
}
