//! Many connections at once: how many a machine with the papers' memory holds (`memory`), and what
//! a request costs while ten thousand others are open (`scale`).
//!
//! A connection is opened and answered once, then it is idle.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::{Map, Value};

use super::closed::Session;
use super::crowd::Holder;
use super::matrix::Save;
use super::table::Table;
use super::way::Way;
use super::words::listen_to_success;
use super::{Rows, WORST};
use crate::cli::{Bench, Machine, Model};
use crate::commands::Prepared;
use crate::error::{Because, Failure, Outcome};
use crate::open_files::allow_files;
use crate::qemu::console::PassThrough;
use crate::qemu::server::Server;
use crate::qemu::statistics::Statistics;
use crate::service::{self, Client};
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

const FRAME_BYTES: u64 = 4096;
/// Each of the two buffers of a connection in the papers' memory: enough for the papers' messages,
/// which have at most 1.8 KB. By default a buffer has 4 KiB, and connections use half of the
/// memory.
const BUFFER_BYTES: u32 = 2048;
const MEBIBYTE: u64 = 1 << 20;
/// The papers' memory: 26 MiB of frames and 8 MiB of kernel heap, which are one pool here.
const PAPERS_BYTES: u64 = 34 * MEBIBYTE;
/// The machine in which it is found out how much of its memory the system takes for itself.
const FIRST_MEBIBYTES: u64 = 128;
/// The most that are tried.
const MOST: u32 = 8000;
/// How long an answer may take before the server is considered full.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that are open while requests are counted; without and with `--quick`.
const SCALE: [u32; 4] = [10, 100, 1000, 10_000];
const QUICK_SCALE: [u32; 2] = [10, 1000];
/// Connections that send requests meanwhile, and requests of each in the counted runs.
const ACTIVE: u32 = 16;
const REQUESTS: [u32; 2] = [50, 300];
/// How long connections take to become idle.
const REST: Duration = Duration::from_secs(3);
/// Time limit of a boot that only prints.
const LIMIT: Duration = Duration::from_secs(60);

/// Rows of many connections, and their report.
pub fn memory(prepared: &Prepared, options: &Bench, save: Save<'_>) -> Outcome<Rows> {
    allow_files(MOST)?;
    let mebibytes = fitting_memory(prepared, options)?;
    let models = Model::value_variants().iter().copied();
    let models = models.take(if options.quick { 1 } else { usize::MAX });
    let coroutines = coroutine_bytes(prepared, options)?;
    let mut rows = Rows::new();
    for model in models {
        let mut step = Step::begin(Progress::Lines, format!("connections of {}", model.name()));
        let machine = Machine { mem: format!("{mebibytes}M"), ..options.machine.clone() };
        let mut row = fill(prepared, &machine, model, &mut step)?;
        let is_of_coroutines = matches!(model, Model::Kcuc | Model::Ktuc);
        for (component, bytes) in COMPONENTS.iter().zip(coroutines) {
            let bytes = is_of_coroutines.then_some(bytes);
            row.insert(format!("{component}_coroutine_bytes"), bytes.into());
        }
        rows.push(row);
        save(&rows)?;
        step.done();
    }
    let mut table = Table::new(
        1,
        &["model", "connections", "kernel bytes", "user bytes", "frame bytes", "ended by"],
    );
    for row in &rows {
        let shown =
            |name: &str| row[name].as_str().map_or_else(|| row[name].to_string(), str::to_owned);
        table.add(
            [
                "model",
                "max_connections",
                "kernel_bytes_per_connection",
                "user_bytes_per_connection",
                "frame_bytes_per_connection",
                "ended_by",
            ]
            .map(shown),
        );
    }
    let [receive, multiply, send] = coroutines;
    println!(
        "\nbytes of a component's coroutine: receive {receive}, multiply {multiply}, send {send}"
    );
    println!(
        "\nmachine of {mebibytes} MiB, of which the papers' 34 MiB are free\n{}",
        table.plain()
    );
    Ok(rows)
}

