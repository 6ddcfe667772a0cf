//! Measuring: `bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::machine::Machine;
use super::programs::Model;
use super::values::CONNECTIONS_MAX;

#[derive(Debug, Args, Clone)]
#[command(after_help = "Exit status 1: some answers were wrong, or connections were lost.\n\n\
    Some measurements have a machine of their own: its harts for costs, hostile, pipe,\n\
    portions, ring, switch, wakeups and --papers-machine; its memory for memory, pipe and ring.\n\n\
    Examples:\n  \
    ./cops bench closed\n  \
    ./cops bench closed --icount --json closed.json\n  \
    ./cops bench closed --icount --smp 4\n  \
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
    ./cops bench priority --smp 1 --tap --seconds 2\n  \
    ./cops bench executor")]
pub struct Bench {
    #[arg(value_enum, value_name = "NAME")]
    pub name: Measurement,
    /// Shorter and less exact; costs, disk, libc-test, portions and switch have one length only
    #[arg(long)]
    pub quick: bool,
    /// Count instructions instead of time, on one hart; closed takes --smp too, and counts those of
    /// all harts
    #[arg(long)]
    pub icount: bool,
    /// TCP connections: a number, for models, overload and peers several [default: 64, for
    /// idle-memory 400, for overload 256 and 1024, with --icount 64 and 256, for
    /// models and peers from 1 to 1024]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub connections: Vec<u32>,
    /// For closed, models, priority and scale: over a tap device instead of QEMU's user network,
    /// which sends frames of its own when it is slow. For idle-memory: over a tap device, with 1
    /// hart and with those of --smp: are so many connections open at once, idle, and answered
    /// before and after? Needs root
    #[arg(long)]
    pub tap: bool,
    /// For models: these only [default: all]; for closed and peers: those of COPS [default: kcuc]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub model: Vec<Model>,
    /// For peers: these servers of Linux only [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub peer: Vec<Peer>,
    /// For peers: keep what the file of --json has if it was made by the same commit on the same
    /// machine with the same --seconds, and measure what is missing; otherwise all anew
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
    /// For models, overload, priority, peers, ring and pipe: how often everything is measured; the
    /// rows are medians, and of errors the most of a run [default: 3, for priority 1, for the last
    /// three 5; quick: 1]
    #[arg(long, visible_alias = "repeat", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,
    /// For models: the papers' client on one hart on which an instruction takes 2^SHIFT ns; 3 is
    /// about their 100 MHz
    #[arg(long, value_name = "SHIFT", num_args = 0..=1, default_missing_value = "3", conflicts_with = "icount", value_parser = clap::value_parser!(u32).range(0..=10))]
    pub papers_machine: Option<u32>,
    /// For models: threads of the lowest priority keep this host's processors from sleeping, so
    /// that no request waits until one is awake
    #[arg(long)]
    pub host_awake: bool,
    /// For priority: harts of a twentieth of the usual speed, so that an overload is one of them
    /// and not of this host
    #[arg(long)]
    pub slow_harts: bool,
    /// Also write configuration and rows to this file, and a report beside it if there is one
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Boot this scheduler image in place of the built one (decision 57)
    #[arg(long, value_name = "FILE")]
    pub scheduler: Option<PathBuf>,
    #[command(flatten)]
    pub machine: Machine,
    /// Those of [`MACHINE`] that were given.
    #[arg(skip)]
    pub given: Vec<&'static str>,
}

/// The names of the options of the machine that a measurement may have by itself.
pub const MACHINE: [&str; 3] = ["smp", "mem", "idle"];

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
