//! `./cops serve`: runs a server for external clients until it is interrupted.

use std::time::Duration;

use super::Prepared;
use crate::cli::Serve;
use crate::control::{self, Control};
use crate::error::{Failure, Outcome};
use crate::interrupt;
use crate::qemu::command::Network;
use crate::qemu::console::{Ending, PassThrough};
use crate::qemu::server::Server;
use crate::terminal::Progress;
use crate::workspace::Workspace;

/// A server that has not said by then that it listens may be one that prints nothing.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(workspace: &Workspace, options: &Serve) -> Outcome<u8> {
    let network = match (&options.net, options.ports.as_slice()) {
        (Network::User(_), ports) => Network::User(ports.to_vec()),
        (tap, []) => tap.clone(),
        // `--net` does not offer this.
        (Network::Isolated | Network::Absent | Network::Datagrams { .. }, _) => {
            return Err(Failure::new("--port does not go with a machine of its own"));
        }
        (Network::Tap(name), _) => {
            return Err(Failure::new(format!("--port does not go with --net tap={name}")).advise(
                "on a tap device clients reach the guest's own address; leave --port out",
            ));
        }
    };
    let prepared = Prepared::new(workspace, Progress::Lines)?;
    let argv = [std::slice::from_ref(&options.program), &options.arguments].concat();
    let mut boot = prepared.boot(&options.machine, &argv, &[])?;
    boot.boot_arguments.extend(options.ip.iter().map(|address| format!("ip={address}")));
    boot.network = network.clone();
    let sink = PassThrough { show_firmware: options.machine.verbose, show_stdout: true };
    let (mut server, is_ready) = Server::start_within(&prepared.qemu, &boot, sink, PATIENCE)?;
    if !is_ready {
        eprintln!("cops: the server has not said within {} s that it listens", PATIENCE.as_secs());
    }
    if let Network::User(forwards) = &network {
        for forward in forwards {
            eprintln!(
                "cops: 127.0.0.1:{} leads to port {} of the guest",
                forward.host, forward.guest
            );
        }
    }
    let control = Control::open(workspace)?;
    eprintln!(
        "cops: serving; ./cops top shows what runs (--pid {}); Ctrl-C ends it",
        std::process::id()
    );
    interrupt::defer();
    while !interrupt::requested() {
        let visitor = server.attend(|| {
            Ok(if interrupt::requested() { Some(None) } else { control.accept().map(Some) })
        })?;
        if let Some(visitor) = visitor {
            control::answer(visitor, server.inspect()?.as_deref());
        }
    }
    drop(control);
    eprintln!("cops: interrupted, shutting down");
    match server.shut_down() {
        Ending::Broken(why) => Err(Failure::new(why)),
        Ending::Status(_) | Ending::TimedOut => Ok(0),
    }
}
