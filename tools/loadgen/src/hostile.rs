//! Hostile clients, one by one. After every case, two things must hold: a correct connection that
//! was open before is still served, and so is a new one. The requirements of the cases themselves
//! are in `malformed` (frames that violate the format) and `rude` (connections that break off,
//! stall or flood).
//!
//! Every wait is limited by the suite's patience. So each of some thirty cases takes at most a few
//! times that. Cases that wait for the server's own limits run beside the others.

mod client;
mod malformed;
mod rude;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use client::GoodClient;

/// The settings of a suite.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The server's address.
    pub address: SocketAddr,
    /// Time limit of the server for each answer or close.
    pub patience: Duration,
    /// Seed of all random choices.
    pub seed: u64,
    /// Only cases with this text in their names are run.
    pub only: String,
}

/// Outcome of a suite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of cases that the server passed.
    pub passed: usize,
    /// Number of cases that it failed.
    pub failed: usize,
}

impl Tally {
    /// Counts what has come of a case, and reports it.
    fn note(
        &mut self,
        case: &Case,
        result: Result<(), Failure>,
        report: &mut dyn Write,
    ) -> io::Result<()> {
        match result {
            Ok(()) => {
                self.passed += 1;
                writeln!(report, "ok {}", case.name)?;
            }
            Err(failure) => {
                self.failed += 1;
                writeln!(report, "not ok {}: {failure}", case.name)?;
            }
        }
        report.flush()
    }
}

/// The reason why a case failed.
type Failure = String;
type Action = Box<dyn Fn(&Suite) -> Result<(), Failure> + Sync>;

struct Case {
    name: &'static str,
    action: Action,
    is_beside: bool,
}

impl Case {
    fn new(
        name: &'static str,
        action: impl Fn(&Suite) -> Result<(), Failure> + Sync + 'static,
    ) -> Self {
        Self { name, action: Box::new(action), is_beside: false }
    }

    /// A case that takes long and runs beside the others.
    fn beside(
        name: &'static str,
        action: impl Fn(&Suite) -> Result<(), Failure> + Sync + 'static,
    ) -> Self {
        Self { is_beside: true, ..Self::new(name, action) }
    }
}

impl Suite {
    /// Runs the cases in order. Writes `ok NAME` or `not ok NAME: why` for each when it ends, and a
    /// line with the tally.
    ///
    /// # Errors
    ///
    /// From writing to `report`.
    pub fn run(&self, report: &mut dyn Write) -> io::Result<Tally> {
        let mut tally = Tally::default();
        let mut bystander = GoodClient::open(self);
        let cases = malformed::cases().into_iter().chain(rude::cases());
        let chosen = cases.filter(|case| case.name.contains(&self.only));
        let (beside, cases): (Vec<_>, Vec<_>) = chosen.partition(|case| case.is_beside);
        thread::scope(|scope| {
            let running: Vec<_> =
                beside.iter().map(|case| (case, scope.spawn(|| (case.action)(self)))).collect();
            for case in &cases {
                let result = self.check(case, &mut bystander);
                if result.is_err() {
                    // This failure must not make the next case fail.
                    bystander = GoodClient::open(self);
                }
                tally.note(case, result, report)?;
            }
            for (case, running) in running {
                let result = running.join().unwrap_or_else(|_| Err("the case panicked".into()));
                tally.note(case, result.and_then(|()| self.serves_a_new_client()), report)?;
            }
            writeln!(report, "{} passed, {} failed", tally.passed, tally.failed)?;
            Ok(tally)
        })
    }

    fn check(
        &self,
        case: &Case,
        bystander: &mut Result<GoodClient, Failure>,
    ) -> Result<(), Failure> {
        let bystander = bystander
            .as_mut()
            .map_err(|failure| format!("no connection before the case: {failure}"))?;
        bystander
            .exchange()
            .map_err(|failure| format!("a good client before the case: {failure}"))?;
        (case.action)(self)?;
        bystander.exchange().map_err(|failure| format!("a bystander: {failure}"))?;
        self.serves_a_new_client()
    }

    /// Also used within cases, to check that the server works *while* a client misbehaves.
    fn serves_a_new_client(&self) -> Result<(), Failure> {
        GoodClient::open(self)
            .and_then(|mut client| client.exchange())
            .map_err(|failure| format!("the next good client: {failure}"))
    }
}
