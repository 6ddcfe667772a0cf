//! A server and its clients on the tap device of a network of this program's own.

use std::path::Path;
use std::process::Command;

use crate::cli::{Machine, Model};
use crate::commands::Prepared;
use crate::error::Outcome;
use crate::qemu::command::{Boot, Network};
use crate::qemu::console::PassThrough;
use crate::qemu::namespace::{GUEST, HOST, Namespace, PREFIX, TAP, command_in};
use crate::qemu::server::Server;
use crate::service::{self, Client, Load};

/// The boot of COPS with the matrix server.
pub fn boot(prepared: &Prepared, machine: &Machine, model: Model) -> Outcome<Boot> {
    let arguments = service::server_arguments(model, machine.smp);
    let mut boot = prepared.boot(machine, &arguments, &[])?;
    boot.network = Network::Tap(TAP.to_owned());
    boot.boot_arguments.push(format!("ip={GUEST}/{PREFIX},{HOST}"));
    Ok(boot)
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

/// The load generator, which opens `ramp_per_second` connections a second.
pub fn client(
    namespace: &Namespace,
    client: &Client,
    load: &Load,
    ramp_per_second: u32,
    json: &Path,
) -> Command {
    let command = command_in(Some(&namespace.file()), client.program());
    with_load(command, load, ramp_per_second, json)
}

/// As [`client`], with the lowest priority of the host: the machine keeps the CPU time that it
/// needs, and the load generator offers what the rest allows.
pub fn yielding_client(
    namespace: &Namespace,
    client: &Client,
    load: &Load,
    ramp_per_second: u32,
    json: &Path,
) -> Command {
    let mut command = command_in(Some(&namespace.file()), Path::new("nice"));
    command.args(["-n", "19"]).arg(client.program());
    with_load(command, load, ramp_per_second, json)
}

fn with_load(mut command: Command, load: &Load, ramp_per_second: u32, json: &Path) -> Command {
    command.arg("--connect").arg(format!("{GUEST}:{}", service::PORT));
    command.args(load.arguments(ramp_per_second)).arg("--json").arg(json);
    command
}
