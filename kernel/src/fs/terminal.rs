//! The console's input as a file: the [`Terminal`]'s state, its lock, and its waiting readers.
//!
//! Lock order: the terminal, then the console's output, for echo.

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::terminal::BYTES;
use cops_algorithms::terminal::{Echo, INPUT_BYTES, Mode, Read, Refusal, Terminal};
use spin::Mutex;

use crate::drivers::console::{self, Channel, InputSink};
use crate::mm::PinnedBuffer;
use crate::sched::{FIRST_PROCESS, WaitQueue, Waiter};

/// Maximum number of bytes per read.
const READ_BYTES: usize = 256;
/// Steps of line editing in one attempt: they bound its time and that of its echo.
const STEPS_MAX: usize = 4;

/// The only terminal.
pub static TERMINAL: Console = Console {
    state: Mutex::new(State { terminal: Terminal::new(), is_full: false, has_more: false }),
    foreground: WaitQueue::new(),
    background: WaitQueue::new(),
    changes: WaitQueue::new(),
};

struct State {
    terminal: Terminal,
    /// The console holds bytes back until there is room.
    is_full: bool,
    /// The last attempt of the foreground did not process all of the input.
    has_more: bool,
}

/// The terminal and its readers.
pub struct Console {
    state: Mutex<State>,
    /// Readers that may get input at any time.
    foreground: WaitQueue,
    /// Readers that get nothing before the seats change. Input does not wake them.
    background: WaitQueue,
    /// Has watches only, which are notified of all that may change what a process finds.
    changes: WaitQueue,
}

impl InputSink for Console {
    fn has_room(&self) -> bool {
        let mut state = self.state.lock();
        state.is_full = state.terminal.room() == 0;
        !state.is_full
    }

    fn take(&self, byte: u8) {
        if self.state.lock().terminal.arrive(byte) {
            // Wake the process that handed the console over, which is one of those waiting here.
            self.background.wake_all();
            self.changes.notify_watches();
        }
    }

    fn end(&self) {
        self.state.lock().terminal.end_input();
    }

    fn commit(&self) {
        self.foreground.wake_one();
        self.changes.notify_watches();
    }
}

/// A read of console input.
pub struct ConsoleRead {
    buffer: PinnedBuffer,
    /// Whether a synchronous read fails instead of waiting.
    is_non_blocking: bool,
    /// The queue that it waits in, if any.
    queue: Option<&'static WaitQueue>,
}

impl ConsoleRead {
    /// A read into `buffer`. `is_non_blocking`: a synchronous one fails instead of waiting.
    pub fn new(buffer: PinnedBuffer, is_non_blocking: bool) -> Self {
        Self { buffer, is_non_blocking, queue: None }
    }

    /// Whether a synchronous read fails instead of waiting.
    pub fn is_non_blocking(&self) -> bool {
        self.is_non_blocking
    }

    /// Reads available input for process `reader`; `None` if there is none yet or the process is
    /// not in the foreground.
    pub fn attempt(&self, reader: u32) -> Option<CallResult> {
        let mut bytes = [0; READ_BYTES];
        let bytes = bytes.get_mut(..self.buffer.len().min(READ_BYTES))?;
        for _ in 0..STEPS_MAX {
            match step(reader, |terminal, reader, echo| terminal.read(reader, bytes, echo)) {
                Read::Bytes(count) => {
                    self.buffer.write_at(0, &bytes[..count]);
                    return Some(Ok(count));
                }
                Read::Nothing => return None,
                Read::Again => {}
            }
        }
        None
    }

    /// Registers `waiter` to be woken when an attempt of process `reader` may succeed. It attempts
    /// once more afterwards.
    pub fn insert_waiter(&mut self, reader: u32, waiter: Waiter) {
        // The lock is held meanwhile: a change of the seats either is visible here or wakes
        // both queues afterwards.
        let state = TERMINAL.state.lock();
        let queue = if state.terminal.may_read(reader) {
            &TERMINAL.foreground
        } else {
            &TERMINAL.background
        };
        if self.queue.is_some_and(|before| !core::ptr::eq(before, queue)) {
            self.remove_waiter(waiter.number);
        }
        self.queue = Some(queue);
        queue.insert(waiter);
        let has_more = state.has_more;
        drop(state);
        if has_more {
            TERMINAL.foreground.wake_one();
        }
    }

