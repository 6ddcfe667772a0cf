//! The command line: commands, options, help with examples.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::qemu::command::{HARTS, Network, parse_memory};
use crate::qemu::ports::Forward;

#[derive(Debug, Parser)]
#[command(
    name = "cops",
    bin_name = "./cops",
    about = "COPS, a coroutine operating system: builds it, boots it in QEMU, measures and tests it",
    disable_help_subcommand = false,
    after_help = "Environment:\n  \
        COPS_QEMU             another qemu-system-riscv64 (7.2 or newer)\n  \
        COPS_GUEST_TOOLCHAIN  rustup or debian: which Rust builds the guest (default: the first that can)\n  \
        CARGO_TARGET_DIR      where everything that is built goes (default: target)\n  \
        NO_COLOR              no colours, on terminals too\n\n\
        `./cops help COMMAND` shows a command's options and examples."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Boot, serve matrices to a real client over TCP, and show throughput and latency
    Run(Run),
    /// Run one program: its output is passed through, its exit code is returned
    Exec(Exec),
    /// Boot into the shell, on this terminal
    Shell(Shell),
    /// Boot a server and keep it running for other clients until interrupted
    Serve(Serve),
    /// Show the activity of the harts and processes of a running server
    Top(Top),
    /// Run one measurement, print a table, write the data
    Bench(Bench),
    /// Run with tracing on, and write a file for Perfetto or Chrome's trace viewer
    Trace(Trace),
    /// Count the instructions of every function on every call path; compare two profiles
    Profile(Profile),
    /// Boot under gdb, with the symbols of kernel, vDSO and program
    Debug(Debug),
    /// The papers' experiments as a page; the data under docs/results: list them, measure them
    /// again, insert them into the documents
    Report(Report),
    /// Run every test, or some
    Test(Test),
    /// Fuzz system calls with nearly valid or arbitrary arguments
    Fuzz(Fuzz),
    /// Build vDSO, kernel and programs, without booting
    Build,
    /// Show the compiler's messages for every package, host and guest; editors run it
    Check(Check),
    /// Remove everything that was built
    Clean,
}

/// The machine to boot.
#[derive(Debug, Args, Clone)]
pub struct Machine {
    /// Harts (CPUs) of the machine, 1 to 8
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(*HARTS.start())..=i64::from(*HARTS.end())))]
    pub smp: u32,
    /// Memory of the machine
    #[arg(long, default_value = "512M", value_name = "SIZE", value_parser = parse_memory)]
    pub mem: String,
    /// What a hart without work does
    #[arg(long, value_enum, default_value_t = Idle::Sleep, value_name = "HOW")]
    pub idle: Idle,
    /// Also show the kernel's log and the firmware's messages (on standard error)
    #[arg(long, short)]
    pub verbose: bool,
}

impl Machine {
    /// One with so many harts and so much memory.
    pub fn new(smp: u32, mem: &str) -> Self {
        Self { smp, mem: mem.to_owned(), idle: Idle::Sleep, verbose: false }
    }
}

/// What a hart without work does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Idle {
    /// It sleeps; the emulator takes its thread's processor
    Sleep,
    /// It waits awake, which shortens latencies if this host has a processor for each hart
    Poll,
}

/// Which of the ways of serving (SPEC 5.2, decision 56).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// Coroutines in the kernel and in the program
    Kcuc,
    /// Coroutines in the kernel, threads in the program
    Kcut,
    /// The same, with threads that poll their queues and yield
    KcutRetry,
    /// Threads that block in the kernel
    Ktut,
    /// Threads that retry their calls, poll their queues and yield, as the papers have them
    KtutRetry,
    /// Coroutines in the program, a kernel thread that polls all sockets
    Ktuc,
}

impl Model {
    pub const ALL: [Self; 6] =
        [Self::Kcuc, Self::Kcut, Self::KcutRetry, Self::Ktut, Self::KtutRetry, Self::Ktuc];

