//! Editing a line: keys in, what to show and what has happened out.
//!
//! Assumes a terminal that knows the escape sequences of ECMA-48, and characters that are one
//! column wide. A line without keys that move the cursor is shown without escape sequences.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// Number of lines that are remembered.
const HISTORY_LINES: usize = 200;
/// Maximum length of a line in bytes; further keys ring the bell.
const LINE_BYTES: usize = 4096;

const BELL: char = '\x07';
const ESCAPE: u8 = 0x1b;

/// What a key has led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing yet.
    Nothing,
    /// A line is complete.
    Line(String),
    /// Ctrl-C: the line was dropped.
    Interrupted,
    /// Ctrl-D on an empty line: there is no more input.
    End,
    /// Tab: the caller finds out how [`Editor::word`] may go on, and calls [`Editor::complete`].
    Complete,
}

/// How much of an escape sequence has been typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sequence {
    #[default]
    None,
    /// The escape.
    Begun,
    /// The bracket, and a number.
    Number(u32),
}

/// A line that is being edited, and the lines before it.
#[derive(Clone, Debug, Default)]
pub struct Editor {
    line: String,
    /// The place of the cursor in the line, in bytes.
    cursor: usize,
    sequence: Sequence,
    /// The first bytes of a character of several.
    partial: Vec<u8>,
    history: Vec<String>,
    /// The line of the history that is shown; their number for the new line.
    shown: usize,
    /// The new line while another one is shown.
    new: String,
}

impl Editor {
    /// Takes a byte that was typed at a line that begins with `prompt`. Appends what is to be shown
    /// to `show`.
    pub fn key(&mut self, byte: u8, prompt: &str, show: &mut String) -> Event {
        match core::mem::take(&mut self.sequence) {
            Sequence::Begun if matches!(byte, b'[' | b'O') => {
                self.sequence = Sequence::Number(0);
                return Event::Nothing;
            }
            Sequence::Number(number) => {
                match byte {
                    b'0'..=b'9' => {
                        let number = number.wrapping_mul(10) + u32::from(byte - b'0');
                        self.sequence = Sequence::Number(number % 1000);
                    }
                    b';' => self.sequence = Sequence::Number(0),
                    end => self.end_sequence(end, number, prompt, show),
                }
                return Event::Nothing;
            }
            Sequence::Begun | Sequence::None => {}
        }
        match byte {
            b'\r' | b'\n' => return self.end_line(show),
            ESCAPE => self.sequence = Sequence::Begun,
            b'\t' => return Event::Complete,
            0x7f | 0x08 => self.erase(self.before(), prompt, show),
            0x20.. => self.type_byte(byte, prompt, show),
            control => return self.control(control | 0x40, prompt, show),
        }
        Event::Nothing
    }

    /// The lines that were typed, the oldest first.
    #[must_use]
    pub fn history(&self) -> &[String] {
        &self.history
    }

    /// A key with Ctrl.
    fn control(&mut self, letter: u8, prompt: &str, show: &mut String) -> Event {
        match letter {
            b'C' => {
                show.push_str("^C\n");
                self.clear();
                return Event::Interrupted;
            }
            b'D' if self.line.is_empty() => return Event::End,
            b'D' => self.delete(prompt, show),
            b'A' => self.move_to(0, show),
            b'E' => self.move_to(self.line.len(), show),
            b'B' => self.move_to(self.before(), show),
            b'F' => self.move_to(self.after(), show),
            b'P' => self.show_other(self.shown.wrapping_sub(1), prompt, show),
            b'N' => self.show_other(self.shown + 1, prompt, show),
            b'U' => self.erase(0, prompt, show),
            b'W' => {
                let words = self.line[..self.cursor].trim_end();
                self.erase(words.rfind(' ').map_or(0, |space| space + 1), prompt, show);
            }
            b'K' => {
                self.line.truncate(self.cursor);
                show.push_str("\x1b[K");
            }
            b'L' => {
                show.push_str("\x1b[H\x1b[J");
                self.redraw(prompt, show);
            }
            _ => {}
        }
        Event::Nothing
    }

