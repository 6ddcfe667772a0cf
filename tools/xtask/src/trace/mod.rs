//! Traces: converts the records that the kernel writes to its console to a file for Perfetto or
//! Chrome's trace viewer.
//!
//! - `record`: one record.
//! - `dump`: the stream of records.
//! - `timeline`: their order.
//! - `story`: slices and arrows.
//! - `chrome`: writes these as JSON.
//! - `check`: checks such a file.
//! - `summary`: a summary for the terminal.

pub mod check;
pub mod chrome;
pub mod dump;
pub mod record;
pub mod story;
pub mod summary;
pub mod timeline;

#[cfg(test)]
mod tests;
