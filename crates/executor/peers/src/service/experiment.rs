//! Which phases there are, and in which order.
//!
//! For each number of workers: first what each contender can do of batch work alone, of which the
//! greatest is the capacity of the machine; then interactive requests alone; then these and batch
//! requests at twice the capacity. The contenders take turns, several times, each time as a fresh
//! process.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::contender::Contender;
use super::load::{Connections, End, Outcome, Schedule, Work, capacity, open_loop};
use super::message::Class;
use super::process::{Placement, Server, stay_on};
use super::work::rounds_in;

/// What is done how often, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of workers, one after the other.
    pub workers: Vec<u32>,
    /// The contenders that take part.
    pub contenders: Vec<Contender>,
    /// Turns of the overload.
    pub turns: u32,
    /// Length of each turn, without settling.
    pub measured: Duration,
    /// Interactive connections.
    pub interactive_connections: usize,
    /// Interactive requests per second, on all of them.
    pub interactive_per_second: f64,
    /// Processor time of one.
    pub interactive_work: Duration,
    /// Batch connections.
    pub batch_connections: usize,
    /// Slices of a batch request.
    pub batch_slices: u32,
    /// Processor time of one.
    pub batch_slice: Duration,
    /// Batch requests offered, in capacities.
    pub overload: f64,
}

impl Plan {
    /// As published; a run takes less than a minute.
    pub fn new() -> Plan {
        Plan {
            workers: vec![1, 2],
            contenders: Contender::ALL.to_vec(),
            turns: 2,
            measured: Duration::from_millis(2_200),
            interactive_connections: 8,
            interactive_per_second: 500.0,
            interactive_work: Duration::from_micros(20),
            batch_connections: 48,
            batch_slices: 3,
            batch_slice: Duration::from_micros(1_500),
            overload: 2.0,
        }
    }

    /// A short one, to see that it works.
    pub fn quick() -> Plan {
        Plan { turns: 1, measured: Duration::from_millis(700), ..Plan::new() }
    }
}

impl Default for Plan {
    fn default() -> Plan {
        Plan::new()
    }
}

const SETTLE: Duration = Duration::from_millis(600);
/// Batch connections for each worker while capacity is measured: enough that there is always work,
/// and few enough that requests that take turns by slices do not all end at once.
const CONNECTIONS_AT_CAPACITY: usize = 4;
const PATIENCE: Duration = Duration::from_secs(3);

/// One contender with so many workers.
#[derive(Clone, Debug)]
pub struct Row {
    /// The contender.
    pub contender: Contender,
    /// Workers of its runtime, or of each of its runtimes.
    pub workers: u32,
    /// Whether server and client had processors of their own.
    pub is_apart: bool,
    /// Batch requests per second that it can do.
    pub capacity_per_second: f64,
    /// Batch requests per second that it was sent.
    pub offered_per_second: f64,
    /// Interactive requests without batch load.
    pub alone: Outcome,
    /// Interactive requests under overload.
    pub overload: Outcome,
    /// Batch requests under overload.
    pub batch: Outcome,
}

/// Runs the plan. `tell` hears what is being done.
pub fn run(plan: &Plan, processors: &[usize], mut tell: impl FnMut(&str)) -> io::Result<Vec<Row>> {
    let interactive = Work::new(rounds_in(plan.interactive_work), 1);
    let batch = Work::new(rounds_in(plan.batch_slice), plan.batch_slices);
    let mut rows = Vec::new();
    for &workers in &plan.workers {
        let placement = Placement::new(processors, workers);
        // Also for the threads of the client, which this one starts.
        stay_on(&placement.client)?;
        let stage = Stage {
            plan,
            workers,
            placement: &placement,
            interactive: &interactive,
            batch: &batch,
        };
        let mut here = Vec::new();
        for &contender in &plan.contenders {
            tell(&format!(
                "{} with {workers}: capacity, and interactive requests alone",
                contender.name()
            ));
            here.push(Row {
                contender,
                workers,
                is_apart: placement.is_apart(),
                capacity_per_second: stage.capacity(contender)?,
                offered_per_second: 0.0,
                alone: stage.alone(contender)?,
                overload: Outcome::default(),
                batch: Outcome::default(),
            });
        }
        let capacity = here.iter().map(|row| row.capacity_per_second).fold(0.0, f64::max);
        for turn in 0..plan.turns {
            for row in &mut here {
                tell(&format!(
                    "{} with {workers}: overload, turn {}",
                    row.contender.name(),
                    turn + 1
                ));
                row.offered_per_second = capacity * plan.overload;
                let (overload, batch) = stage.overload(row.contender, row.offered_per_second)?;
                row.overload.merge(overload, turn);
                row.batch.merge(batch, turn);
            }
        }
        rows.extend(here);
    }
    stay_on(processors)?;
    Ok(rows)
}

struct Stage<'a> {
    plan: &'a Plan,
    workers: u32,
    placement: &'a Placement,
    interactive: &'a Work,
    batch: &'a Work,
}

impl Stage<'_> {
    fn server(&self, contender: Contender) -> io::Result<Server> {
        Server::start(contender, self.workers, &self.placement.server)
    }

    fn capacity(&self, contender: Contender) -> io::Result<f64> {
        let server = self.server(contender)?;
        let count = CONNECTIONS_AT_CAPACITY * self.workers as usize;
        let connections = Connections::open(server.address, Class::Batch, count)?;
        capacity(&connections, self.batch, SETTLE / 3, self.plan.measured / 3)
    }

    fn schedule(&self, per_second: f64) -> Schedule {
        Schedule { per_second, settle: SETTLE, measured: self.plan.measured, patience: PATIENCE }
    }

    fn alone(&self, contender: Contender) -> io::Result<Outcome> {
        let server = self.server(contender)?;
        let plan = self.plan;
        let connections =
            Connections::open(server.address, Class::Interactive, plan.interactive_connections)?;
        let schedule =
            Schedule { measured: plan.measured / 2, ..self.schedule(plan.interactive_per_second) };
        open_loop(connections, self.interactive, schedule, Instant::now(), End::Wait)
    }

    fn overload(
        &self,
        contender: Contender,
        batch_per_second: f64,
    ) -> io::Result<(Outcome, Outcome)> {
        let server = self.server(contender)?;
        let plan = self.plan;
        let interactive =
            Connections::open(server.address, Class::Interactive, plan.interactive_connections)?;
        let batch = Connections::open(server.address, Class::Batch, plan.batch_connections)?;
        let epoch = Instant::now();
        thread::scope(|scope| {
            let batch = scope.spawn(|| {
                open_loop(batch, self.batch, self.schedule(batch_per_second), epoch, End::Leave)
            });
            let schedule = self.schedule(plan.interactive_per_second);
            let interactive = open_loop(interactive, self.interactive, schedule, epoch, End::Wait)?;
            let batch = batch.join().map_err(|_| io::Error::other("the client panicked"))??;
            Ok((interactive, batch))
        })
    }
}
