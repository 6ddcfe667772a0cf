//! The matrix service (SPEC 5.1): answers each matrix with its square.
//!
//! ```text
//! matrix-server [--port N] [--model kcuc] [--vcpus N]
//! ```
//!
//! One coroutine accepts; each connection has three ([`connection`]). [`class`] defines their
//! priorities, and [`message`] limits the memory of messages.
#![no_std]
#![no_main]

extern crate alloc;

mod class;
mod connection;
mod message;
mod options;

use cops::io::{Error, Result};
use cops::net::{Ipv4Addr, TcpListener};
use cops::process::ExitCode;
use cops::time::{Duration, sleep};
use cops::{Arguments, abi::Errno, eprintln, println, task};
use options::Options;

#[cops::main]
async fn main(arguments: Arguments) -> Result<ExitCode> {
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("matrix-server: {message}");
            return Ok(ExitCode(2));
        }
    };
    if options.virtual_cpus > 1 {
        task::alloc_cpu(options.virtual_cpus - 1)?;
    }
    message::limit_memory()?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, options.port))?;
    println!("matrix-server: listening on port {}", options.port);
    accept(&listener).await
}

/// Accepts connections forever. More urgent than any connection, so that an urgent client can
/// connect while others keep the server busy.
async fn accept(listener: &TcpListener) -> Result<ExitCode> {
    if let Some(id) = task::current() {
        task::set_priority(id, class::UNKNOWN);
    }
    loop {
        match listener.accept().await {
            // If there is no memory for its coroutine, the stream is dropped too, which closes the
            // connection.
            Ok(stream) => drop(task::try_spawn(connection::receive(stream), class::UNKNOWN)),
            Err(Error::Kernel(Errno::ECONNABORTED)) => {}
            // There is room again when connections end; meanwhile clients wait in the backlog.
            Err(Error::Kernel(Errno::EMFILE | Errno::ENOMEM | Errno::ENOBUFS)) => {
                sleep(Duration::from_millis(10)).await;
            }
            Err(error) => return Err(error),
        }
    }
}