    pub fn name(self) -> &'static str {
        match self {
            Self::Kcuc => "kcuc",
            Self::Kcut => "kcut",
            Self::KcutRetry => "kcut-retry",
            Self::Ktut => "ktut",
            Self::KtutRetry => "ktut-retry",
            Self::Ktuc => "ktuc",
        }
    }
}

/// When the client of `bench models` and `bench peers` sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Loop {
    /// In each period, whether or not there is an answer
    Open,
    /// When the answer has arrived
    Closed,
    /// After a pause that follows the answer, as the papers' client
    Pause,
}

impl Loop {
    /// As in the rows of the load generator.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Pause => "pause",
        }
    }
}

/// How the matrix service is built on Linux (`user/linux/peers`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// Three threads per connection, as in the papers
    Threads,
    /// A thread per connection
    Thread,
    /// Event loops
    Epoll,
    /// Rings
    IoUring,
    /// Three tasks of tokio per connection
    Tokio,
    /// A task of tokio per connection
    TokioOne,
}

impl Peer {
    pub const ALL: [Self; 6] =
        [Self::Threads, Self::Thread, Self::Epoll, Self::IoUring, Self::Tokio, Self::TokioOne];

    pub fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Thread => "thread",
            Self::Epoll => "epoll",
            Self::IoUring => "io-uring",
            Self::Tokio => "tokio",
            Self::TokioOne => "tokio-one",
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    ./cops run\n  \
    ./cops run --connections 256 --seconds 10\n  \
    ./cops run --closed --matrix 1 --smp 2 --json result.json\n  \
    ./cops run --model ktut --pause-ms 100")]
pub struct Run {
    /// TCP connections, each with its own requests
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Rows of the square matrices
    #[arg(long, default_value_t = 15, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    pub matrix: u32,
    /// Interval between two requests of a connection, in milliseconds
    #[arg(long, default_value_t = 100, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub period_ms: u32,
    /// Measured time, after the warm-up
    #[arg(long, default_value_t = 5, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Send the next request when the answer has arrived, instead of every period
    #[arg(long)]
    pub closed: bool,
    /// Send the next request this long after the answer, in milliseconds, as the papers' client
    #[arg(long, value_name = "MS", conflicts_with_all = ["closed", "period_ms"], value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub pause_ms: Option<u32>,
    /// How the service is built
    #[arg(long, value_enum, default_value_t = Model::Kcuc)]
    pub model: Model,
    /// Also write configuration and result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Boot this scheduler image in place of the built one (decision 57)
    #[arg(long, value_name = "FILE")]
    pub scheduler: Option<PathBuf>,
    #[command(flatten)]
    pub machine: Machine,
}

/// The kernel that a program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Personality {
    /// COPS
    Native,
    /// Linux
    Linux,
    /// rCore-Tutorial-v3
    Tutorial,
}

