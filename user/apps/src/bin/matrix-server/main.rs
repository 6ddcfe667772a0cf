//! The matrix service (SPEC 5.1): answers each matrix with its square.
//!
//! ```text
//! matrix-server [--port N] [--model kcuc|kcut|kcut-retry|ktut|ktut-retry|ktuc] [--vcpus N]
//! matrix-server --coroutine-bytes
//! ```
//!
//! `main` accepts; each connection has three [`coroutines`] or, in other models, three [`threads`]
//! with a [`queue`] between two of them (decision 56). [`class`] defines their priorities, and
//! [`message`] limits the memory of messages.
#![no_std]
#![no_main]

extern crate alloc;

mod class;
mod coroutines;
mod message;
mod options;
mod queue;
mod threads;

use cops::io::{Error, Result};
use cops::model::set_kernel_model;
use cops::net::{Ipv4Addr, TcpListener, TcpStream};
use cops::process::ExitCode;
use cops::time::{Duration, sleep};
use cops::{Arguments, abi::Errno, eprintln, println, task};
use options::{Model, Options};

#[cops::main]
async fn main(arguments: Arguments) -> Result<ExitCode> {
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("matrix-server: {message}");
            return Ok(ExitCode(2));
        }
    };
    if options.prints_bytes {
        let [receive, multiply, send] = coroutines::bytes();
        println!("coroutine-bytes: receive={receive} multiply={multiply} send={send}");
        return Ok(ExitCode::SUCCESS);
    }
    let Options { model, .. } = options;
    set_kernel_model(model.kernel)?;
    if options.virtual_cpus > 1 && model.threads.is_none() {
        task::alloc_cpu(options.virtual_cpus - 1)?;
    }
    message::limit_memory()?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, options.port))?;
    println!("matrix-server: listening on port {}", options.port);
    // More urgent than any connection, so that an urgent client can connect while others keep the
    // server busy.
    if let Some(id) = task::current() {
        task::set_priority(id, class::UNKNOWN);
    }
    loop {
        let accepted = match model.threads {
            None => listener.accept().await,
            // Blocks this virtual CPU, on which nothing else runs.
            Some(_) => cops::accept!(listener).map(TcpStream::from_fd).map_err(Error::Kernel),
        };
        match accepted {
            Ok(stream) => start(stream, model),
            Err(Error::Kernel(Errno::ECONNABORTED)) => {}
            // There is room again when connections end; meanwhile clients wait in the backlog.
            Err(Error::Kernel(Errno::EMFILE | Errno::ENOMEM | Errno::ENOBUFS)) => {
                sleep(Duration::from_millis(10)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Starts the first coroutine or thread of a connection. If there is no memory for it, the stream
/// is dropped too, which closes the connection.
fn start(stream: TcpStream, model: Model) {
    match model.threads {
        None => drop(task::try_spawn(coroutines::receive(stream), class::UNKNOWN)),
        Some(waiting) => drop(threads::start(stream, waiting)),
    }
}
