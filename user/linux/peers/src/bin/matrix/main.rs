//! The matrix service on Linux, in the ways that are usual there (./cops bench peers).
//!
//! ```text
//! matrix MODEL [--workers N] [--port N]
//! matrix check MODEL..    serves and checks itself, with each of these models
//! ```
//!
//! | model | |
//! | --- | --- |
//! | threads | three threads per connection, with queues between them, as in the papers |
//! | thread | a thread per connection |
//! | epoll | event loops, one for each worker |
//! | io-uring | rings, one for each worker |
//! | tokio | three tasks of tokio per connection, with queues between them |
//! | tokio-one | a task of tokio per connection |
//!
//! Wire format and multiplication are those of COPS's server: the crate `matrix-message`. Priority
//! classes are ignored.

mod accept;
mod check;
mod epoll;
mod message;
mod tasks;
mod threads;
mod uring;

use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;

use tasks::Tasks;

/// The port of COPS's server.
const PORT: u16 = 9000;
/// Connections that wait to be accepted; the standard library allows 128.
const BACKLOG: i32 = 4096;

fn serve(model: &str, listener: TcpListener, workers: usize) -> Result<()> {
    match model {
        "threads" => threads::three(&listener),
        "thread" => threads::one(&listener),
        "epoll" => epoll::serve(&listener, workers),
        "io-uring" => uring::serve(&listener, workers),
        "tokio" => tasks::serve(listener, workers, Tasks::Three),
        "tokio-one" => tasks::serve(listener, workers, Tasks::One),
        _ => Err(Error::new(ErrorKind::InvalidInput, "no such model")),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match &words[..] {
        ["check", models @ ..] if !models.is_empty() => check_all(models),
        [model, options @ ..] => begin(model, options),
        [] => Err(Error::new(ErrorKind::InvalidInput, "matrix MODEL [--workers N] [--port N]")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("matrix: {error}");
            ExitCode::FAILURE
        }
    }
}

fn begin(model: &str, options: &[&str]) -> Result<()> {
    let option = |name: &str| {
        let mut pairs = options.chunks_exact(2);
        let value = pairs.find(|pair| pair[0] == name).map(|pair| pair[1].parse::<u16>());
        value.transpose().map_err(|error| Error::new(ErrorKind::InvalidInput, error))
    };
    let (workers, port) = (option("--workers")?.unwrap_or(1), option("--port")?.unwrap_or(PORT));
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    rustix::net::listen(&listener, BACKLOG)?;
    println!("matrix: listening on port {port}");
    serve(model, listener, workers.into())
}

fn check_all(models: &[&str]) -> Result<()> {
    for model in models {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let of_thread = (*model).to_owned();
        std::thread::spawn(move || {
            // A server that ends has failed, and its client would wait.
            eprintln!("{of_thread} ended: {:?}", serve(&of_thread, listener, 2));
            std::process::exit(1);
        });
        check::server(address);
        println!("{model}: right answers");
    }
    println!("servers are in order");
    Ok(())
}
