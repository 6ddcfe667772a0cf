//! A server, and loads from the client on this host.

use std::process::Stdio;

use serde_json::Value;

use super::Row;
use crate::cli::{Machine, Model};
use crate::commands::Prepared;
use crate::commands::bench::way::Way;
use crate::error::{Failure, Outcome};
use crate::qemu::command::Idle;
use crate::qemu::server::Server;
use crate::service::{self, Client, Load, Pace, per_request};
use crate::workspace::{Scratch, Workspace};

/// One measurement of a server.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    pub connections: u32,
    pub matrix: u32,
    pub pace: Pace,
    pub classes: u32,
    pub seconds: u32,
    pub warm_up_seconds: u32,
    /// How much longer the warm-up is at most while it has left a backlog.
    pub settle_seconds: u32,
}

/// A server, and the way to it.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub model: Model,
    /// Virtual CPUs of the server.
    pub vcpus: u32,
    /// An instruction takes this power of two of nanoseconds, on one hart.
    pub clock_shift: Option<u32>,
    /// Each instruction is translated by itself.
    pub has_slow_harts: bool,
    /// Over a tap device.
    pub by_tap: bool,
}

/// A running server, with the client.
pub struct Session {
    server: Server,
    client: Client,
    way: Way,
    scratch: Scratch,
    setup: Setup,
    harts: u32,
}

impl Session {
    /// Boots a server.
    pub fn start(
        workspace: &Workspace,
        prepared: &Prepared,
        client: &Client,
        machine: &Machine,
        setup: Setup,
    ) -> Outcome<Self> {
        let arguments = service::server_arguments(setup.model, setup.vcpus);
        let mut boot = prepared.boot(machine, &arguments, &[])?;
        boot.has_slow_harts = setup.has_slow_harts;
        if let Some(shift) = setup.clock_shift {
            // The client is outside: the guest's clock waits for it.
            boot.count_instructions = Some(Idle::Waited);
            boot.clock_shift = shift;
        }
        let (server, way) = Way::start(prepared, boot, machine, setup.by_tap, false)?;
        let (client, scratch) = (client.clone(), workspace.scratch()?);
        Ok(Self { server, client, way, scratch, setup, harts: machine.smp })
    }

    /// Measures `point`. The first row is that of all connections; with several classes, one of
    /// each follows, with its distribution.
    pub fn measure(&mut self, point: &Point) -> Outcome<Vec<Row>> {
        let load = Load {
            connections: point.connections,
            matrix: point.matrix,
            pace: point.pace,
            seconds: point.seconds,
            warm_up_seconds: point.warm_up_seconds,
            settle_seconds: point.settle_seconds,
            drain_seconds: service::DRAIN_SECONDS,
        };
        let json = self.scratch.file("point.json");
        let _ = std::fs::remove_file(&json);
        let mut command = self.way.client(&self.client, &load, &json);
        command.args(["--classes", &point.classes.to_string()]);
        let before = self.server.statistics()?;
        // Errors are a column.
        service::drive(&mut self.server, command.stdout(Stdio::null()).stderr(Stdio::piped()))?;
        let after = self.server.statistics()?;
        let document = service::read_result(&json)?;
        let rows = |name: &str| -> Vec<Row> {
            let rows = document.get(name).and_then(Value::as_array);
            rows.into_iter().flatten().filter_map(Value::as_object).cloned().collect()
        };
        let mut all = rows("rows");
        let Some(whole) = all.first_mut() else {
            return Err(Failure::new("the load generator's result has no row"));
        };
        whole.extend(per_request(&before, &after, service::answered(&document)));
        if point.classes > 1 {
            let distributions = rows("latency_distribution");
            for (mut row, distribution) in rows("classes").into_iter().zip(distributions) {
                let buckets = distribution.get("buckets").cloned().unwrap_or_default();
                row.insert("distribution_us".into(), buckets);
                all.push(row);
            }
        }
        for row in &mut all {
            row.insert("model".into(), self.setup.model.name().into());
            row.insert("vcpus".into(), self.setup.vcpus.into());
            row.insert("harts".into(), self.harts.into());
            row.insert("classes".into(), point.classes.into());
            row.insert("seconds".into(), point.seconds.into());
        }
        Ok(all)
    }

    pub fn shut_down(self) {
        self.server.shut_down();
    }
}
