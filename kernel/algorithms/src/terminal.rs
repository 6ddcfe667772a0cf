//! The console's input: which process may read it, and in which form.
//!
//! Processes that share the console have *seats* on a small stack. The topmost seat belongs to the
//! foreground process, which alone reads what is typed. A process on the stack hands the console to
//! a child by putting the child on top. It gets the console back as soon as the child leaves, or
//! when it asks for it. While the stack is empty, the console is *shared*: every process may read,
//! and bytes are read unchanged.
//!
//! Line editing and echo happen when bytes are *read*, not when they arrive. So input that is typed
//! ahead is processed in the mode of the process that finally reads it. The one exception is
//! Ctrl-C, which takes effect on arrival.

use cops_abi::file::terminal::{BYTES, CANONICAL, ECHO, SIGNALS};

use super::ring::Ring;

/// The mode in which the foreground process gets its input: a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mode(pub u8);

impl Mode {
    /// Input is edited and echoed, and read in whole lines.
    pub const LINES: Mode = Mode(1);
    /// Ctrl-C is not input: it is reported to the process that handed the console over.
    pub const INTERRUPT: Mode = Mode(2);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Mode) -> bool {
        self.0 & other.0 == other.0
    }

    /// Linux's `struct termios` for this mode. What does not exist here has its usual value.
    #[must_use]
    pub fn settings(self) -> [u8; BYTES] {
        // Carriage return becomes a new line; a new line is printed as both; 8 bits.
        const INPUT: u32 = 0o400;
        const OUTPUT: u32 = 5;
        const CONTROL: u32 = 0o277;
        /// Interrupt, quit, erase, kill, end of input; no time; one character.
        const CHARACTERS: [u8; 7] = [CONTROL_C, 0x1c, DELETE, CONTROL_U, CONTROL_D, 0, 1];
        let mut local = 0;
        if self.has(Mode::LINES) {
            local |= CANONICAL | ECHO;
        }
        if self.has(Mode::INTERRUPT) {
            local |= SIGNALS;
        }
        let mut bytes = [0; BYTES];
        let words = bytes.as_chunks_mut().0.iter_mut();
        for (place, word) in words.zip([INPUT, OUTPUT, CONTROL, local]) {
            *place = word.to_le_bytes();
        }
        bytes[CHARACTERS_AT..CHARACTERS_AT + CHARACTERS.len()].copy_from_slice(&CHARACTERS);
        bytes
    }

    /// The mode that a `struct termios` asks for.
    #[must_use]
    pub fn of_settings(settings: &[u8; BYTES]) -> Self {
        let [_, _, _, local] = [0, 4, 8, 12].map(|at| {
            settings
                .get(at..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |word| u32::from_le_bytes(*word))
        });
        let lines = if local & CANONICAL != 0 { Mode::LINES.0 } else { 0 };
        let interrupt = if local & SIGNALS != 0 { Mode::INTERRUPT.0 } else { 0 };
        Mode(lines | interrupt)
    }
}

/// The reason why the console was not handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The caller has no seat.
    NoSeat,
    /// All [`SEATS`] are occupied.
    NoRoom,
}

/// Maximum number of processes on the stack.
pub const SEATS: usize = 16;
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

/// Where the characters begin in a `struct termios`.
const CHARACTERS_AT: usize = 17;

const CONTROL_C: u8 = 3;
const CONTROL_D: u8 = 4;
const BELL: u8 = 7;
const BACKSPACE: u8 = 8;
const CONTROL_U: u8 = 0x15;
const DELETE: u8 = 0x7f;

#[derive(Clone, Copy, Default)]
struct Seat {
    process: u32,
    mode: Mode,
    /// Ctrl-C was typed while the process on the seat above had the console; this process has not
    /// yet read an interrupt for it.
    interrupted: bool,
}

/// The result of [`Terminal::read`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// That many bytes were read; 0 at the end of the input.
    Bytes(usize),
    /// No input: wait for input or for [`Terminal::may_read`] to change.
    Nothing,
    /// No complete line yet, but there is input that this call did not process: call again.
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
    seats: [Seat; SEATS],
    seated: usize,
    /// Input as it arrived.
    input: Ring<INPUT_BYTES>,
    /// The line that is being edited, or, once it is complete, being read.
    line: [u8; LINE_BYTES],
    length: usize,
    /// Number of bytes of the complete line that have been read; `None` while the line is edited.
    read: Option<usize>,
    has_ended: bool,
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

