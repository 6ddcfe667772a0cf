//! Load generator for the matrix service: a TCP client that drives a server, checks every product
//! and reports the results. It depends only on the server's wire format, so it works with any
//! program that implements it.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`arguments`] | the command line |
//! | [`connection`] | bytes of one connection: requests out, answers in |
//! | [`opening`] | opening all connections at a limited rate |
//! | [`load`] | the event loop: what is sent when, what is measured |
//! | [`statistics`] | latencies, jitter, answers over time |
//! | [`outcome`] | rows, table, JSON, CSV, plots |
//! | [`output`] | standard output that may be closed |
//! | [`hostile`] | hostile clients, and whether the server survives them |
//!
//! Everything runs on one thread, because a measuring client must not compete with itself.
//!
//! # Bounds
//!
//! Time: `--connect-timeout-seconds` for each connection, then warm-up, measuring window and drain
//! as given; no wait is longer. Memory: per connection two messages (3.6 KiB at 15 x 15) and a
//! socket, per class a latency histogram (about 220 KiB), 8 bytes per class for each 10 ms of the
//! run. A slow server costs no memory here: requests that are due but cannot be written are only
//! counted, and are created when the socket takes them.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod arguments;
pub mod clock;
pub mod connection;
pub mod hostile;
pub mod load;
pub mod opening;
pub mod outcome;
pub mod output;
pub mod progress;
pub mod statistics;
