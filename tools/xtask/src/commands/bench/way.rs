//! How the client reaches a server: through a port of this host and QEMU's user network, or over a
//! tap device.
//!
//! The user network ends each connection in the emulator and makes another one to the host, in the
//! thread with the lock for which harts wait when they reach a device. It also sends
//! acknowledgements of its own. A tap device only passes frames on, and needs root.

use std::path::Path;
use std::process::Command;

use super::tap::{self, Urgency};
use crate::cli::Machine;
use crate::commands::Prepared;
use crate::error::Outcome;
use crate::qemu::command::Boot;
use crate::qemu::console::PassThrough;
use crate::qemu::namespace::Namespace;
use crate::qemu::server::Server;
use crate::service::{self, Client, Load};

/// The way to a server that runs.
pub(super) enum Way {
    /// A port of this host, and the user network.
    Port(u16),
    /// A tap device in a network of its own.
    Tap(Namespace),
}

impl Way {
    /// Boots a server, on a tap device if `by_tap`. `show_stdout`: what it prints is shown, if it
    /// is on the user network.
    pub fn start(
        prepared: &Prepared,
        boot: Boot,
        machine: &Machine,
        by_tap: bool,
        show_stdout: bool,
    ) -> Outcome<(Server, Self)> {
        if by_tap {
            let namespace = Namespace::make()?;
            namespace.set_queue_frames(tap::QUEUE_OF_AN_OVERLOAD)?;
            let server = tap::start(prepared, &namespace, &tap::attached(boot), machine)?;
            return Ok((server, Self::Tap(namespace)));
        }
        let sink = PassThrough { show_firmware: machine.verbose, show_stdout };
        let (server, port) =
            Server::start_on_free_port(&prepared.qemu, &boot, service::PORT, sink)?;
        Ok((server, Self::Port(port)))
    }

    /// The client with this load, which writes its result to `json`.
    pub fn client(&self, client: &Client, load: &Load, json: &Path) -> Command {
        match self {
            Self::Port(port) => client.load(*port, load, json),
            Self::Tap(namespace) => tap::client(namespace, client, load, Urgency::Usual, json),
        }
    }
}