    /// The waiter with this number stops waiting. It may leave input for the next one.
    pub fn remove_waiter(&self, waiter: u32) {
        if let Some(queue) = self.queue {
            queue.remove(waiter, true);
        }
    }

    /// The waiter with this number has become less urgent.
    pub fn pass_on(&self, waiter: u32) {
        if let Some(queue) = self.queue {
            queue.pass_on(waiter);
        }
    }
}

/// Number of bytes that were typed and have not been read.
pub fn unread_bytes() -> usize {
    INPUT_BYTES - TERMINAL.state.lock().terminal.room()
}

/// The settings as `ioctl` shows them to process `process`.
pub fn settings(process: u32) -> [u8; BYTES] {
    TERMINAL.state.lock().terminal.mode(process).settings()
}

/// Sets what of the settings exists here: whether lines are edited, and whether Ctrl-C is a signal.
///
/// # Errors
/// `EIO` if the process does not have the console.
pub fn set_settings(process: u32, settings: &[u8; BYTES]) -> Result<(), Errno> {
    let before = TERMINAL.state.lock().terminal.mode(process);
    let mode = Mode::of_settings(settings);
    if mode == before {
        return Ok(());
    }
    hand_over_console(process, process, mode).map_err(|_| Errno::EIO)
}

/// The queue with the watches on the input.
pub fn changes() -> &'static WaitQueue {
    &TERMINAL.changes
}

/// Whether process `reader` finds input. Lines are edited and echoed for that, as by a read.
pub fn is_ready(reader: u32) -> bool {
    for _ in 0..STEPS_MAX {
        match step(reader, Terminal::look) {
            Read::Bytes(_) => return true,
            Read::Nothing => return false,
            Read::Again => {}
        }
    }
    // There is more input: the watches are notified, so that their watchers look again.
    TERMINAL.changes.notify_watches();
    false
}

/// Reads or looks for process `reader`, and echoes.
fn step(reader: u32, look: impl FnOnce(&mut Terminal, u32, &mut Echo) -> Read) -> Read {
    let mut echo = Echo::new();
    let mut state = TERMINAL.state.lock();
    let read = look(&mut state.terminal, reader, &mut echo);
    let resume = state.is_full && state.terminal.room() >= INPUT_BYTES / 2;
    if resume {
        state.is_full = false;
    }
    if state.terminal.may_read(reader) {
        state.has_more = read == Read::Again;
    }
    // Under the lock, so that the echo has the same order as the input.
    if !echo.bytes().is_empty() {
        console::write(Channel::Output, echo.bytes());
    }
    drop(state);
    if resume {
        console::accept_input(true);
    }
    read
}

/// The mode that a process requests.
///
/// # Errors
/// `EINVAL` for an unknown mode.
pub fn console_mode(bits: usize) -> Result<Mode, Errno> {
    let known = Mode::LINES.0 | Mode::INTERRUPT.0;
    u8::try_from(bits).ok().filter(|bits| bits & !known == 0).map(Mode).ok_or(Errno::EINVAL)
}

/// Hands the console to process `to` on behalf of process `caller`. The caller of this function
/// checks that `to` is `caller` or one of its children.
///
/// # Errors
/// `EPERM` if `caller` does not have the console; `EAGAIN` if too many processes share it.
pub fn hand_over_console(caller: u32, to: u32, mode: Mode) -> Result<(), Errno> {
    let handed = TERMINAL.state.lock().terminal.hand_over(caller, FIRST_PROCESS, to, mode);
    handed.map_err(|refusal| match refusal {
        Refusal::NoSeat => Errno::EPERM,
        Refusal::NoRoom => Errno::EAGAIN,
    })?;
    wake_readers();
    Ok(())
}

/// Process `process` has ended: if it had the console, the process that handed it over gets it
/// back.
pub fn release_console(process: u32) {
    if TERMINAL.state.lock().terminal.remove(process) {
        wake_readers();
    }
}

/// Wakes all readers after a change of the seats.
fn wake_readers() {
    TERMINAL.foreground.wake_all();
    TERMINAL.background.wake_all();
    TERMINAL.changes.notify_watches();
}
