//! Flags, structures and numbers of calls on files. All are Linux's for riscv64.

/// Flags of `openat`.
pub mod open {
    /// The bits of the access mode.
    pub const ACCESS_MODE: u32 = 3;
    /// Access mode: reading.
    pub const READ_ONLY: u32 = 0;
    /// Access mode: writing.
    pub const WRITE_ONLY: u32 = 1;
    /// Access mode: both.
    pub const READ_WRITE: u32 = 2;
    /// Creates the file if it does not exist.
    pub const CREATE: u32 = 0o100;
    /// With [`CREATE`]: fails with `EEXIST` if it exists.
    pub const EXCLUSIVE: u32 = 0o200;
    /// Makes the file empty.
    pub const TRUNCATE: u32 = 0o1000;
    /// Each write goes to the end.
    pub const APPEND: u32 = 0o2000;
    /// A synchronous call that would have to wait fails with `EAGAIN`.
    pub const NON_BLOCKING: u32 = 0o4000;
    /// A write returns when what it has written is durable.
    pub const DATA_DURABLE: u32 = 0o10_000;
    /// As [`DATA_DURABLE`], with all that is known of the file.
    pub const DURABLE: u32 = 0o4_000_000 | DATA_DURABLE;
    /// Fails with `ENOTDIR` unless it is a directory.
    pub const DIRECTORY: u32 = 0o200_000;
    /// Fails with `ELOOP` if it is a symbolic link.
    pub const NO_FOLLOW: u32 = 0o400_000;
    /// `exec` closes the descriptor.
    pub const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    /// Only names the file: it can be neither read nor written.
    pub const PATH: u32 = 0o10_000_000;
    /// The status flags: those that `fcntl` shows and changes.
    pub const STATUS: u32 = APPEND | NON_BLOCKING;
}

/// Commands of `fcntl`.
pub mod control {
    /// Duplicates the descriptor; the argument is the lowest number of the duplicate.
    pub const DUPLICATE: usize = 0;
    /// The descriptor's flags.
    pub const GET_DESCRIPTOR_FLAGS: usize = 1;
    /// Sets the descriptor's flags.
    pub const SET_DESCRIPTOR_FLAGS: usize = 2;
    /// Access mode and status flags of the open file.
    pub const GET_FLAGS: usize = 3;
    /// Sets the status flags of the open file.
    pub const SET_FLAGS: usize = 4;
    /// As [`DUPLICATE`]; `exec` closes the duplicate.
    pub const DUPLICATE_CLOSE_ON_EXEC: usize = 1030;
    /// The only flag of a descriptor: `exec` closes it.
    pub const CLOSE_ON_EXEC: usize = 1;
}

/// Requests of `ioctl`.
pub mod ioctl {
    /// Gets the terminal's settings: see [`terminal`](super::terminal).
    pub const GET_TERMINAL: usize = 0x5401;
    /// Sets them; so do the two following numbers, which on Linux wait for output or drop input.
    pub const SET_TERMINAL: usize = 0x5402;
    /// See [`SET_TERMINAL`].
    pub const SET_TERMINAL_AND_WAIT: usize = 0x5403;
    /// See [`SET_TERMINAL`].
    pub const SET_TERMINAL_AND_FLUSH: usize = 0x5404;
    /// Makes the terminal that of the caller's session.
    pub const TAKE_TERMINAL: usize = 0x540e;
    /// Gets the terminal's foreground process group.
    pub const GET_FOREGROUND: usize = 0x540f;
    /// Sets the terminal's foreground process group.
    pub const SET_FOREGROUND: usize = 0x5410;
    /// Gets the terminal's size: rows, columns and two zeros, of 16 bits each.
    pub const GET_WINDOW_SIZE: usize = 0x5413;
    /// Gets the number of bytes that can be read at once, of 32 bits.
    pub const UNREAD_BYTES: usize = 0x541b;
    /// Makes the terminal of the caller's session free.
    pub const LEAVE_TERMINAL: usize = 0x5422;
    /// Gets the terminal's session.
    pub const GET_SESSION: usize = 0x5429;
    /// Sets or clears non-blocking mode, by a number of 32 bits.
    pub const SET_NON_BLOCKING: usize = 0x5421;
    /// Clears the descriptor's flag for `exec`.
    pub const CLEAR_CLOSE_ON_EXEC: usize = 0x5450;
    /// Sets the descriptor's flag for `exec`.
    pub const SET_CLOSE_ON_EXEC: usize = 0x5451;
}

/// The terminal's settings.
pub mod terminal {
    /// Size of the settings in bytes: four words of flags, the line discipline, 19 characters.
    pub const BYTES: usize = 36;
    /// Local flag: lines are edited, and read as a whole.
    pub const CANONICAL: u32 = 2;
    /// Local flag: control characters send signals.
    pub const SIGNALS: u32 = 1;
    /// Local flag: input is echoed.
    pub const ECHO: u32 = 8;
    /// Local flag: the key of a signal does not drop what was typed before it.
    pub const NO_FLUSH: u32 = 0o200;
    /// Local flag: a write of a process in the background stops it.
    pub const STOP_WRITERS: u32 = 0o400;
    /// Input flag: a carriage return is read as a new line.
    pub const RETURN_IS_NEWLINE: u32 = 0o400;
}

