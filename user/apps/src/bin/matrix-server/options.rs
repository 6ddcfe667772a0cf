//! The command line.

use alloc::format;
use alloc::string::String;
use core::str::FromStr;

use cops::Arguments;
use cops::abi::page::MAX_CPUS;

pub struct Options {
    pub port: u16,
    pub virtual_cpus: usize,
}

impl Options {
    /// Parses `arguments`, of which the first is the program's name. An error is a message for the
    /// user.
    pub fn parse(mut arguments: Arguments) -> Result<Self, String> {
        let mut options = Self { port: 9000, virtual_cpus: 1 };
        arguments.next();
        while let Some(option) = arguments.next() {
            let Some(value) = arguments.next() else {
                return Err(format!("{option} needs a value"));
            };
            match option {
                "--port" => options.port = number(option, value)?,
                "--vcpus" => options.virtual_cpus = number(option, value)?,
                "--model" if value == "kcuc" => {}
                "--model" => return Err(format!("model {value} is not one of: kcuc")),
                _ => return Err(format!("{option} is not one of: --port, --model, --vcpus")),
            }
        }
        if !(1..=MAX_CPUS).contains(&options.virtual_cpus) {
            return Err(format!("--vcpus must be 1 to {MAX_CPUS}"));
        }
        Ok(options)
    }
}

fn number<T: FromStr>(option: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{option} {value}: not a number of the right size"))
}
