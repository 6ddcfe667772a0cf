//! Running programs: `run`, `exec`, `shell`, `serve`, `debug`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::machine::Machine;
use super::values::{CONNECTIONS_MAX, parse_address, parse_seconds};
use crate::qemu::command::Network;
use crate::qemu::ports::Forward;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    ./cops run\n  \
    ./cops run --connections 256 --seconds 10\n  \
    ./cops run --closed --matrix 1 --smp 2 --json result.json\n  \
    ./cops run --model ktut --pause-ms 100")]
pub struct Run {
    /// TCP connections, each with its own requests
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
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
    system could not run it to its end, or if it ended with 0 and output could not be written (a full\n\
    disk). Standard error has the program's and the kernel's messages.\n\n\
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
    after_help = "The script that gdb starts with is there until gdb ends: the first line names it.\n\nExamples:\n  \
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
