//! The matrix service in a closed loop with 1 x 1 matrices, where nearly all the cost of a request
//! is the system's own: throughput by the wall clock, or instructions per request. With several
//! harts these are the instructions of all of them, which the emulator runs in turn.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Map;

use super::Rows;
use super::matrix::Save;
use super::way::Way;
use crate::cli::{Bench, Model};
use crate::commands::Prepared;
use crate::error::{Failure, Outcome};
use crate::qemu::command::Idle;
use crate::qemu::server::Server;
use crate::service::{self, Client, Load, Pace, per_request, print_per_request};
use crate::terminal::Progress;
use crate::workspace::{Scratch, Workspace};

const CONNECTIONS: u32 = 64;
/// Requests per connection of the two counted runs. Their difference does not include opening and
/// closing connections.
const FEW: u32 = 50;
const MANY: u32 = 500;
/// Time limit of a counted run.
const LIMIT_SECONDS: u32 = 120;

pub fn measure(
    workspace: &Workspace,
    prepared: &Prepared,
    options: &Bench,
    save: Save<'_>,
) -> Outcome<Rows> {
    let client = Client::build(workspace, Progress::Lines)?;
    let connections = options.connections.first().copied().unwrap_or(CONNECTIONS);
    let models = if options.model.is_empty() { &[Model::Kcuc][..] } else { &options.model };
    let mut rows = Rows::new();
    for &model in models {
        let scratch = workspace.scratch()?;
        let mut session =
            Session::start(prepared, options, model, true, client.clone(), connections, scratch)?;
        let mut row = if options.icount {
            session.count(options.machine.smp, if options.quick { MANY / 5 } else { MANY })?
        } else {
            session.time(if options.quick { 2 } else { 5 })?
        };
        session.server.shut_down();
        row.insert("model".into(), model.name().into());
        rows.push(row);
        save(&rows)?;
    }
    Ok(rows)
}

/// For the tests: the instructions of a request, counted as `options` say.
///
/// # Errors
/// If the client saw wrong answers, or the counter did not count.
pub fn instructions(workspace: &Workspace, prepared: &Prepared, options: &Bench) -> Outcome<f64> {
    let client = Client::build(workspace, Progress::Lines)?;
    let scratch = workspace.scratch()?;
    let mut session =
        Session::start(prepared, options, Model::Kcuc, false, client, CONNECTIONS, scratch)?;
    let counted = session.difference(MANY)?;
    session.server.shut_down();
    Ok(counted.instructions_per_request())
}

/// A server, and a client that loads it.
pub(super) struct Session {
    pub server: Server,
    pub client: Client,
    pub way: Way,
    /// Those that the client opens.
    pub connections: u32,
    pub scratch: Scratch,
}

type Row = Map<String, serde_json::Value>;

/// Requests, what they took, and the entries into the kernel per request.
struct Counted {
    requests: u64,
    instructions: u64,
    entries: Row,
}

impl Counted {
    fn instructions_per_request(&self) -> f64 {
        self.instructions as f64 / self.requests as f64
    }
}

impl Session {
    /// Boots a server of this model, on harts that count instructions and over a tap device if
    /// `options` say so. `show_stdout`: what it prints is shown, if it is not over a tap device.
    pub(super) fn start(
        prepared: &Prepared,
        options: &Bench,
        model: Model,
        show_stdout: bool,
        client: Client,
        connections: u32,
        scratch: Scratch,
    ) -> Outcome<Self> {
        let machine = &options.machine;
        let arguments = service::server_arguments(model, machine.smp);
        let mut boot = prepared.boot(machine, &arguments, &[])?;
        // The peer is outside of the machine: while the guest waits for it, the guest's clock must
        // not advance to the next time-out.
        boot.count_instructions = options.icount.then_some(Idle::Waited);
        let (server, way) = Way::start(prepared, boot, machine, options.tap, show_stdout)?;
        Ok(Self { server, client, way, connections, scratch })
    }

    /// The command of a client with this load, which writes its result to `json`.
    pub(super) fn command(&self, load: &Load, json: &Path) -> Command {
        self.way.client(&self.client, load, json)
    }