    /// The last byte of an escape sequence.
    fn end_sequence(&mut self, end: u8, number: u32, prompt: &str, show: &mut String) {
        match (end, number) {
            (b'A', _) => self.show_other(self.shown.wrapping_sub(1), prompt, show),
            (b'B', _) => self.show_other(self.shown + 1, prompt, show),
            (b'C', _) => self.move_to(self.after(), show),
            (b'D', _) => self.move_to(self.before(), show),
            (b'H', _) | (b'~', 1 | 7) => self.move_to(0, show),
            (b'F', _) | (b'~', 4 | 8) => self.move_to(self.line.len(), show),
            (b'~', 3) => self.delete(prompt, show),
            _ => {}
        }
    }

    fn type_byte(&mut self, byte: u8, prompt: &str, show: &mut String) {
        self.partial.push(byte);
        match core::str::from_utf8(&self.partial) {
            Ok(text) if self.line.len() + text.len() <= LINE_BYTES => {
                self.line.insert_str(self.cursor, text);
                self.cursor += text.len();
                if self.cursor == self.line.len() {
                    show.push_str(text);
                } else {
                    self.redraw(prompt, show);
                }
            }
            Ok(_) => show.push(BELL),
            // More bytes belong to the character.
            Err(error) if error.error_len().is_none() => return,
            Err(_) => show.push(BELL),
        }
        self.partial.clear();
    }

    fn end_line(&mut self, show: &mut String) -> Event {
        show.push('\n');
        let line = core::mem::take(&mut self.line);
        self.clear();
        if !line.trim().is_empty() && self.history.last() != Some(&line) {
            if self.history.len() == HISTORY_LINES {
                self.history.remove(0);
            }
            self.history.push(line.clone());
        }
        self.shown = self.history.len();
        Event::Line(line)
    }

    fn clear(&mut self) {
        self.line.clear();
        self.new.clear();
        self.partial.clear();
        (self.cursor, self.shown) = (0, self.history.len());
    }

    /// The place of the character before the cursor.
    fn before(&self) -> usize {
        self.line[..self.cursor].char_indices().next_back().map_or(0, |(place, _)| place)
    }

    /// The place after the character at the cursor.
    fn after(&self) -> usize {
        let next = self.line[self.cursor..].chars().next();
        self.cursor + next.map_or(0, char::len_utf8)
    }

    fn move_to(&mut self, place: usize, show: &mut String) {
        let (from, to) = (self.cursor.min(place), self.cursor.max(place));
        let columns = self.line[from..to].chars().count();
        move_cursor(columns, place < self.cursor, show);
        self.cursor = place;
    }

    /// Erases from `start` to the cursor.
    fn erase(&mut self, start: usize, prompt: &str, show: &mut String) {
        let is_at_end = self.cursor == self.line.len();
        let erased = self.line[start..self.cursor].chars().count();
        self.line.replace_range(start..self.cursor, "");
        self.cursor = start;
        if is_at_end {
            (0..erased).for_each(|_| show.push_str("\x08 \x08"));
        } else {
            self.redraw(prompt, show);
        }
    }

    /// Erases the character at the cursor.
    fn delete(&mut self, prompt: &str, show: &mut String) {
        let end = self.after();
        if end > self.cursor {
            self.line.replace_range(self.cursor..end, "");
            self.redraw(prompt, show);
        }
    }

    /// Shows a line of the history, or the new line after the last one.
    fn show_other(&mut self, place: usize, prompt: &str, show: &mut String) {
        let count = self.history.len();
        if place > count {
            show.push(BELL);
            return;
        }
        if self.shown == count {
            self.new = core::mem::take(&mut self.line);
        }
        self.line = match self.history.get(place) {
            Some(line) => line.clone(),
            None => core::mem::take(&mut self.new),
        };
        (self.shown, self.cursor) = (place, self.line.len());
        self.redraw(prompt, show);
    }

