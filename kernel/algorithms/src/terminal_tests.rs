extern crate std;
use super::*;
use cops_abi::file::terminal::{CANONICAL as LINES, SIGNALS as KEYS};
use std::string::String;
use std::vec::Vec;

const SHELL: Party = Party { session: 1, group: 1 };
const JOB: Party = Party { session: 1, group: 7 };
const OTHER: Party = Party { session: 9, group: 9 };

/// Types, and returns the signals and what is echoed for them at once.
fn typed(terminal: &mut Terminal, text: &str) -> (Vec<Keyed>, String) {
    let mut echo = Echo::new();
    let keyed = text.bytes().filter_map(|byte| terminal.arrive(byte, &mut echo)).collect();
    (keyed, String::from_utf8_lossy(echo.bytes()).into())
}

/// Changes foreground and settings, and expects that the signals are echoed if anything is.
fn change(terminal: &mut Terminal, foreground: u32, settings: Settings) -> Option<Keyed> {
    let mut echo = Echo::new();
    let keyed = terminal.change(foreground, settings, &mut echo);
    let signals = keyed.map_or(0, |keyed| keyed.signals.count_ones() as usize);
    let shown = if settings.has(ECHO) { 2 * signals } else { 0 };
    assert!(echo.bytes().len() == shown || settings.0[17..] != Settings::USUAL.0[17..]);
    keyed
}

/// What is read now; `None` if the reader has to wait.
fn read(terminal: &mut Terminal) -> Option<String> {
    read_with_echo(terminal).0
}

fn read_with_echo(terminal: &mut Terminal) -> (Option<String>, String) {
    let mut shown = Vec::new();
    loop {
        let (mut bytes, mut echo) = ([0; 300], Echo::new());
        let read = terminal.read(&mut bytes, &mut echo);
        shown.extend_from_slice(echo.bytes());
        let found = match read {
            Read::Bytes(count) => Some(String::from_utf8(bytes[..count].to_vec()).unwrap()),
            Read::Nothing => None,
            Read::Again => continue,
        };
        return (found, String::from_utf8(shown).unwrap());
    }
}

/// A terminal of a session, with the usual settings and the shell's group in the foreground.
fn edited() -> Terminal {
    let mut terminal = Terminal::new();
    terminal.begin_session(SHELL).unwrap();
    terminal
}

fn with_local(local: u32) -> Settings {
    Settings::USUAL.with_local(local)
}

fn keyed(group: u32, signals: &[u8]) -> Keyed {
    Keyed { group, signals: signals.iter().fold(0, |set, &signal| set | bit(signal)) }
}

#[test]
fn a_free_terminal_passes_bytes_to_every_reader() {
    let mut terminal = Terminal::new();
    assert_eq!(typed(&mut terminal, "a\x03\x1a\r"), (Vec::new(), String::new()));
    assert_eq!(terminal.access(OTHER), Access::Granted);
    assert_eq!(read_with_echo(&mut terminal), (Some("a\x03\x1a\r".into()), String::new()));
    assert_eq!(read(&mut terminal), None);
    terminal.end_input();
    assert_eq!(read(&mut terminal).unwrap(), "");
    // Also if it is asked for signals: there is no group for them.
    let mut terminal = Terminal::new();
    assert_eq!(change(&mut terminal, 0, with_local(KEYS)), None);
    assert_eq!(typed(&mut terminal, "\x03").0, []);
    assert_eq!(read(&mut terminal).unwrap(), "\x03");
}

