//! The console's input: which processes may read it, in which form, and which keys are signals.
//!
//! The terminal belongs to at most one *session*, and the session's leader has taken it. One
//! process group of that session is in the *foreground*: its members read what is typed, and get
//! the signals of keys such as Ctrl-C. While the terminal belongs to no session it is *free*: every
//! process may read, and has the bytes as they were typed unless it asks for something else.
//!
//! Line editing and echo happen when bytes are *read*, not when they arrive. So input that is typed
//! ahead is processed with the settings of the process that finally reads it. The one exception are
//! the keys of signals, which take effect on arrival.

mod input;

use cops_abi::file::terminal::{
    BYTES, CANONICAL, ECHO, NO_FLUSH, RETURN_IS_NEWLINE, SIGNALS, STOP_WRITERS,
};
use cops_abi::syscall::signal::{SIGINT, SIGQUIT, SIGTSTP};

use super::signals::{Set, bit};
use input::Input;

/// Linux's `struct termios`: four words of flags, the line discipline, 19 characters. All of it is
/// kept as a program has set it; what has an effect is named in docs/abi.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings(pub [u8; BYTES]);

/// Where the characters begin.
const CHARACTERS_AT: usize = 17;

/// Places of characters.
mod place {
    pub const INTERRUPT: usize = 0;
    pub const QUIT: usize = 1;
    pub const ERASE: usize = 2;
    pub const KILL: usize = 3;
    pub const END: usize = 4;
    pub const TIME: usize = 5;
    pub const MINIMUM: usize = 6;
    pub const SUSPEND: usize = 10;
}

impl Settings {
    /// Those of a free terminal: bytes as they are typed.
    pub const PLAIN: Settings = Settings::new(0, 0);
    /// Those of a terminal that a session has just taken: lines are edited and echoed, and keys
    /// are signals.
    pub const USUAL: Settings = {
        /// Deleted characters disappear, control characters are echoed as `^X`.
        const ECHO_DETAILS: u32 = 0o5060;
        Settings::new(RETURN_IS_NEWLINE, CANONICAL | ECHO | SIGNALS | ECHO_DETAILS)
    };

    const fn new(input: u32, local: u32) -> Self {
        /// A new line is printed as carriage return and new line; 8 bits.
        const OUTPUT: u32 = 5;
        const CONTROL: u32 = 0o277;
        /// A read waits for one character; a character of 0 is switched off.
        const CHARACTERS: [(usize, u8); 7] = [
            (place::INTERRUPT, 3),
            (place::QUIT, 0x1c),
            (place::ERASE, DELETE),
            (place::KILL, 0x15),
            (place::END, 4),
            (place::MINIMUM, 1),
            (place::SUSPEND, 0x1a),
        ];
        let mut bytes = [0; BYTES];
        let words = [input, OUTPUT, CONTROL, local];
        let mut index = 0;
        while index < 16 {
            bytes[index] = words[index / 4].to_le_bytes()[index % 4];
            index += 1;
        }
        let mut index = 0;
        while index < CHARACTERS.len() {
            bytes[CHARACTERS_AT + CHARACTERS[index].0] = CHARACTERS[index].1;
            index += 1;
        }
        Self(bytes)
    }

    fn word(&self, index: usize) -> u32 {
        let word = self.0.as_chunks().0.get(index);
        word.map_or(0, |word| u32::from_le_bytes(*word))
    }

    /// Whether one of these local flags is set.
    #[must_use]
    pub fn has(&self, local: u32) -> bool {
        self.word(3) & local != 0
    }

    /// These settings with `local` as their flags of editing, echo and signals.
    #[must_use]
    pub fn with_local(mut self, local: u32) -> Self {
        let others = self.word(3) & !(CANONICAL | ECHO | SIGNALS);
        self.0[12..16].copy_from_slice(&(others | local).to_le_bytes());
        self
    }

    fn character(&self, place: usize) -> u8 {
        self.0.get(CHARACTERS_AT + place).copied().unwrap_or(0)
    }

    /// Whether the character in this place is `byte`, and not switched off.
    fn is(&self, place: usize, byte: u8) -> bool {
        byte != 0 && self.character(place) == byte
    }

