//! The states of the switching coroutines, and what is done with them when a virtual CPU is queued.
//!
//! Each hart has a switching coroutine: a kernel coroutine that, in a poll, takes a virtual CPU out
//! of the run queue and runs it in user mode. A queued virtual CPU gets a hart only through a
//! switching coroutine, so the queue has to know the state of each of them. The virtual CPU that
//! has just been queued is the *newcomer*.
//!
//! ```text
//!                  queue empty                    newcomer
//!         +--------------------------> Idle ---------------------+
//!         |                                                       v
//!    Choosing ------------------------------------------------> Ready { level }
//!      ^  ^         something is queued                           |
//!      |  +-------------------------------------------------------+ polled, takes a virtual CPU
//!      |  gives it up                                             v
//!      +-------------------------------------------------------- Running
//!      |  gives it up (polled)                              ^     |  kernel coroutines come first
//!      +----------------------------------- Paused { level }+<----+
//! ```
//!
//! | state | polled now | has a virtual CPU | reads the queue | effect of a more urgent newcomer |
//! | --- | --- | --- | --- | --- |
//! | `Idle` | no | no | never by itself | is woken with the newcomer's level |
//! | `Choosing` | yes | no | before its poll ends | none |
//! | `Ready` | no | no | when the executor polls it, by `priority` | `priority` is raised |
//! | `Running` | yes | yes | when the hart is in the kernel | its hart is interrupted, unless that hart queues the newcomer |
//! | `Paused` | no | yes | when the executor polls it, by `priority` | `priority` is raised |
//!
//! If nothing is queued, and the switching coroutine of the hart that makes a virtual CPU ready is
//! `Idle`, that virtual CPU is handed over to it instead of being queued: it is `Paused` then, as
//! if it had taken the virtual CPU and ended its poll.
//!
//! [`on_newcomer`] guarantees one of the following:
//!
//! - Every switching coroutine has a virtual CPU with a claim not weaker than the newcomer's, and
//!   each one that is `Paused` is at least as urgent as the newcomer.
//! - As many switching coroutines as there are queued virtual CPUs up to the newcomer's level read
//!   the queue before their harts poll anything less urgent than the newcomer.
//!
//! A switching coroutine that has taken a virtual CPU calls [`on_newcomer`] again for the virtual
//! CPU that is then first.

use cops_abi::Priority;

/// How the virtual CPU of a switching coroutine compares with a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It precedes the newcomer.
    Stronger,
    /// It comes after the newcomer: its level is less urgent, or its level is the same and its
    /// vruntime is greater by `excess`.
    Weaker {
        /// The level of the virtual CPU.
        priority: Priority,
        /// Its vruntime minus the newcomer's.
        excess: i64,
    },
    /// It is in a time slice that must not be cut short.
    Granted,
}

/// The state of a switching coroutine. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switcher {
    /// It has not been polled yet; its first poll reads the queue.
    Absent,
    /// It is blocked.
    Idle,
    /// It is being polled and reads the queue before the poll ends.
    Choosing,
    /// It is ready in the executor and has no virtual CPU.
    Ready {
        /// Its level in the executor.
        priority: Priority,
    },
    /// It is being polled and runs a virtual CPU.
    Running {
        /// The claim of the virtual CPU that it runs.
        claim: Claim,
        /// Whether the hart that polls it is the one that queues the newcomer.
        here: bool,
        /// Whether it has already been told to preempt its virtual CPU.
        need_resched: bool,
    },
    /// It has a virtual CPU, and is ready in the executor.
    Paused {
        /// Its level in the executor.
        priority: Priority,
        /// The claim of its virtual CPU.
        claim: Claim,
        /// Whether it gives up its virtual CPU when it is polled.
        need_resched: bool,
    },
}

/// What to do for a newcomer, and the index of the switching coroutine to do it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: enough switching coroutines read the queue, or none has a weaker claim.
    Nothing,
    /// It is idle: set its level to the newcomer's and wake it.
    Wake(usize),
    /// Set its level to the newcomer's.
    Raise(usize),
    /// It has the weakest claim: preempt its virtual CPU.
    Preempt {
        /// Index of the switching coroutine.
        number: usize,
        /// Whether to set its level to the newcomer's.
        raise: bool,
        /// Whether to interrupt its hart.
        interrupt: bool,
    },
}

/// Decides what happens after a virtual CPU of `priority` was queued, depending on the states of
/// all switching coroutines.
///
/// `ahead`: the number of queued virtual CPUs that are at least as urgent, including the newcomer;
/// it may stop counting at the number of switching coroutines. `mine`: the index of the calling
/// hart's switching coroutine, which is preferred if it is idle.
pub fn on_newcomer(
    switchers: &[Switcher],
    priority: Priority,
    ahead: usize,
    mine: usize,
) -> Action {
    let is_idle = |switcher: &Switcher| *switcher == Switcher::Idle;
    if switchers.get(mine).is_some_and(is_idle) {
        return Action::Wake(mine);
    }
    if let Some(number) = switchers.iter().position(is_idle) {
        return Action::Wake(number);
    }
    if switchers.iter().filter(|switcher| looks_in_time(switcher, priority)).count() >= ahead {
        return Action::Nothing;
    }
    // This one would read the queue too late. Reading it earlier costs nothing.
    let late = switchers.iter().enumerate().filter_map(|(number, switcher)| match *switcher {
        Switcher::Ready { priority: at }
        | Switcher::Paused { priority: at, need_resched: true, .. }
            if priority.is_more_urgent_than(at) =>
        {
            Some((at.level(), number))
        }
        _ => None,
    });
    if let Some((_, number)) = late.max() {
        return Action::Raise(number);
    }
    let weaker = switchers.iter().enumerate().filter_map(|(number, switcher)| match *switcher {
        Switcher::Running {
            claim: Claim::Weaker { priority, excess },
            need_resched: false,
            ..
        }
        | Switcher::Paused {
            claim: Claim::Weaker { priority, excess }, need_resched: false, ..
        } => Some((priority.level(), excess, number)),
        _ => None,
    });
    if let Some((_, _, number)) = weaker.max() {
        return match switchers[number] {
            Switcher::Paused { priority: at, .. } => Action::Preempt {
                number,
                raise: priority.is_more_urgent_than(at),
                interrupt: false,
            },
            Switcher::Running { here, .. } => {
                Action::Preempt { number, raise: false, interrupt: !here }
            }
            _ => Action::Nothing,
        };
    }
    // The newcomer has to wait for the virtual CPUs of these, so they must not wait for anything
    // less urgent than the newcomer.
    let behind = switchers.iter().enumerate().filter_map(|(number, switcher)| match *switcher {
        Switcher::Paused { priority: at, .. } if priority.is_more_urgent_than(at) => {
            Some((at.level(), number))
        }
        _ => None,
    });
    behind.max().map_or(Action::Nothing, |(_, number)| Action::Raise(number))
}

/// Whether `switcher` reads the queue, without a virtual CPU or giving up its own, before its hart
/// polls anything less urgent than `priority`.
fn looks_in_time(switcher: &Switcher, priority: Priority) -> bool {
    match *switcher {
        Switcher::Absent | Switcher::Idle => false,
        Switcher::Choosing => true,
        Switcher::Ready { priority: at } => !priority.is_more_urgent_than(at),
        Switcher::Running { need_resched, .. } => need_resched,
        Switcher::Paused { priority: at, need_resched, .. } => {
            need_resched && !priority.is_more_urgent_than(at)
        }
    }
}
