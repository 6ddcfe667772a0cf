//! Signals of a process: what each does by default, what the program wants done, and which wait.
//!
//! Numbers, flags and effects are Linux's. A standard signal that waits is not counted: a second
//! one of the same number before the first is taken is lost. Real-time signals queue, in the order
//! in which they were sent, up to a limit.

use cops_fallible::List;

/// Number of signals; they are numbered from 1.
pub const SIGNALS: u8 = 64;

/// Whether signals of this number queue.
#[must_use]
pub const fn is_real_time(signal: u8) -> bool {
    signal >= 32
}

/// A set of signals: bit `n - 1` for signal `n`.
pub type Set = u64;

/// The set with this signal, 1 to [`SIGNALS`].
#[must_use]
pub const fn bit(signal: u8) -> Set {
    1 << ((signal - 1) & 63)
}

const SIGILL: u8 = 4;
const SIGTRAP: u8 = 5;
const SIGBUS: u8 = 7;
const SIGFPE: u8 = 8;
const SIGKILL: u8 = 9;
const SIGSEGV: u8 = 11;
const SIGCHLD: u8 = 17;
const SIGCONT: u8 = 18;
const SIGSTOP: u8 = 19;
const SIGTSTP: u8 = 20;
const SIGTTIN: u8 = 21;
const SIGTTOU: u8 = 22;
const SIGURG: u8 = 23;
const SIGWINCH: u8 = 28;

/// Signals that a program can neither block, ignore nor handle.
pub const FORCED: Set = bit(SIGKILL) | bit(SIGSTOP);

/// Signals of a fault of the program itself, which are delivered before all others.
const FAULTS: Set = bit(SIGILL) | bit(SIGTRAP) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGSEGV);

/// What happens to a process that has not said what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Ignore,
    /// It ends.
    Terminate,
    /// It stops.
    Stop,
}

/// Signals that stop a process by default.
pub const STOPPING: Set = bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);

/// Signals that wait and are forgotten when `signal` is sent: `SIGCONT` and those that stop exclude
/// each other.
#[must_use]
pub const fn excluded_by(signal: u8) -> Set {
    match signal {
        SIGCONT => STOPPING,
        SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU => bit(SIGCONT),
        _ => 0,
    }
}

/// Whether a signal that is sent makes a stopped process go on, whatever the program wants.
#[must_use]
pub const fn continues(signal: u8) -> bool {
    signal == SIGCONT
}

/// Whether a signal stops a process even if no process could make it go on: the others have no
/// effect on a group that is orphaned.
#[must_use]
pub const fn stops_orphans(signal: u8) -> bool {
    signal == SIGSTOP
}

/// The effect of a signal by default. (`SIGCONT` makes a stopped process go on, and then has none.)
#[must_use]
pub const fn default_effect(signal: u8) -> Effect {
    match signal {
        SIGCHLD | SIGCONT | SIGURG | SIGWINCH => Effect::Ignore,
        SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU => Effect::Stop,
        _ => Effect::Terminate,
    }
}

/// What a program wants done with a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// Address of the handler, [`Action::DEFAULT`] or [`Action::IGNORE`].
    pub handler: usize,
    /// Bits of [`flags`].
    pub flags: usize,
    /// Signals that are blocked while the handler runs.
    pub mask: Set,
}

impl Action {
    /// In the place of a handler: the default effect.
    pub const DEFAULT: usize = 0;
    /// In the place of a handler: nothing.
    pub const IGNORE: usize = 1;
}

/// Flags of an [`Action`].
pub mod flags {
    /// The handler runs on the alternate stack, if there is one.
    pub const ON_STACK: usize = 0x0800_0000;
    /// A call that the handler has interrupted is made again.
    pub const RESTART: usize = 0x1000_0000;
    /// `SIGCHLD` only: not for children that stop or go on.
    pub const NO_CHILD_STOP: usize = 1;
    /// The signal itself is not blocked while its handler runs.
    pub const NO_DEFER: usize = 0x4000_0000;
    /// The signal has its default effect again once it is delivered.
    pub const RESET: usize = 0x8000_0000;
}

/// What is to be done with a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Its effect, without a handler.
    Effect(Effect),
    /// The program's handler runs.
    Handle(Action),
}

/// What a program wants done with each signal.
#[derive(Clone, Debug)]
pub struct Dispositions([Action; SIGNALS as usize]);

impl Default for Dispositions {
    fn default() -> Self {
        Self([Action::default(); SIGNALS as usize])
    }
}

impl Dispositions {
    /// The action for `signal`, 1 to [`SIGNALS`].
    #[must_use]
    pub fn get(&self, signal: u8) -> Action {
        self.0[usize::from(signal - 1) % self.0.len()]
    }