    /// Shows prompt and line again, with the cursor at its place.
    pub fn redraw(&self, prompt: &str, show: &mut String) {
        let _ = write!(show, "\r{prompt}{}\x1b[K", self.line);
        move_cursor(self.line[self.cursor..].chars().count(), true, show);
    }

    /// What is to be completed: the part of a word before the cursor, and whether the word is the
    /// name of a command.
    #[must_use]
    pub fn word(&self) -> (&str, bool) {
        let before = &self.line[..self.cursor];
        let is_separator = |letter: char| " \t;|&<>".contains(letter);
        let start = before.rfind(is_separator).map_or(0, |place| place + 1);
        let left = before[..start].trim_end_matches([' ', '\t']);
        let is_command = left.is_empty() || left.ends_with([';', '|', '&']);
        (&before[start..], is_command)
    }

    /// Completes [`Self::word`], which may go on in these ways: each is a whole word, with what
    /// follows it. Shows them if they have nothing more in common.
    pub fn complete(&mut self, ways: &[String], prompt: &str, show: &mut String) {
        let (word, _) = self.word();
        let length = word.len();
        let Some(first) = ways.first() else {
            show.push(BELL);
            return;
        };
        let common = ways.iter().fold(first.as_str(), |common, way| {
            let same = common.chars().zip(way.chars()).take_while(|(one, other)| one == other);
            &common[..same.map(|(letter, _)| letter.len_utf8()).sum()]
        });
        let rest = common.get(length..).unwrap_or("");
        if rest.is_empty() && ways.len() > 1 {
            show.push('\n');
            for way in ways {
                let _ = write!(show, "{}  ", way.trim_end());
            }
            show.push('\n');
            self.redraw(prompt, show);
            return;
        }
        for byte in rest.bytes() {
            self.type_byte(byte, prompt, show);
        }
    }
}

