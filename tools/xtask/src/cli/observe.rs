//! Looking inside: `top`, `trace`, `profile`.

use std::path::PathBuf;

use clap::Args;

use super::machine::Machine;
use super::values::parse_seconds;
use crate::qemu::command::parse_memory;

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

#[derive(Debug, Args)]
#[command(
    after_help = "The program's output comes through, and its exit code is ours; 124 on time-out, 130 after\n\
    Ctrl-C. The file has harts and virtual CPUs as tracks, coroutines and system calls as slices on\n\
    them, wakes as arrows. Each hart keeps its last records; what was overwritten is counted. Open\n\
    the file in https://ui.perfetto.dev or in Chrome's about:tracing.\n\n\
    Examples:\n  \
    ./cops trace /bin/hello a b\n  \
    ./cops trace --icount --out hello.json /bin/hello\n  \
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
    /// End the run after this time (seconds); the trace is that until then
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
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["argv", "out", "add", "connections", "requests", "disk", "mem", "verbose"])]
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
    /// With a program: add the files of this folder to the root image (repeatable; later ones win)
    #[arg(long, value_name = "HOST_DIR")]
    pub add: Vec<PathBuf>,
    /// With a program: the contents of the machine's disk, /dev/vda: a file of this host, which the
    /// machine writes
    #[arg(long, value_name = "FILE")]
    pub disk: Option<PathBuf>,
    /// Memory of the machine
    #[arg(long, default_value = "512M", value_name = "SIZE", value_parser = parse_memory)]
    pub mem: String,
    /// With a program: also show the kernel's log and the firmware's messages (on standard error)
    #[arg(long, short)]
    pub verbose: bool,
    /// Those of [`PROFILE_OPTIONS`] that were given.
    #[arg(skip)]
    pub given: Vec<&'static str>,
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

/// The options of `profile` that are not for every argument: those for `run`, and those for a
/// program.
pub const PROFILE_OPTIONS: [&[&str]; 2] =
    [&["connections", "requests", "json"], &["add", "disk", "verbose"]];