    /// Sets the action for `signal`, 1 to [`SIGNALS`]. Returns false, and changes nothing, for a
    /// signal that cannot have one.
    #[must_use]
    pub fn set(&mut self, signal: u8, action: Action) -> bool {
        let is_allowed = FORCED & bit(signal) == 0;
        if is_allowed {
            let place = usize::from(signal - 1) % self.0.len();
            self.0[place] = Action { mask: action.mask & !FORCED, ..action };
        }
        is_allowed
    }

    /// What is to be done with `signal`.
    #[must_use]
    pub fn decide(&self, signal: u8) -> Decision {
        let action = self.get(signal);
        match action.handler {
            Action::DEFAULT => Decision::Effect(default_effect(signal)),
            Action::IGNORE => Decision::Effect(Effect::Ignore),
            _ => Decision::Handle(action),
        }
    }

    /// Like [`Self::decide`], for a signal that is delivered now: if the program wants that, it has
    /// its default effect from now on.
    pub fn deliver(&mut self, signal: u8) -> Decision {
        let decision = self.decide(signal);
        if let Decision::Handle(action) = decision
            && action.flags & flags::RESET != 0
        {
            let _ = self.set(signal, Action::default());
        }
        decision
    }

    /// The program is replaced by another one: no handler of it remains, but what it ignores is
    /// still ignored.
    pub fn forget_handlers(&mut self) {
        for action in &mut self.0 {
            let is_ignored = action.handler == Action::IGNORE;
            let handler = if is_ignored { Action::IGNORE } else { Action::DEFAULT };
            *action = Action { handler, ..Action::default() };
        }
    }
}

/// A signal with what its handler learns about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Information {
    /// Its number.
    pub signal: u8,
    /// Why it was sent: `si_code`.
    pub code: i32,
    /// The fields of `siginfo` from byte 16 on.
    pub fields: [u64; 2],
}

/// There is no room for another signal, or no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

/// Signals that wait and of which there is more to know than their numbers, oldest first.
#[derive(Debug, Default)]
struct Queue(List<Information>);

impl Queue {
    /// Adds one, unless so many wait already.
    fn add(&mut self, information: Information, max: usize) -> Result<(), QueueFull> {
        if self.0.len() >= max {
            return Err(QueueFull);
        }
        self.0.try_push(information).map_err(|_| QueueFull)
    }

    /// Takes the oldest one of this number. Also returns whether there is another one.
    #[inline]
    fn take(&mut self, signal: u8) -> Option<(Information, bool)> {
        let is_it = |one: &Information| one.signal == signal;
        let index = self.0.iter().position(is_it)?;
        let taken = self.0.remove(index);
        let has_more = self.0.iter().any(is_it);
        if self.0.is_empty() {
            // Most processes have none.
            self.0 = List::default();
        }
        Some((taken, has_more))
    }

    fn remove(&mut self, signals: Set) {
        self.0.retain(|one| bit(one.signal) & signals == 0);
        if self.0.is_empty() {
            // Most processes have none.
            self.0 = List::default();
        }
    }
}

/// The one of these signals that is taken first: that of a fault, otherwise the lowest number.
#[inline]
fn first(ready: Set) -> Option<u8> {
    let ready = if ready & FAULTS != 0 { ready & FAULTS } else { ready };
    (ready != 0).then(|| ready.trailing_zeros() as u8 + 1)
}

/// Signals to a process that wait.
#[derive(Debug)]
pub struct Pending {
    set: Set,
    /// The first of each number.
    information: [Information; SIGNALS as usize],
    /// Real-time signals behind the first one of their number.
    queue: Queue,
}

impl Default for Pending {
    fn default() -> Self {
        let information = [Information::default(); SIGNALS as usize];
        Self { set: 0, information, queue: Queue::default() }
    }
}

impl Pending {
    /// How many real-time signals may wait behind others of their numbers.
    pub const QUEUED_MAX: usize = 128;

    /// The signals that wait.
    #[must_use]
    pub const fn set(&self) -> Set {
        self.set
    }

    /// Adds one. A standard signal is dropped if one of its number waits already.
    ///
    /// # Errors
    /// [`QueueFull`] for a real-time signal of a number that waits already; it is dropped.
    pub fn add(&mut self, information: Information) -> Result<(), QueueFull> {
        let place = usize::from(information.signal - 1) % self.information.len();
        if self.set & bit(information.signal) == 0 {
            self.set |= bit(information.signal);
            self.information[place] = information;
            Ok(())
        } else if is_real_time(information.signal) {
            self.queue.add(information, Self::QUEUED_MAX)
        } else {
            Ok(())
        }
    }

    /// Removes these signals.
    pub fn remove(&mut self, signals: Set) {
        self.set &= !signals;
        self.queue.remove(signals);
    }

