//! Demultiplexes the serial line: kernel log, standard output and standard error of the program,
//! exit status.
//!
//! The guest has one UART. Booted with `console=mux` it marks its output with the byte DLE (0x10):
//!
//! | bytes                      | meaning                                            |
//! |----------------------------|----------------------------------------------------|
//! | DLE `k`, DLE `o`, DLE `e`  | kernel log, stdout or stderr follows               |
//! | DLE `t`                    | trace records follow                               |
//! | DLE `i`                    | an inspection follows, as lines of text            |
//! | DLE DLE                    | one byte 0x10 of the current channel               |
//! | DLE `x` decimal `\n`       | the run ended with this status, 0 to 255           |
//!
//! Everything before the first mark is the firmware's output. The decoder is pure and total: any
//! byte sequence produces events. Invalid input (a damaged mark) is passed on as kernel text, so
//! that it becomes visible, because it can only be a bug.

/// Data Link Escape, the byte that starts a mark.
pub const DLE: u8 = 0x10;

/// The origin of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Before the kernel's first mark: the firmware's banner.
    Firmware,
    Kernel,
    Stdout,
    Stderr,
    /// Trace records: see `trace::record`.
    Trace,
    /// An inspection: see `inspection`.
    Inspection,
}

/// An event that the decoder found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Some bytes of one channel, never empty.
    Bytes(Channel, Vec<u8>),
    /// The program's exit status. The guest powers off next.
    Ended(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// After a DLE.
    Mark,
    /// After DLE `x`, with the digits so far.
    Status {
        digits: u8,
        value: u16,
    },
}

/// The decoder. Accepts the serial line in pieces of any size.
#[derive(Debug)]
pub struct Decoder {
    channel: Channel,
    state: State,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { channel: Channel::Firmware, state: State::Text }
    }
}

impl Decoder {
    /// Decodes the next piece. Marks may be split over pieces.
    pub fn feed(&mut self, piece: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for &byte in piece {
            self.step(byte, &mut events);
        }
        events
    }

    /// Whether the kernel's first mark has arrived, and so the kernel reads input. Input that was
    /// sent before is lost.
    pub fn is_open(&self) -> bool {
        self.channel != Channel::Firmware
    }

    /// The line is closed: an unfinished mark is text.
    pub fn finish(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        match std::mem::replace(&mut self.state, State::Text) {
            State::Text => {}
            State::Mark => push(&mut events, Channel::Kernel, &[DLE]),
            State::Status { digits, value } => {
                push(&mut events, Channel::Kernel, &damaged_status(digits, value))
            }
        }
        events
    }

    fn step(&mut self, byte: u8, events: &mut Vec<Event>) {
        match self.state {
            State::Text if byte == DLE => self.state = State::Mark,
            State::Text => push(events, self.channel, &[byte]),
            State::Mark => {
                self.state = State::Text;
                if self.channel == Channel::Firmware {
                    self.channel = Channel::Kernel;
                }
                match byte {
                    b'k' => self.channel = Channel::Kernel,
                    b'o' => self.channel = Channel::Stdout,
                    b'e' => self.channel = Channel::Stderr,
                    b't' => self.channel = Channel::Trace,
                    b'i' => self.channel = Channel::Inspection,
                    b'x' => self.state = State::Status { digits: 0, value: 0 },
                    DLE => push(events, self.channel, &[DLE]),
                    _ => push(events, Channel::Kernel, &[DLE, byte]),
                }
            }
            State::Status { digits, value } => {
                let next = value * 10 + u16::from(byte.wrapping_sub(b'0'));
                match byte {
                    b'0'..=b'9' if digits < 3 && next <= 255 => {
                        self.state = State::Status { digits: digits + 1, value: next };
                    }
                    b'\n' if digits > 0 => {
                        self.state = State::Text;
                        // In range: `next` was checked digit by digit.
                        events.push(Event::Ended(u8::try_from(value).unwrap_or(u8::MAX)));
                    }
                    _ => {
                        self.state = State::Text;
                        push(events, Channel::Kernel, &damaged_status(digits, value));
                        self.step(byte, events);
                    }
                }
            }
        }
    }
}

/// The bytes of an invalid status mark.
fn damaged_status(digits: u8, value: u16) -> Vec<u8> {
    let mut bytes = vec![DLE, b'x'];
    if digits > 0 {
        bytes.extend_from_slice(format!("{value:0width$}", width = usize::from(digits)).as_bytes());
    }
    bytes
}

