//! Bad clients, one by one, and whether the server stands them. After every case two things
//! must hold: a connection that was open before and did nothing wrong is still served, and so
//! is a new one. What a case itself demands is in `malformed` (frames that break the format)
//! and `rude` (connections that break off, stall or flood).
//!
//! Every wait is bounded by the suite's patience, so the suite is bounded: each of some thirty
//! cases by a few times that.

mod client;
mod malformed;
mod rude;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use client::GoodClient;

/// What to attack, and how patiently.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Where the server listens.
    pub address: SocketAddr,
    /// How long it may take for any one answer or close.
    pub patience: Duration,
    /// Seed of everything random.
    pub seed: u64,
    /// Only cases whose name contains this are run.
    pub only: String,
}

/// Outcome of a suite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Cases that the server stood.
    pub passed: usize,
    /// Cases that it did not.
    pub failed: usize,
}

/// Why a case failed, for a person.
type Failure = String;
type Action = Box<dyn Fn(&Suite) -> Result<(), Failure>>;

struct Case {
    name: &'static str,
    action: Action,
}

impl Case {
    fn new(name: &'static str, action: impl Fn(&Suite) -> Result<(), Failure> + 'static) -> Self {
        Self { name, action: Box::new(action) }
    }
}

impl Suite {
    /// Runs the cases in order; writes `ok NAME` or `not ok NAME: why` for each, as it ends,
    /// and a line with the tally.
    ///
    /// # Errors
    ///
    /// From writing to `report`.
    pub fn run(&self, report: &mut dyn Write) -> io::Result<Tally> {
        let mut tally = Tally::default();
        let mut bystander = GoodClient::open(self);
        let cases = malformed::cases().into_iter().chain(rude::cases());
        for case in cases.filter(|case| case.name.contains(&self.only)) {
            match self.check(&case, &mut bystander) {
                Ok(()) => {
                    tally.passed += 1;
                    writeln!(report, "ok {}", case.name)?;
                }
                Err(failure) => {
                    tally.failed += 1;
                    writeln!(report, "not ok {}: {failure}", case.name)?;
                    // The next case is not to be blamed for this one.
                    bystander = GoodClient::open(self);
                }
            }
            report.flush()?;
        }
        writeln!(report, "{} passed, {} failed", tally.passed, tally.failed)?;
        Ok(tally)
    }

    fn check(&self, case: &Case, bystander: &mut Result<GoodClient, Failure>) -> Result<(), Failure> {
        let bystander =
            bystander.as_mut().map_err(|failure| format!("no connection before the case: {failure}"))?;
        bystander.exchange().map_err(|failure| format!("a good client before the case: {failure}"))?;
        (case.action)(self)?;
        bystander.exchange().map_err(|failure| format!("a bystander: {failure}"))?;
        self.serves_a_new_client()
    }

    /// Also of use inside cases, to see that the server works *while* somebody misbehaves.
    fn serves_a_new_client(&self) -> Result<(), Failure> {
        GoodClient::open(self)
            .and_then(|mut client| client.exchange())
            .map_err(|failure| format!("the next good client: {failure}"))
    }
}
