//! Time: [`Timers`] by a [`Clock`] of the program's choice: sleeping, time limits, intervals.
//!
//! The queue of deadlines neither reads hardware nor starts threads: the host tells it that time
//! has passed ([`Timers::fire_due`]) and asks it when to do so next ([`Timers::next_deadline`]). So
//! the same code works in a kernel, in firmware, on a host, and in a simulation in virtual time
//! ([`ManualClock`]).
//!
//! # Contexts
//!
//! The queue has a spin lock, held for O(log n) steps. So sleeping futures are polled and dropped
//! outside of interrupt handlers only, and what looks at the queue is called there only;
//! [`Timers::fire_due`], which never waits, in any context. All futures here are cancel-safe.

mod clock;
mod heap;
mod sleep;
mod timers;

pub use self::clock::{Clock, ManualClock, duration_of};
pub use self::sleep::{Elapsed, Interval, Sleep};
pub use self::timers::{Fired, Timers};