impl Terminal {
    /// A console that is shared and has no input yet.
    #[must_use]
    pub const fn new() -> Self {
        const FREE: Seat = Seat { process: 0, mode: Mode(0), interrupted: false };
        Self {
            seats: [FREE; SEATS],
            seated: 0,
            input: Ring::new(),
            line: [0; LINE_BYTES],
            length: 0,
            read: None,
            has_ended: false,
        }
    }

    /// The mode in which `process` reads: that of its seat, or bytes as they were typed.
    #[must_use]
    pub fn mode(&self, process: u32) -> Mode {
        let own = self.seats[..self.seated].iter().find(|seat| seat.process == process);
        own.map_or(Mode::default(), |seat| seat.mode)
    }

    /// Free space for bytes that arrive.
    #[must_use]
    pub fn room(&self) -> usize {
        self.input.room()
    }

    /// Takes a byte that has arrived. The byte is lost if there is no [`Terminal::room`]. Returns
    /// whether it was an interrupt, for which a process lower on the stack may be waiting.
    pub fn arrive(&mut self, byte: u8) -> bool {
        if byte == CONTROL_C && self.takes_interrupts() {
            self.interrupt(INPUT_BYTES);
            return true;
        }
        self.input.push(byte);
        false
    }

    /// The input has ended: no more bytes will arrive.
    pub fn end_input(&mut self) {
        self.has_ended = true;
    }

    /// Whether `process` gets what is typed.
    #[must_use]
    pub fn may_read(&self, process: u32) -> bool {
        self.top().is_none_or(|seat| seat.process == process)
    }

    /// Hands the console to process `to` in `mode`, at the request of `caller`; `to` may be
    /// `caller` itself. Seats above the caller's are removed. While the console is shared, only
    /// process `founder` may take it.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed.
    pub fn hand_over(
        &mut self,
        caller: u32,
        founder: u32,
        to: u32,
        mode: Mode,
    ) -> Result<(), Refusal> {
        let place = match self.seats[..self.seated].iter().position(|seat| seat.process == caller) {
            Some(place) => place,
            None if self.seated == 0 && caller == founder => 0,
            None => return Err(Refusal::NoSeat),
        };
        if to != caller && place + 1 >= SEATS {
            return Err(Refusal::NoRoom);
        }
        let before = self.top().map(|seat| seat.process);
        if self.seated == 0 {
            self.seats[0] = Seat { process: caller, ..Seat::default() };
        }
        if to == caller {
            self.seats[place].mode = mode;
            self.seats[place].interrupted = false;
            self.seated = place + 1;
        } else {
            self.seats[place + 1] = Seat { process: to, mode, interrupted: false };
            self.seated = place + 2;
        }
        self.top_changed(before);
        Ok(())
    }

    /// Removes `process`, which has ended or no longer uses the console. If it was in the
    /// foreground, the process on the seat below is, with its earlier mode. Returns whether
    /// anything has changed.
    pub fn remove(&mut self, process: u32) -> bool {
        let Some(place) = self.seats[..self.seated].iter().position(|seat| seat.process == process)
        else {
            return false;
        };
        let before = self.top().map(|seat| seat.process);
        self.seats.copy_within(place + 1..self.seated, place);
        self.seated -= 1;
        if let Some(top) = self.seated.checked_sub(1) {
            self.seats[top].interrupted = false;
        }
        self.top_changed(before);
        true
    }

    /// What [`Self::read`] would return now, with [`Read::Bytes`] for any number of bytes. Edits
    /// and echoes as a read does, but leaves the line.
    pub fn look(&mut self, process: u32, echo: &mut Echo) -> Read {
        let has_bytes = self.length > 0 || self.has_ended || self.input.room() < INPUT_BYTES;
        match self.top() {
            Some(top) if top.process == process && top.mode.has(Mode::LINES) => {
                self.complete_line(echo).map_or_else(|other| other, Read::Bytes)
            }
            Some(top) if top.process != process => {
                let own = self.seats[..self.seated].iter().find(|seat| seat.process == process);
                if own.is_some_and(|seat| seat.interrupted) {
                    Read::Bytes(1)
                } else {
                    Read::Nothing
                }
            }
            _ if has_bytes => Read::Bytes(1),
            _ => Read::Nothing,
        }
    }