#[test]
fn it_belongs_to_one_session_and_its_foreground_reads() {
    let mut terminal = edited();
    assert_eq!((terminal.session(), terminal.foreground()), (1, 1));
    assert_eq!(terminal.begin_session(SHELL), Ok(()));
    assert_eq!(terminal.begin_session(OTHER), Err(Taken));
    let access = |terminal: &Terminal| [SHELL, JOB, OTHER].map(|party| terminal.access(party));
    use Access::{Background, Foreign, Granted};
    assert_eq!(access(&terminal), [Granted, Background, Foreign]);
    change(&mut terminal, JOB.group, Settings::USUAL);
    assert_eq!(access(&terminal), [Background, Granted, Foreign]);
    assert_eq!((terminal.end_session(9), terminal.end_session(0)), (None, None));
    assert_eq!(terminal.end_session(1), Some(JOB.group));
    assert_eq!(access(&terminal), [Granted; 3]);
    assert_eq!(*terminal.settings(), Settings::PLAIN);
    assert_eq!(terminal.end_session(1), None);
    assert_eq!(terminal.begin_session(OTHER), Ok(()));
    assert_eq!(access(&terminal), [Foreign, Foreign, Granted]);
}

#[test]
fn what_follows_a_line_is_for_the_next_reader_and_its_settings() {
    let mut terminal = edited();
    typed(&mut terminal, "cat\nfirst\na\x08b");
    assert_eq!(read(&mut terminal).unwrap(), "cat\n");
    change(&mut terminal, JOB.group, Settings::USUAL);
    assert_eq!(read(&mut terminal).unwrap(), "first\n");
    change(&mut terminal, SHELL.group, with_local(0));
    assert_eq!(read_with_echo(&mut terminal), (Some("a\x08b".into()), String::new()));
}

#[test]
fn keys_are_signals_for_the_foreground() {
    for (key, signal, shown) in [("\x03", 2, "^C"), ("\x1c", 3, "^\\"), ("\x1a", 20, "^Z")] {
        let mut terminal = edited();
        change(&mut terminal, JOB.group, Settings::USUAL);
        typed(&mut terminal, "ab");
        assert_eq!(read(&mut terminal), None);
        let text = std::format!("c{key}x\n");
        let signals = std::vec![keyed(JOB.group, &[signal])];
        assert_eq!(typed(&mut terminal, &text), (signals, shown.into()));
        // Input before the key is dropped; input after it is kept.
        assert_eq!(read(&mut terminal).unwrap(), "x\n");
    }
}

#[test]
fn keys_are_input_without_their_flag_and_without_their_character() {
    let mut terminal = edited();
    change(&mut terminal, SHELL.group, with_local(LINES));
    assert_eq!(typed(&mut terminal, "\x03\x1a\n").0, []);
    assert_eq!(read(&mut terminal).unwrap(), "\x03\x1a\n");
    let mut settings = with_local(KEYS);
    settings.0[CHARACTERS_AT] = 0;
    settings.0[CHARACTERS_AT + 10] = b'z';
    change(&mut terminal, SHELL.group, settings);
    assert_eq!(typed(&mut terminal, "\0\x03z").0, [keyed(1, &[20])]);
    settings.0[12] |= NO_FLUSH as u8;
    change(&mut terminal, SHELL.group, settings);
    assert_eq!(typed(&mut terminal, "azb").0, [keyed(1, &[20])]);
    assert_eq!(read(&mut terminal).unwrap(), "ab");
}

#[test]
fn keys_typed_ahead_are_for_the_next_foreground() {
    let mut terminal = edited();
    change(&mut terminal, SHELL.group, with_local(0));
    typed(&mut terminal, "x\x03y\x1az\x03jobs\n");
    assert_eq!(change(&mut terminal, SHELL.group, with_local(LINES)), None);
    assert_eq!(change(&mut terminal, JOB.group, Settings::USUAL), Some(keyed(7, &[2, 20])));
    assert_eq!(read(&mut terminal).unwrap(), "jobs\n");
    assert_eq!(change(&mut terminal, SHELL.group, Settings::USUAL), None);
}

