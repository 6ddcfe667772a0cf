//! The console's input as a file, and as the terminal of a session (decision 36): the
//! [`Terminal`]'s state, its lock, its waiting readers, and the signals of keys that have not been
//! sent yet.
//!
//! Lock order: the terminal, then the console's output, for echo.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_algorithms::terminal::{
    Access, Echo, INPUT_BYTES, Keyed, Party, Read, Settings, Terminal,
};
use cops_lock::Mutex;

use crate::drivers::console::{self, Channel, InputSink};
use crate::mm::PinnedBuffer;
use crate::sched::{Service, WaitQueue, Waiter};

/// Maximum number of bytes per read.
const READ_BYTES: usize = 256;
/// Steps of line editing in one attempt: they bound its time and that of its echo.
const STEPS_MAX: usize = 4;

/// The only terminal.
pub static TERMINAL: Console = Console {
    state: Mutex::new(State {
        terminal: Terminal::new(),
        keyed: [None; KEYED_GROUPS],
        is_full: false,
        has_more: false,
    }),
    foreground: WaitQueue::new(),
    background: WaitQueue::new(),
    changes: WaitQueue::new(),
};

/// Groups for which signals of keys can wait to be sent at the same time. The signals of further
/// ones are dropped; the keys can be typed again.
const KEYED_GROUPS: usize = 4;

/// Sends the signals of keys: see [`next_keyed`].
pub static KEY_SIGNALS: Service = Service::new();

/// Whether a write of a process in the background stops it. A copy for writes, which do not take
/// the lock.
static STOPS_WRITERS: AtomicBool = AtomicBool::new(false);

struct State {
    terminal: Terminal,
    /// Signals of keys that have not been sent, each group at most once.
    keyed: [Option<Keyed>; KEYED_GROUPS],
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
    /// Readers that get nothing before the foreground changes. Input does not wake them.
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
        let mut echo = Echo::new();
        let mut state = self.state.lock();
        let keyed = state.terminal.arrive(byte, &mut echo);
        if !echo.bytes().is_empty() {
            console::write(Channel::Output, echo.bytes());
        }
        state.owe(keyed);
    }

    fn end(&self) {
        self.state.lock().terminal.end_input();
    }

    fn commit(&self) {
        self.foreground.wake_one();
        self.changes.notify_watches();
    }
}

impl State {
    /// Keeps signals of keys for the service that sends them.
    fn owe(&mut self, keyed: Option<Keyed>) {
        let Some(Keyed { group, signals }) = keyed else { return };
        let place = self.keyed.iter().position(|owed| owed.is_some_and(|owed| owed.group == group));
        let place = place.or_else(|| self.keyed.iter().position(Option::is_none));
        if let Some(owed) = place.and_then(|place| self.keyed.get_mut(place)) {
            let before = owed.map_or(0, |owed| owed.signals);
            *owed = Some(Keyed { group, signals: before | signals });
            KEY_SIGNALS.wake();
        }
    }

    /// Changes the foreground and the settings.
    fn change(&mut self, foreground: u32, settings: Settings) {
        let mut echo = Echo::new();
        let keyed = self.terminal.change(foreground, settings, &mut echo);
        if !echo.bytes().is_empty() {
            console::write(Channel::Output, echo.bytes());
        }
        self.owe(keyed);
        STOPS_WRITERS.store(self.terminal.stops_writers(), Relaxed);
    }
}