impl Personality {
    /// Its name, for the kernel too.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Linux => "linux",
            Self::Tutorial => "tutorial",
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "The exit code is the program's; 128 + signal if it was killed, 124 on time-out, 125 if the\n\
    system could not run it to its end. Standard error has the program's and the kernel's messages.\n\n\
    Examples:\n  \
    ./cops exec /bin/hello a b\n  \
    ./cops exec --smp 1 --timeout 10 /bin/fault; echo $?\n  \
    ./cops exec --add ./data /bin/copy /file-in-data\n  \
    ./cops exec --add ./programs --personality linux /program\n  \
    echo text | ./cops exec --interactive /bin/copy\n  \
    truncate -s 64M disk && ./cops exec --disk disk /bin/copy /dev/vda > content"
)]
pub struct Exec {
    /// Add the files of this folder to the root image (repeatable; later ones win)
    #[arg(long, value_name = "HOST_DIR")]
    pub add: Vec<PathBuf>,
    /// End the run after this time (seconds)
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub timeout: Option<f64>,
    /// Count instructions instead of time, on one hart without a network card: the run is exactly
    /// repeatable
    #[arg(long, conflicts_with = "smp")]
    pub icount: bool,
    /// With --icount: seed of the machine's random numbers
    #[arg(long, value_name = "N", default_value_t = 1, requires = "icount")]
    pub seed: u32,
    /// Run the program as one for this kernel, whatever its file says
    #[arg(long, value_enum, value_name = "KERNEL")]
    pub personality: Option<Personality>,
    /// Pass standard input on to the program
    #[arg(long, short)]
    pub interactive: bool,
    /// The contents of the machine's disk, /dev/vda: a file of this host, which the machine writes
    #[arg(long, value_name = "FILE")]
    pub disk: Option<PathBuf>,
    /// Boot this scheduler image in place of the built one (decision 57)
    #[arg(long, value_name = "FILE")]
    pub scheduler: Option<PathBuf>,
    #[command(flatten)]
    pub machine: Machine,
    /// The program in the root image, as in /bin/hello, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM [ARGS]"
    )]
    pub argv: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-C goes to the shell; Ctrl-A x ends the session.\n\nExamples:\n  ./cops shell\n  ./cops shell --add ./data --smp 1"
)]
pub struct Shell {
    /// Add the files of this folder to the root image (repeatable; later ones win)
    #[arg(long, value_name = "HOST_DIR")]
    pub add: Vec<PathBuf>,
    /// The contents of the machine's disk, /dev/vda: a file of this host, which the machine writes
    #[arg(long, value_name = "FILE")]
    pub disk: Option<PathBuf>,
    #[command(flatten)]
    pub machine: Machine,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    ./cops serve /bin/matrix-server --port 9000:9000\n  \
    ./cops serve /bin/echo-server --port 7000:7\n  \
    ./cops serve /bin/matrix-server --net tap=tap0 --ip 10.0.3.2/24,10.0.3.1")]
pub struct Serve {
    /// Forward TCP ports of this host's loopback to the guest (repeatable; user network only)
    #[arg(long = "port", value_name = "HOST:GUEST", value_delimiter = ',')]
    pub ports: Vec<Forward>,
    /// The network: QEMU's own NAT, or a tap device of this host
    #[arg(long, default_value = "user", value_name = "user|tap=IFNAME")]
    pub net: Network,
    /// The guest's address and gateway; DHCP by default
    #[arg(long, value_name = "ADDR/PREFIX,GATEWAY", value_parser = parse_address)]
    pub ip: Option<String>,
    #[command(flatten)]
    pub machine: Machine,
    /// The server in the root image
    pub program: String,
    /// Its arguments; after -- if they begin with a dash
    pub arguments: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "It reaches the server by a socket in the target folder, so both must have the same. Ctrl-C ends it.\n\n\
    Examples:\n  \
    ./cops serve /bin/matrix-server --port 9000:9000 &\n  \
    ./cops top\n  \
    ./cops top --once\n  \
    ./cops top --json\n  \
    ./cops top --pid 4711 --interval 0.5"
)]
pub struct Top {
    /// Print one snapshot, measured over the interval, and exit
    #[arg(long)]
    pub once: bool,
    /// Print the kernel's current records, for other programs
    #[arg(long, conflicts_with_all = ["once", "interval"])]
    pub json: bool,
    /// Interval between two snapshots
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_seconds)]
    pub interval: f64,
    /// The server, if there are several: the process id of its ./cops serve
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Measurement {
    /// Matrix service, closed loop, 1 x 1: throughput; with --icount instructions per request
    Closed,
    /// Instructions that parts of the system cost a Linux program, on COPS and on Linux
    Costs,
    /// Requests that the disk serves in a second, by the number of coroutines that make them
    Disk,
    /// How fast files are read and written, by the number of coroutines or threads, on COPS and on
    /// Linux
    Files,
    /// Bytes of memory per connection that is open and idle
    IdleMemory,
    /// The programs of libc-test, a test suite that others wrote, on COPS and on Linux
    LibcTest,
    /// The executor on this host, beside tokio, embassy and others; with --icount no times
    Executor,
    /// Latency of a normal program beside each kind of hostile program
    Hostile,
    /// The longest portion of the kernel's work during which nothing more urgent can run, by kind,
    /// counted
    Portions,
    /// The most connections that each model holds in the papers' memory
    Memory,
    /// The matrix service's answers by the load that is offered, from three quarters of what it can
    /// answer to four times that, over a tap device. Needs root, except with --icount:
    /// instructions for an answer
    Overload,
    /// The matrix service on COPS and on Linux (threads, epoll, io_uring, tokio) in the same
    /// emulator on the same tap device: throughput and latency, closed or open loop. Needs root
    Peers,
    /// Messages through a chain of tasks and pipes: coroutines beside threads, on COPS and on Linux
    Pipe,
    /// Tasks that increment a counter in turn: coroutines beside threads, on COPS and on Linux
    Ring,
    /// Requests while up to 10,000 other connections are open
    Scale,
    /// Instructions of switches between coroutines, threads and processes, of calls and of
    /// user-level interrupts
    Switch,
    /// The models of the papers by the number of connections: throughput and latency; with --icount
    /// inside the machine, and instructions per request
    Models,
    /// Throughput and latency of connections by their class, at twice the load that is possible;
    /// with --icount inside the machine
    Priority,
    /// How soon urgent coroutines run, and the cost of each way into the kernel
    Wakeups,
}