/// The keys are found without a look at each byte: here, beside one.
#[test]
fn keys_typed_ahead_are_found_among_any_bytes() {
    let mut seed = 7_u32;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) as usize % below
    };
    let mut terminal = edited();
    let mut typed_ahead = std::collections::VecDeque::new();
    for _ in 0..3_000 {
        change(&mut terminal, SHELL.group, with_local(0));
        for _ in 0..random(INPUT_BYTES / 4) {
            // Few keys, so that a change often finds old ones only, or none.
            let byte = b"\x03\x1c\x1a\0".get(random(1_000)).copied().unwrap_or(b'a');
            let has_room = terminal.room() > 0;
            terminal.arrive(byte, &mut Echo::new());
            typed_ahead.extend(has_room.then_some(byte));
        }
        let mut bytes = [0; INPUT_BYTES];
        let into = &mut bytes[..random(INPUT_BYTES / 4)];
        if let Read::Bytes(count) = terminal.read(into, &mut Echo::new()) {
            assert!(typed_ahead.drain(..count).eq(into[..count].iter().copied()));
        }
        let mut settings = with_local(KEYS);
        // Sometimes a key is switched off, or is another one.
        settings.0[CHARACTERS_AT + [0, 1, 10][random(3)]] = [0, 3, 0x1a][random(3)];
        let found = |&byte: &u8| settings.signal(byte);
        let signals = typed_ahead.iter().filter_map(found).fold(0, |set, one| set | bit(one));
        if let Some(last) = typed_ahead.iter().rposition(|byte| found(byte).is_some()) {
            typed_ahead.drain(..=last);
        }
        let keyed = change(&mut terminal, SHELL.group, settings);
        assert_eq!(keyed.map_or(0, |keyed| keyed.signals), signals);
        assert_eq!(terminal.room(), INPUT_BYTES - typed_ahead.len());
    }
}

#[test]
fn settings_are_kept_and_have_their_effects() {
    let mut terminal = edited();
    let mut settings = with_local(LINES);
    settings.0[35] = 77;
    change(&mut terminal, SHELL.group, settings);
    assert_eq!(*terminal.settings(), settings);
    // No echo.
    typed(&mut terminal, "secrex\x7ft\n");
    assert_eq!(read_with_echo(&mut terminal), (Some("secret\n".into()), String::new()));
    // Echo without lines, and carriage return as newline.
    change(&mut terminal, SHELL.group, with_local(ECHO));
    typed(&mut terminal, "a\r\x01");
    assert_eq!(read_with_echo(&mut terminal), (Some("a\n\x01".into()), "a\n^A".into()));
    // A read of at least 0 bytes does not wait.
    let mut settings = with_local(0);
    settings.0[CHARACTERS_AT + 6] = 0;
    change(&mut terminal, SHELL.group, settings);
    assert_eq!(read(&mut terminal).unwrap(), "");
    assert!(!terminal.stops_writers());
    settings.0[13] |= 1;
    change(&mut terminal, SHELL.group, settings);
    assert!(terminal.stops_writers());
    typed(&mut terminal, "abc");
    terminal.flush();
    assert_eq!(terminal.room(), INPUT_BYTES);
    // Characters of Linux, for those that programs look up.
    assert_eq!(Settings::USUAL.0[17..28], [3, 0x1c, 0x7f, 0x15, 4, 0, 1, 0, 0, 0, 0x1a]);
}

#[test]
fn a_look_promises_what_a_read_finds() {
    let mut terminal = edited();
    let look = |terminal: &mut Terminal| terminal.look(&mut Echo::new());
    typed(&mut terminal, "ab");
    assert_eq!(look(&mut terminal), Read::Nothing);
    typed(&mut terminal, "\n");
    assert!(matches!(look(&mut terminal), Read::Bytes(_)));
    assert_eq!(read(&mut terminal).unwrap(), "ab\n");
    change(&mut terminal, SHELL.group, with_local(0));
    assert_eq!(look(&mut terminal), Read::Nothing);
    typed(&mut terminal, "a");
    assert_eq!(look(&mut terminal), Read::Bytes(1));
}

