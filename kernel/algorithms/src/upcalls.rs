//! The request for a user-level interrupt of a process (decision 11): when one is made, and what
//! becomes of it when a worker of the process enters user mode.
//!
//! There is at most one request, of the most urgent result. A result that is not more urgent makes
//! none, since the interrupt is on its way. So a request must not outlive what it was made for:
//! until it is withdrawn or the interrupt is delivered, equally urgent results are suppressed.

use cops_abi::Priority;

/// The request if results have waited long enough: a poll of any urgency is interrupted.
pub const OVERDUE: Priority = Priority::MOST_URGENT;

/// What the worker of an active virtual CPU is doing, according to its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// It will check the ring before its next poll.
    AboutToLook,
    /// It polls a coroutine of this level, or has checked the ring and is about to.
    Polls(Priority),
}

/// What becomes of a request when a worker enters user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum AtEntry {
    /// It is for another worker, which polls something less urgent.
    Keep,
    /// It has become unnecessary.
    Withdraw,
    /// This worker is interrupted.
    Deliver,
}

/// Whether a result for a coroutine of this `priority`, which is more urgent than some poll, makes
/// a request, if that for `wanted` is there already.
#[must_use]
pub fn is_request(priority: Priority, wanted: Option<Priority>) -> bool {
    wanted.is_none_or(|wanted| priority.is_more_urgent_than(wanted))
}

/// What becomes of the request for `wanted` when a worker enters user mode that is doing this.
/// `has_results`: there are results in the ring.
pub fn at_entry(wanted: Priority, has_results: bool, attention: Attention) -> AtEntry {
    match attention {
        // A worker has reached the ring by itself.
        _ if !has_results => AtEntry::Withdraw,
        // It is in the kernel, so it looks after this, and finds whatever the request is for.
        Attention::AboutToLook => AtEntry::Withdraw,
        Attention::Polls(polled) if wanted.is_more_urgent_than(polled) || wanted == OVERDUE => {
            AtEntry::Deliver
        }
        Attention::Polls(_) => AtEntry::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(level: u8) -> Priority {
        Priority::new(level).unwrap()
    }

    #[test]
    fn a_poll_is_interrupted_for_what_is_more_urgent_or_overdue() {
        let polls = |at| Attention::Polls(level(at));
        assert_eq!(at_entry(level(10), true, polls(40)), AtEntry::Deliver);
        assert_eq!(at_entry(level(10), true, polls(10)), AtEntry::Keep);
        assert_eq!(at_entry(level(10), true, polls(4)), AtEntry::Keep);
        assert_eq!(at_entry(OVERDUE, true, polls(0)), AtEntry::Deliver);
        assert_eq!(at_entry(level(10), false, polls(40)), AtEntry::Withdraw);
    }

    #[test]
    fn a_request_does_not_outlive_the_look_at_the_ring() {
        for first in [OVERDUE, level(10)] {
            // A result comes during a poll, and the interrupt is sent.
            assert!(is_request(first, None));
            let mut wanted = Some(first);
            assert!(!is_request(first, wanted));
            // The poll ends, and then the interrupt comes.
            if at_entry(first, true, Attention::AboutToLook) != AtEntry::Keep {
                wanted = None;
            }
            // The worker takes the result, and begins a long poll: the next result interrupts it.
            assert!(is_request(level(10), wanted), "{first:?} is there for ever");
            assert_eq!(at_entry(level(10), true, Attention::Polls(level(40))), AtEntry::Deliver);
        }
    }
}