#[derive(Debug, Args, Clone)]
#[command(after_help = "Examples:\n  \
    ./cops bench closed\n  \
    ./cops bench closed --icount --json closed.json\n  \
    ./cops bench costs\n  \
    ./cops bench disk --smp 1\n  \
    ./cops bench files --smp 1\n  \
    ./cops bench idle-memory --connections 100\n  \
    ./cops bench idle-memory --tap --connections 20000 --mem 256M\n  \
    ./cops bench ring --icount\n  \
    ./cops bench switch\n  \
    ./cops bench models --quick\n  \
    ./cops bench models --model kcuc,ktut --matrix 1 --connections 256 --rounds 5\n  \
    ./cops bench models --smp 1 --loop closed --matrix 1 --connections 256,1024 --seconds 2\n  \
    ./cops bench models --papers-machine\n  \
    ./cops bench overload --smp 1 --matrix 1 --connections 1024\n  \
    ./cops bench overload --icount --matrix 15\n  \
    ./cops bench peers --smp 1 --quick\n  \
    ./cops bench peers --smp 1 --peer io-uring,tokio --connections 64,256 --repeat 3\n  \
    ./cops bench peers --smp 1 --loop open,closed --peer epoll,io-uring --seconds 1\n  \
    COPS_QEMU=/opt/qemu/bin/qemu-system-riscv64 ./cops bench peers --smp 1 --json peers.json --resume\n  \
    ./cops bench priority --icount --json priority.json\n  \
    ./cops bench priority --smp 1 --seconds 2\n  \
    ./cops bench executor")]