/// Takes signals of keys that are to be sent to a group.
pub fn next_keyed() -> Option<Keyed> {
    TERMINAL.state.lock().keyed.iter_mut().find_map(Option::take)
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

    /// Reads available input for a process of `reader`; `None` if there is none yet or the process
    /// is not in the foreground.
    pub fn attempt(&self, reader: Party) -> Option<CallResult> {
        let mut bytes = [0; READ_BYTES];
        let bytes = bytes.get_mut(..self.buffer.len().min(READ_BYTES))?;
        for _ in 0..STEPS_MAX {
            match step(reader, |terminal, echo| terminal.read(bytes, echo)) {
                Err(Access::Foreign) => return Some(Err(Errno::EIO)),
                Ok(Read::Bytes(count)) => {
                    self.buffer.write_at(0, &bytes[..count]);
                    return Some(Ok(count));
                }
                Ok(Read::Nothing) | Err(_) => return None,
                Ok(Read::Again) => {}
            }
        }
        None
    }

    /// Registers `waiter` to be woken when an attempt of a process of `reader` may succeed. It
    /// attempts once more afterwards.
    pub fn insert_waiter(&mut self, reader: Party, waiter: Waiter) {
        // The lock is held meanwhile: a change of the foreground either is visible here or wakes
        // both queues afterwards.
        let state = TERMINAL.state.lock();
        let queue = match state.terminal.access(reader) {
            Access::Granted => &TERMINAL.foreground,
            Access::Background | Access::Foreign => &TERMINAL.background,
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

/// Number of bytes that a process of `reader` can read now; 0 if it may not. Lines are edited and
/// echoed for that, as by a read. `None`: only a portion of that is done.
pub fn unread_bytes(reader: Party) -> Option<usize> {
    for _ in 0..STEPS_MAX {
        match step(reader, Terminal::unread) {
            Ok(Read::Bytes(count)) => return Some(count),
            Ok(Read::Nothing) | Err(_) => return Some(0),
            Ok(Read::Again) => {}
        }
    }
    None
}

/// What a process of `party` may do with the terminal.
pub fn access(party: Party) -> Access {
    TERMINAL.state.lock().terminal.access(party)
}

/// Whether a write to the console would have to stop a process of `party`.
pub fn stops_writer(party: Party) -> bool {
    STOPS_WRITERS.load(Relaxed) && access(party) == Access::Background
}

/// The settings.
pub fn settings() -> Settings {
    *TERMINAL.state.lock().terminal.settings()
}

/// Changes the settings on behalf of a process of `party`, which is in the foreground or may do so
/// in the background. `flushes`: drops what was typed.
///
/// # Errors
/// `EIO` if the terminal belongs to another session.
pub fn set_settings(party: Party, settings: Settings, flushes: bool) -> Result<(), Errno> {
    let mut state = TERMINAL.state.lock();
    if state.terminal.access(party) == Access::Foreign {
        return Err(Errno::EIO);
    }
    if flushes {
        state.terminal.flush();
    } else if *state.terminal.settings() == settings {
        return Ok(());
    }
    let foreground = state.terminal.foreground();
    state.change(foreground, settings);
    drop(state);
    wake_readers();
    Ok(())
}

/// The session of the terminal and its foreground group.
///
/// # Errors
/// `ENOTTY` if it is not the session of `party`.
pub fn session(party: Party) -> Result<Party, Errno> {
    let state = TERMINAL.state.lock();
    let (session, group) = (state.terminal.session(), state.terminal.foreground());
    if session == party.session { Ok(Party { session, group }) } else { Err(Errno::ENOTTY) }
}

/// Gives the terminal to the session of `leader`, the party of its leader.
///
/// # Errors
/// `EPERM` if it belongs to another session.
pub fn take(leader: Party) -> Result<(), Errno> {
    let mut state = TERMINAL.state.lock();
    if state.terminal.session() == leader.session {
        return Ok(());
    }
    state.terminal.begin_session(leader).map_err(|_| Errno::EPERM)?;
    let (foreground, settings) = (state.terminal.foreground(), *state.terminal.settings());
    state.change(foreground, settings);
    drop(state);
    wake_readers();
    Ok(())
}

/// Makes the terminal free if it belongs to `session`. Returns the group that was in the
/// foreground, which the caller informs.
pub fn leave(session: u32) -> Option<u32> {
    let mut state = TERMINAL.state.lock();
    let group = state.terminal.end_session(session)?;
    STOPS_WRITERS.store(false, Relaxed);
    drop(state);
    wake_readers();
    Some(group)
}

/// Puts `group`, which is in the session of `party`, into the foreground, with new settings if
/// there are any.
///
/// # Errors
/// `ENOTTY` if the terminal does not belong to that session.
pub fn set_foreground(party: Party, group: u32, settings: Option<Settings>) -> Result<(), Errno> {
    let mut state = TERMINAL.state.lock();
    if state.terminal.session() != party.session {
        return Err(Errno::ENOTTY);
    }
    let settings = settings.unwrap_or(*state.terminal.settings());
    state.change(group, settings);
    drop(state);
    wake_readers();
    Ok(())
}

/// The queue with the watches on the input.
pub fn changes() -> &'static WaitQueue {
    &TERMINAL.changes
}

/// Whether a read of a process of `reader` would return at once. Lines are edited and echoed for
/// that, as by a read.
pub fn is_ready(reader: Party) -> bool {
    for _ in 0..STEPS_MAX {
        match step(reader, Terminal::look) {
            // A read fails.
            Err(Access::Foreign) => return true,
            Ok(Read::Bytes(_)) => return true,
            Ok(Read::Nothing) | Err(_) => return false,
            Ok(Read::Again) => {}
        }
    }
    // There is more input: the watches are notified, so that their watchers look again.
    TERMINAL.changes.notify_watches();
    false
}

/// Reads or looks for a process of `reader`, and echoes.
///
/// # Errors
/// Its access, if that does not permit it.
fn step(
    reader: Party,
    look: impl FnOnce(&mut Terminal, &mut Echo) -> Read,
) -> Result<Read, Access> {
    let mut echo = Echo::new();
    let mut state = TERMINAL.state.lock();
    match state.terminal.access(reader) {
        Access::Granted => {}
        other => return Err(other),
    }
    let read = look(&mut state.terminal, &mut echo);
    let resume = state.is_full && state.terminal.room() >= INPUT_BYTES / 2;
    if resume {
        state.is_full = false;
    }
    state.has_more = read == Read::Again;
    // Under the lock, so that the echo has the same order as the input.
    if !echo.bytes().is_empty() {
        console::write(Channel::Output, echo.bytes());
    }
    drop(state);
    if resume {
        console::accept_input(true);
    }
    Ok(read)
}

/// Wakes all readers: the foreground has changed, or the group or the session of a process.
pub fn wake_readers() {
    TERMINAL.foreground.wake_all();
    TERMINAL.background.wake_all();
    TERMINAL.changes.notify_watches();
}
