//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use matrix_message::{Operation, Side};
use serde::{Deserialize, Serialize};

const EXAMPLES: &str = "\
EXAMPLES
  The standard load on a server on this machine, with plots:
    cops-loadgen --connect 127.0.0.1:9000 --connections 64 --matrix 15 --period-ms 100 --plots plots
  As fast as the answers come, smallest matrix, raw data as JSON:
    cops-loadgen --connections 64 --matrix 1 --closed --json closed.json --label model=kcuc --label vcpus=4
  Eight priority classes, 50 ms period, latencies per class:
    cops-loadgen --connections 128 --classes 8 --period-ms 50 --csv classes.csv
  The client of the papers, which pauses after each answer:
    cops-loadgen --connections 64 --matrix 15 --pause-ms 100 --warmup-seconds 0
  A known number of requests, to divide an instruction count by:
    cops-loadgen --closed --requests 1000 --connections 64 --matrix 1 --seconds 60
  Draw the plots of an earlier run again:
    cops-loadgen --replot closed.json --plots plots
  Does the server survive bad clients?
    cops-loadgen --hostile --connect 127.0.0.1:9000

WHAT THE FIGURES MEAN
  open loop     (default) every connection sends one request per period, whether or not the
                answer before has come; requests that the socket does not take stay due.
                Latency counts from the moment the schedule asked for the request, so a server
                that stalls is charged for everything that had to wait.
  closed loop   every connection sends when its answer is there; latency counts from sending.
  pause         the same, some time after its answer; latency counts from sending, and lateness
                says how late this client sent.
  sent          requests scheduled in the measuring window (after the warm-up).
  received      right answers to those, by the end of the drain.
  errors        of the whole run: wrong products, answers missing after the drain, connections lost.
  throughput    right answers that arrived within the measuring window, per second (with
                --requests: all of them, by the time of the last).
  latency       of the requests in `sent` that were answered; mean and max exact, percentiles to 0.1%
                (and no percentile says more than the answers do: of 100, p99.9 is the slowest).
  deviation     standard deviation of these latencies (the papers call that jitter).
  jitter        mean absolute difference of successive latencies on the same connection.
  lateness      how late this client itself was in sending, counted in the latency: if it is
                not small against the latency, you have measured the client.

EXIT STATUS
  0 all went well; 1 errors, or a hostile case failed; 2 wrong usage; 3 the connections could not be opened
  or the results not be written.";

/// The most connections: each has a port of this host. `./cops` has the same limit.
pub const CONNECTIONS_MAX: u32 = 60_000;

/// Drives a matrix server over TCP, checks every product, and reports throughput and latency.
#[derive(Debug, Parser)]
#[command(name = "cops-loadgen", version, after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The load, and the server.
    #[command(flatten)]
    pub load: LoadSettings,

    /// Adds a column to the results, such as model=kcuc, vcpus=4, qemu=10.0 or commit=1a2b3c4;
    /// may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_label)]
    pub label: Vec<(String, String)>,

    /// Writes rows, distribution and time series as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Writes the rows as CSV: one for all, one per priority class.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Writes latency.svg and throughput.svg into this directory, which is created if missing.
    #[arg(long, value_name = "DIRECTORY")]
    pub plots: Option<PathBuf>,

    /// Runs nothing: draws the plots of an earlier JSON file.
    #[arg(long, value_name = "FILE", requires = "plots", conflicts_with_all = ["hostile", "json", "csv"])]
    pub replot: Option<PathBuf>,

    /// Once all connections are open, prints `all open` and waits for a line of standard input, or
    /// its end, before the load: until then they are idle. After the load, prints `all answered`
    /// and waits once more before it closes them.
    #[arg(long, conflicts_with_all = ["hostile", "replot"])]
    pub hold: bool,

    /// Instead of load: hostile clients, one by one, each followed by a correct one.
    #[arg(long, conflicts_with_all = ["json", "csv", "plots"])]
    pub hostile: bool,

    /// With --hostile: only cases with this text in their names.
    #[arg(long, value_name = "TEXT", requires = "hostile")]
    pub only: Option<String>,

    /// With --hostile: time limit of the server for each answer or close.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = parse_positive)]
    pub patience_seconds: f64,
}