#[test]
fn what_is_unread_is_the_next_line_or_all_bytes() {
    let unread = |terminal: &mut Terminal| terminal.unread(&mut Echo::new());
    let mut terminal = edited();
    assert_eq!(unread(&mut terminal), Read::Bytes(0));
    typed(&mut terminal, "ax\x7fb");
    assert_eq!((unread(&mut terminal), unread(&mut terminal)), (Read::Bytes(0), Read::Bytes(0)));
    // Erased characters do not count, and neither does the line after the next one.
    typed(&mut terminal, "c\nde\nf\x04\x04g");
    assert_eq!(unread(&mut terminal), Read::Bytes(4));
    assert_eq!(terminal.read(&mut [0], &mut Echo::new()), Read::Bytes(1));
    assert_eq!(unread(&mut terminal), Read::Bytes(3));
    // All that can be read as bytes, the ends too.
    change(&mut terminal, SHELL.group, with_local(0));
    assert_eq!(unread(&mut terminal), Read::Bytes(10));
    change(&mut terminal, SHELL.group, Settings::USUAL);
    for line in ["bc\n", "de\n", "f", ""] {
        assert_eq!(unread(&mut terminal), Read::Bytes(line.len()));
        assert_eq!(read(&mut terminal).unwrap(), line);
    }
    assert_eq!(unread(&mut terminal), Read::Bytes(0));
    change(&mut terminal, SHELL.group, with_local(0));
    assert_eq!((unread(&mut terminal), read(&mut terminal).unwrap()), (Read::Bytes(1), "g".into()));
    assert_eq!(unread(&mut terminal), Read::Bytes(0));
    // Without an end of the line, a portion is over first.
    change(&mut terminal, SHELL.group, Settings::USUAL);
    typed(&mut terminal, &"x".repeat(STEP_BYTES));
    typed(&mut terminal, "\x04");
    assert_eq!(unread(&mut terminal), Read::Again);
    assert_eq!(unread(&mut terminal), Read::Bytes(STEP_BYTES));
    change(&mut terminal, SHELL.group, with_local(0));
    assert_eq!(unread(&mut terminal), Read::Bytes(STEP_BYTES + 1));
}

#[test]
fn lines_are_edited_and_echoed() {
    for (keys, line, shown) in [
        ("ab\r", "ab\n", "ab\n"),
        ("ax\x08b\x7f\x7fc\n", "c\n", "ax\x08 \x08b\x08 \x08\x08 \x08c\n"),
        ("é\x08e\n", "e\n", "é\x08 \x08e\n"),
        ("\x08\n", "\n", "\n"),
        ("ab\x15c\n", "c\n", "ab^U\nc\n"),
        ("a\x1b\x08b\n", "ab\n", "a^[\x08 \x08\x08 \x08b\n"),
        ("ab\x04", "ab", "ab"),
        ("\x04", "", ""),
    ] {
        let mut terminal = edited();
        typed(&mut terminal, keys);
        let found = read_with_echo(&mut terminal);
        assert_eq!(found, (Some(line.into()), shown.into()), "typed {keys:?}");
    }
}

