//! Several channels in one stream of bytes (docs/decisions/0007-console-and-exit.md).
//!
//! The escape byte is DLE (0x10). `DLE k`, `DLE o`, `DLE e`, `DLE t` and `DLE i` select the channel
//! of the following bytes; `DLE DLE` stands for the byte itself; `DLE x <decimal> \n` is the exit
//! status and ends the stream. Without multiplexing, bytes are sent unchanged and no exit status is
//! sent.

/// A channel of output.
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
    /// Processes, coroutines and harts, as lines of text (`inspect::report`).
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

/// Maximum number of bytes that [`Multiplexer::encode`] makes of one byte.
pub const GROWTH: usize = 2;
/// Maximum number of bytes that a change of channel takes.
pub const SWITCH_BYTES: usize = 2;

/// The sending side.
pub struct Multiplexer {
    enabled: bool,
    current: Option<Channel>,
}

impl Multiplexer {
    /// Bytes are sent unchanged unless it is `enabled`.
    #[must_use]
    pub const fn new(enabled: bool) -> Self {
        Self { enabled, current: None }
    }

    /// Passes `bytes` of `channel`, escaped, to `put`.
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

/// A request of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Shut the machine down in an orderly way.
    Quit,
    /// Print the counters.
    Report,
    /// Write the trace.
    Trace,
    /// Write the state of processes, coroutines and harts.
    Inspect,
}

/// The meaning of a received byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// Input for programs.
    Byte(u8),
    /// A request to the kernel.
    Request(Request),
    /// The input has ended: readers get what has arrived, and then the end.
    EndOfInput,
    /// The first byte of an escape sequence.
    Nothing,
}

/// The receiving side. `DLE q` requests power off, `DLE s` the counters, `DLE t` the trace, `DLE i`
/// the inspection; `DLE d` ends the input; `DLE DLE` is the byte itself.
pub struct Demultiplexer {
    enabled: bool,
    escaped: bool,
}

impl Demultiplexer {
    /// Bytes are received unchanged unless it is `enabled`.
    #[must_use]
    pub const fn new(enabled: bool) -> Self {
        Self { enabled, escaped: false }
    }

    /// The meaning of the next byte.
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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const CHANNELS: [Channel; 5] =
        [Channel::Kernel, Channel::Output, Channel::Error, Channel::Trace, Channel::Inspection];

    /// What the host makes of the stream: the bytes of each channel, and the exit status.
    fn decoded(stream: &[u8]) -> ([Vec<u8>; 5], Option<u8>) {
        let mut channels = [const { Vec::new() }; 5];
        let (mut current, mut bytes) = (None::<usize>, stream.iter());
        while let Some(&byte) = bytes.next() {
            let escaped = (byte == ESCAPE).then(|| *bytes.next().unwrap());
            match escaped {
                Some(b'x') => {
                    let digits: Vec<u8> =
                        bytes.copied().take_while(|&digit| digit != b'\n').collect();
                    return (channels, Some(str::from_utf8(&digits).unwrap().parse().unwrap()));
                }
                None | Some(ESCAPE) => channels[current.unwrap()].push(byte),
                Some(letter) => {
                    current = CHANNELS.iter().position(|channel| channel.letter() == letter);
                }
            }
        }
        (channels, None)
    }

    proptest! {
        #[test]
        fn channels_are_separated_and_bounded(
            parts in prop::collection::vec((0..5usize, prop::collection::vec(prop_oneof![Just(ESCAPE), any::<u8>()], 0..20)), 0..20),
            status in any::<u8>(),
        ) {
            let (mut multiplexer, mut stream) = (Multiplexer::new(true), Vec::new());
            let mut expected = [const { Vec::new() }; 5];
            for (channel, bytes) in &parts {
                let before = stream.len();
                multiplexer.encode(CHANNELS[*channel], bytes, |byte| stream.push(byte));
                prop_assert!(stream.len() - before <= bytes.len() * GROWTH + SWITCH_BYTES);
                expected[*channel].extend_from_slice(bytes);
            }
            multiplexer.encode_exit(status, |byte| stream.push(byte));
            prop_assert_eq!(decoded(&stream), (expected, Some(status)));
        }
    }

    #[test]
    fn without_multiplexing_bytes_are_unchanged() {
        let (mut multiplexer, mut stream) = (Multiplexer::new(false), Vec::new());
        multiplexer.encode(Channel::Error, &[ESCAPE, b'x'], |byte| stream.push(byte));
        multiplexer.encode_exit(3, |byte| stream.push(byte));
        assert_eq!(stream, [ESCAPE, b'x']);
        let mut input = Demultiplexer::new(false);
        assert_eq!(input.decode(ESCAPE), Received::Byte(ESCAPE));
        assert_eq!(input.decode(b'q'), Received::Byte(b'q'));
    }

    #[test]
    fn escapes_of_the_host_are_requests() {
        let mut input = Demultiplexer::new(true);
        for (letter, meaning) in [
            (b'q', Received::Request(Request::Quit)),
            (b's', Received::Request(Request::Report)),
            (b't', Received::Request(Request::Trace)),
            (b'i', Received::Request(Request::Inspect)),
            (b'd', Received::EndOfInput),
            (ESCAPE, Received::Byte(ESCAPE)),
            (b'?', Received::Nothing),
        ] {
            assert_eq!(input.decode(ESCAPE), Received::Nothing);
            assert_eq!(input.decode(letter), meaning);
            // The escape counts once.
            assert_eq!(input.decode(b'q'), Received::Byte(b'q'));
        }
    }
}
