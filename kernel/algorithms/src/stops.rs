//! The signal that has stopped a process (decision 34), and which of the signals to continue ends
//! the stop.
//!
//! The sender of a signal to continue ends the stop last. By then the process may have run a
//! handler and have been stopped by that. So each signal to continue has a number, a stop remembers
//! how many there were before it, and a signal ends only a stop that is older.

/// The stop of one process, if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stops(Option<Stop>);

#[derive(Clone, Copy, Debug)]
struct Stop {
    signal: u8,
    /// How often the process had been told to continue when the signal came.
    continued: u64,
    /// The parent has been informed.
    is_reported: bool,
}

impl Stops {
    /// Of a process that is not stopped.
    pub const NONE: Self = Self(None);

    /// Whether the process is stopped.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.0.is_some()
    }

    /// The process is stopped by `signal`, which came when it had been told to continue `continued`
    /// times. Returns false if it is stopped already.
    pub fn begin(&mut self, signal: u8, continued: u64) -> bool {
        let begins = self.0.is_none();
        self.0.get_or_insert(Stop { signal, continued, is_reported: false });
        begins
    }

    /// The process has been told to continue, for the `continued`th time. Returns false if it was
    /// not stopped, or by a signal that came later.
    pub fn end(&mut self, continued: u64) -> bool {
        self.0.take_if(|stop| stop.continued < continued).is_some()
    }

    /// The signal, once, if the process is stopped and `is_complete`: none of its virtual CPUs has
    /// a hart any more.
    pub fn take_report(&mut self, is_complete: bool) -> Option<u8> {
        let stop = self.0.as_mut()?;
        let is_new = is_complete && !core::mem::replace(&mut stop.is_reported, is_complete);
        is_new.then_some(stop.signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGSTOP: u8 = 19;
    const SIGTSTP: u8 = 20;

    #[test]
    fn a_stop_is_ended_by_the_next_signal_to_continue_and_not_by_one_before_it() {
        let mut stops = Stops::NONE;
        assert!(!stops.end(1), "it is not stopped");
        // Its handler of the first signal to continue stops it before the sender of that has done.
        assert!(stops.begin(SIGSTOP, 1));
        assert!(!stops.end(1) && stops.is_stopped(), "the stop came later");
        assert!(stops.end(2) && !stops.is_stopped());
        assert!(stops.begin(SIGTSTP, 2));
        assert!(!stops.begin(SIGSTOP, 3), "it is stopped already");
        assert!(stops.end(3), "the first stop counts");
    }

    #[test]
    fn the_parent_is_informed_once_when_no_hart_runs_it() {
        let mut stops = Stops::NONE;
        assert_eq!(stops.take_report(true), None);
        stops.begin(SIGSTOP, 0);
        assert_eq!(stops.take_report(false), None);
        assert_eq!(stops.take_report(true), Some(SIGSTOP));
        assert_eq!(stops.take_report(true), None);
        stops.end(1);
        stops.begin(SIGTSTP, 1);
        assert_eq!(stops.take_report(true), Some(SIGTSTP), "each stop");
    }
}
