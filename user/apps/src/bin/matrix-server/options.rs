//! The command line.

use alloc::format;
use alloc::string::String;
use core::str::FromStr;

use cops::Arguments;
use cops::abi::page::MAX_CPUS;

use cops::model::KernelModel;

use crate::queue::Waiting;

/// How the service is built (SPEC 5.2, decision 56).
#[derive(Clone, Copy)]
pub struct Model {
    name: &'static str,
    /// The kernel's half.
    pub kernel: KernelModel,
    /// How its threads wait for queues; `None`: it is made of coroutines.
    pub threads: Option<Waiting>,
}

const MODELS: [Model; 6] = [
    Model { name: "kcuc", kernel: KernelModel::Coroutines, threads: None },
    Model { name: "kcut", kernel: KernelModel::Coroutines, threads: Some(Waiting::Sleeps) },
    Model { name: "kcut-retry", kernel: KernelModel::Coroutines, threads: Some(Waiting::Polls) },
    Model { name: "ktut", kernel: KernelModel::Threads, threads: Some(Waiting::Sleeps) },
    Model {
        name: "ktut-retry",
        kernel: KernelModel::RetryingThreads,
        threads: Some(Waiting::Polls),
    },
    Model { name: "ktuc", kernel: KernelModel::Polling, threads: None },
];

pub struct Options {
    pub port: u16,
    /// Of the coroutine models. Each thread is a virtual CPU of its own.
    pub virtual_cpus: usize,
    pub model: Model,
    /// Prints the bytes of each component's coroutine, and serves nothing.
    pub prints_bytes: bool,
}

impl Options {
    /// Parses `arguments`, of which the first is the program's name. An error is a message for the
    /// user.
    pub fn parse(mut arguments: Arguments) -> Result<Self, String> {
        let mut options =
            Self { port: 9000, virtual_cpus: 1, model: MODELS[0], prints_bytes: false };
        arguments.next();
        while let Some(option) = arguments.next() {
            if option == "--coroutine-bytes" {
                options.prints_bytes = true;
                continue;
            }
            let Some(value) = arguments.next() else {
                return Err(format!("{option} needs a value"));
            };
            match option {
                "--port" => options.port = number(option, value)?,
                "--vcpus" => options.virtual_cpus = number(option, value)?,
                "--model" => {
                    let is_it = |model: &&Model| model.name == value;
                    options.model = *MODELS.iter().find(is_it).ok_or_else(|| {
                        let names = MODELS.map(|model| model.name).join(", ");
                        format!("model {value} is not one of: {names}")
                    })?;
                }
                _ => {
                    return Err(format!(
                        "{option} is not one of: --port, --model, --vcpus, --coroutine-bytes"
                    ));
                }
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
