//! What the experiments with the matrix service have in common: a server of some model on some
//! machine, loads from the client on this host (`session`) or from the one inside the machine
//! (`guest`), and rows of which several runs make medians (`rounds`).

pub mod guest;
pub mod rounds;
pub mod session;

use serde_json::{Map, Value};

pub use session::{Point, Session, Setup};

/// Time between two requests of a connection in an open loop.
pub const PERIOD_MS: u32 = 100;

/// A row of data.
pub type Row = Map<String, Value>;

/// Keeps what has been measured so far, so that an interrupted run leaves its data.
pub type Save<'a> = &'a dyn Fn(&[Row]) -> crate::error::Outcome<()>;

/// A number of a row; 0 if it is missing. `path`: names, with dots between them.
pub fn number(row: &Row, path: &str) -> f64 {
    let mut names = path.split('.');
    let mut value = names.next().and_then(|name| row.get(name));
    for name in names {
        value = value.and_then(|value| value.get(name));
    }
    value.and_then(Value::as_f64).unwrap_or(0.0)
}

/// What was asked for on the command line, or all if nothing was.
pub fn chosen<'a>(asked: &'a [u32], all: &'a [u32]) -> &'a [u32] {
    if asked.is_empty() { all } else { asked }
}

/// The period, in microseconds, in which that many connections make `rate` requests a second.
pub fn period_us(connections: u32, rate: f64) -> u32 {
    (f64::from(connections) * 1e6 / rate.max(1.0)).round().max(1.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_make_the_rate_that_is_asked_for() {
        assert_eq!(period_us(256, 51_200.0), 5_000);
        assert_eq!(period_us(64, 9_000.0), 7_111);
        assert_eq!(period_us(1, 1e9), 1, "not 0");
        assert_eq!(period_us(64, 0.0), 64_000_000, "a server that answered nothing");
    }

    #[test]
    fn numbers_are_found_by_their_path() {
        let row = serde_json::json!({ "sent": 3, "latency_us": { "p99": 1.5 } });
        let row = row.as_object().expect("an object");
        assert_eq!((number(row, "sent"), number(row, "latency_us.p99")), (3.0, 1.5));
        assert_eq!((number(row, "latency_us.p50"), number(row, "none")), (0.0, 0.0));
    }
}
