//! The command line.

use alloc::format;
use alloc::string::{String, ToString};
use core::str::FromStr;

use cops::Arguments;
use cops::time::Duration;
use matrix_message::Side;

/// When a connection sends.
#[derive(Clone, Copy)]
pub enum Pace {
    /// Once in each period, whatever is answered.
    Open(Duration),
    /// When the answer is there.
    Closed,
    /// This long after the answer.
    Pause(Duration),
    /// When the answer is there, this many times.
    Counted(u64),
}

pub struct Options {
    pub model: String,
    pub virtual_cpus: usize,
    pub connections: u32,
    pub side: Side,
    pub classes: u8,
    pub pace: Pace,
    /// Before the measured time.
    pub warm_up: Duration,
    /// The measured time.
    pub measured: Duration,
    /// How long answers may take after it.
    pub drain: Duration,
    /// In an open loop: requests are due at pseudo-random times in their slots, of this seed.
    pub jitter_seed: Option<u64>,
}

impl Options {
    /// Parses `arguments`, of which the first is the program's name. An error is a message for the
    /// user.
    pub fn parse(mut arguments: Arguments) -> Result<Self, String> {
        let mut options = Self {
            model: "kcuc".to_string(),
            virtual_cpus: 1,
            connections: 64,
            side: Side::new(15).ok_or("no such side")?,
            classes: 1,
            pace: Pace::Closed,
            warm_up: Duration::ZERO,
            measured: Duration::from_secs(1),
            drain: Duration::from_secs(2),
            jitter_seed: None,
        };
        arguments.next();
        while let Some(option) = arguments.next() {
            let Some(value) = arguments.next() else {
                return Err(format!("{option} needs a value"));
            };
            let milliseconds = || number(option, value).map(Duration::from_millis);
            match option {
                "--model" => options.model = value.to_string(),
                "--vcpus" => options.virtual_cpus = number(option, value)?,
                "--connections" => options.connections = number(option, value)?,
                "--matrix" => {
                    let side = Side::new(number(option, value)?);
                    options.side = side.ok_or_else(|| format!("--matrix {value}: not 1 to 128"))?;
                }
                "--classes" => options.classes = number::<u8>(option, value)?.max(1),
                "--warm-up-ms" => options.warm_up = milliseconds()?,
                "--milliseconds" => options.measured = milliseconds()?,
                "--drain-ms" => options.drain = milliseconds()?,
                "--period-us" => {
                    options.pace = Pace::Open(Duration::from_micros(number(option, value)?));
                }
                "--jitter-seed" => options.jitter_seed = Some(number(option, value)?),
                "--pause-ms" => options.pace = Pace::Pause(milliseconds()?),
                "--requests" => options.pace = Pace::Counted(number(option, value)?),
                _ => return Err(format!("{option} is no option; see the program's source")),
            }
        }
        if options.connections == 0 {
            return Err("--connections must be at least 1".to_string());
        }
        if matches!(options.pace, Pace::Open(period) if period.is_zero()) {
            return Err("--period-us must be at least 1".to_string());
        }
        if options.jitter_seed.is_some() && !matches!(options.pace, Pace::Open(_)) {
            return Err("--jitter-seed needs --period-us".to_string());
        }
        Ok(options)
    }
}

fn number<T: FromStr>(option: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{option} {value}: not a number of the right size"))
}
