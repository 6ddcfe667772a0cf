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
    /// Processor time of all threads meanwhile.
    pub cpu_nanoseconds: u64,
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
            "cpu_nanoseconds": self.cpu_nanoseconds,
            "counts": self.counts,
            "bytes": self.bytes,
        })
    }

    /// Reads what `to_json` wrote.
    pub fn from_json(text: &str) -> Option<Sample> {
        let value: Value = serde_json::from_str(text).ok()?;
        let counts =
            value["counts"].as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()?;
        Some(Sample {
            operations: value["operations"].as_u64()?,
            nanoseconds: value["nanoseconds"].as_u64()?,
            cpu_nanoseconds: value["cpu_nanoseconds"].as_u64()?,
            counts,
            bytes: value["bytes"].as_u64()?,
        })
    }

    /// Wall nanoseconds of one operation.
    pub fn nanoseconds_each(&self) -> f64 {
        self.nanoseconds as f64 / self.operations as f64
    }

    /// Nanoseconds of processor time of one operation.
    pub fn cpu_nanoseconds_each(&self) -> f64 {
        self.cpu_nanoseconds as f64 / self.operations as f64
    }
}

/// Started and stopped inside a coroutine, read outside.
#[derive(Clone, Copy, Debug)]
pub struct Clock(&'static Times);

#[derive(Debug, Default)]
struct Times {
    began: OnceLock<(Instant, Duration)>,
    took: OnceLock<(Duration, Duration)>,
}

impl Clock {
    /// A clock that stands.
    pub fn new() -> Clock {
        Clock(Box::leak(Box::default()))
    }

    /// Once.
    pub fn start(self) {
        self.0.began.set((Instant::now(), processor_time())).expect("a clock is started once");
    }

    /// Once, after `start`.
    pub fn stop(self) {
        let (began, cpu_began) =
            self.0.began.get().expect("a clock is started before it is stopped");
        let took = (began.elapsed(), processor_time().saturating_sub(*cpu_began));
        self.0.took.set(took).expect("a clock is stopped once");
    }

    /// The sample of a run in which `operations` were timed.
    pub fn sample(self, operations: u64) -> Sample {
        let (took, cpu) = self.0.took.get().expect("the parent ran to its end");
        let (nanoseconds, cpu_nanoseconds) = (took.as_nanos() as u64, cpu.as_nanos() as u64);
        Sample { operations, nanoseconds, cpu_nanoseconds, ..Sample::default() }
    }
}

/// Of all threads of this process, those that have ended among them.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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
        let sample = Sample {
            operations: 7,
            nanoseconds: 9,
            cpu_nanoseconds: 8,
            counts: vec![0, 3],
            bytes: 1 << 40,
        };
        assert_eq!(Sample::from_json(&sample.to_json().to_string()), Some(sample));
        assert_eq!(Sample::from_json("{}"), None);
        assert_eq!(Sample::from_json("thread panicked"), None);
    }
}