/// Appends to the last event if it is of the same channel.
fn push(events: &mut Vec<Event>, channel: Channel, bytes: &[u8]) {
    match events.last_mut() {
        Some(Event::Bytes(last, text)) if *last == channel => text.extend_from_slice(bytes),
        _ => events.push(Event::Bytes(channel, bytes.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes that a correct guest sends for these events.
    fn encode(events: &[Event]) -> Vec<u8> {
        let mut line = Vec::new();
        for event in events {
            match event {
                Event::Bytes(channel, bytes) => {
                    match channel {
                        Channel::Firmware => {}
                        Channel::Kernel => line.extend([DLE, b'k']),
                        Channel::Stdout => line.extend([DLE, b'o']),
                        Channel::Stderr => line.extend([DLE, b'e']),
                        Channel::Trace => line.extend([DLE, b't']),
                        Channel::Inspection => line.extend([DLE, b'i']),
                    }
                    for &byte in bytes {
                        if byte == DLE {
                            line.push(DLE);
                        }
                        line.push(byte);
                    }
                }
                Event::Ended(status) => line.extend(format!("\x10x{status}\n").bytes()),
            }
        }
        line
    }

    /// Joins neighbouring events of one channel, because pieces may be cut anywhere.
    fn joined(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
        let mut result: Vec<Event> = Vec::new();
        for event in events {
            match event {
                Event::Bytes(channel, bytes) => push(&mut result, channel, &bytes),
                Event::Ended(_) => result.push(event),
            }
        }
        result
    }

    fn decode(line: &[u8], piece_length: usize) -> Vec<Event> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for piece in line.chunks(piece_length) {
            events.extend(decoder.feed(piece));
        }
        events.extend(decoder.finish());
        joined(events)
    }

    #[test]
    fn channels_and_status_come_apart() {
        let line = b"OpenSBI v1.1\n\x10kbooted\n\x10oa\x10\x10b\x10eoops\x10x139\n";
        let expected = [
            Event::Bytes(Channel::Firmware, b"OpenSBI v1.1\n".to_vec()),
            Event::Bytes(Channel::Kernel, b"booted\n".to_vec()),
            Event::Bytes(Channel::Stdout, b"a\x10b".to_vec()),
            Event::Bytes(Channel::Stderr, b"oops".to_vec()),
            Event::Ended(139),
        ];
        for piece_length in 1..line.len() {
            assert_eq!(decode(line, piece_length), expected, "in pieces of {piece_length}");
        }
    }

    #[test]
    fn the_first_mark_opens_the_line() {
        let mut decoder = Decoder::default();
        assert_eq!(
            decoder.feed(b"OpenSBI\x10"),
            [Event::Bytes(Channel::Firmware, b"OpenSBI".to_vec())]
        );
        assert!(!decoder.is_open());
        assert_eq!(decoder.feed(b"k"), []);
        assert!(decoder.is_open());
    }

    #[test]
    fn damaged_marks_are_kernel_text() {
        let text = |bytes: &[u8]| vec![Event::Bytes(Channel::Kernel, bytes.to_vec())];
        for damaged in [
            &b"\x10?"[..],
            b"\x10x\n",
            b"\x10x256\n",
            b"\x10x0000\n",
            b"\x10x-1\n",
            b"\x10x12",
            b"\x10",
        ] {
            let line = [b"\x10k", damaged].concat();
            assert_eq!(decode(&line, 1), text(damaged), "{damaged:?}");
        }
    }

    #[test]
    fn a_mark_right_after_a_damaged_status_counts() {
        assert_eq!(
            decode(b"\x10x12\x10oyes", 1),
            [
                Event::Bytes(Channel::Kernel, b"\x10x12".to_vec()),
                Event::Bytes(Channel::Stdout, b"yes".to_vec())
            ]
        );
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let channel = prop_oneof![
            Just(Channel::Kernel),
            Just(Channel::Stdout),
            Just(Channel::Stderr),
            Just(Channel::Trace),
            Just(Channel::Inspection)
        ];
        // DLE and the letters of marks are frequent, because they are the difficult cases for a
        // decoder.
        let byte = prop_oneof![Just(DLE), Just(b'x'), Just(b'k'), Just(b'\n'), any::<u8>()];
        prop_oneof![
            8 => (channel, prop::collection::vec(byte, 1..20)).prop_map(|(channel, bytes)| Event::Bytes(channel, bytes)),
            1 => any::<u8>().prop_map(Event::Ended),
        ]
    }

    proptest! {
        #[test]
        fn what_a_guest_encodes_is_what_we_decode(
            events in prop::collection::vec(any_event(), 0..30),
            piece_length in 1usize..40,
        ) {
            prop_assert_eq!(decode(&encode(&events), piece_length), joined(events));
        }

        #[test]
        fn garbage_neither_panics_nor_depends_on_the_cut(
            line in prop::collection::vec(prop_oneof![Just(DLE), Just(b'x'), Just(b'9'), any::<u8>()], 0..200),
            piece_length in 1usize..20,
        ) {
            prop_assert_eq!(decode(&line, piece_length), decode(&line, line.len().max(1)));
        }
    }
}
