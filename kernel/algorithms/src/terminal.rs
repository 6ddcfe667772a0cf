//! The console's input: which process may read it, and in which form.
//!
//! Processes that share the console sit on a small stack of *seats*. The topmost seat belongs to the
//! foreground process: it alone reads what is typed. A process on the stack hands the console to a child
//! by putting it on top, and has it back as soon as that child leaves or the process asks for it. While the
//! stack is empty the console is *shared*: every process may read, and bytes pass as they are.
//!
//! Line editing and echo happen when bytes are *read*, not when they arrive. What is typed ahead therefore
//! has the form that its reader wants, even if the reader was not there yet when it was typed. The one
//! exception is Ctrl-C, which takes effect on arrival.

/// How the foreground process wants its input: a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mode(pub u8);

impl Mode {
    /// Input is edited and echoed here, and read in whole lines.
    pub const LINES: Mode = Mode(1);
    /// Ctrl-C is not input: the process that handed the console over is told instead.
    pub const INTERRUPT: Mode = Mode(2);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Mode) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Why the console was not handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The caller has no seat.
    NoSeat,
    /// All [`SEATS`] are taken.
    NoRoom,
}

/// Processes that can hand the console on to each other at a time.
pub const SEATS: usize = 16;
/// Bytes that wait for a reader.
pub const INPUT_BYTES: usize = 4096;
/// Bytes of a line; what is typed beyond is refused with a bell.
pub const LINE_BYTES: usize = 1024;
/// Bytes of input that one call of [`Terminal::read`] looks at: it bounds the call and its echo.
const STEP_BYTES: usize = 128;
/// Most bytes that echo one byte of input.
const ECHO_GROWTH: usize = 6;
/// Most bytes of echo of one call of [`Terminal::read`].
pub const ECHO_BYTES: usize = STEP_BYTES * ECHO_GROWTH;

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
    /// Ctrl-C was typed to the process above, and this one has not read of it yet.
    interrupted: bool,
}

/// What [`Terminal::read`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// So many bytes; 0 at the end of the input.
    Bytes(usize),
    /// Nothing yet: wait for [`Terminal::may_read`] to change or for input.
    Nothing,
    /// Nothing yet, but there is input that this call did not look at: call again.
    Again,
}

/// Bytes to be shown in answer to input.
pub struct Echo {
    bytes: [u8; ECHO_BYTES],
    count: usize,
}