    /// Reads for `process`. The echo is written to `echo`, which must be empty.
    pub fn read(&mut self, process: u32, into: &mut [u8], echo: &mut Echo) -> Read {
        if into.is_empty() {
            return Read::Bytes(0);
        }
        let Some(top) = self.top() else { return self.read_bytes(into) };
        if top.process == process {
            return if top.mode.has(Mode::LINES) {
                self.read_line(into, echo)
            } else {
                self.read_bytes(into)
            };
        }
        let lower = self.seats[..self.seated].iter_mut().find(|seat| seat.process == process);
        match lower {
            Some(seat) if seat.interrupted => {
                seat.interrupted = false;
                into[0] = CONTROL_C;
                Read::Bytes(1)
            }
            _ => Read::Nothing,
        }
    }

    fn top(&self) -> Option<Seat> {
        self.seated.checked_sub(1).and_then(|top| self.seats.get(top)).copied()
    }

    /// Whether Ctrl-C is reported to the process below the foreground process.
    fn takes_interrupts(&self) -> bool {
        self.seated >= 2 && self.top().is_some_and(|top| top.mode.has(Mode::INTERRUPT))
    }

    /// Handles Ctrl-C: drops the oldest `count` bytes of input, and marks the process below as
    /// interrupted.
    fn interrupt(&mut self, count: usize) {
        self.input.skip(count);
        self.drop_line();
        if let Some(below) = self.seated.checked_sub(2) {
            self.seats[below].interrupted = true;
        }
    }

    /// Called after each change of the seats.
    fn top_changed(&mut self, before: Option<u32>) {
        if self.top().map(|seat| seat.process) == before {
            return;
        }
        // An unfinished line belonged to the previous foreground process.
        if before.is_some() {
            self.drop_line();
        }
        // A Ctrl-C that was typed before the console was handed over is for the new foreground
        // process too.
        if self.takes_interrupts()
            && let Some(count) = self.input.length_through(CONTROL_C)
        {
            self.interrupt(count);
        }
    }

    fn drop_line(&mut self) {
        (self.length, self.read) = (0, None);
    }

    fn read_bytes(&mut self, into: &mut [u8]) -> Read {
        // First the rest of the line that was edited or read before the mode changed.
        if self.length > 0 {
            let count = self.read_part(self.read.unwrap_or(0), into);
            return Read::Bytes(count);
        }
        let mut count = 0;
        while let Some(place) = into.get_mut(count)
            && let Some(byte) = self.input.pop()
        {
            *place = byte;
            count += 1;
        }
        if count > 0 || self.has_ended { Read::Bytes(count) } else { Read::Nothing }
    }

    fn read_line(&mut self, into: &mut [u8], echo: &mut Echo) -> Read {
        match self.complete_line(echo) {
            Ok(read) => Read::Bytes(self.read_part(read, into)),
            Err(other) => other,
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
        match byte {
            b'\r' | b'\n' => {
                echo.put(b"\n");
                // There is always room, because other bytes leave one byte free.
                self.line[self.length] = b'\n';
                self.length += 1;
                self.read = Some(0);
            }
            // No process gave the console to this one, so none can be told: Ctrl-C is an empty
            // line.
            CONTROL_C => {
                echo.put(b"^C\n");
                self.line[0] = b'\n';
                (self.length, self.read) = (1, Some(0));
            }
            CONTROL_D => self.read = Some(0),
            CONTROL_U => {
                echo.put(b"^U\n");
                self.length = 0;
            }
            BACKSPACE | DELETE => self.erase(echo),
            _ if self.length + 1 >= LINE_BYTES => echo.put(&[BELL]),
            byte => {
                self.line[self.length] = byte;
                self.length += 1;
                match byte {
                    b'\t' | b' '.. => echo.put(&[byte]),
                    control => echo.put(&[b'^', control + b'@']),
                }
            }
        }
    }

    /// Removes the last character from the line, which may be several bytes of UTF-8.
    fn erase(&mut self, echo: &mut Echo) {
        let Some(mut start) = self.length.checked_sub(1) else { return };
        while start > 0 && self.line[start] & 0xc0 == 0x80 {
            start -= 1;
        }
        let shown = if self.line[start] < b' ' && self.line[start] != b'\t' { 2 } else { 1 };
        self.length = start;
        for _ in 0..shown {
            echo.put(b"\x08 \x08");
        }
    }
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
