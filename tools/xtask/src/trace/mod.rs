//! Traces: from the records that the kernel writes to its console to a file for Perfetto or Chrome's trace viewer.
//!
//! `record` is one record, `dump` the stream of them, `timeline` puts them in order, `story` makes slices and arrows of them,
//! `chrome` writes those as JSON, `check` says whether such a file is well-formed, `summary` is for the terminal.

pub mod check;
pub mod chrome;
pub mod dump;
pub mod record;
pub mod story;
pub mod summary;
pub mod timeline;

#[cfg(test)]
mod tests;