impl Echo {
    /// None yet.
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
    /// Input as it came; `head` and `tail` count all bytes ever taken and put.
    input: [u8; INPUT_BYTES],
    head: usize,
    tail: usize,
    /// The line that is being edited, or read once it is complete.
    line: [u8; LINE_BYTES],
    length: usize,
    /// Bytes of the complete line that have been read; `None` while it is edited.
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
            input: [0; INPUT_BYTES],
            head: 0,
            tail: 0,
            line: [0; LINE_BYTES],
            length: 0,
            read: None,
            has_ended: false,
        }
    }

    /// Room for bytes that arrive.
    #[must_use]
    pub fn room(&self) -> usize {
        INPUT_BYTES - self.tail.wrapping_sub(self.head)
    }

    /// Takes a byte that has arrived; there must be [`Terminal::room`], or the byte is lost. Returns whether
    /// it was an interrupt, for which a process lower on the stack may be waiting.
    pub fn arrive(&mut self, byte: u8) -> bool {
        if byte == CONTROL_C && self.takes_interrupts() {
            self.interrupt();
            return true;
        }
        if self.room() > 0 {
            self.input[self.tail % INPUT_BYTES] = byte;
            self.tail = self.tail.wrapping_add(1);
        }
        false
    }

    /// No more bytes will arrive.
    pub fn end_input(&mut self) {
        self.has_ended = true;
    }

    /// Whether what is typed goes to `process`.
    #[must_use]
    pub fn may_read(&self, process: u32) -> bool {
        self.top().is_none_or(|seat| seat.process == process)
    }

    /// Hands the console to `to` in form `mode`, on behalf of `caller`; `to` may be `caller` itself. Seats above the
    /// caller's are given up. The first process to ask of a shared console must be `founder`.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed.
    pub fn hand_over(&mut self, caller: u32, founder: u32, to: u32, mode: Mode) -> Result<(), Refusal> {
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

    /// `process` has ended, or wants to have nothing to do with the console any more. The seat below it is the
    /// foreground, with the form that it had. Returns whether anything has changed.
    pub fn leave(&mut self, process: u32) -> bool {
        let Some(place) = self.seats[..self.seated].iter().position(|seat| seat.process == process) else {
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

    /// Reads for `process`. What is to be shown is added to `echo`, which is empty.
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

    /// Whether Ctrl-C is for the process below the foreground's.
    fn takes_interrupts(&self) -> bool {
        self.seated >= 2 && self.top().is_some_and(|top| top.mode.has(Mode::INTERRUPT))
    }

    /// Ctrl-C: what was typed and not read is dropped, and the process below is to hear of it.
    fn interrupt(&mut self) {
        self.head = self.tail;
        self.drop_line();
        if let Some(below) = self.seated.checked_sub(2) {
            self.seats[below].interrupted = true;
        }
    }

    /// After each change of the seats.
    fn top_changed(&mut self, before: Option<u32>) {
        if self.top().map(|seat| seat.process) == before {
            return;
        }
        // A line that was begun, or read in part, belonged to the reader before.
        if before.is_some() {
            self.drop_line();
        }
        // Ctrl-C that was typed before the console was handed over means this process too.
        if self.takes_interrupts() {
            let mut at = self.head;
            while at != self.tail {
                let byte = self.input[at % INPUT_BYTES];
                at = at.wrapping_add(1);
                if byte == CONTROL_C {
                    self.interrupt_until(at);
                    return;
                }
            }
        }
    }

    /// As [`Terminal::interrupt`], for a Ctrl-C just before `end` in the input: what follows it stays.
    fn interrupt_until(&mut self, end: usize) {
        let tail = self.tail;
        self.tail = end;
        self.interrupt();
        self.tail = tail;
    }

    fn drop_line(&mut self) {
        (self.length, self.read) = (0, None);
    }

    fn pop(&mut self) -> Option<u8> {
        if self.head == self.tail {
            return None;
        }
        let byte = self.input[self.head % INPUT_BYTES];
        self.head = self.head.wrapping_add(1);
        Some(byte)
    }

    fn read_bytes(&mut self, into: &mut [u8]) -> Read {
        // First what was edited or read in part before the form changed.
        if self.length > 0 {
            let count = self.read_part(self.read.unwrap_or(0), into);
            return Read::Bytes(count);
        }
        let mut count = 0;
        while let Some(place) = into.get_mut(count)
            && let Some(byte) = self.pop()
        {
            *place = byte;
            count += 1;
        }
        if count > 0 || self.has_ended { Read::Bytes(count) } else { Read::Nothing }
    }

    fn read_line(&mut self, into: &mut [u8], echo: &mut Echo) -> Read {
        for _ in 0..STEP_BYTES {
            if let Some(read) = self.read {
                return Read::Bytes(self.read_part(read, into));
            }
            match self.pop() {
                Some(byte) => self.edit(byte, echo),
                None if self.has_ended => self.read = Some(0),
                None => return Read::Nothing,
            }
        }
        match self.read {
            Some(read) => Read::Bytes(self.read_part(read, into)),
            None => Read::Again,
        }
    }

    /// Gives out the line from byte `read` on; an empty line is the end of the input.
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
                // There is always room: other bytes leave one.
                self.line[self.length] = b'\n';
                self.length += 1;
                self.read = Some(0);
            }
            // The process that reads has nobody above it to be told: for it, Ctrl-C is an empty line.
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

    /// Takes the last letter out of the line: one byte, or a whole letter of UTF-8.
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
mod tests {
    extern crate std;
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    const SHELL: u32 = 1;
    const CHILD: u32 = 7;
    const OTHER: u32 = 9;
    const EDITED: Mode = Mode(Mode::LINES.0 | Mode::INTERRUPT.0);

    fn typed(terminal: &mut Terminal, text: &str) {
        for byte in text.bytes() {
            terminal.arrive(byte);
        }
    }

    /// What `process` reads now; `None` if it has to wait.
    fn read(terminal: &mut Terminal, process: u32) -> Option<String> {
        read_with_echo(terminal, process).0
    }

    fn read_with_echo(terminal: &mut Terminal, process: u32) -> (Option<String>, String) {
        let mut shown = Vec::new();
        loop {
            let (mut bytes, mut echo) = ([0; 300], Echo::new());
            let read = terminal.read(process, &mut bytes, &mut echo);
            shown.extend_from_slice(echo.bytes());
            let found = match read {
                Read::Bytes(count) => Some(String::from_utf8(bytes[..count].to_vec()).unwrap()),
                Read::Nothing => None,
                Read::Again => continue,
            };
            return (found, String::from_utf8(shown).unwrap());
        }
    }

    fn with_shell() -> Terminal {
        let mut terminal = Terminal::new();
        terminal.hand_over(SHELL, SHELL, SHELL, Mode::LINES).unwrap();
        terminal
    }

    fn with_child() -> Terminal {
        let mut terminal = with_shell();
        terminal.hand_over(SHELL, SHELL, CHILD, EDITED).unwrap();
        terminal
    }

    #[test]
    fn a_shared_console_passes_bytes_to_every_reader() {
        let mut terminal = Terminal::new();
        typed(&mut terminal, "a\x03\r");
        assert_eq!(read(&mut terminal, OTHER).unwrap(), "a\x03\r");
        assert_eq!(read(&mut terminal, SHELL), None);
        terminal.end_input();
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "");
    }

    #[test]
    fn only_the_foreground_reads() {
        let mut terminal = with_child();
        typed(&mut terminal, "/bin/cat\n");
        assert_eq!(read(&mut terminal, SHELL), None);
        assert_eq!(read(&mut terminal, OTHER), None);
        assert_eq!(read(&mut terminal, CHILD).unwrap(), "/bin/cat\n");
        assert!(terminal.leave(CHILD));
        assert!(!terminal.leave(CHILD));
        typed(&mut terminal, "ls\n");
        assert_eq!(read(&mut terminal, CHILD), None);
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "ls\n");
    }

    #[test]
    fn one_read_takes_one_line_and_what_follows_is_for_the_next_reader() {
        let mut terminal = with_shell();
        typed(&mut terminal, "cat\nfirst\nsecond\n");
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "cat\n");
        terminal.hand_over(SHELL, SHELL, CHILD, EDITED).unwrap();
        assert_eq!(read(&mut terminal, CHILD).unwrap(), "first\n");
        terminal.leave(CHILD);
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "second\n");
    }

    #[test]
    fn lines_are_edited_and_echoed() {
        for (keys, line, shown) in [
            ("ab\r", "ab\n", "ab\n"),
            ("ax\x08b\x7f\x7fc\n", "c\n", "ax\x08 \x08b\x08 \x08\x08 \x08c\n"),
            ("é\x08e\n", "e\n", "é\x08 \x08e\n"),
            ("\x08\n", "\n", "\n"),
            ("ab\x15c\n", "c\n", "ab^U\nc\n"),
            ("ab\x03", "\n", "ab^C\n"),
            ("a\x1b\x08b\n", "ab\n", "a^[\x08 \x08\x08 \x08b\n"),
            ("ab\x04", "ab", "ab"),
            ("\x04", "", ""),
        ] {
            let mut terminal = with_shell();
            typed(&mut terminal, keys);
            assert_eq!(
                read_with_echo(&mut terminal, SHELL),
                (Some(line.into()), shown.into()),
                "typed {keys:?}"
            );
        }
    }

    #[test]
    fn a_line_longer_than_the_buffer_of_its_reader_is_read_in_parts() {
        let mut terminal = with_shell();
        typed(&mut terminal, "abcdef\n");
        let mut parts = Vec::new();
        for _ in 0..3 {
            let mut bytes = [0; 3];
            let Read::Bytes(count) = terminal.read(SHELL, &mut bytes, &mut Echo::new()) else { panic!() };
            parts.push(bytes[..count].to_vec());
        }
        assert_eq!(parts.concat(), b"abcdef\n");
        assert_eq!(read(&mut terminal, SHELL), None);
    }

    #[test]
    fn the_line_has_a_limit_and_still_ends() {
        let mut terminal = with_shell();
        for _ in 0..LINE_BYTES + 10 {
            terminal.arrive(b'x');
        }
        terminal.arrive(b'\n');
        let (_, shown) = read_with_echo(&mut terminal, SHELL);
        assert_eq!(shown.matches('\x07').count(), 11);
        let mut length = 300;
        while length < LINE_BYTES {
            length += read(&mut terminal, SHELL).unwrap().len();
        }
        assert_eq!((length, read(&mut terminal, SHELL)), (LINE_BYTES, None));
    }

    #[test]
    fn ctrl_c_reaches_the_process_below_and_not_the_foreground() {
        let mut terminal = with_child();
        typed(&mut terminal, "abc");
        assert_eq!(read(&mut terminal, CHILD), None);
        assert!(terminal.arrive(3));
        typed(&mut terminal, "x\n");
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "\x03");
        assert_eq!(read(&mut terminal, SHELL), None);
        // What was typed before it is gone, what came after is not.
        assert_eq!(read(&mut terminal, CHILD).unwrap(), "x\n");
    }

    #[test]
    fn ctrl_c_typed_before_the_console_is_handed_over_counts() {
        let mut terminal = with_shell();
        typed(&mut terminal, "spin\nx\x03jobs\n");
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "spin\n");
        terminal.hand_over(SHELL, SHELL, CHILD, EDITED).unwrap();
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "\x03");
        terminal.leave(CHILD);
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "jobs\n");
    }

    #[test]
    fn an_interrupt_that_the_foreground_did_not_outlive_is_forgotten() {
        let mut terminal = with_child();
        terminal.arrive(3);
        terminal.leave(CHILD);
        assert_eq!(read(&mut terminal, SHELL), None);
    }

    #[test]
    fn keys_pass_unedited_and_interrupts_do_not() {
        let mut terminal = with_child();
        terminal.hand_over(CHILD, SHELL, CHILD, Mode::INTERRUPT).unwrap();
        assert_eq!(terminal.seated, 2);
        typed(&mut terminal, "q");
        assert_eq!(read_with_echo(&mut terminal, CHILD), (Some("q".into()), String::new()));
        assert!(terminal.arrive(3));
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "\x03");
        // The shell has its own form back.
        terminal.leave(CHILD);
        typed(&mut terminal, "a\x08b\n");
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "b\n");
    }

    #[test]
    fn seats_are_for_those_who_were_given_one() {
        let mut terminal = Terminal::new();
        assert_eq!(terminal.hand_over(OTHER, SHELL, OTHER, EDITED), Err(Refusal::NoSeat));
        terminal.hand_over(SHELL, SHELL, CHILD, EDITED).unwrap();
        assert_eq!(terminal.hand_over(OTHER, SHELL, OTHER, EDITED), Err(Refusal::NoSeat));
        // A shell in the shell; then the outer one takes the console back from both.
        terminal.hand_over(CHILD, SHELL, OTHER, EDITED).unwrap();
        assert!(terminal.may_read(OTHER) && !terminal.may_read(CHILD));
        terminal.hand_over(SHELL, SHELL, SHELL, Mode::LINES).unwrap();
        assert!(terminal.may_read(SHELL));
        assert_eq!(terminal.hand_over(OTHER, SHELL, OTHER, EDITED), Err(Refusal::NoSeat));
    }

    #[test]
    fn seats_end() {
        let mut terminal = Terminal::new();
        for process in 1..SEATS as u32 {
            terminal.hand_over(process, SHELL, process + 1, EDITED).unwrap();
        }
        assert_eq!(terminal.hand_over(16, SHELL, 17, EDITED), Err(Refusal::NoRoom));
        // One in the middle ends: the foreground stays.
        assert!(terminal.leave(8));
        assert!(terminal.may_read(16));
        terminal.hand_over(16, SHELL, 17, EDITED).unwrap();
    }

    #[test]
    fn the_end_of_the_input_is_read_after_all_of_it() {
        let mut terminal = with_shell();
        typed(&mut terminal, "ls\nex");
        terminal.end_input();
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "ls\n");
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "ex");
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "");
        assert_eq!(read(&mut terminal, SHELL).unwrap(), "");
    }

    #[test]
    fn no_input_makes_it_fail_or_look_at_more_than_a_step() {
        let mut seed = 1_u32;
        for _ in 0..2_000 {
            let mut terminal = with_shell();
            for _ in 0..200 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (what, who, byte) = (seed >> 28, 1 + (seed >> 24) % 4, (seed >> 8) as u8);
                match what {
                    0 => drop(terminal.hand_over(who, SHELL, 1 + u32::from(byte) % 4, Mode(byte % 4))),
                    1 if who != SHELL => drop(terminal.leave(who)),
                    2 => {
                        let (mut bytes, mut echo) = ([0; 64], Echo::new());
                        terminal.read(who, &mut bytes[..usize::from(byte) % 64], &mut echo);
                        assert!(echo.bytes().len() <= ECHO_BYTES);
                    }
                    _ => drop(terminal.arrive(byte)),
                }
                assert!(terminal.seated >= 1 && terminal.seats[0].process == SHELL);
            }
        }
    }
}
