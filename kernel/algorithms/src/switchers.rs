//! Switching coroutines as the run queue sees them, and what a newcomer to the queue makes of them.
//!
//! Each hart has a switching coroutine: a coroutine of the kernel whose poll takes a virtual CPU out of the run queue and runs
//! it in user mode. The queue has to know where each of them is, because a virtual CPU that is queued gets a hart by one of
//! them only.
//!
//! ```text
//!                 queue empty                    newcomer
//!        +--------------------------> Idle ---------------------+
//!        |                                                       v
//!   Choosing ------------------------------------------------> Ready { level }
//!     ^  ^         something is queued                           |
//!     |  +-------------------------------------------------------+ polled, takes a virtual CPU
//!     |  gives it up                                             v
//!     +-------------------------------------------------------- Running
//!     |  gives it up (polled)                              ^     |  coroutines of the kernel come first
//!     +----------------------------------- Paused { level }+<----+
//! ```
//!
//! | state | polled now | has a virtual CPU | looks at the queue | what a more urgent newcomer does |
//! | --- | --- | --- | --- | --- |
//! | `Idle` | no | no | never by itself | wakes it with the newcomer's level |
//! | `Choosing` | yes | no | before its poll ends | nothing |
//! | `Ready` | no | no | when the executor polls it, by `level` | raises `level` |
//! | `Running` | yes | yes | when the hart is in the kernel | interrupts the hart, unless the newcomer comes from that hart |
//! | `Paused` | no | yes | when the executor polls it, by `level` | raises `level` |
//!
//! The promise of [`on_newcomer`]: after it, either every switching coroutine has a virtual CPU in hand whose claim is not weaker than
//! the newcomer's, and each that is `Paused` is at least as urgent as the newcomer; or as many of them as virtual CPUs are queued
//! up to the newcomer's level look at the queue before their harts poll anything less urgent than the newcomer. A coroutine that has taken a virtual CPU
//! calls [`on_newcomer`] again for the one that is then first.

/// What a virtual CPU in hand is, compared with a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It goes before the newcomer.
    Stronger,
    /// It goes behind the newcomer: it is of a less urgent level, or of the same and has had more time by `excess`.
    Weaker {
        /// The level of the virtual CPU in hand.
        level: u8,
        /// By how much its process has had more time than the newcomer's.
        excess: i64,
    },
    /// It was granted its slice, which is not taken away.
    Granted,
}

/// Where a switching coroutine is. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switcher {
    /// It has not been polled yet, and looks at the queue when it is.
    Absent,
    /// It is blocked.
    Idle,
    /// It is being polled and looks at the queue before the poll ends.
    Choosing,
    /// It is ready in the executor with nothing in hand.
    Ready {
        /// Its level in the executor.
        level: u8,
    },
    /// It is being polled and runs a virtual CPU.
    Running {
        /// What it runs.
        claim: Claim,
        /// The hart that asks is the hart that polls it.
        here: bool,
        /// It gives way already.
        told: bool,
    },
    /// It has a virtual CPU, and is ready in the executor.
    Paused {
        /// Its level in the executor.
        level: u8,
        /// What it has in hand.
        claim: Claim,
        /// It gives way when it is polled.
        told: bool,
    },
}

/// What is to be done for a newcomer, to the switching coroutine with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: enough of them look, or none has a weaker claim.
    Nothing,
    /// It is idle: give it the newcomer's level and wake it.
    Wake(usize),
    /// Give it the newcomer's level.
    Raise(usize),
    /// It has the weakest claim and is to give way.
    Preempt {
        /// The switching coroutine.
        number: usize,
        /// Give it the newcomer's level.
        raise: bool,
        /// Interrupt its hart.
        interrupt: bool,
    },
}

/// Decides what happens when a virtual CPU of `level` has been queued, by the state of all switching coroutines.
///
/// `ahead`: virtual CPUs in the queue that are at least as urgent, the newcomer included; more than there are switching coroutines need not
/// be counted. `mine`: the number of the switching coroutine of the hart that asks; if it is idle, it is preferred to others.
pub fn on_newcomer(switchers: &[Switcher], level: u8, ahead: usize, mine: usize) -> Action {
    let is_idle = |switcher: &Switcher| *switcher == Switcher::Idle;
    if switchers.get(mine).is_some_and(is_idle) {
        return Action::Wake(mine);
    }
    if let Some(number) = switchers.iter().position(is_idle) {
        return Action::Wake(number);
    }
    if switchers.iter().filter(|switcher| looks_in_time(switcher, level)).count() >= ahead {
        return Action::Nothing;
    }
    // It loses nothing by looking earlier.
    let late = switchers.iter().enumerate().filter_map(|(number, switcher)| match *switcher {
        Switcher::Ready { level: at } | Switcher::Paused { level: at, told: true, .. } if at > level => {
            Some((at, number))
        }
        _ => None,
    });
    if let Some((_, number)) = late.max() {
        return Action::Raise(number);
    }
    let weaker = switchers.iter().enumerate().filter_map(|(number, switcher)| match *switcher {
        Switcher::Running { claim: Claim::Weaker { level, excess }, told: false, .. }
        | Switcher::Paused { claim: Claim::Weaker { level, excess }, told: false, .. } => {
            Some((level, excess, number))
        }
        _ => None,
    });
    if let Some((_, _, number)) = weaker.max() {
        return match switchers[number] {
            Switcher::Paused { level: at, .. } => {
                Action::Preempt { number, raise: at > level, interrupt: false }
            }
            Switcher::Running { here, .. } => Action::Preempt { number, raise: false, interrupt: !here },
            _ => Action::Nothing,
        };
    }
    // The newcomer waits for what these have in hand, and that must not wait for what is less urgent than the newcomer.
    let behind = switchers.iter().enumerate().filter_map(|(number, switcher)| match *switcher {
        Switcher::Paused { level: at, .. } if at > level => Some((at, number)),
        _ => None,
    });
    behind.max().map_or(Action::Nothing, |(_, number)| Action::Raise(number))
}

/// Whether `switcher` looks at the queue, with nothing in hand or giving up what it has, before its hart polls anything less
/// urgent than `level`.
fn looks_in_time(switcher: &Switcher, level: u8) -> bool {
    match *switcher {
        Switcher::Absent | Switcher::Idle => false,
        Switcher::Choosing => true,
        Switcher::Ready { level: at } => at <= level,
        Switcher::Running { told, .. } => told,
        Switcher::Paused { level: at, told, .. } => told && at <= level,
    }
}
