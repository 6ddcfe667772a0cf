//! A server and its clients on the tap device of a network of this program's own.

use std::path::Path;
use std::process::{Command, Stdio};

use super::matrix::Row;
use crate::cli::{Machine, Model};
use crate::commands::Prepared;
use crate::error::Outcome;
use crate::qemu::command::{Boot, Network};
use crate::qemu::console::PassThrough;
use crate::qemu::namespace::{GUEST, HOST, Namespace, PREFIX, TAP, command_in};
use crate::qemu::server::Server;
use crate::service::{self, Client, Load};

/// Frames in the tap device's queue, unless something else is set: as many as a new one has room
/// for. With 500, a closed loop of 1,024 connections loses frames in bursts.
pub const QUEUE: u32 = 1000;
/// The same for an overload: more than all connections send before their windows are full. With
/// the usual queue the host drops thousands each second, and its retransmissions, which wait for
/// timers, are what is measured.
pub const QUEUE_OF_AN_OVERLOAD: u32 = 1 << 18;

/// Connections opened per second: the tap device loses none.
const RAMP_PER_SECOND: u32 = 1000;

/// The boot of COPS with the matrix server.
pub fn boot(prepared: &Prepared, machine: &Machine, model: Model) -> Outcome<Boot> {
    let arguments = service::server_arguments(model, machine.smp);
    Ok(attached(prepared.boot(machine, &arguments, &[])?))
}

/// `boot`, on the tap device.
pub fn attached(mut boot: Boot) -> Boot {
    boot.network = Network::Tap(TAP.to_owned());
    boot.boot_arguments.push(format!("ip={GUEST}/{PREFIX},{HOST}"));
    boot
}

/// Starts a server.
pub fn start(
    prepared: &Prepared,
    namespace: &Namespace,
    boot: &Boot,
    machine: &Machine,
) -> Outcome<Server> {
    let mut qemu = prepared.qemu.clone();
    qemu.namespace = Some(namespace.file());
    let sink = PassThrough { show_firmware: machine.verbose, show_stdout: false };
    Server::start(&qemu, boot, sink)
}

/// The CPU priority of the load generator on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// That of this program.
    Usual,
    /// The lowest: the machine keeps the CPU time that it needs, and the load generator offers what
    /// the rest allows.
    Lowest,
}

/// The load generator, which writes its result to `json`.
pub fn client(
    namespace: &Namespace,
    client: &Client,
    load: &Load,
    urgency: Urgency,
    json: &Path,
) -> Command {
    let in_namespace = |program: &Path| command_in(Some(&namespace.file()), program);
    let mut command = match urgency {
        Urgency::Usual => in_namespace(client.program()),
        Urgency::Lowest => {
            let mut nice = in_namespace(Path::new("nice"));
            nice.args(["-n", "19"]).arg(client.program());
            nice
        }
    };
    command.arg("--connect").arg(format!("{GUEST}:{}", service::PORT));
    command.args(load.arguments(RAMP_PER_SECOND)).arg("--json").arg(json);
    command
}

/// Runs the load generator beside the server. Returns the row of the result that it writes to
/// `json`; errors are a column of that.
pub fn run(server: &mut Server, mut client: Command, json: &Path) -> Outcome<Row> {
    // If it fails now, the last result must not be found.
    let _ = std::fs::remove_file(json);
    service::drive(server, client.stdout(Stdio::null()).stderr(Stdio::piped()))?;
    service::read_row(json)
}
