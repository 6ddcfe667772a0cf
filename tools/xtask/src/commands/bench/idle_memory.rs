//! Memory per open and idle connection: the difference of the kernel's counters with none and with
//! many, divided by their number.

use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::{Map, Value};

use super::Rows;
use super::connections::let_connections_rest;
use crate::cli::{Bench, Model};
use crate::commands::Prepared;
use crate::error::{Because, Failure, Outcome};
use crate::open_files::allow_files;
use crate::qemu::console::PassThrough;
use crate::qemu::server::Server;
use crate::qemu::statistics::Statistics;
use crate::service;

/// Below the default limit of open files of a process (1024).
const CONNECTIONS: u32 = 400;
/// QEMU's user network accepts with a backlog of one.
const PAUSE: Duration = Duration::from_millis(5);
/// Time limit for the guest to accept, or remove, all of them.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);
const FRAME_BYTES: i64 = 4096;

pub fn measure(prepared: &Prepared, options: &Bench) -> Outcome<Rows> {
    let usual = if options.quick { CONNECTIONS / 4 } else { CONNECTIONS };
    let count = options.connections.first().copied().unwrap_or(usual);
    // QEMU needs as many files as this program.
    allow_files(count)?;
    let boot = prepared.boot(
        &options.machine,
        &service::server_arguments(Model::Kcuc, options.machine.smp),
        &[],
    )?;
    let sink = PassThrough { show_firmware: options.machine.verbose, show_stdout: true };
    let (mut server, port) =
        Server::start_on_free_port(&prepared.qemu, &boot, service::PORT, sink)?;

    // Once before the measurement, because the first connection allocates slabs and buffers that
    // are kept.
    let first = open(port, 1)?;
    statistics_with(&mut server, 1)?;
    drop(first);
    let before = statistics_with(&mut server, 0)?;
    let held = open(port, count)?;
    statistics_with(&mut server, count)?;
    let_connections_rest(&mut server)?;
    let after = statistics_with(&mut server, count)?;
    drop(held);
    let again = statistics_with(&mut server, 0)?;
    server.shut_down();

    let row = row(count, &before, &after);
    let shown = |name: &str| row[name].to_string();
    println!(
        "connections  kernel bytes/connection  user bytes/connection  in frames, bytes/connection"
    );
    println!(
        "{count:>11}  {:>23}  {:>21}  {:>27}",
        shown("kernel_bytes_per_connection"),
        shown("user_bytes_per_connection"),
        shown("frame_bytes_per_connection")
    );
    println!(
        "all closed again: {} connections, {:+} bytes of kernel heap in use, {:+} frames free",
        again.get("connections"),
        again.growth(&before, "heap_used_bytes"),
        again.growth(&before, "frames_free"),
    );
    Ok(vec![row])
}

/// The difference per connection: allocated kernel heap; frames that were allocated but not to the
/// kernel's heap, which are the process's; and all allocated frames.
fn row(count: u32, before: &Statistics, after: &Statistics) -> Map<String, Value> {
    let frames = -after.growth(before, "frames_free") * FRAME_BYTES;
    let per_connection = |bytes: i64| Value::from(bytes / i64::from(count));
    let mut row = Map::new();
    row.insert("model".into(), Model::Kcuc.name().into());
    row.insert("connections".into(), count.into());
    row.insert(
        "kernel_bytes_per_connection".into(),
        per_connection(after.growth(before, "heap_used_bytes")),
    );
    row.insert(
        "user_bytes_per_connection".into(),
        per_connection(frames - after.growth(before, "heap_reserved_bytes")),
    );
    row.insert("frame_bytes_per_connection".into(), per_connection(frames));
    row
}

fn open(port: u16, count: u32) -> Outcome<Vec<TcpStream>> {
    let mut streams = Vec::new();
    for number in 1..=count {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .because(|| format!("cannot open connection {number} of {count}"))?;
        streams.push(stream);
        std::thread::sleep(PAUSE);
    }
    Ok(streams)
}

/// The counters once the kernel has this many connections.
fn statistics_with(server: &mut Server, connections: u32) -> Outcome<Statistics> {
    let expected = u64::from(connections);
    let statistics =
        server.statistics_when(SETTLE_LIMIT, |now| now.get("connections") == expected)?;
    match statistics.get("connections") {
        found if found == expected => Ok(statistics),
        found => Err(Failure::new(format!(
            "the kernel holds {found} connections, not {expected}, after {} s",
            SETTLE_LIMIT.as_secs()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_divided_by_connections() {
        let before = Statistics::parse(
            "statistics: frames_free=100 heap_used_bytes=1000 heap_reserved_bytes=8192",
        )
        .unwrap();
        let after = Statistics::parse(
            "statistics: frames_free=90 heap_used_bytes=21000 heap_reserved_bytes=28672",
        )
        .unwrap();
        let row = row(10, &before, &after);
        assert_eq!(row["kernel_bytes_per_connection"], 2000);
        assert_eq!(row["frame_bytes_per_connection"], 4096);
        assert_eq!(row["user_bytes_per_connection"], 4096 - 2048);
    }
}