/// Flags of the calls with names that end with `at`.
pub mod at {
    /// The descriptor of the current directory.
    pub const CURRENT_DIRECTORY: isize = super::super::syscall::AT_FDCWD;
    /// Does not follow a symbolic link at the end of the path.
    pub const NO_FOLLOW: usize = 0x100;
    /// `unlinkat`: removes a directory.
    pub const REMOVE_DIRECTORY: usize = 0x200;
    /// `linkat`: follows a symbolic link at the end of the path.
    pub const FOLLOW: usize = 0x400;
    /// Does not mount anything, which does not happen anyway.
    pub const NO_AUTOMOUNT: usize = 0x800;
    /// An empty path names the open file itself.
    pub const EMPTY_PATH: usize = 0x1000;
    /// `faccessat`: checks with the effective user, which is the only one.
    pub const EFFECTIVE: usize = 0x200;
    /// `statx`: how much its answer is synchronised; ignored.
    pub const SYNCHRONISATION: usize = 0x6000;
}

/// Types of files, in the mode of a [`Status`].
pub mod mode {
    /// The bits of the type.
    pub const TYPE: u32 = 0o170_000;
    /// A pipe.
    pub const PIPE: u32 = 0o010_000;
    /// A device of bytes, such as a terminal.
    pub const CHARACTER_DEVICE: u32 = 0o020_000;
    /// A disk.
    pub const BLOCK_DEVICE: u32 = 0o060_000;
    /// A directory.
    pub const DIRECTORY: u32 = 0o040_000;
    /// A file with contents.
    pub const REGULAR: u32 = 0o100_000;
    /// A symbolic link.
    pub const LINK: u32 = 0o120_000;
    /// A socket.
    pub const SOCKET: u32 = 0o140_000;
}

/// A time: seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// The rest, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Time {
    /// Number of nanoseconds in a step of the times of files.
    const STEP: u32 = 4_000_000;

    /// The time of a file that is written now, if this is now: in steps of 4 ms, as on Linux. So a
    /// server can store a file that is written often only once in a step. The kernel and all
    /// servers have the same steps: with other ones, a later write could have an earlier time.
    #[must_use]
    pub const fn of_file(self) -> Self {
        Self { seconds: self.seconds, nanoseconds: self.nanoseconds / Self::STEP * Self::STEP }
    }
}

/// What is known of a file: the contents of Linux's `struct stat` and `struct statx`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The file system.
    pub file_system: u64,
    /// The file within it.
    pub number: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// The owner.
    pub user: u32,
    /// The owner's group.
    pub group: u32,
    /// Of a device: which one, see [`device_number`].
    pub device: u64,
    /// Size in bytes.
    pub size: u64,
    /// Memory or disk space in units of 512 bytes.
    pub blocks: u64,
    /// When it was last read.
    pub accessed: Time,
    /// When it was last written.
    pub modified: Time,
    /// When its status last changed.
    pub changed: Time,
}

/// Use and size of a file system: the contents of Linux's `struct statfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The type, as Linux numbers it.
    pub kind: u64,
    /// Size in blocks of 4096 bytes.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// How many files have room, with those that exist, and how many are free; 0 if it does not
    /// say.
    pub files: [u64; 2],
}

impl Usage {
    /// Size of `struct statfs`.
    pub const BYTES: usize = 120;

    /// As `struct statfs`.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut fields = Fields(&mut bytes);
        let names = super::syscall::NAME_BYTES_MAX as u64;
        let (block, free) = (BLOCK_BYTES.into(), self.free_blocks);
        let [files, free_files] = self.files;
        // No identifier.
        for word in [self.kind, block, self.blocks, free, free, files, free_files, 0, names, block]
        {
            fields.word(word);
        }
        bytes
    }
}

/// The number of a device.
#[must_use]
pub const fn device_number(major: u32, minor: u32) -> u64 {
    (major as u64) << 8 | minor as u64
}

/// Preferred size of a read or write.
const BLOCK_BYTES: u32 = 4096;
/// The fields of `struct statx` that are valid: Linux's `STATX_BASIC_STATS`.
const EXTENDED_FIELDS: u32 = 0x7ff;

/// Writes numbers one after another.
pub(crate) struct Fields<'a>(&'a mut [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    fn put<const BYTES: usize>(&mut self, bytes: [u8; BYTES]) {
        let rest = core::mem::take(&mut self.0);
        let Some((place, rest)) = rest.split_first_chunk_mut() else { return };
        *place = bytes;
        self.0 = rest;
    }

    pub(crate) fn word(&mut self, value: u64) {
        self.put(value.to_le_bytes());
    }

    pub(crate) fn half(&mut self, value: u32) {
        self.put(value.to_le_bytes());
    }
}