    /// Throughput, latency and entries into the kernel by the wall clock.
    fn time(&mut self, seconds: u32) -> Outcome<Row> {
        let mut row = self.time_only(seconds)?;
        // Measured separately, over so many requests that other activity has no influence.
        row.extend(self.entries()?);
        Ok(row)
    }

    /// Throughput and latency by the wall clock; the client prints the table.
    pub(super) fn time_only(&mut self, seconds: u32) -> Outcome<Row> {
        let load = self.load(Pace::Closed, seconds, 1);
        let json = self.scratch.file("closed.json");
        let mut command = self.command(&load, &json);
        service::drive(&mut self.server, &mut command)?;
        service::read_row(&json)
    }

    /// Entries into the kernel and interrupts per request, in a run with [`MANY`] requests per
    /// connection. They are printed, and returned as columns.
    fn entries(&mut self) -> Outcome<Row> {
        let before = self.server.statistics()?;
        let load = self.load(Pace::Counted { requests: MANY }, LIMIT_SECONDS, 0);
        let mut command = self.command(&load, &self.scratch.file("entries.json"));
        if !service::drive(&mut self.server, command.stdout(Stdio::null()))? {
            return Err(Failure::new("the client saw errors in the counted run"));
        }
        let after = self.server.statistics()?;
        let requests = u64::from(MANY) * u64::from(self.connections);
        let row = per_request(&before, &after, requests);
        print_per_request(&row);
        Ok(row)
    }

    /// Instructions per request, from the difference of two counted runs.
    fn count(&mut self, harts: u32, many: u32) -> Outcome<Row> {
        let counted = self.difference(many)?;
        let (requests, instructions) = (counted.requests, counted.instructions_per_request());
        println!("connections  matrix  requests  instructions/request");
        println!("{:>11}  {:>6}  {requests:>8}  {instructions:>20.0}", self.connections, 1);
        let mut row = Row::new();
        row.insert("connections".into(), self.connections.into());
        row.insert("matrix".into(), 1.into());
        row.insert("vcpus".into(), harts.into());
        row.insert("requests".into(), requests.into());
        row.insert("instructions_per_request".into(), instructions.into());
        print_per_request(&counted.entries);
        row.extend(counted.entries);
        Ok(row)
    }

    /// What a run with `many` requests per connection has more than one with [`FEW`].
    fn difference(&mut self, many: u32) -> Outcome<Counted> {
        let (few_requests, few_instructions) = self.counted(FEW)?;
        let before = self.server.statistics()?;
        let (many_requests, many_instructions) = self.counted(many)?;
        let entries = per_request(&before, &self.server.statistics()?, many_requests);
        let requests = many_requests.saturating_sub(few_requests);
        if requests == 0 || many_instructions <= few_instructions {
            return Err(Failure::new(format!(
                "counted {few_instructions} instructions for {few_requests} requests and {many_instructions} for \
                 {many_requests}: that makes no sense"
            )));
        }
        Ok(Counted { requests, instructions: many_instructions - few_instructions, entries })
    }

    /// One run with this many requests per connection. Returns the total number of requests, and of
    /// instructions.
    pub(super) fn counted(&mut self, requests: u32) -> Outcome<(u64, u64)> {
        let before = self.server.statistics()?;
        let load = self.load(Pace::Counted { requests }, LIMIT_SECONDS, 0);
        let mut command = self.command(&load, &self.scratch.file("counted.json"));
        if !service::drive(&mut self.server, command.stdout(Stdio::null()))? {
            return Err(Failure::new("the client saw errors in the counted run"));
        }
        let after = self.server.statistics()?;
        let instructions = u64::try_from(after.growth(&before, "instructions")).unwrap_or_default();
        Ok((u64::from(requests) * u64::from(self.connections), instructions))
    }

    fn load(&self, pace: Pace, seconds: u32, warm_up_seconds: u32) -> Load {
        Load {
            connections: self.connections,
            matrix: 1,
            pace,
            seconds,
            warm_up_seconds,
            settle_seconds: 0,
            drain_seconds: service::DRAIN_SECONDS,
        }
    }
}
