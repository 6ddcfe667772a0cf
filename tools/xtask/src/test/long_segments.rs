//! The real server with the real client over a tap device, which takes long segments as they are:
//! an answer is one frame, whatever its length. It also hands those of the client over as they are,
//! which has some when its requests wait.
//!
//! QEMU's user network has no such frames. A tap device needs root; without it, this is skipped.

use super::{Case, Context, system};
use crate::cli::{Machine as MachineOptions, Model};
use crate::commands::bench::tap::{self, Urgency};
use crate::error::Outcome;
use crate::qemu::namespace::Namespace;
use crate::qemu::server::Server;
use crate::service::{Client, Load, Pace};

/// What is in the names of all these tests.
pub const NAME: &str = "over a tap device";
const CONNECTIONS: u32 = 16;
const REQUESTS: u32 = 100;
/// Matrices, and how many frames a hundred answers may have: the messages have one segment, two,
/// and three. Opening and closing need some frames, and after three segments the client waits for
/// an acknowledgement. Without long segments it would be at least 100, 200 and 300.
const FRAMES: [(u32, i64); 3] = [(1, 150), (15, 150), (21, 250)];
/// More than the server can answer, so the client joins what waits.
const OVERLOAD: Load = Load {
    connections: 32,
    matrix: 15,
    pace: Pace::every_ms(1),
    seconds: 1,
    warm_up_seconds: 0,
    settle_seconds: 0,
    drain_seconds: 120,
};

pub fn run(context: &Context<'_>, client: &Client) -> Outcome<Vec<Case>> {
    let namespace = match Namespace::make() {
        Ok(namespace) => namespace,
        Err(failure) => {
            context.note(format!("{NAME}: skipped: {failure}"));
            return Ok(Vec::new());
        }
    };
    let prepared = context.prepared()?;
    let machine = MachineOptions::new(2, "512M");
    let boot = tap::boot(prepared, &machine, Model::Kcuc)?;
    let mut server = tap::start(prepared, &namespace, &boot, &machine)?;
    let scratch = context.workspace.scratch()?;
    let mut cases = Vec::new();
    let run = |server: &mut Server, name: &str, load: &Load| {
        let json = scratch.file("long.json");
        let command = tap::client(&namespace, client, load, Urgency::Usual, &json);
        system::run_load(server, name, load, command, &json)
    };
    for (matrix, frames_max) in FRAMES {
        let pace = Pace::Counted { requests: REQUESTS };
        let load = Load { connections: CONNECTIONS, matrix, pace, seconds: 60, ..OVERLOAD };
        let name = format!("{NAME}: {matrix} x {matrix}");
        let before = server.statistics()?;
        let mut wrong = run(&mut server, &name, &load)?;
        let sent = server.statistics()?.growth(&before, "network_frames_sent");
        let for_hundred = sent * 100 / i64::from(CONNECTIONS * REQUESTS);
        if for_hundred > frames_max {
            wrong.push(format!("{for_hundred} frames for 100 answers, more than {frames_max}"));
        }
        cases.push(Case::judged(name, &wrong));
    }
    let name = format!("{NAME}: requests that wait");
    let wrong = run(&mut server, &name, &OVERLOAD)?;
    cases.push(Case::judged(name, &wrong));
    cases.push(system::shut_down(server, &format!("{NAME}: shut down")));
    Ok(cases)
}