impl Status {
    /// Size of `struct stat`.
    pub const BYTES: usize = 128;
    /// Size of `struct statx`.
    pub const EXTENDED_BYTES: usize = 256;

    /// A file of this type with these permissions, with one name and nothing in it.
    #[must_use]
    pub fn new(kind: u32, permissions: u32) -> Self {
        Self { mode: kind | permissions, links: 1, ..Self::default() }
    }

    /// The type: one of [`mode`].
    #[must_use]
    pub const fn kind(&self) -> u32 {
        self.mode & mode::TYPE
    }

    /// As `struct stat`.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut fields = Fields(&mut bytes);
        fields.word(self.file_system);
        fields.word(self.number);
        for half in [self.mode, self.links, self.user, self.group] {
            fields.half(half);
        }
        fields.word(self.device);
        fields.word(0);
        fields.word(self.size);
        fields.half(BLOCK_BYTES);
        fields.half(0);
        fields.word(self.blocks);
        for time in [self.accessed, self.modified, self.changed] {
            fields.word(time.seconds as u64);
            fields.word(time.nanoseconds.into());
        }
        bytes
    }

    /// Reads the fields of [`Self::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| {
            bytes
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map_or(0, |b| u64::from_le_bytes(*b))
        };
        let half = |at: usize| word(at) as u32;
        let time = |at: usize| Time { seconds: word(at) as i64, nanoseconds: half(at + 8) };
        Self {
            file_system: word(0),
            number: word(8),
            mode: half(16),
            links: half(20),
            user: half(24),
            group: (word(24) >> 32) as u32,
            device: word(32),
            size: word(48),
            blocks: word(64),
            accessed: time(72),
            modified: time(88),
            changed: time(104),
        }
    }

    /// As `struct statx`.
    #[must_use]
    pub fn to_extended_bytes(&self) -> [u8; Self::EXTENDED_BYTES] {
        let mut bytes = [0; Self::EXTENDED_BYTES];
        let mut fields = Fields(&mut bytes);
        fields.half(EXTENDED_FIELDS);
        fields.half(BLOCK_BYTES);
        fields.word(0);
        for half in [self.links, self.user, self.group] {
            fields.half(half);
        }
        // The mode has 16 bits, and as many are reserved.
        fields.half(self.mode & 0xffff);
        for word in [self.number, self.size, self.blocks, 0] {
            fields.word(word);
        }
        // There is no time of creation.
        for time in [self.accessed, Time::default(), self.changed, self.modified] {
            fields.word(time.seconds as u64);
            fields.word(time.nanoseconds.into());
        }
        for device in [self.device, self.file_system] {
            fields.half((device >> 8) as u32);
            fields.half(device as u32 & 0xff);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: Status = Status {
        file_system: 0x0102,
        number: 7,
        mode: mode::REGULAR | 0o644,
        links: 3,
        user: 1000,
        group: 1001,
        device: 0x0501,
        size: 5000,
        blocks: 16,
        accessed: Time { seconds: 1, nanoseconds: 2 },
        modified: Time { seconds: 3, nanoseconds: 4 },
        changed: Time { seconds: 5, nanoseconds: 6 },
    };

    fn word(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(*bytes[at..].first_chunk().unwrap())
    }

    /// Offsets as `offsetof` gives them for the headers of riscv64.
    #[test]
    fn stat_has_linux_layout() {
        let bytes = STATUS.to_bytes();
        assert_eq!(word(&bytes, 0), 0x0102);
        assert_eq!(word(&bytes, 8), 7);
        assert_eq!(word(&bytes, 16), u64::from(mode::REGULAR | 0o644) | 3 << 32);
        assert_eq!(word(&bytes, 24), 1000 | 1001 << 32);
        assert_eq!(word(&bytes, 32), 0x0501);
        assert_eq!(word(&bytes, 48), 5000);
        assert_eq!(word(&bytes, 56), 4096);
        assert_eq!(word(&bytes, 64), 16);
        for (at, value) in [(72, 1), (80, 2), (88, 3), (96, 4), (104, 5), (112, 6)] {
            assert_eq!(word(&bytes, at), value);
        }
        assert_eq!(Status::from_bytes(&bytes), STATUS);
    }

    #[test]
    fn statx_has_linux_layout() {
        let bytes = STATUS.to_extended_bytes();
        assert_eq!(word(&bytes, 0), 0x7ff | 4096 << 32);
        assert_eq!(word(&bytes, 16), 3 | 1000 << 32);
        assert_eq!(word(&bytes, 24), 1001 | u64::from(mode::REGULAR | 0o644) << 32);
        assert_eq!(word(&bytes, 32), 7);
        assert_eq!(word(&bytes, 40), 5000);
        assert_eq!(word(&bytes, 48), 16);
        for (at, value) in [(64, 1), (72, 2), (80, 0), (96, 5), (104, 6), (112, 3), (120, 4)] {
            assert_eq!(word(&bytes, at), value, "at {at}");
        }
        assert_eq!(word(&bytes, 128), 5 | 1 << 32);
        assert_eq!(word(&bytes, 136), 1 | 2 << 32);
    }
}