/// Moves the cursor by this many columns.
fn move_cursor(columns: usize, to_the_left: bool, show: &mut String) {
    if columns > 0 {
        let _ = write!(show, "\x1b[{columns}{}", if to_the_left { 'D' } else { 'C' });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    const PROMPT: &str = "$ ";

    fn typed(editor: &mut Editor, keys: &str) -> (Vec<Event>, String) {
        let mut show = String::new();
        let events = keys.bytes().map(|byte| editor.key(byte, PROMPT, &mut show));
        let events = events.filter(|event| *event != Event::Nothing).collect();
        (events, show)
    }

    fn line(keys: &str) -> String {
        let (events, _) = typed(&mut Editor::default(), &[keys, "\r"].concat());
        let [Event::Line(line)] = events.as_slice() else { panic!("{keys:?}: {events:?}") };
        line.clone()
    }

    #[test]
    fn a_plain_line_is_shown_as_it_is_typed() {
        let mut editor = Editor::default();
        let (events, show) = typed(&mut editor, "echo äx\x7f\x08b\n");
        assert_eq!(events, [Event::Line("echo b".into())]);
        assert_eq!(show, "echo äx\x08 \x08\x08 \x08b\n");
    }

    #[test]
    fn keys_edit() {
        for (keys, expected) in [
            ("ac\x1b[Db", "abc"),
            ("bc\x01a", "abc"),
            ("abx\x1b[D\x1b[3~c", "abc"),
            ("b\x1b[Ha\x1b[Fc", "abc"),
            ("b\x1b[1~a\x1bOCc", "abc"),
            ("xyz\x15abc", "abc"),
            ("ab xy\x17c", "ab c"),
            ("abcxy\x02\x02\x0b", "abc"),
            ("ac\x02b\x06\x06", "abc"),
            ("äö\x02\x02\x04", "ö"),
            ("\x7f\x1b[D\x1b[Cabc\x04", "abc"),
            ("a\x1b[99;5Zb\x1bc", "abc"),
        ] {
            assert_eq!(line(keys), expected, "{keys:?}");
        }
    }

    #[test]
    fn what_is_shown_in_the_middle_of_a_line() {
        let mut editor = Editor::default();
        typed(&mut editor, "ac");
        assert_eq!(typed(&mut editor, "\x1b[D").1, "\x1b[1D");
        assert_eq!(typed(&mut editor, "b").1, "\r$ abc\x1b[K\x1b[1D");
        assert_eq!(typed(&mut editor, "\x7f").1, "\r$ ac\x1b[K\x1b[1D");
        assert_eq!(typed(&mut editor, "\x0b").1, "\x1b[K");
        assert_eq!(typed(&mut editor, "\x0c").1, "\x1b[H\x1b[J\r$ a\x1b[K");
    }

    #[test]
    fn control_c_drops_the_line_and_control_d_ends() {
        let mut editor = Editor::default();
        assert_eq!(typed(&mut editor, "abc\x03"), (vec![Event::Interrupted], "abc^C\n".into()));
        assert_eq!(typed(&mut editor, "x\r").0, [Event::Line("x".into())]);
        assert_eq!(typed(&mut editor, "\x04").0, [Event::End]);
    }

    #[test]
    fn history() {
        let mut editor = Editor::default();
        typed(&mut editor, "one\rtwo\rtwo\r  \r");
        let mut up_and = |keys: &str| typed(&mut editor, &[keys, "\r"].concat()).0;
        assert_eq!(up_and("\x1b[A"), [Event::Line("two".into())]);
        assert_eq!(up_and("\x1b[A\x1b[A!"), [Event::Line("one!".into())]);
        assert_eq!(up_and("new\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\x1b[B"), [Event::Line("two".into())]);
        assert_eq!(up_and("ne\x10\x0ew"), [Event::Line("new".into())]);
        for number in 0..300 {
            typed(&mut editor, &[&number.to_string(), "\r"].concat());
        }
        assert_eq!(editor.history.len(), HISTORY_LINES);
    }

    #[test]
    fn completion() {
        let mut editor = Editor::default();
        let ways = |words: &[&str]| words.iter().map(|&word| word.into()).collect::<Vec<String>>();
        assert_eq!(typed(&mut editor, "ls /bin/ca\t").0, [Event::Complete]);
        assert_eq!(editor.word(), ("/bin/ca", false));
        let mut show = String::new();
        editor.complete(&ways(&["/bin/catch", "/bin/cattle"]), PROMPT, &mut show);
        assert_eq!((editor.word().0, show.as_str()), ("/bin/cat", "t"));
        editor.complete(&ways(&["/bin/catch ", "/bin/cattle "]), PROMPT, &mut show);
        assert!(show.ends_with("\n/bin/catch  /bin/cattle  \n\r$ ls /bin/cat\x1b[K"), "{show:?}");
        editor.complete(&ways(&["/bin/cattle "]), PROMPT, &mut show);
        assert_eq!(typed(&mut editor, "\r").0, [Event::Line("ls /bin/cattle ".into())]);
        editor.complete(&[], PROMPT, &mut show);
        assert!(show.ends_with(BELL));
        for (keys, word, is_command) in [
            ("", "", true),
            ("a", "a", true),
            ("a b", "b", false),
            ("a;b", "b", true),
            ("a | b", "b", true),
            ("a && ", "", true),
            ("a >b", "b", false),
        ] {
            let mut editor = Editor::default();
            typed(&mut editor, keys);
            assert_eq!(editor.word(), (word, is_command), "{keys:?}");
        }
    }

    #[test]
    fn any_keys_are_harmless() {
        let (mut editor, mut seed, mut show) = (Editor::default(), 1_u32, String::new());
        for _ in 0..200_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let byte = match seed >> 30 {
                0 => {
                    b"\x1b[ABCD\x01\x02\x04\x05\x06\x0b\x10\x0e\x17\x7f"[(seed >> 8) as usize % 16]
                }
                1 => b"\xc3\xa4 \x1b"[(seed >> 8) as usize % 4],
                _ => (seed >> 16) as u8,
            };
            editor.key(byte, PROMPT, &mut show);
            assert!(editor.line.is_char_boundary(editor.cursor) && editor.line.len() <= LINE_BYTES);
            show.clear();
        }
    }
}