/// The components of a connection, each of which has a coroutine in the models of coroutines.
const COMPONENTS: [&str; 3] = ["receive", "multiply", "send"];

/// Bytes of each component's coroutine, by the server that is measured.
fn coroutine_bytes(prepared: &Prepared, options: &Bench) -> Outcome<[u64; 3]> {
    let argv = ["/bin/matrix-server", "--coroutine-bytes"].map(str::to_owned);
    let mut boot = prepared.boot(&options.machine, &argv, &[])?;
    boot.make_repeatable();
    let lines = listen_to_success(&prepared.qemu, &boot, LIMIT)?;
    let line = lines.iter().find(|line| line.tag == "coroutine-bytes");
    let line = line.ok_or_else(|| Failure::new("the server printed no bytes of coroutines"))?;
    let mut bytes = [0; 3];
    for (place, component) in bytes.iter_mut().zip(COMPONENTS) {
        *place = line.number(component)?;
    }
    Ok(bytes)
}

fn start(prepared: &Prepared, machine: &Machine, model: Model) -> Outcome<(Server, u16)> {
    let mut boot = prepared.boot(machine, &service::server_arguments(model, machine.smp), &[])?;
    boot.boot_arguments.push(format!("tcp-buffer={BUFFER_BYTES}"));
    boot.boot_arguments.push(format!("tcp-connections={MOST}"));
    let sink = PassThrough { show_firmware: machine.verbose, show_stdout: false };
    Server::start_on_free_port(&prepared.qemu, &boot, service::PORT, sink)
}

/// The size in mebibytes of the largest machine in which no more than the papers' memory is free
/// once the server listens.
fn fitting_memory(prepared: &Prepared, options: &Bench) -> Outcome<u64> {
    let mut mebibytes = FIRST_MEBIBYTES;
    loop {
        let machine = Machine { mem: format!("{mebibytes}M"), ..options.machine.clone() };
        let (mut server, _) = start(prepared, &machine, Model::Kcuc)?;
        let free = server.statistics()?.get("frames_free") * FRAME_BYTES;
        server.shut_down();
        match free.checked_sub(PAPERS_BYTES) {
            None | Some(0) if mebibytes < FIRST_MEBIBYTES => return Ok(mebibytes),
            // What the system takes for itself depends on the size of the machine.
            Some(surplus) if surplus < mebibytes * MEBIBYTE => {
                mebibytes -= surplus.div_ceil(MEBIBYTE).max(1);
            }
            _ => return Err(Failure::new(format!("{mebibytes} MiB have only {free} bytes free"))),
        }
    }
}

/// Opens connections until the server answers no more.
fn fill(prepared: &Prepared, machine: &Machine, model: Model, step: &mut Step) -> Outcome<Row> {
    let (mut server, port) = start(prepared, machine, model)?;
    // The first one allocates what is kept.
    drop(opened(port).because(|| "the server answers not even one connection".into())?);
    let before = settled(&mut server, 0)?;
    let mut held = Vec::new();
    let mut ended_by = format!("{MOST} are the most that are tried");
    let mut after = before.clone();
    while held.len() < MOST as usize {
        match opened(port) {
            Ok(stream) => held.push(stream),
            Err(error) => {
                ended_by = format!("no answer: {error}");
                break;
            }
        }
        if held.len().is_multiple_of(250) {
            step.detail(&format!("{} connections", held.len()));
            after = server.statistics()?;
        }
    }
    step.detail(&format!("{} connections, until they are idle", held.len()));
    // A full machine may still answer the request for its counters; if not, the last ones count.
    after = idle_statistics(&mut server).unwrap_or(after);
    let counted = after.get("connections").max(1);
    let mut row = Row::new();
    row.insert("model".into(), model.name().into());
    row.insert("max_connections".into(), held.len().into());
    row.insert("memory".into(), machine.mem.clone().into());
    row.insert("buffer_bytes".into(), BUFFER_BYTES.into());
    row.insert("free_bytes_before".into(), (before.get("frames_free") * FRAME_BYTES).into());
    row.insert("free_bytes_after".into(), (after.get("frames_free") * FRAME_BYTES).into());
    row.extend(bytes_each(&before, &after, counted));
    row.insert("ended_by".into(), ended_by.into());
    drop(held);
    server.shut_down();
    Ok(row)
}

