//! What an entry of an epoll instance is interested in, and what a report changes.
//!
//! | kind | after a report |
//! | --- | --- |
//! | level-triggered | stays in the list of entries to be looked at |
//! | edge-triggered | leaves it until the next event |
//! | one-shot, with either | is disabled until it is modified |

use cops_abi::poll::{epoll_flags as flags, event};

/// The events and data of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    events: u32,
    data: u64,
    is_enabled: bool,
}

/// A report of an entry that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The events, of those that were asked for.
    pub events: u32,
    /// The program's own word.
    pub data: u64,
    /// Whether the entry is to be looked at again without another event.
    pub stays: bool,
}

impl Interest {
    /// An interest in these events, with flags, as `epoll_ctl` gets them.
    #[must_use]
    pub const fn new(events: u32, data: u64) -> Self {
        Self { events, data, is_enabled: true }
    }

    /// The events that are to be looked for; `None` if it is disabled.
    #[must_use]
    pub fn wanted(&self) -> Option<u32> {
        self.is_enabled.then_some(self.events & !flags::ALL | event::ALWAYS)
    }

    /// What is to be reported of a file with these events, if anything.
    pub fn report(&mut self, ready: u32) -> Option<Report> {
        let events = ready & self.wanted()?;
        if events == 0 {
            return None;
        }
        let is_once = self.events & flags::ONE_SHOT != 0;
        self.is_enabled = !is_once;
        let stays = !is_once && self.events & flags::EDGE_TRIGGERED == 0;
        Some(Report { events, data: self.data, stays })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::{ERROR, HANG_UP, IN, OUT, READ_HANG_UP};

    #[test]
    fn a_level_triggered_entry_is_reported_as_long_as_it_is_ready() {
        let mut interest = Interest::new(IN, 7);
        let report = Report { events: IN, data: 7, stays: true };
        assert_eq!(interest.report(IN | OUT), Some(report));
        assert_eq!(interest.report(IN), Some(report));
        assert_eq!(interest.report(OUT), None);
    }

    #[test]
    fn an_edge_triggered_entry_does_not_stay() {
        let mut interest = Interest::new(IN | OUT | READ_HANG_UP | flags::EDGE_TRIGGERED, 1);
        for _ in 0..2 {
            let report = interest.report(OUT).unwrap();
            assert_eq!((report.events, report.stays), (OUT, false));
        }
    }

    #[test]
    fn a_one_shot_entry_is_disabled_by_its_report_only() {
        for other in [0, flags::EDGE_TRIGGERED] {
            let mut interest = Interest::new(IN | flags::ONE_SHOT | other, 1);
            assert_eq!(interest.report(OUT), None);
            assert_eq!(interest.wanted(), Some(IN | ERROR | HANG_UP));
            let report = interest.report(IN).unwrap();
            assert_eq!((report.events, report.stays), (IN, false));
            assert_eq!(interest.wanted(), None);
            assert_eq!(interest.report(IN | HANG_UP), None);
        }
    }

    #[test]
    fn errors_are_reported_without_being_asked_for() {
        let mut interest = Interest::new(0, 3);
        assert_eq!(interest.report(IN | OUT | READ_HANG_UP), None);
        assert_eq!(interest.report(IN | HANG_UP).map(|report| report.events), Some(HANG_UP));
        assert_eq!(interest.report(ERROR).map(|report| report.events), Some(ERROR));
    }

    #[test]
    fn flags_are_no_events() {
        let mut interest = Interest::new(flags::ALL, 3);
        assert_eq!(interest.wanted(), Some(ERROR | HANG_UP));
        assert_eq!(interest.report(flags::ALL | IN), None);
    }
}
