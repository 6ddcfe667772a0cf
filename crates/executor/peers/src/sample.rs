//! What one run of one operation gives, and how it gets from the child that ran it to the parent.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// One run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// How often the operation was done.
    pub operations: u64,
    /// Wall time of all of them, without setting up.
    pub nanoseconds: u64,
    /// Of a row that counts: one count for each trial, sorted.
    pub counts: Vec<u64>,
    /// Of the row of bytes: bytes that live, for all operations.
    pub bytes: u64,
}

impl Sample {
    /// One line, for the parent.
    pub fn to_json(&self) -> Value {
        json!({
            "operations": self.operations,
            "nanoseconds": self.nanoseconds,
            "counts": self.counts,
            "bytes": self.bytes,
        })
    }

    /// Reads what `to_json` wrote.
    pub fn from_json(text: &str) -> Option<Sample> {
        let value: Value = serde_json::from_str(text).ok()?;
        let counts = value["counts"].as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()?;
        Some(Sample {
            operations: value["operations"].as_u64()?,
            nanoseconds: value["nanoseconds"].as_u64()?,
            counts,
            bytes: value["bytes"].as_u64()?,
        })
    }

    /// Wall nanoseconds of one operation.
    pub fn nanoseconds_each(&self) -> f64 {
        self.nanoseconds as f64 / self.operations as f64
    }
}

/// Started and stopped inside a coroutine, read outside.
#[derive(Clone, Copy, Debug)]
pub struct Clock(&'static Times);

#[derive(Debug, Default)]
struct Times {
    began: OnceLock<Instant>,
    took: OnceLock<Duration>,
}

impl Clock {
    /// A clock that stands.
    pub fn new() -> Clock {
        Clock(Box::leak(Box::default()))
    }

    /// Once.
    pub fn start(self) {
        self.0.began.set(Instant::now()).expect("a clock is started once");
    }

    /// Once, after `start`.
    pub fn stop(self) {
        let began = self.0.began.get().expect("a clock is started before it is stopped");
        self.0.took.set(began.elapsed()).expect("a clock is stopped once");
    }

    /// The sample of a run in which `operations` were timed.
    pub fn sample(self, operations: u64) -> Sample {
        let took = self.0.took.get().expect("the parent ran to its end");
        Sample { operations, nanoseconds: took.as_nanos() as u64, ..Sample::default() }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_survives_the_pipe() {
        let sample = Sample { operations: 7, nanoseconds: 9, counts: vec![0, 3], bytes: 1 << 40 };
        assert_eq!(Sample::from_json(&sample.to_json().to_string()), Some(sample));
        assert_eq!(Sample::from_json("{}"), None);
        assert_eq!(Sample::from_json("thread panicked"), None);
    }
}
