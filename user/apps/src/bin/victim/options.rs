//! The options of the program: `NAME=VALUE` words.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

/// How the victim runs, and beside which programs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of latencies to measure in each run.
    pub samples: usize,
    /// Mean time between them. Each interval is between half and one and a half of it, so that no
    /// time slice is in step with it.
    pub mean_microseconds: u64,
    /// The probe's priority, and the ceiling of its process.
    pub level: u8,
    /// Time before the first measurement.
    pub delay_milliseconds: u64,
    /// A latency longer than this is a failure.
    pub bound_milliseconds: u64,
    /// Virtual CPUs of the hostile program.
    pub hostile_cpus: usize,
    /// Seed of the hostile program.
    pub seed: u64,
    /// Kinds of hostile programs; empty for all.
    pub kinds: Vec<String>,
    /// Ceilings of the hostile program.
    pub ceilings: Vec<u8>,
    /// Duration of the work.
    pub work_milliseconds: u64,
    /// Numbers of hostile programs of a kind that run beside the work.
    pub crowds: Vec<usize>,
}

impl Options {
    /// Parses the words.
    ///
    /// # Errors
    /// The word that is invalid.
    pub fn parse<'a>(words: &[&'a str]) -> Result<Self, &'a str> {
        let mut options = Options {
            samples: 500,
            mean_microseconds: 2000,
            level: 32,
            delay_milliseconds: 5,
            bound_milliseconds: u64::MAX,
            hostile_cpus: 8,
            seed: 1,
            kinds: Vec::new(),
            ceilings: Vec::new(),
            work_milliseconds: 400,
            crowds: Vec::from([1, 3]),
        };
        for word in words {
            options.set(word).ok_or(*word)?;
        }
        Ok(options)
    }

    fn set(&mut self, word: &str) -> Option<()> {
        let (name, value) = word.split_once('=')?;
        match name {
            "samples" => {
                self.samples =
                    value.parse().ok().filter(|&samples| (1..=1_000_000).contains(&samples))?
            }
            "mean-us" => self.mean_microseconds = value.parse().ok()?,
            "delay-ms" => self.delay_milliseconds = value.parse().ok()?,
            "level" => self.level = value.parse().ok().filter(|&level| level < 64)?,
            "bound-ms" => self.bound_milliseconds = value.parse().ok()?,
            "cpus" => self.hostile_cpus = value.parse().ok()?,
            "seed" => self.seed = value.parse().ok()?,
            "kinds" => self.kinds = value.split(',').map(ToString::to_string).collect(),
            "ceilings" => {
                self.ceilings =
                    value.split(',').map(|level| level.parse().ok()).collect::<Option<_>>()?
            }
            "work-ms" => self.work_milliseconds = value.parse().ok()?,
            "crowds" => {
                self.crowds =
                    value.split(',').map(|count| count.parse().ok()).collect::<Option<_>>()?
            }
            _ => return None,
        }
        Some(())
    }

    /// The options for the probe, as words.
    pub fn for_probe(&self, delay: Duration) -> [String; 5] {
        [
            format!("delay-ms={}", delay.as_millis()),
            format!("samples={}", self.samples),
            format!("mean-us={}", self.mean_microseconds),
            format!("level={}", self.level),
            format!("bound-ms={}", self.bound_milliseconds),
        ]
    }
}