type Row = Map<String, Value>;

/// Bytes of each of `count` connections: of the kernel's heap, of the program, and of frames.
pub fn bytes_each(before: &Statistics, after: &Statistics, count: u64) -> Row {
    let frames = -after.growth(before, "frames_free") * FRAME_BYTES.cast_signed();
    let each = |bytes: i64| Value::from(bytes / count.cast_signed().max(1));
    let heap = after.growth(before, "heap_used_bytes");
    let program = frames - after.growth(before, "heap_reserved_bytes");
    let mut row = Row::new();
    row.insert("kernel_bytes_per_connection".into(), each(heap));
    row.insert("user_bytes_per_connection".into(), each(program));
    row.insert("frame_bytes_per_connection".into(), each(frames));
    row
}

/// The counters once the kernel has at most so many connections.
fn settled(server: &mut Server, connections: u64) -> Outcome<Statistics> {
    server.statistics_when(Duration::from_secs(30), |now| now.get("connections") <= connections)
}

/// Waits until connections that are not used are idle: each frees its buffers, and its timers run
/// out, within a second.
pub fn let_connections_rest(server: &mut Server) -> Outcome<()> {
    let end = Instant::now() + REST;
    server.attend(|| Ok((Instant::now() >= end).then_some(())))
}

/// The counters once the connections are idle.
fn idle_statistics(server: &mut Server) -> Outcome<Statistics> {
    let_connections_rest(server)?;
    server.statistics()
}

/// A connection that has been answered once.
fn opened(port: u16) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&request())?;
    let mut answer = [0; 24];
    stream.read_exact(&mut answer)?;
    // The product of the number with itself.
    if answer[16..] == (ELEMENT * ELEMENT).to_le_bytes() {
        Ok(stream)
    } else {
        Err(std::io::Error::other(format!("a wrong answer: {answer:?}")))
    }
}

const ELEMENT: u64 = 12_345;

/// A request with a 1 x 1 matrix (SPEC 5.1).
fn request() -> Vec<u8> {
    let mut bytes = Vec::new();
    // Length of the rest, class and operation, rows, sequence number, zero, the element.
    bytes.extend(20_u32.to_le_bytes());
    bytes.extend([0, 0]);
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(ELEMENT.to_le_bytes());
    bytes
}

/// Measures requests while more and more connections are open.
pub fn scale(
    workspace: &Workspace,
    prepared: &Prepared,
    options: &Bench,
    save: Save<'_>,
) -> Outcome<Rows> {
    let counts = if options.quick { QUICK_SCALE.to_vec() } else { SCALE.to_vec() };
    allow_files(counts.last().copied().unwrap_or_default())?;
    let client = Client::build(workspace, Progress::Lines)?;
    let model = Model::Kcuc;
    let scratch = workspace.scratch()?;
    let mut session = Session::start(prepared, options, model, false, client, ACTIVE, scratch)?;
    // What the first requests allocate is kept.
    session.counted(1)?;
    let before = settled(&mut session.server, 0)?;
    let mut held = Held::default();
    let mut rows = Rows::new();
    let mut step = Step::begin(Progress::Lines, "connections");
    for count in counts {
        held.open(&mut session, count, &mut step)?;
        // What ends with their use is not part of requests on others.
        step.detail(&format!("{count} open, until they are idle"));
        let_connections_rest(&mut session.server)?;
        step.detail(&format!("{count} open, requests"));
        let after = session.server.statistics()?;
        let mut row = Row::new();
        row.insert("model".into(), model.name().into());
        row.insert("connections".into(), count.into());
        let each = bytes_each(&before, &after, count.into());
        row.insert("bytes_per_connection".into(), each["frame_bytes_per_connection"].clone());
        row.extend(each);
        row.extend(measured(&mut session, options)?);
        rows.push(row);
        save(&rows)?;
    }
    step.done();
    drop(held);
    session.server.shut_down();
    print_scale(&rows);
    Ok(rows)
}