    /// The signal of this key.
    fn signal(&self, byte: u8) -> Option<u8> {
        if !self.has(SIGNALS) {
            return None;
        }
        KEYS.into_iter().find(|&(place, _)| self.is(place, byte)).map(|(_, signal)| signal)
    }
}

/// The places of the keys of signals, and the signals. The first place counts if the character of
/// several is the same.
const KEYS: [(usize, u8); 3] =
    [(place::INTERRUPT, SIGINT), (place::QUIT, SIGQUIT), (place::SUSPEND, SIGTSTP)];

/// The place of a process among others: what counts for its use of the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Party {
    /// Its session.
    pub session: u32,
    /// Its process group.
    pub group: u32,
}

/// What a process may do with the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read, and change settings.
    Granted,
    /// Nothing until its group is in the foreground.
    Background,
    /// Nothing: the terminal belongs to another session.
    Foreign,
}

/// Signals of keys, for a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keyed {
    /// The group.
    pub group: u32,
    /// The signals.
    pub signals: Set,
}

/// The reason why a session did not get the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken;

/// Maximum number of bytes that wait for a reader.
pub const INPUT_BYTES: usize = 4096;
/// Maximum length of a line in bytes. Further bytes are rejected with a bell.
pub const LINE_BYTES: usize = 1024;
/// Maximum number of input bytes that one call of [`Terminal::read`] processes. It bounds the time
/// of the call and the size of its echo.
const STEP_BYTES: usize = 128;
/// Maximum number of bytes that echo one byte of input.
const ECHO_GROWTH: usize = 6;
/// Maximum size of the echo of one call of [`Terminal::read`], in bytes.
pub const ECHO_BYTES: usize = STEP_BYTES * ECHO_GROWTH;

const BELL: u8 = 7;
const BACKSPACE: u8 = 8;
const DELETE: u8 = 0x7f;

/// The result of [`Terminal::read`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// That many bytes were read; 0 at the end of the input.
    Bytes(usize),
    /// No input: wait for input.
    Nothing,
    /// No complete line yet, but there may be input that this call did not process: call again.
    Again,
}

/// Bytes to be displayed in answer to input.
pub struct Echo {
    bytes: [u8; ECHO_BYTES],
    count: usize,
}

impl Echo {
    /// An empty echo.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; ECHO_BYTES], count: 0 }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.count]
    }

    fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if let Some(place) = self.bytes.get_mut(self.count) {
                *place = byte;
                self.count += 1;
            }
        }
    }
}

impl Default for Echo {
    fn default() -> Self {
        Self::new()
    }
}

