//! The options of the machine that is booted.

use clap::{Args, ValueEnum};

use crate::qemu::command::{HARTS, parse_memory};

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