/// Connections that are open and not used.
#[derive(Default)]
struct Held {
    count: u32,
    streams: Vec<TcpStream>,
    holders: Vec<Holder>,
}

impl Held {
    /// Opens more of them, until there are `count`.
    fn open(&mut self, session: &mut Session, count: u32, step: &mut Step) -> Outcome<()> {
        let missing = count.saturating_sub(std::mem::replace(&mut self.count, count));
        match &session.way {
            Way::Tap(namespace) => {
                let json = session.scratch.file(&format!("held-{count}.json"));
                let mut holder = Holder::open(namespace, &session.client, missing, json)?;
                let began = Instant::now();
                session.server.attend(|| holder.has_said_something(began))?;
                self.holders.push(holder);
            }
            Way::Port(port) => {
                for number in count - missing + 1..=count {
                    let stream = opened(*port);
                    let stream = stream.because(|| format!("cannot open connection {number}"))?;
                    self.streams.push(stream);
                    if number.is_multiple_of(500) {
                        step.detail(&format!("{number} open"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Requests of a few connections while the others are idle: their instructions, or their times.
fn measured(session: &mut Session, options: &Bench) -> Outcome<Row> {
    if !options.icount {
        let timed = session.time_only(if options.quick { 2 } else { 5 })?;
        let wanted = ["throughput_rps", "latency_us", "sent", "received"];
        let wanted = wanted
            .iter()
            .chain(&WORST)
            .filter_map(|name| Some(((*name).to_owned(), timed.get(*name)?.clone())));
        return Ok(wanted.collect());
    }
    let (few, least) = session.counted(REQUESTS[0])?;
    let before = session.server.statistics()?;
    let (many, most) = session.counted(REQUESTS[1])?;
    // QEMU's user network gets slow with many connections, and sends acknowledgements that others
    // do not send: these columns show it.
    let mut row = service::per_request(&before, &session.server.statistics()?, many);
    let requests = many.saturating_sub(few).max(1);
    row.insert("active_connections".into(), ACTIVE.into());
    row.insert("requests".into(), requests.into());
    let each = most.saturating_sub(least) as f64 / requests as f64;
    row.insert("instructions_per_request".into(), each.into());
    Ok(row)
}

fn print_scale(rows: &Rows) {
    let mut table = Table::new(
        0,
        &["connections", "bytes each", "instructions/request", "answers/s", "p50 us", "p99 us"],
    );
    for row in rows {
        let number = |value: Option<&Value>| {
            value
                .and_then(Value::as_f64)
                .map_or_else(|| "-".to_owned(), |number| format!("{number:.0}"))
        };
        let latency = |name: &str| row.get("latency_us").and_then(|latency| latency.get(name));
        table.add([
            number(row.get("connections")),
            number(row.get("bytes_per_connection")),
            number(row.get("instructions_per_request")),
            number(row.get("throughput_rps")),
            number(latency("p50")),
            number(latency("p99")),
        ]);
    }
    println!("{}", table.plain());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_message_of_the_service() {
        let bytes = request();
        assert_eq!(bytes.len(), 4 + 20);
        assert_eq!((&bytes[..4], &bytes[6..8]), (&[20, 0, 0, 0][..], &[1, 0][..]));
    }

    #[test]
    fn bytes_are_divided_by_the_connections_that_there_are() {
        let of = |text: &str| Statistics::parse(&format!("statistics: {text}")).unwrap();
        let before = of("frames_free=100 heap_used_bytes=0 heap_reserved_bytes=0");
        let after = of("frames_free=60 heap_used_bytes=90000 heap_reserved_bytes=122880");
        let row = bytes_each(&before, &after, 10);
        assert_eq!(row["kernel_bytes_per_connection"], 9000);
        assert_eq!(row["frame_bytes_per_connection"], 16_384);
        assert_eq!(row["user_bytes_per_connection"], 4096);
    }
}
