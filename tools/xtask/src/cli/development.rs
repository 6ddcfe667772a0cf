//! Working on COPS: `check`, `test`, `fuzz`, `report`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::qemu::command::HARTS;

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
    Files with times of Linux (files, ring-wall, pipe-wall, peers*) need COPS_QEMU to name QEMU 10 or newer, because an\n\
    older one slows Linux down. Those over a tap device (idle-connections, scale, peers*, overload) need root.\n\n\
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
    /// Insert the figures of the data into the documents, and draw the plots beside the data
    Figures {
        /// Write nothing; report what is stale, and which numbers have no data
        #[arg(long)]
        check: bool,
    },
    /// Make data files again, then insert the figures and draw the plots (takes long). Times of
    /// Linux need QEMU 10 or newer (COPS_QEMU); a tap device needs root
    Measure {
        /// The files to make, as `list` names them [default: all]
        names: Vec<String>,
        /// Only files with code that has changed since
        #[arg(long)]
        stale: bool,
    },
}