pub struct Bench {
    #[arg(value_enum, value_name = "NAME")]
    pub name: Measurement,
    /// Shorter and less exact
    #[arg(long)]
    pub quick: bool,
    /// Count instructions instead of time, on one hart
    #[arg(long, conflicts_with = "smp")]
    pub icount: bool,
    /// TCP connections: a number, for models, overload and peers several [default: 64, for
    /// idle-memory 400, for overload 256 and 1024, with --icount 64 and 256, for
    /// models and peers from 1 to 1024]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_000))]
    pub connections: Vec<u32>,
    /// For closed and scale: over a tap device instead of QEMU's user network, which sends frames
    /// of its own when it is slow. For idle-memory: over a tap device, with 1 hart and with those
    /// of --smp: are so many connections open at once, idle, and answered before and after? Needs
    /// root
    #[arg(long)]
    pub tap: bool,
    /// For models: these only [default: all]; for closed and peers: those of COPS [default: kcuc]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub model: Vec<Model>,
    /// For peers: these servers of Linux only [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub peer: Vec<Peer>,
    /// For peers: keep what the file of --json has if it was made by the same build and machine,
    /// and measure what is missing
    #[arg(long, requires = "json")]
    pub resume: bool,
    /// For models and peers: these kinds of load only [default: all, for peers closed]
    #[arg(long = "loop", value_enum, value_name = "KIND", value_delimiter = ',')]
    pub loops: Vec<Loop>,
    /// For models, overload, priority and peers: the measured time of each load [default: 3, for
    /// overload 1, for priority and the papers' client 5; quick: 1]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: Option<u32>,
    /// For models, overload and peers: matrices with this many rows only [default: several, for
    /// peers 1, in an open loop 15]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=128))]
    pub matrix: Vec<u32>,
    /// For models, overload, peers, ring and pipe: how often everything is measured; the rows are
    /// medians [default: 3, for the last three 5; quick: 1]
    #[arg(long, visible_alias = "repeat", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,
    /// For models: the papers' client on one hart on which an instruction takes 2^SHIFT ns; 3 is
    /// about their 100 MHz
    #[arg(long, value_name = "SHIFT", num_args = 0..=1, default_missing_value = "3", conflicts_with = "icount", value_parser = clap::value_parser!(u32).range(0..=10))]
    pub papers_machine: Option<u32>,
    /// Also write configuration and rows to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Boot this scheduler image in place of the built one (decision 57)
    #[arg(long, value_name = "FILE")]
    pub scheduler: Option<PathBuf>,
    #[command(flatten)]
    pub machine: Machine,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The program's output comes through, and its exit code is ours. The file has harts and virtual CPUs as tracks,\n\
    coroutines and system calls as slices on them, wakes as arrows. Each hart keeps its last records; what\n\
    was overwritten is counted. Open the file in https://ui.perfetto.dev or in Chrome's about:tracing.\n\n\
    Examples:\n  \
    ./cops trace /bin/hello a b\n  \
    ./cops trace --smp 1 --icount --out hello.json /bin/hello\n  \
    ./cops trace --run\n  \
    ./cops trace --run --records 100000 --out server.json"
)]
pub struct Trace {
    /// Trace the matrix server under a short load (16 connections, a request every 20 ms each)
    #[arg(long, conflicts_with_all = ["argv", "timeout", "icount"])]
    pub run: bool,
    /// The file to write [default: results/trace.json in the target folder]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Number of records of 32 bytes that each hart keeps
    #[arg(long, default_value_t = 32_768, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    pub records: u32,
    /// Add the files of this folder to the root image (repeatable; later ones win)
    #[arg(long, value_name = "HOST_DIR")]
    pub add: Vec<PathBuf>,
    /// End the run after this time (seconds)
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub timeout: Option<f64>,
    /// Count instructions instead of time, on one hart
    #[arg(long, conflicts_with = "smp")]
    pub icount: bool,
    #[command(flatten)]
    pub machine: Machine,
    /// The program in the root image and its arguments
    #[arg(
        required_unless_present = "run",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM [ARGS]"
    )]
    pub argv: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Every instruction is counted, by a plugin in QEMU 7.2 to 8.2, on one hart with counted instructions\n\
    (docs/decisions/0023-profiles.md). The folder gets three files: profile.txt, the tables by side, crate and\n\
    function; profile.svg, the flame graph; profile.folded, the instructions by call path, for --compare.\n\n\
    Examples:\n  \
    ./cops profile run\n  \
    ./cops profile --rows 50 /bin/measure costs\n  \
    ./cops profile --out before run; git switch faster; ./cops profile --out after run\n  \
    ./cops profile --compare before after"
)]
pub struct Profile {
    /// Compare two profiles: folders that this command has written, or their profile.folded
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["argv", "out", "add", "connections", "requests", "disk"])]
    pub compare: Option<Vec<PathBuf>>,
    /// The folder to write [default: results/profile in the target folder]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Maximum number of rows of a table
    #[arg(long, default_value_t = 30, value_name = "N")]
    pub rows: usize,
    /// With run: TCP connections
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub connections: u32,
    /// With run: requests of each connection that are counted
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub requests: u32,
    /// With run: write the instructions of each stage of a request, and its budget, to this file
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    pub json: Option<PathBuf>,
    /// Add the files of this folder to the root image (repeatable; later ones win)
    #[arg(long, value_name = "HOST_DIR")]
    pub add: Vec<PathBuf>,
    /// The contents of the machine's disk, /dev/vda: a file of this host, which the machine writes
    #[arg(long, value_name = "FILE")]
    pub disk: Option<PathBuf>,
    /// Memory of the machine
    #[arg(long, default_value = "512M", value_name = "SIZE", value_parser = parse_memory)]
    pub mem: String,
    /// Also show the kernel's log and the firmware's messages (on standard error)
    #[arg(long, short)]
    pub verbose: bool,
    /// The program in the root image and its arguments; or `run`: the matrix server, per request of
    /// a closed loop with 1 x 1 matrices
    #[arg(
        required_unless_present = "compare",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM [ARGS] | run"
    )]
    pub argv: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The script that gdb starts with is kept in target/guest-image/debug.gdb.\n\nExamples:\n  \
    ./cops debug\n  \
    ./cops debug /bin/matrix-server\n  \
    ./cops debug --command 'hbreak cops_kernel::boot::start' --command continue --command bt --command kill /bin/hello"
)]
pub struct Debug {
    /// Pass this command to gdb after it has connected (repeatable); gdb then exits
    #[arg(long = "command", value_name = "COMMAND")]
    pub commands: Vec<String>,
    #[command(flatten)]
    pub machine: Machine,
    /// The program to run, and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM [ARGS]",
        default_value = "/bin/hello"
    )]
    pub argv: Vec<String>,
}