    /// Takes one that is not in `blocked`: that of a fault, otherwise the lowest number.
    #[inline]
    pub fn take(&mut self, blocked: Set) -> Option<Information> {
        let signal = first(self.set & !(blocked & !FORCED))?;
        let place = usize::from(signal - 1);
        let taken = self.information[place];
        match self.queue.take(signal) {
            Some((next, _)) => self.information[place] = next,
            None => self.set &= !bit(signal),
        }
        Some(taken)
    }
}

/// Signals to one thread that wait. They need little memory as long as they are standard signals of
/// other threads.
#[derive(Debug, Default)]
pub struct ThreadPending {
    set: Set,
    /// The process that has sent the last one that is not in the queue.
    sender: u32,
    queue: Queue,
}

impl ThreadPending {
    /// How many signals may wait of which there is more to know than the sender.
    pub const QUEUED_MAX: usize = 128;
    /// The memory for so many; none as long as none waits.
    pub const QUEUE_BYTES: usize = Self::QUEUED_MAX * size_of::<Information>();

    /// Whether one waits that needs memory.
    #[must_use]
    pub fn has_queue(&self) -> bool {
        !self.queue.0.is_empty()
    }

    /// The signals that wait.
    #[must_use]
    pub const fn set(&self) -> Set {
        self.set
    }

    /// Removes these signals.
    pub fn remove(&mut self, signals: Set) {
        self.set &= !signals;
        self.queue.remove(signals);
    }

    /// Adds a standard signal of which only the sender is known. It is dropped if one of its number
    /// waits already.
    pub fn add_simple(&mut self, signal: u8, sender: u32) {
        self.set |= bit(signal);
        self.sender = sender;
    }

    /// Adds any signal. A standard signal is dropped if one of its number waits already.
    ///
    /// # Errors
    /// [`QueueFull`]; it is dropped.
    pub fn add(&mut self, information: Information) -> Result<(), QueueFull> {
        let is_first = self.set & bit(information.signal) == 0;
        if is_first || is_real_time(information.signal) {
            self.queue.add(information, Self::QUEUED_MAX)?;
            self.set |= bit(information.signal);
        }
        Ok(())
    }

