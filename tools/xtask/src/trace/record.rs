//! A trace record: 32 bytes, little endian, as defined in `crates/abi/src/trace.rs`. Defined a
//! second time here, because xtask does not depend on crates of this repository; a test compares
//! the two.

/// Bytes of a record.
pub const BYTES: usize = 32;

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record {
    pub time_ticks: u64,
    pub kind: u8,
    pub level: u8,
    pub hart: u8,
    pub cpu: u8,
    pub process: u32,
    pub coroutine: u64,
    pub argument: u64,
}

impl Record {
    pub fn from_bytes(bytes: &[u8; BYTES]) -> Self {
        let word = |index: usize| {
            bytes[index * 8..][..8]
                .iter()
                .rev()
                .fold(0, |word: u64, &byte| word << 8 | u64::from(byte))
        };
        Self {
            time_ticks: word(0),
            kind: bytes[8],
            level: bytes[9],
            hart: bytes[10] >> 4,
            cpu: bytes[10] & 15,
            process: (word(1) >> 32) as u32,
            coroutine: word(2),
            argument: word(3),
        }
    }

    #[cfg(test)]
    pub fn to_bytes(self) -> [u8; BYTES] {
        let head = u64::from(self.kind)
            | u64::from(self.level) << 8
            | u64::from(self.hart << 4 | self.cpu) << 16
            | u64::from(self.process) << 32;
        let mut bytes = [0; BYTES];
        let words = [self.time_ticks, head, self.coroutine, self.argument];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

macro_rules! kinds {
    ($($name:ident = $number:literal,)*) => {
        $(pub const $name: u8 = $number;)*

        /// All kinds, by name.
        #[cfg(test)]
        pub const ALL: &[(&str, u8)] = &[$((stringify!($name), $number)),*];
    };
}

/// Kinds of records: the numbers of `cops_abi::trace::Event`, which documents their meaning.
pub mod kind {
    kinds! {
        POLL_BEGIN = 1,
        POLL_END = 2,
        WAKE = 3,
        SPAWN = 4,
        SET_PRIORITY = 5,
        SLEEP = 8,
        AWAKE = 9,
        INTERRUPT = 10,
        SEND_INTERRUPT = 11,
        ENTER_USER = 16,
        SYSTEM_CALL = 17,
        INTERRUPTED = 18,
        FAULT = 19,
        PREEMPTED = 20,
        PAUSED = 21,
        PARK = 22,
        UNPARK = 23,
        WAIT_BEGIN = 24,
        WAIT_END = 25,
        CALL_BEGIN = 32,
        CALL_COMPLETE = 33,
        CALL_CANCELLED = 34,
        USER_INTERRUPT_SENT = 40,
        USER_INTERRUPT_SUPPRESSED = 41,
        USER_INTERRUPT_TAKEN = 42,
        USER_POLL_BEGIN = 48,
        USER_POLL_END = 49,
        USER_WAKE = 50,
        USER_SPAWN = 51,
        USER_MARK = 52,
        LOST = 60,
        DUMP_BEGIN = 64,
        DUMP_RING = 65,
        PROCESS_NAME = 66,
        COROUTINE_NAME = 67,
        DUMP_END = 68,
        SYSTEM_CALL_NAME = 69,
    }
}

/// What a coroutine is: the names of `cops_abi::inspect::coroutine_kind`, by number.
const COROUTINE_KINDS: [&str; 5] = ["task", "main", "call", "service", "switching"];

/// The name of this kind of coroutine.
pub fn coroutine_kind(kind: u64) -> &'static str {
    let name = usize::try_from(kind).ok().and_then(|kind| COROUTINE_KINDS.get(kind));
    name.copied().unwrap_or("coroutine")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_of_coroutines_are_the_kernels() {
        let source = include_str!("../../../../crates/abi/src/inspect.rs");
        let module = source.split_once("pub mod coroutine_kind {").unwrap().1;
        let theirs: Vec<(String, usize)> = module
            .lines()
            .take_while(|line| !line.starts_with('}'))
            .filter_map(|line| {
                let (name, value) =
                    line.trim().strip_prefix("pub const ")?.split_once(": u32 = ")?;
                Some((name.to_lowercase(), value.strip_suffix(';')?.parse().ok()?))
            })
            .collect();
        let ours: Vec<_> = COROUTINE_KINDS
            .iter()
            .enumerate()
            .map(|(number, name)| ((*name).to_owned(), number))
            .collect();
        assert_eq!(ours, theirs);
    }

    /// Converts `PollBegin` to `POLL_BEGIN`.
    fn constant_name(name: &str) -> String {
        let mut constant = String::new();
        for letter in name.chars() {
            if letter.is_ascii_uppercase() && !constant.is_empty() {
                constant.push('_');
            }
            constant.push(letter.to_ascii_uppercase());
        }
        constant
    }

    #[test]
    fn the_numbers_are_the_kernels() {
        let source = include_str!("../../../../crates/abi/src/trace.rs");
        let events = source.split_once("\nevents! {").unwrap().1.split_once("\n}").unwrap().0;
        let theirs: Vec<(String, u8)> = events
            .lines()
            .filter_map(|line| {
                let (name, rest) = line.trim().split_once(" = ")?;
                let number = rest.split_once(' ')?.0.parse().ok()?;
                Some((constant_name(name), number))
            })
            .collect();
        let ours: Vec<(String, u8)> =
            kind::ALL.iter().map(|&(name, number)| (name.to_owned(), number)).collect();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn records_survive_the_line() {
        let record = Record {
            time_ticks: u64::MAX - 1,
            kind: 3,
            level: 63,
            hart: 7,
            cpu: 5,
            process: 1 << 31,
            coroutine: 1 << 63,
            argument: 42,
        };
        assert_eq!(Record::from_bytes(&record.to_bytes()), record);
    }
}