/// Cargo's.
const MESSAGE_FORMATS: [&str; 6] = [
    "human",
    "short",
    "json",
    "json-diagnostic-short",
    "json-diagnostic-rendered-ansi",
    "json-render-diagnostics",
];

#[derive(Debug, Args)]
pub struct Check {
    /// As cargo's option of that name, for an editor
    #[arg(long, value_name = "FORMAT", value_parser = MESSAGE_FORMATS)]
    pub message_format: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    ./cops test\n  \
    ./cops test --only clippy\n  \
    ./cops test --only guest cancel\n  \
    ./cops test --only boots --boots 100\n  \
    ./cops test --quick")]
pub struct Test {
    /// Run only these stages (repeatable); --list names them
    #[arg(long, value_name = "STAGE")]
    pub only: Vec<String>,
    /// Run only tests with this text in their names (stages that cannot select tests run
    /// completely, or not at all)
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,
    /// The same
    #[arg(long, value_name = "TEXT", conflicts_with = "text")]
    pub filter: Option<String>,
    /// Omit the long stages
    #[arg(long)]
    pub quick: bool,
    /// Number of stages to run side by side (default: one for each CPU of the host, at most 4)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub lanes: Option<u8>,
    /// Number of boots of the stage `boots`
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub boots: u32,
    /// Seconds of the stage `stress`, on 2, 3 and 4 workers together; COPS_STRESS_SEED=N begins
    /// with a seed that was printed
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub stress_seconds: u32,
    /// List the stages and what they test, and exit
    #[arg(long)]
    pub list: bool,
    /// Apply the changes of tools/xtask/src/test/mutations/list.txt, one after the other, to a copy
    /// of the last commit, and report which of them no test detects (TEXT: only those with it in
    /// their name; takes minutes each)
    #[arg(long, conflicts_with_all = ["only", "quick"])]
    pub mutations: bool,
    /// Write the current counts of unsafe blocks to docs/unsafe-count.txt, to be reviewed and
    /// committed
    #[arg(long)]
    pub record_unsafe: bool,
}

impl Test {
    /// The text that the names of tests must contain.
    pub fn filter(&self) -> Option<&str> {
        self.text.as_deref().or(self.filter.as_deref())
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "One hart counts instructions, and a run with the same seed is the same; several harts run as threads.\n\n\
    Examples:\n  \
    ./cops fuzz\n  \
    ./cops fuzz --smp 1 --seed 7 --calls 1000000\n  \
    ./cops fuzz --linux --calls 200000\n  \
    ./cops fuzz --calls 10000000 --json docs/results/fuzz.json"
)]
pub struct Fuzz {
    /// Let Linux programs make Linux's calls, instead of native programs theirs
    #[arg(long)]
    pub linux: bool,
    /// Number of system calls to make
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub calls: u64,
    /// Seed of all choices; each further boot uses the next number
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// The round to begin with, to repeat one that failed
    #[arg(long, value_name = "ROUND", default_value_t = 0)]
    pub first: u64,
    /// Harts (CPUs) of the machine, 1 to 8
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(*HARTS.start())..=i64::from(*HARTS.end())))]
    pub smp: u32,
    /// Number of calls per boot
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub calls_per_boot: u64,
    /// Add the result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Every figure in the documents of the root, crates/*/README.md and docs/book is generated from docs/results. To measure everything\n\
    anew and put it into the documents, on a machine that does nothing else: ./cops report measure\n\n\
    Examples:\n  \
    ./cops report list\n  \
    ./cops report figures\n  \
    ./cops report measure --stale\n  \
    ./cops report measure closed-icount idle-memory"
)]
pub struct Report {
    /// html if none is given
    #[command(subcommand)]
    pub action: Option<ReportAction>,
}