    /// Takes one that is not in `blocked`, the lowest number. `Err`: only its number and its sender
    /// are known.
    #[inline]
    pub fn take(&mut self, blocked: Set) -> Option<Result<Information, (u8, u32)>> {
        let signal = first(self.set & !(blocked & !FORCED))?;
        match self.queue.take(signal) {
            Some((taken, true)) => Some(Ok(taken)),
            Some((taken, false)) => {
                self.set &= !bit(signal);
                Some(Ok(taken))
            }
            None => {
                self.set &= !bit(signal);
                Some(Err((signal, self.sender)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLER: usize = 0x1_2345;

    fn handled(flags: usize) -> Action {
        Action { handler: HANDLER, flags, mask: u64::MAX }
    }

    fn of(signal: u8) -> Information {
        Information { signal, code: i32::from(signal), fields: [signal.into(), 7] }
    }

    #[test]
    fn effects_are_those_of_linux() {
        let ignored = (1..=SIGNALS).filter(|&signal| default_effect(signal) == Effect::Ignore);
        assert!(ignored.eq([17, 18, 23, 28]));
        let stopping = (1..=SIGNALS).filter(|&signal| default_effect(signal) == Effect::Stop);
        assert!(stopping.eq([19, 20, 21, 22]));
    }

    #[test]
    fn to_stop_and_to_continue_exclude_each_other() {
        for signal in 1..=SIGNALS {
            let stops = default_effect(signal) == Effect::Stop;
            assert_eq!(bit(signal) & STOPPING != 0, stops);
            let excluded = match signal {
                18 => STOPPING,
                _ if stops => bit(18),
                _ => 0,
            };
            assert_eq!(excluded_by(signal), excluded);
            assert_eq!(continues(signal), signal == 18);
            assert_eq!(stops_orphans(signal), signal == 19);
        }
    }

    #[test]
    fn two_signals_cannot_be_caught() {
        let mut all = Dispositions::default();
        for signal in 1..=SIGNALS {
            let is_forced = signal == 9 || signal == 19;
            assert_eq!(all.set(signal, handled(0)), !is_forced, "{signal}");
            match all.decide(signal) {
                Decision::Handle(action) => {
                    assert!(!is_forced);
                    assert_eq!(action.mask, !FORCED, "what cannot be blocked is not in a mask");
                }
                Decision::Effect(effect) => {
                    assert!(is_forced);
                    assert_eq!(effect, default_effect(signal));
                }
            }
        }
    }

    #[test]
    fn a_handler_that_is_reset_runs_once() {
        let mut all = Dispositions::default();
        assert!(all.set(10, handled(flags::RESET)) && all.set(12, handled(0)));
        for signal in [10, 12] {
            assert!(matches!(all.deliver(signal), Decision::Handle(_)));
        }
        assert_eq!(all.deliver(10), Decision::Effect(Effect::Terminate));
        assert!(matches!(all.deliver(12), Decision::Handle(_)));
    }

    #[test]
    fn another_program_inherits_what_is_ignored_and_no_handler() {
        let mut all = Dispositions::default();
        let ignore = Action { handler: Action::IGNORE, ..handled(flags::RESTART) };
        assert!(all.set(2, ignore) && all.set(15, handled(0)));
        all.forget_handlers();
        assert_eq!(all.get(2), Action { handler: Action::IGNORE, flags: 0, mask: 0 });
        assert_eq!(all.get(15), Action::default());
    }

    #[test]
    fn faults_come_first_and_then_the_lowest_number() {
        let mut pending = Pending::default();
        for signal in [64, 2, 11, 10] {
            assert_eq!(pending.add(of(signal)), Ok(()));
        }
        let order: [u8; 4] =
            core::array::from_fn(|_| pending.take(0).map_or(0, |taken| taken.signal));
        assert_eq!(order, [11, 2, 10, 64]);
        assert_eq!(pending.take(0), None);
    }

    #[test]
    fn a_blocked_signal_waits_and_the_first_of_a_number_remains() {
        let mut pending = Pending::default();
        assert_eq!(pending.add(of(10)), Ok(()));
        assert_eq!(pending.add(Information { code: 99, ..of(10) }), Ok(()));
        assert_eq!(pending.take(bit(10)), None);
        assert_eq!(pending.set(), bit(10));
        assert_eq!(pending.take(!bit(10)), Some(of(10)));
        assert_eq!(pending.take(0), None);
        assert_eq!(pending.add(of(9)), Ok(()));
        assert_eq!(pending.take(u64::MAX), Some(of(9)), "SIGKILL cannot be blocked");
        assert_eq!(pending.add(of(12)), Ok(()));
        pending.remove(bit(12));
        assert_eq!(pending.take(0), None);
    }

    fn numbered(signal: u8, number: u64) -> Information {
        Information { fields: [number, 0], ..of(signal) }
    }

    #[test]
    fn real_time_signals_queue_in_the_order_in_which_they_were_sent() {
        let mut pending = Pending::default();
        for number in 0..5 {
            for signal in [40, 34, 12] {
                assert_eq!(pending.add(numbered(signal, number)), Ok(()));
            }
        }
        assert_eq!(pending.take(0), Some(numbered(12, 0)));
        for signal in [34, 40] {
            for number in 0..5 {
                assert_eq!(pending.set() & bit(signal), bit(signal));
                assert_eq!(pending.take(0), Some(numbered(signal, number)));
            }
        }
        assert_eq!((pending.set(), pending.take(0)), (0, None));
    }

    #[test]
    fn a_full_queue_refuses_and_has_room_again() {
        let mut pending = Pending::default();
        for number in 0..=Pending::QUEUED_MAX as u64 {
            assert_eq!(pending.add(numbered(34, number)), Ok(()));
        }
        assert_eq!(pending.add(numbered(34, 999)), Err(QueueFull));
        assert_eq!(pending.add(numbered(35, 999)), Ok(()), "the first of a number has its place");
        assert_eq!(pending.take(0), Some(numbered(34, 0)));
        assert_eq!(pending.add(numbered(34, 1000)), Ok(()));
        pending.remove(bit(34));
        assert_eq!(pending.take(0), Some(numbered(35, 999)));
        assert_eq!(pending.take(0), None);
    }

    #[test]
    fn a_thread_has_simple_signals_and_others() {
        let mut pending = ThreadPending::default();
        pending.add_simple(10, 7);
        pending.add_simple(10, 8);
        assert_eq!(pending.add(numbered(12, 1)), Ok(()));
        assert_eq!(pending.add(numbered(12, 2)), Ok(()), "dropped");
        assert_eq!(pending.add(numbered(33, 1)), Ok(()));
        assert_eq!(pending.add(numbered(33, 2)), Ok(()));
        assert_eq!(pending.take(bit(10) | bit(12) | bit(33)), None);
        assert_eq!(pending.take(bit(10)), Some(Ok(numbered(12, 1))));
        assert_eq!(pending.set(), bit(10) | bit(33));
        assert_eq!(pending.take(0), Some(Err((10, 8))));
        assert_eq!(pending.take(0), Some(Ok(numbered(33, 1))));
        assert_eq!(pending.take(0), Some(Ok(numbered(33, 2))));
        assert_eq!((pending.set(), pending.take(0)), (0, None));
        for number in 0..ThreadPending::QUEUED_MAX as u64 {
            assert_eq!(pending.add(numbered(64, number)), Ok(()));
        }
        assert_eq!(pending.add(numbered(63, 0)), Err(QueueFull));
        assert_eq!(pending.set(), bit(64), "what was refused does not wait");
    }
}
