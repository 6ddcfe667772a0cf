//! Whether a machine holds so many connections at once: each is opened and answered, all of them
//! are idle, and then each is answered once more.
//!
//! The clients are load generators over a tap device, since QEMU's user network has a file of the
//! host for each connection, and looks through all of them for each frame. There are several,
//! because a process of the host may not have so many files.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::Rows;
use super::connections::{bytes_each, let_connections_rest};
use super::tap::{self, Urgency};
use crate::cli::{Bench, Machine, Model};
use crate::commands::Prepared;
use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
use crate::open_files::allow_files;
use crate::process::shown;
use crate::qemu::namespace::Namespace;
use crate::qemu::server::Server;
use crate::service::{self, Client, Load, Pace};
use crate::terminal::Progress;
use crate::workspace::{Scratch, Workspace};

/// The most connections of one load generator.
const OF_ONE_CLIENT: u32 = 10_000;
/// Each connection sends its second request at a time of its own within this period.
const PERIOD_SECONDS: u32 = 10;
/// How long a connection may wait for its last answer: with repeated segments.
const DRAIN_SECONDS: u32 = 5;
/// Time limit for opening all of them, and for the load.
const LIMIT: Duration = Duration::from_secs(300);

/// A row for one hart, and one for those of `--smp`.
pub fn measure(workspace: &Workspace, prepared: &Prepared, options: &Bench) -> Outcome<Rows> {
    let client = Client::build(workspace, Progress::Lines)?;
    let count = options.connections.first().copied().unwrap_or(OF_ONE_CLIENT);
    allow_files(count.min(OF_ONE_CLIENT))?;
    let mut rows = Rows::new();
    let harts = if options.machine.smp == 1 { vec![1] } else { vec![1, options.machine.smp] };
    for smp in harts {
        // One for each: the ports of closed connections are free after a minute only.
        let namespace = Namespace::make()?;
        let machine = Machine { smp, ..options.machine.clone() };
        let scratch = workspace.scratch()?;
        let crowd = Crowd { prepared, machine, client: &client, namespace: &namespace, scratch };
        let row = crowd.measure(count)?;
        println!(
            "{count} connections, {} of memory, {smp} hart(s): open after {} s, then idle with {} \
             bytes of the kernel's and {} of the program's each; answered once more: {}, errors: {}",
            options.machine.mem,
            row["seconds_to_open"],
            row["kernel_bytes_per_connection"],
            row["user_bytes_per_connection"],
            row["answered_again"],
            row["errors"],
        );
        if row["answered_again"] != count {
            return Err(Failure::new("not every connection was answered"));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// How many connections each load generator opens.
fn shares(count: u32) -> impl Iterator<Item = u32> {
    let full = std::iter::repeat_n(OF_ONE_CLIENT, (count / OF_ONE_CLIENT) as usize);
    full.chain([count % OF_ONE_CLIENT]).filter(|&share| share > 0)
}

struct Crowd<'a> {
    prepared: &'a Prepared,
    machine: Machine,
    client: &'a Client,
    namespace: &'a Namespace,
    scratch: Scratch,
}

impl Crowd<'_> {
    fn measure(&self, count: u32) -> Outcome<Map<String, Value>> {
        let mut server = self.start()?;
        let before = server.statistics()?;
        let began = Instant::now();
        let mut holders = shares(count)
            .enumerate()
            .map(|(number, share)| {
                let json = self.scratch.file(&format!("load-{number}.json"));
                Holder::open(self.namespace, self.client, share, json)
            })
            .collect::<Outcome<Vec<_>>>()?;
        for holder in &mut holders {
            server.attend(|| holder.has_said_something(began))?;
        }
        let seconds_to_open = began.elapsed().as_secs();
        let_connections_rest(&mut server)?;
        let after = server.statistics()?;
        let held = after.get("connections");
        if held != u64::from(count) {
            return Err(Failure::new(format!("the kernel has {held} connections, not {count}")));
        }
        for holder in &mut holders {
            holder.resume()?;
        }
        // None closes its connections before all are answered: the others would have to wait.
        let began = Instant::now();
        for holder in &mut holders {
            server.attend(|| holder.has_said_something(began))?;
        }
        for holder in &mut holders {
            holder.resume()?;
        }
        let (mut answered, mut errors) = (0, 0);
        for holder in &mut holders {
            server.attend(|| holder.has_ended())?;
            let row = service::read_row(&holder.json)?;
            answered += row.get("received").and_then(Value::as_u64).unwrap_or(0);
            errors += row.get("errors").and_then(Value::as_u64).unwrap_or(0);
        }
        drop(server.shut_down());
        let mut row = Map::new();
        row.insert("model".into(), Model::Kcuc.name().into());
        row.insert("harts".into(), self.machine.smp.into());
        row.insert("connections".into(), count.into());
        row.insert("memory".into(), self.machine.mem.clone().into());
        row.insert("seconds_to_open".into(), seconds_to_open.into());
        row.extend(bytes_each(&before, &after, count.into()));
        row.insert("answered_again".into(), answered.into());
        row.insert("errors".into(), errors.into());
        Ok(row)
    }

    fn start(&self) -> Outcome<Server> {
        let boot = tap::boot(self.prepared, &self.machine, Model::Kcuc)?;
        tap::start(self.prepared, self.namespace, &boot, &self.machine)
    }
}

/// A load generator that holds its connections. Dropping it ends it.
pub(super) struct Holder {
    child: Child,
    lines: Receiver<String>,
    json: PathBuf,
    _guard: interrupt::Guard,
}

impl Holder {
    /// One that opens so many connections, sends a request on each, and waits until it is resumed.
    /// Its result will be in `json`.
    pub(super) fn open(
        namespace: &Namespace,
        client: &Client,
        connections: u32,
        json: PathBuf,
    ) -> Outcome<Self> {
        let load = Load {
            connections,
            matrix: 1,
            pace: Pace::every_ms(PERIOD_SECONDS * 1000),
            seconds: PERIOD_SECONDS,
            warm_up_seconds: 0,
            settle_seconds: 0,
            drain_seconds: DRAIN_SECONDS,
        };
        let urgency = Urgency::Usual;
        let mut command = tap::client(namespace, client, &load, urgency, &json);
        let mut child = command
            .arg("--hold")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .because(|| format!("cannot start {}", shown(&command)))?;
        let guard = interrupt::guard(&child);
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                // The receiver is gone when the measurement has failed.
                lines.for_each(|line| drop(sender.send(line)));
            });
        }
        Ok(Self { child, lines, json, _guard: guard })
    }

    /// Whether it has said that it waits: all its connections are open, or the load is over.
    pub(super) fn has_said_something(&mut self, began: Instant) -> Outcome<Option<()>> {
        if self.lines.try_recv().is_ok() {
            return Ok(Some(()));
        }
        if self.has_ended()?.is_some() {
            return Err(Failure::new("a load generator has ended early"));
        }
        if began.elapsed() > LIMIT {
            return Err(Failure::new(format!(
                "a load generator says nothing for {} s",
                LIMIT.as_secs()
            )));
        }
        Ok(None)
    }

    /// Lets it continue.
    fn resume(&mut self) -> Outcome<()> {
        let input = self.child.stdin.as_mut();
        let written = input.map_or(Ok(()), |input| input.write_all(b"\n"));
        written.because(|| "a load generator has ended".into())
    }

    fn has_ended(&mut self) -> Outcome<Option<()>> {
        let status = self.child.try_wait().because(|| "cannot wait for a load generator".into())?;
        Ok(status.map(drop))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_generators_share_the_connections() {
        let of = |count| shares(count).collect::<Vec<_>>();
        assert_eq!((of(1), of(10_000), of(20_000)), (vec![1], vec![10_000], vec![10_000; 2]));
        assert_eq!(of(25_000), [10_000, 10_000, 5000]);
    }
}