/// The settings of a run. They include everything that influences the figures, and are part of the
/// JSON.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct LoadSettings {
    /// The server's address.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9000")]
    pub connect: String,

    /// Number of connections, all open at once.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub connections: u32,

    /// Rows of the matrices, 1 to 128.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub matrix: u16,

    /// The operation that the server performs on them.
    #[arg(long, value_enum, default_value_t = OperationName::U64)]
    pub operation: OperationName,

    /// Time between two requests of a connection; the connections' phases are spread evenly over
    /// it.
    #[arg(long, value_name = "MS", default_value_t = 100.0, value_parser = parse_positive)]
    pub period_ms: f64,

    /// Closed loop: send when the answer has arrived, instead of one request per period.
    #[arg(long)]
    pub closed: bool,

    /// The papers' client: send, await the answer, pause this long, repeat. Begins with the pause.
    #[arg(long, value_name = "MS", conflicts_with_all = ["closed", "period_ms"], value_parser = parse_positive)]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pause_ms: Option<f64>,

    /// Closed loop with exactly this many requests per connection, all measured: for counting
    /// instructions per request. `--seconds` limits it.
    #[arg(long, value_name = "N", requires = "closed", conflicts_with = "warmup_seconds",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub requests: Option<u64>,

    /// Length of the measuring window.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = parse_positive)]
    pub seconds: f64,

    /// Duration of the load before the measuring window: checked, but not measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_not_negative)]
    pub warmup_seconds: f64,

    /// Open loop: lengthens the warm-up by at most this, as long as it has left a backlog: the
    /// window would answer that too, and so more than was asked for in it. The result says how long
    /// the warm-up was.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = parse_not_negative,
          conflicts_with_all = ["closed", "pause_ms"])]
    #[serde(default)]
    pub settle_seconds: f64,

    /// How long to wait for answers after the last request.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = parse_not_negative)]
    pub drain_seconds: f64,

    /// Number of priority classes, beginning with 0 (most urgent), assigned to the connections in
    /// turn.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub classes: u16,

    /// Seed of the matrices and sequence numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Connections begun per second. QEMU's user network accepts with a backlog of 1, so that of
    /// many simultaneous connections most would wait one second for a retransmission.
    #[arg(long, value_name = "N", default_value_t = 200.0, value_parser = parse_positive)]
    pub ramp_per_second: f64,

    /// Time limit for each connection to be opened and to answer one request, including all
    /// attempts (refused or silent ones are repeated), so the server may still be booting.
    #[arg(long, visible_alias = "connect-timeout", value_name = "SECONDS", default_value_t = 30.0,
          value_parser = parse_positive)]
    pub connect_timeout_seconds: f64,
}

/// [`Operation`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperationName {
    /// Square matrices of u64, wrapping.
    U64,
    /// Square matrices of f64.
    F64,
    /// Return them unmultiplied.
    Echo,
}

impl LoadSettings {
    /// The operation for messages.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self.operation {
            OperationName::U64 => Operation::MultiplyU64,
            OperationName::F64 => Operation::MultiplyF64,
            OperationName::Echo => Operation::Echo,
        }
    }

    /// The matrices' side.
    ///
    /// # Panics
    ///
    /// If `matrix` is not in 1 to 128; parsing rejects that.
    #[must_use]
    pub fn side(&self) -> Side {
        Side::new(self.matrix).expect("1 to 128")
    }

    /// The priority class of a connection.
    #[must_use]
    pub fn class(&self, connection: u32) -> u8 {
        // There are at most 256 classes, so this fits.
        (connection % u32::from(self.classes)) as u8
    }

    /// Whether a connection sends its next request only after the answer.
    #[must_use]
    pub fn waits_for_answers(&self) -> bool {
        self.closed || self.pause_ms.is_some()
    }

    /// The measuring window, in nanoseconds since the load began, if the warm-up is not lengthened.
    #[must_use]
    pub fn window_ns(&self) -> std::ops::Range<u64> {
        // A counted run has no warm-up: every request counts.
        let start = if self.requests.is_some() { 0 } else { seconds_to_ns(self.warmup_seconds) };
        start..start + seconds_to_ns(self.seconds)
    }
}

/// Rounds to whole nanoseconds.
#[must_use]
pub fn seconds_to_ns(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn parse_number(text: &str) -> Result<f64, String> {
    // One day bounds everything that is computed from it.
    text.parse()
        .ok()
        .filter(|number| (0.0..=86_400_000.0).contains(number))
        .ok_or("not a number from 0 to 86400000".into())
}

fn parse_not_negative(text: &str) -> Result<f64, String> {
    parse_number(text)
}

fn parse_positive(text: &str) -> Result<f64, String> {
    parse_number(text)
        .and_then(|number| if number > 0.0 { Ok(number) } else { Err("must be above zero".into()) })
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("want KEY=VALUE")?;
    let plain = !key.is_empty()
        && key.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if !plain {
        return Err("a key is made of letters, digits and underscores".into());
    }
    if crate::outcome::COLUMNS.contains(&key) {
        return Err(format!("{key} is a column already"));
    }
    Ok((key.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_examples_parse() {
        let examples =
            EXAMPLES.lines().map(str::trim).filter(|line| line.starts_with("cops-loadgen"));
        let parsed = examples.map(|line| {
            Arguments::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{line}: {e}"))
        });
        assert_eq!(parsed.count(), 7);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--matrix 0",
            "--matrix 129",
            "--connections 0",
            "--period-ms 0",
            "--seconds -1",
            "--seconds nan",
            "--classes 257",
            "--label model",
            "--label errors=0",
            "--replot x",
            "--only x",
            "--hostile --json x",
            "--requests 5",
            "--pause-ms 0",
            "--pause-ms 5 --closed",
            "--pause-ms 5 --period-ms 5",
            "--settle-seconds 3 --closed",
        ] {
            let words = ["cops-loadgen"].into_iter().chain(line.split(' '));
            assert!(Arguments::try_parse_from(words).is_err(), "{line}");
        }
    }
}
