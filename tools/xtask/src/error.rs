//! Failures as messages: what went wrong, with which value, and what to do.
//!
//! Everything in xtask that can fail returns [`Outcome`]; `main` prints the failure and exits with
//! its status.

use std::fmt;

/// Exit status of a command that could not do its work, or not write its output (as with
/// `docker run` and `env`).
pub const STATUS_FAILED: u8 = 125;

/// A failure with a complete message.
#[derive(Debug)]
pub struct Failure {
    what: String,
    advice: Option<String>,
}

pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// `what` says what went wrong and names the faulty value.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), advice: None }
    }

    /// Adds what the user can do about it.
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)?;
        match &self.advice {
            Some(advice) => write!(formatter, "\n  {advice}"),
            None => Ok(()),
        }
    }
}

/// Converts errors of the standard library to failures that say what was being done.
pub trait Because<T> {
    /// `what` reads like "cannot read FILE"; the cause is appended after a colon.
    fn because(self, what: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: fmt::Display> Because<T> for Result<T, E> {
    fn because(self, what: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|cause| Failure::new(format!("{}: {cause}", what())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_as_cause_then_advice() {
        let missing: Result<(), &str> = Err("no such file");
        let failure =
            missing.because(|| "cannot read x".into()).unwrap_err().advise("make x first");
        assert_eq!(failure.to_string(), "cannot read x: no such file\n  make x first");
    }
}
