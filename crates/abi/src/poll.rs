//! Events and structures of `ppoll`, `pselect6` and `epoll`. All are Linux's for riscv64.

/// Events that a descriptor can have.
pub mod event {
    /// There is something to read, or the end of the stream, or a connection to accept.
    pub const IN: u32 = 0x1;
    /// Urgent data: never here.
    pub const PRIORITY: u32 = 0x2;
    /// There is room to write.
    pub const OUT: u32 = 0x4;
    /// An error; reported always.
    pub const ERROR: u32 = 0x8;
    /// Both directions are closed, or the other end of a pipe; reported always.
    pub const HANG_UP: u32 = 0x10;
    /// The descriptor is not open; reported always, by `ppoll` only.
    pub const INVALID: u32 = 0x20;
    /// The same as [`IN`].
    pub const READ_NORMAL: u32 = 0x40;
    /// Urgent data: never here.
    pub const READ_BAND: u32 = 0x80;
    /// The same as [`OUT`].
    pub const WRITE_NORMAL: u32 = 0x100;
    /// The same as [`OUT`]; never reported.
    pub const WRITE_BAND: u32 = 0x200;
    /// The peer sends nothing more.
    pub const READ_HANG_UP: u32 = 0x2000;

    /// There is something to read: both names.
    pub const READABLE: u32 = IN | READ_NORMAL;
    /// There is room to write: both names.
    pub const WRITABLE: u32 = OUT | WRITE_NORMAL;

    /// Events of the reading direction.
    pub const READING: u32 = IN | PRIORITY | READ_NORMAL | READ_BAND | READ_HANG_UP;
    /// Events of the writing direction.
    pub const WRITING: u32 = OUT | WRITE_NORMAL | WRITE_BAND;
    /// Events that are reported whether they were asked for or not.
    pub const ALWAYS: u32 = ERROR | HANG_UP;
}

/// `bits` if the condition holds, and none otherwise: for sets of [`event`]s.
#[must_use]
pub const fn bits_if(holds: bool, bits: u32) -> u32 {
    if holds { bits } else { 0 }
}

/// Size of a `pollfd`: the descriptor, the events asked for, the events found.
pub const POLL_BYTES: usize = 8;
/// Where a `pollfd` has the events found.
pub const FOUND_AT: usize = 6;
/// Maximum number of descriptors of one `ppoll` or `pselect6`.
pub const POLL_MAX: usize = 32_768;

/// Size of an `epoll_event`: events, four unused bytes, data.
pub const EPOLL_EVENT_BYTES: usize = 16;
/// Maximum number of events that one `epoll_pwait` returns.
pub const EPOLL_EVENTS_MAX: usize = 16;

/// Operations of `epoll_ctl`.
pub mod epoll_control {
    /// Adds a descriptor.
    pub const ADD: usize = 1;
    /// Removes a descriptor.
    pub const DELETE: usize = 2;
    /// Changes the events and the data of a descriptor.
    pub const MODIFY: usize = 3;
}

/// Flags in the events of `epoll_ctl`.
pub mod epoll_flags {
    /// One waiter is woken by an event, rather than all. Has no effect.
    pub const EXCLUSIVE: u32 = 1 << 28;
    /// The machine does not sleep before the event is handled. Has no effect.
    pub const WAKE_UP: u32 = 1 << 29;
    /// One report; then the entry has to be modified.
    pub const ONE_SHOT: u32 = 1 << 30;
    /// A report for each event, rather than as long as the descriptor is ready.
    pub const EDGE_TRIGGERED: u32 = 1 << 31;
    /// All of them.
    pub const ALL: u32 = EXCLUSIVE | WAKE_UP | ONE_SHOT | EDGE_TRIGGERED;
}

/// Flag of `eventfd2`: a read takes 1 from the counter, rather than all.
pub const EVENT_SEMAPHORE: u32 = 1;
