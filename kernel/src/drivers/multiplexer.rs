//! Several channels over one stream of bytes (docs/decisions/0007-console-and-exit.md).
//!
//! The escape byte is DLE (0x10). `DLE k`, `DLE o`, `DLE e`, `DLE t` and `DLE i` say whose bytes follow;
//! `DLE DLE` stands for the byte itself; `DLE x <decimal> \n` is the run's last word.
//! Without multiplexing the bytes go through as they are, and the last word is not said.

/// Whose output it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// The kernel's messages.
    Kernel,
    /// Standard output of programs.
    Output,
    /// Standard error of programs.
    Error,
    /// Trace records (`cops_abi::trace`).
    Trace,
    /// What there is, as lines of text (`task::report`).
    Inspection,
}

const ESCAPE: u8 = 0x10;

impl Channel {
    const fn letter(self) -> u8 {
        match self {
            Channel::Kernel => b'k',
            Channel::Output => b'o',
            Channel::Error => b'e',
            Channel::Trace => b't',
            Channel::Inspection => b'i',
        }
    }
}

/// The most bytes [`Multiplexer::encode`] makes of one.
pub const GROWTH: usize = 2;
/// The most bytes a change of channel takes.
pub const SWITCH_BYTES: usize = 2;

/// The sending side.
pub struct Multiplexer {
    enabled: bool,
    current: Option<Channel>,
}

impl Multiplexer {
    pub const fn new(enabled: bool) -> Self {
        Self { enabled, current: None }
    }

    /// Passes `bytes` of `channel` to `put`, escaped.
    pub fn encode(&mut self, channel: Channel, bytes: &[u8], mut put: impl FnMut(u8)) {
        if !self.enabled {
            bytes.iter().for_each(|&byte| put(byte));
            return;
        }
        if self.current != Some(channel) {
            put(ESCAPE);
            put(channel.letter());
            self.current = Some(channel);
        }
        for &byte in bytes {
            if byte == ESCAPE {
                put(ESCAPE);
            }
            put(byte);
        }
    }

    /// Passes the run's exit status to `put`.
    pub fn encode_exit(&mut self, status: u8, mut put: impl FnMut(u8)) {
        if !self.enabled {
            return;
        }
        put(ESCAPE);
        put(b'x');
        let digits = [status / 100, status / 10 % 10, status % 10];
        let first = digits.iter().position(|&digit| digit != 0).unwrap_or(2);
        digits[first..].iter().for_each(|digit| put(b'0' + digit));
        put(b'\n');
    }
}

/// What the other side can ask of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// To end the machine in an orderly way.
    Quit,
    /// To print its counters.
    Report,
    /// To write out what was traced.
    Trace,
    /// To write out what there is.
    Inspect,
}

/// What a byte from the other side means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// Input for programs.
    Byte(u8),
    /// The other side wants something of the kernel.
    Request(Request),
    /// There is no more input: readers get what there is, then its end.
    EndOfInput,
    /// Part of an escape.
    Nothing,
}

/// The receiving side: `DLE q` asks the machine to end, `DLE s` for its counters, `DLE t` for its trace, `DLE i` for what there is, `DLE d` says
/// that there is no more input, `DLE DLE` is the byte itself.
pub struct Demultiplexer {
    enabled: bool,
    escaped: bool,
}

impl Demultiplexer {
    pub const fn new(enabled: bool) -> Self {
        Self { enabled, escaped: false }
    }

    pub fn decode(&mut self, byte: u8) -> Received {
        match (self.enabled, core::mem::take(&mut self.escaped), byte) {
            (false, _, _) | (true, true, ESCAPE) => Received::Byte(byte),
            (true, false, ESCAPE) => {
                self.escaped = true;
                Received::Nothing
            }
            (true, false, _) => Received::Byte(byte),
            (true, true, b'q') => Received::Request(Request::Quit),
            (true, true, b's') => Received::Request(Request::Report),
            (true, true, b't') => Received::Request(Request::Trace),
            (true, true, b'i') => Received::Request(Request::Inspect),
            (true, true, b'd') => Received::EndOfInput,
            (true, true, _) => Received::Nothing,
        }
    }
}