/// The state of the console's input.
pub struct Terminal {
    /// The session that it belongs to; 0: it is free.
    session: u32,
    /// The group in the foreground; 0: none.
    foreground: u32,
    settings: Settings,
    /// Input as it arrived.
    input: Input,
    /// The line that is being edited, or, once it is complete, being read.
    line: [u8; LINE_BYTES],
    length: usize,
    /// Number of bytes of the complete line that have been read; `None` while the line is edited.
    read: Option<usize>,
    /// The character that has completed the line, if it was that of the end: no byte of the line,
    /// but one of what was typed.
    end: Option<u8>,
    has_ended: bool,
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

impl Terminal {
    /// A terminal that is free and has no input yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            session: 0,
            foreground: 0,
            settings: Settings::PLAIN,
            input: Input::new(),
            line: [0; LINE_BYTES],
            length: 0,
            read: None,
            end: None,
            has_ended: false,
        }
    }

    /// The session that it belongs to; 0 if it is free.
    #[must_use]
    pub fn session(&self) -> u32 {
        self.session
    }

    /// The group in the foreground; 0 if there is none.
    #[must_use]
    pub fn foreground(&self) -> u32 {
        self.foreground
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What a process may do.
    #[must_use]
    pub fn access(&self, party: Party) -> Access {
        if self.session == 0 {
            Access::Granted
        } else if self.session != party.session {
            Access::Foreign
        } else if self.foreground == party.group || self.foreground == 0 {
            Access::Granted
        } else {
            Access::Background
        }
    }

    /// Gives the terminal to a session, with the leader's group in the foreground.
    ///
    /// # Errors
    /// [`Taken`] if it belongs to another one.
    pub fn begin_session(&mut self, leader: Party) -> Result<(), Taken> {
        if self.session == leader.session {
            return Ok(());
        }
        if self.session != 0 {
            return Err(Taken);
        }
        (self.session, self.foreground) = (leader.session, leader.group);
        self.settings = Settings::USUAL;
        Ok(())
    }

    /// Makes the terminal free if it belongs to this session. Returns the group that was in the
    /// foreground. The input stays, for the next reader.
    pub fn end_session(&mut self, session: u32) -> Option<u32> {
        if self.session == 0 || self.session != session {
            return None;
        }
        let group = self.foreground;
        (self.session, self.foreground, self.settings) = (0, 0, Settings::PLAIN);
        Some(group)
    }

    /// Changes the group in the foreground, and the settings. Returns the signals of keys that were
    /// typed ahead: they are for this group, as if they had been typed now.
    pub fn change(
        &mut self,
        foreground: u32,
        settings: Settings,
        echo: &mut Echo,
    ) -> Option<Keyed> {
        (self.foreground, self.settings) = (foreground, settings);
        if self.foreground == 0 || !settings.has(SIGNALS) || settings.has(NO_FLUSH) {
            return None;
        }
        let (mut signals, mut end) = (0, 0);
        for (place, signal) in KEYS {
            let byte = settings.character(place);
            let count = self.input.count_through(byte);
            if count > 0 && settings.signal(byte) == Some(signal) {
                self.show(byte, echo);
                (signals, end) = (signals | bit(signal), end.max(count));
            }
        }
        if end == 0 {
            return None;
        }
        self.input.skip(end);
        self.drop_line();
        Some(Keyed { group: foreground, signals })
    }

    /// Drops all input.
    pub fn flush(&mut self) {
        self.input.skip(INPUT_BYTES);
        self.drop_line();
    }

    /// Free space for bytes that arrive.
    #[must_use]
    pub fn room(&self) -> usize {
        self.input.room()
    }

    /// Takes a byte that has arrived. The byte is lost if there is no [`Terminal::room`]. Returns
    /// the signal that it is for the foreground; then it is no input, and what was typed before it
    /// is dropped.
    pub fn arrive(&mut self, byte: u8, echo: &mut Echo) -> Option<Keyed> {
        if self.foreground != 0
            && let Some(signal) = self.settings.signal(byte)
        {
            if !self.settings.has(NO_FLUSH) {
                self.flush();
            }
            self.show(byte, echo);
            return Some(Keyed { group: self.foreground, signals: bit(signal) });
        }
        self.input.push(byte);
        None
    }

    /// The input has ended: no more bytes will arrive.
    pub fn end_input(&mut self) {
        self.has_ended = true;
    }

    /// Whether a write of a process in the background stops it.
    #[must_use]
    pub fn stops_writers(&self) -> bool {
        self.session != 0 && self.settings.has(STOP_WRITERS)
    }

    /// What [`Self::read`] would return now, with [`Read::Bytes`] for any number of bytes. Edits
    /// and echoes as a read does, but leaves the line.
    pub fn look(&mut self, echo: &mut Echo) -> Read {
        if self.settings.has(CANONICAL) {
            return self.complete_line(echo).map_or_else(|other| other, Read::Bytes);
        }
        let has_bytes = self.has_line_bytes() || self.has_ended || self.input.len() > 0;
        if has_bytes { Read::Bytes(1) } else { Read::Nothing }
    }

    /// The number of bytes that can be read: of the next line if it is complete, or, if lines are
    /// not edited, of all that was typed. Edits and echoes as a look does.
    pub fn unread(&mut self, echo: &mut Echo) -> Read {
        if self.settings.has(CANONICAL) {
            return match self.complete_line(echo) {
                Ok(read) => Read::Bytes(self.length - read),
                Err(Read::Nothing) => Read::Bytes(0),
                Err(other) => other,
            };
        }
        let of_line = self.length - self.read.unwrap_or(0) + usize::from(self.end.is_some());
        Read::Bytes(of_line + self.input.len())
    }

    /// Reads for a process that may. The echo is written to `echo`, which must be empty.
    pub fn read(&mut self, into: &mut [u8], echo: &mut Echo) -> Read {
        if into.is_empty() {
            return Read::Bytes(0);
        }
        if self.settings.has(CANONICAL) {
            return match self.complete_line(echo) {
                Ok(read) => Read::Bytes(self.read_part(read, into)),
                Err(other) => other,
            };
        }
        self.read_bytes(into, echo)
    }

    fn drop_line(&mut self) {
        (self.length, self.read, self.end) = (0, None, None);
    }

    /// Whether line editing has left something for a read of bytes.
    fn has_line_bytes(&self) -> bool {
        self.length > 0 || self.end.is_some()
    }

    fn read_bytes(&mut self, into: &mut [u8], echo: &mut Echo) -> Read {
        // First the rest of the line that was edited or read before the mode changed.
        if self.has_line_bytes() {
            if let Some(end) = self.end.take() {
                // Room as for the end of any line.
                self.line[self.length] = end;
                self.length += 1;
            }
            let count = self.read_part(self.read.unwrap_or(0), into);
            return Read::Bytes(count);
        }
        let mut count = 0;
        let limit = if self.settings.has(ECHO) { STEP_BYTES } else { usize::MAX };
        while count < limit
            && let Some(place) = into.get_mut(count)
            && let Some(byte) = self.input.pop()
        {
            *place = self.translate(byte);
            count += 1;
            self.show(*place, echo);
        }
        // With a minimum of 0 and no time, a read does not wait.
        let settings = &self.settings;
        let waits = settings.character(place::MINIMUM) > 0 || settings.character(place::TIME) > 0;
        if count > 0 || self.has_ended || !waits { Read::Bytes(count) } else { Read::Nothing }
    }

    /// The byte that is read where `byte` was typed.
    fn translate(&self, byte: u8) -> u8 {
        let is_newline = byte == b'\r' && self.settings.word(0) & RETURN_IS_NEWLINE != 0;
        if is_newline { b'\n' } else { byte }
    }

    /// Echoes a byte of the input.
    fn show(&self, byte: u8, echo: &mut Echo) {
        match byte {
            _ if !self.settings.has(ECHO) => {}
            b'\t' | b'\n' | b' '..=b'~' | 0x80.. => echo.put(&[byte]),
            control => echo.put(&[b'^', control ^ 0x40]),
        }
    }

    /// Edits until a line is complete. Returns how many bytes of it have been read.
    fn complete_line(&mut self, echo: &mut Echo) -> Result<usize, Read> {
        for _ in 0..STEP_BYTES {
            if let Some(read) = self.read {
                return Ok(read);
            }
            match self.input.pop() {
                Some(byte) => self.edit(byte, echo),
                None if self.has_ended => self.read = Some(0),
                None => return Err(Read::Nothing),
            }
        }
        self.read.ok_or(Read::Again)
    }

    /// Returns the line from byte `read` on. An empty line is the end of the input.
    fn read_part(&mut self, read: usize, into: &mut [u8]) -> usize {
        let rest = &self.line[read..self.length];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        if count == rest.len() {
            self.drop_line();
        } else {
            self.read = Some(read + count);
        }
        count
    }

    fn edit(&mut self, byte: u8, echo: &mut Echo) {
        let settings = self.settings;
        if settings.is(place::END, byte) {
            (self.read, self.end) = (Some(0), Some(byte));
        } else if settings.is(place::KILL, byte) {
            self.show(byte, echo);
            self.show(b'\n', echo);
            self.length = 0;
        } else if settings.is(place::ERASE, byte) || byte == BACKSPACE {
            self.erase(echo);
        } else if byte == b'\n' || byte == b'\r' {
            self.show(b'\n', echo);
            // There is always room, because other bytes leave one byte free.
            self.line[self.length] = b'\n';
            self.length += 1;
            self.read = Some(0);
        } else if self.length + 1 >= LINE_BYTES {
            echo.put(&[BELL]);
        } else {
            self.line[self.length] = byte;
            self.length += 1;
            self.show(byte, echo);
        }
    }

    /// Removes the last character from the line, which may be several bytes of UTF-8.
    fn erase(&mut self, echo: &mut Echo) {
        let Some(mut start) = self.length.checked_sub(1) else { return };
        while start > 0 && self.line[start] & 0xc0 == 0x80 {
            start -= 1;
        }
        let shown = match self.line[start] {
            _ if !self.settings.has(ECHO) => 0,
            b'\t' | b' '..=b'~' | 0x80.. => 1,
            _ => 2,
        };
        self.length = start;
        for _ in 0..shown {
            echo.put(b"\x08 \x08");
        }
    }
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
