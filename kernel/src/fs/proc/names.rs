//! The names in `/proc`, except numbers.

/// A file of which the text is made when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// `/proc/cpuinfo`
    Harts,
    /// `/proc/filesystems`
    FileSystems,
    /// `/proc/loadavg`
    Load,
    /// `/proc/meminfo`
    Memory,
    /// `/proc/mounts` and `/proc/PID/mounts`
    Mounts,
    /// `/proc/stat`
    Statistics,
    /// `/proc/uptime`
    Uptime,
    /// `/proc/version`
    Version,
    /// `/proc/sys/kernel/hostname`
    HostName,
    /// `/proc/sys/kernel/osrelease`
    Release,
    /// `/proc/sys/kernel/ostype`
    System,
    /// `/proc/sys/kernel/pid_max`
    LastProcess,
    /// `/proc/sys/kernel/version`
    Build,
    /// `/proc/PID/comm`
    Name,
    /// `/proc/PID/stat`
    ProcessStatistics,
    /// `/proc/PID/statm`
    ProcessMemory,
    /// `/proc/PID/status`
    ProcessStatus,
}

/// A file that is read from any offset, without a text of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// `/proc/PID/cmdline`
    Arguments,
    /// `/proc/PID/environ`
    Environment,
    /// `/proc/PID/maps`
    Regions,
}

/// A link of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// `/proc/PID/cwd`
    Working,
    /// `/proc/PID/exe`
    Program,
    /// `/proc/PID/root`
    Root,
}

/// A directory, by the index of its entry; [`ROOT`] and [`PROCESS`] have none.
pub type Directory = usize;

/// `/proc`
pub const ROOT: Directory = usize::MAX;
/// `/proc/PID`
pub const PROCESS: Directory = usize::MAX - 1;

/// What a name names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Directory(Directory),
    /// `/proc/PID/fd`
    Descriptors,
    Text(Subject),
    Bytes(Bytes),
    /// `/proc/self`
    Own,
    Link(Destination),
    /// `/proc/PID/fd/N`
    Descriptor(usize),
}

/// A name in a directory.
pub struct Name {
    pub directory: Directory,
    pub name: &'static str,
    pub what: What,
}

const fn text(directory: Directory, name: &'static str, subject: Subject) -> Name {
    Name { directory, name, what: What::Text(subject) }
}

const fn process(name: &'static str, what: What) -> Name {
    Name { directory: PROCESS, name, what }
}

const SYS: Directory = 0;
const SYS_KERNEL: Directory = 1;

/// All names. The index of a name is part of the number of its node, and its place in listings.
pub const NAMES: [Name; 28] = [
    Name { directory: ROOT, name: "sys", what: What::Directory(SYS) },
    Name { directory: SYS, name: "kernel", what: What::Directory(SYS_KERNEL) },
    Name { directory: ROOT, name: "self", what: What::Own },
    text(ROOT, "cpuinfo", Subject::Harts),
    text(ROOT, "filesystems", Subject::FileSystems),
    text(ROOT, "loadavg", Subject::Load),
    text(ROOT, "meminfo", Subject::Memory),
    text(ROOT, "mounts", Subject::Mounts),
    text(ROOT, "stat", Subject::Statistics),
    text(ROOT, "uptime", Subject::Uptime),
    text(ROOT, "version", Subject::Version),
    text(SYS_KERNEL, "hostname", Subject::HostName),
    text(SYS_KERNEL, "osrelease", Subject::Release),
    text(SYS_KERNEL, "ostype", Subject::System),
    text(SYS_KERNEL, "pid_max", Subject::LastProcess),
    text(SYS_KERNEL, "version", Subject::Build),
    text(PROCESS, "comm", Subject::Name),
    text(PROCESS, "mounts", Subject::Mounts),
    text(PROCESS, "stat", Subject::ProcessStatistics),
    text(PROCESS, "statm", Subject::ProcessMemory),
    text(PROCESS, "status", Subject::ProcessStatus),
    process("cmdline", What::Bytes(Bytes::Arguments)),
    process("environ", What::Bytes(Bytes::Environment)),
    process("maps", What::Bytes(Bytes::Regions)),
    process("cwd", What::Link(Destination::Working)),
    process("exe", What::Link(Destination::Program)),
    process("root", What::Link(Destination::Root)),
    process("fd", What::Descriptors),
];

/// The index of `name` in `directory`, and what it names.
pub fn find(directory: Directory, name: &str) -> Option<(usize, What)> {
    let is_it = |entry: &Name| entry.directory == directory && entry.name == name;
    let index = NAMES.iter().position(is_it)?;
    Some((index, NAMES.get(index)?.what))
}

/// The first name in `directory` with an index of at least `from`.
pub fn name_from(directory: Directory, from: usize) -> Option<(usize, &'static Name)> {
    NAMES.iter().enumerate().skip(from).find(|(_, entry)| entry.directory == directory)
}

/// The index of the name of a node, if it is one of [`NAMES`].
pub fn index_of(what: What, of_process: bool) -> Option<usize> {
    let is_it = |entry: &Name| entry.what == what && (!of_process || entry.directory == PROCESS);
    NAMES.iter().position(is_it)
}

/// The number in a name, written as a process and a descriptor are: without zeros before it.
pub fn number(name: &str) -> Option<usize> {
    let is_number =
        name.bytes().all(|byte| byte.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    if is_number { name.parse().ok() } else { None }
}
