//! A client of the matrix service inside the machine, over loopback: with counted instructions
//! (`-icount`) an experiment of server, network stack and client repeats to the digit.
//!
//! ```text
//! matrix-client [--model M] [--vcpus N] [--connections N] [--matrix N] [--classes N]
//!               [--warm-up-ms MS] [--milliseconds MS] [--drain-ms MS]
//!               [--period-us US [--jitter-seed N] | --pause-ms MS | --requests N]
//! ```
//!
//! Starts `/bin/matrix-server --model M --vcpus N`, opens all connections, lets each answer one
//! request, and then sends: in an open loop, with pauses after each answer, or in a closed loop
//! with N requests for each connection; without any of these in a closed loop for the given time.
//! Every product is checked. Its coroutines are more urgent than any of the server's: it stands for
//! a client outside of the machine, which sends when it is time.
//!
//! Prints a line of JSON for all connections, and with several classes one for each.
#![no_std]
#![no_main]

extern crate alloc;

mod connection;
mod figures;
mod options;
mod tally;

use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use cops::io::{Error, Result};
use cops::memory::statistics;
use cops::net::{Ipv4Addr, SocketAddr, TcpStream};
use cops::process::{self, Child, ExitCode};
use cops::task::{self, Priority};
use cops::time::{Duration, Instant, sleep, sleep_until, timeout};
use cops::{Arguments, eprintln, println};
use futures_util::future::join_all;
use matrix_message::Operation;
use matrix_message::workload::Workload;

use connection::{Connection, Load};
use options::{Options, Pace};
use tally::Tally;

const PORT: u16 = 9000;
/// How long the server may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);
/// The seed of the matrices: that of the client on the host.
const SEED: u64 = 1;

#[cops::main]
async fn main(arguments: Arguments) -> Result<ExitCode> {
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("matrix-client: {message}");
            return Ok(ExitCode(2));
        }
    };
    if let Some(id) = task::current() {
        task::set_priority(id, Priority::MOST_URGENT);
    }
    let _server = start_server(&options)?;
    let workload = Workload::new(Operation::MultiplyU64, options.side, SEED);
    let load = Arc::new(Load::new(workload, &options));
    let connections = open(&load).await?;

    let (begin, before) = (Instant::now(), statistics()?);
    let tallies = drive(&load, connections).await;
    let (elapsed, after) = (begin.elapsed(), statistics()?);

    let grown = |end: u64, begin: u64| end.wrapping_sub(begin);
    let common = format!(
        "\"instructions\":{},\"traps\":{},\"system_calls\":{},\"calls_deferred\":{},\"cpu_switches\":{}",
        grown(after.instructions, before.instructions),
        grown(after.traps_from_user, before.traps_from_user),
        grown(after.system_calls, before.system_calls),
        grown(after.calls_deferred, before.calls_deferred),
        grown(after.cpu_switches, before.cpu_switches),
    );
    let measured = match load.pace {
        Pace::Counted(_) => elapsed,
        _ => options.measured,
    };
    let all = Tally::sum(tallies.iter());
    println!("{}", figures::line(None, &all, measured, &common));
    if options.classes > 1 {
        for class in 0..options.classes {
            let of_class = tallies.iter().skip(class.into()).step_by(options.classes.into());
            println!("{}", figures::line(Some(class), &Tally::sum(of_class), measured, &common));
        }
    }
    Ok(ExitCode(u8::from(all.errors() > 0)))
}

fn start_server(options: &Options) -> Result<Child> {
    let virtual_cpus = options.virtual_cpus.to_string();
    process::spawn("/bin/matrix-server", &["--model", &options.model, "--vcpus", &virtual_cpus])
}

/// Opens all connections, one after the other, each with one request and its answer.
async fn open(load: &Arc<Load>) -> Result<Vec<Connection>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let limit = Instant::now() + PATIENCE;
    let mut connections = Vec::new();
    for index in 0..load.connections {
        let stream = loop {
            match TcpStream::connect(address).await {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > limit => return Err(error),
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        };
        let mut connection = Connection::new(load.clone(), index, stream);
        connection.send().await?;
        if !connection.receive().await? {
            return Err(Error::Kernel(cops::abi::Errno::EIO));
        }
        connections.push(connection);
    }
    Ok(connections)
}

/// Runs the load. The tallies are in the order of the connections.
async fn drive(load: &Arc<Load>, connections: Vec<Connection>) -> Vec<Tally> {
    let start = Instant::now();
    let shared = tally::shared(connections.len());
    let running = connections.into_iter().map(|connection| {
        let place = tally::Place::new(shared.clone(), connection.index);
        task::spawn_join(connection.run(start, place), Priority::MOST_URGENT)
    });
    let running: Vec<_> = running.collect();
    match load.pace {
        // The host limits a counted run.
        Pace::Counted(_) => drop(join_all(running).await),
        _ => {
            sleep_until(start + load.window.end).await;
            drop(timeout(load.drain, join_all(running)).await);
        }
    }
    tally::take(&shared)
}