#[derive(Debug, Subcommand)]
pub enum ReportAction {
    /// Write one page with the experiments of the papers, ours beside theirs, and its data as CSV
    Html {
        /// The folder to write [default: report in the target folder]
        #[arg(long, value_name = "FOLDER")]
        output: Option<PathBuf>,
    },
    /// List the data files, the command and commit that made each, and whether the code has changed
    /// since
    List,
    /// Insert the figures of the data into the documents
    Figures {
        /// Write nothing; report what is stale, and which numbers have no data
        #[arg(long)]
        check: bool,
    },
    /// Make data files again, then insert the figures (takes long)
    Measure {
        /// The files to make, as `list` names them [default: all]
        names: Vec<String>,
        /// Only files with code that has changed since
        #[arg(long)]
        stale: bool,
    },
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e6 => Ok(seconds),
        _ => Err(format!("{text:?} is no time; give seconds greater than 0, as in 10 or 0.5")),
    }
}

/// `ADDR/PREFIX` or `ADDR/PREFIX,GATEWAY`, in the form of the kernel's boot argument `ip=`.
fn parse_address(text: &str) -> Result<String, String> {
    let (address, gateway) = match text.split_once(',') {
        Some((address, gateway)) => (address, Some(gateway)),
        None => (text, None),
    };
    let is_network = address.split_once('/').is_some_and(|(address, prefix)| {
        address.parse::<std::net::Ipv4Addr>().is_ok()
            && prefix.parse::<u8>().is_ok_and(|prefix| prefix <= 32)
    });
    if is_network && gateway.is_none_or(|gateway| gateway.parse::<std::net::Ipv4Addr>().is_ok()) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is no address; give ADDR/PREFIX,GATEWAY, as in 10.0.3.2/24,10.0.3.1"))
    }
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