/// `\x04` ends the input of a reader of lines; for others it is a byte like those around it.
#[test]
fn an_end_that_was_looked_at_is_for_the_next_read_whatever_the_mode() {
    let look = |terminal: &mut Terminal| terminal.look(&mut Echo::new());
    for text in ["", "ab"] {
        for ends_session in [false, true] {
            let mut terminal = edited();
            typed(&mut terminal, &std::format!("{text}\x04"));
            assert_eq!(look(&mut terminal), Read::Bytes(0));
            if ends_session {
                terminal.end_session(SHELL.session);
            } else {
                change(&mut terminal, SHELL.group, with_local(0));
            }
            assert_eq!(look(&mut terminal), Read::Bytes(1), "after {text:?}");
            assert_eq!(read(&mut terminal).unwrap(), std::format!("{text}\x04"));
            assert_eq!((look(&mut terminal), read(&mut terminal)), (Read::Nothing, None));
            typed(&mut terminal, "x");
            assert_eq!(read(&mut terminal).unwrap(), "x");
            // A later reader of lines gets the next one, and not the end.
            terminal.begin_session(SHELL).unwrap();
            change(&mut terminal, SHELL.group, Settings::USUAL);
            assert_eq!(read(&mut terminal), None);
            typed(&mut terminal, "cd\n");
            assert_eq!(read(&mut terminal).unwrap(), "cd\n");
        }
    }
    // Nothing has been read before the mode changes back.
    let mut terminal = edited();
    typed(&mut terminal, "ab\x04cd\n");
    assert_eq!(look(&mut terminal), Read::Bytes(0));
    change(&mut terminal, SHELL.group, with_local(0));
    change(&mut terminal, SHELL.group, Settings::USUAL);
    assert_eq!(read(&mut terminal).unwrap(), "ab");
    assert_eq!(read(&mut terminal).unwrap(), "cd\n");
    // The end of all input is none of its bytes.
    terminal.end_input();
    assert_eq!(look(&mut terminal), Read::Bytes(0));
    change(&mut terminal, SHELL.group, with_local(0));
    assert_eq!(read(&mut terminal).unwrap(), "");
}

#[test]
fn a_line_longer_than_the_buffer_of_its_reader_is_read_in_parts() {
    let mut terminal = edited();
    typed(&mut terminal, "abcdef\n");
    let mut parts = Vec::new();
    for _ in 0..3 {
        let mut bytes = [0; 3];
        let Read::Bytes(count) = terminal.read(&mut bytes, &mut Echo::new()) else { panic!() };
        parts.push(bytes[..count].to_vec());
    }
    assert_eq!(parts.concat(), b"abcdef\n");
    assert_eq!(read(&mut terminal), None);
}

#[test]
fn the_line_has_a_limit_and_still_ends() {
    let mut terminal = edited();
    for _ in 0..LINE_BYTES + 10 {
        typed(&mut terminal, "x");
    }
    typed(&mut terminal, "\n");
    let (_, shown) = read_with_echo(&mut terminal);
    assert_eq!(shown.matches('\x07').count(), 11);
    let mut length = 300;
    while length < LINE_BYTES {
        length += read(&mut terminal).unwrap().len();
    }
    assert_eq!((length, read(&mut terminal)), (LINE_BYTES, None));
}

#[test]
fn the_end_of_the_input_is_read_after_all_of_it() {
    let mut terminal = edited();
    typed(&mut terminal, "ls\nex");
    terminal.end_input();
    assert_eq!(read(&mut terminal).unwrap(), "ls\n");
    assert_eq!(read(&mut terminal).unwrap(), "ex");
    assert_eq!(read(&mut terminal).unwrap(), "");
    assert_eq!(read(&mut terminal).unwrap(), "");
}

#[test]
fn no_input_makes_it_fail_or_look_at_more_than_a_step() {
    let mut seed = 1_u32;
    for _ in 0..2_000 {
        let mut terminal = edited();
        for _ in 0..200 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (what, group, byte) = (seed >> 28, 1 + (seed >> 24) % 4, (seed >> 8) as u8);
            match what {
                0 => {
                    let mut settings = with_local(u32::from(byte) & 15);
                    settings.0[usize::from(byte) % BYTES] ^= (seed >> 16) as u8;
                    change(&mut terminal, group, settings);
                }
                1 => {
                    let party = Party { session: group, group };
                    if terminal.begin_session(party).is_ok() {
                        terminal.end_session(group);
                    }
                }
                2 => {
                    let (mut bytes, mut echo) = ([0; 256], Echo::new());
                    terminal.read(&mut bytes[..usize::from(byte)], &mut echo);
                    assert!(echo.bytes().len() < ECHO_BYTES);
                }
                _ => drop(typed(&mut terminal, &String::from(char::from(byte)))),
            }
        }
    }
}
