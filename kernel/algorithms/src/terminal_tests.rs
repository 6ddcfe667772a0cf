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
    assert!(terminal.remove(CHILD));
    assert!(!terminal.remove(CHILD));
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
    terminal.remove(CHILD);
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
        let Read::Bytes(count) = terminal.read(SHELL, &mut bytes, &mut Echo::new()) else {
            panic!()
        };
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
    // Input before the Ctrl-C is dropped; input after it is kept.
    assert_eq!(read(&mut terminal, CHILD).unwrap(), "x\n");
}

#[test]
fn ctrl_c_typed_before_the_console_is_handed_over_counts() {
    let mut terminal = with_shell();
    typed(&mut terminal, "spin\nx\x03jobs\n");
    assert_eq!(read(&mut terminal, SHELL).unwrap(), "spin\n");
    terminal.hand_over(SHELL, SHELL, CHILD, EDITED).unwrap();
    assert_eq!(read(&mut terminal, SHELL).unwrap(), "\x03");
    terminal.remove(CHILD);
    assert_eq!(read(&mut terminal, SHELL).unwrap(), "jobs\n");
}

#[test]
fn an_interrupt_that_the_foreground_did_not_outlive_is_forgotten() {
    let mut terminal = with_child();
    terminal.arrive(3);
    terminal.remove(CHILD);
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
    // The shell gets its own mode back.
    terminal.remove(CHILD);
    typed(&mut terminal, "a\x08b\n");
    assert_eq!(read(&mut terminal, SHELL).unwrap(), "b\n");
}

#[test]
fn seats_are_for_processes_that_were_given_one() {
    let mut terminal = Terminal::new();
    assert_eq!(terminal.hand_over(OTHER, SHELL, OTHER, EDITED), Err(Refusal::NoSeat));
    terminal.hand_over(SHELL, SHELL, CHILD, EDITED).unwrap();
    assert_eq!(terminal.hand_over(OTHER, SHELL, OTHER, EDITED), Err(Refusal::NoSeat));
    // A shell within the shell; then the outer one takes the console back from both.
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
    // A process in the middle of the stack ends: the foreground process stays.
    assert!(terminal.remove(8));
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
            let (what, process, byte) = (seed >> 28, 1 + (seed >> 24) % 4, (seed >> 8) as u8);
            match what {
                0 => drop(terminal.hand_over(
                    process,
                    SHELL,
                    1 + u32::from(byte) % 4,
                    Mode(byte % 4),
                )),
                1 if process != SHELL => drop(terminal.remove(process)),
                2 => {
                    let (mut bytes, mut echo) = ([0; 64], Echo::new());
                    terminal.read(process, &mut bytes[..usize::from(byte) % 64], &mut echo);
                    assert!(echo.bytes().len() <= ECHO_BYTES);
                }
                _ => drop(terminal.arrive(byte)),
            }
            assert!(terminal.seated >= 1 && terminal.seats[0].process == SHELL);
        }
    }
}

#[test]
fn a_mode_is_what_its_settings_say() {
    for bits in 0..4 {
        let settings = Mode(bits).settings();
        assert_eq!(Mode::of_settings(&settings), Mode(bits));
        // The character of an interrupt, and that one character is enough for a read.
        assert_eq!((settings[17], settings[23]), (3, 1));
    }
    let mut other = Mode(0).settings();
    other[12] = 2;
    assert_eq!(Mode::of_settings(&other), Mode::LINES);
}

#[test]
fn each_process_has_the_mode_of_its_seat() {
    let mut terminal = Terminal::new();
    assert_eq!(terminal.mode(1), Mode(0));
    terminal.hand_over(1, 1, 1, Mode::LINES).unwrap();
    terminal.hand_over(1, 1, 2, Mode::INTERRUPT).unwrap();
    assert_eq!((terminal.mode(1), terminal.mode(2)), (Mode::LINES, Mode::INTERRUPT));
    assert_eq!(terminal.mode(3), Mode(0));
}
