//! Load generator for the matrix service: a real TCP client that drives a server, checks
//! every product and reports what it saw. Knows the server by its wire format alone, so it
//! works against any program that speaks it.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`arguments`] | the command line |
//! | [`workload`] | which matrices are sent, and whether an answer is right |
//! | [`connection`] | bytes of one connection: requests out, answers in |
//! | [`opening`] | opening all connections, gently |
//! | [`load`] | the event loop: when what is sent, what is measured |
//! | [`statistics`] | latencies, jitter, answers over time |
//! | [`outcome`] | rows, table, JSON, CSV, plots |
//! | [`hostile`] | bad clients, and whether the server survives them |
//!
//! Everything runs on one thread: a client that measures must not compete with itself.
//!
//! # Bounds
//!
//! Time: `--connect-timeout-seconds` for each connection, then warm-up, measuring window and
//! drain as given; nothing waits longer. Memory: per connection two messages (3.6 KiB at
//! 15 x 15) and a socket, per class a latency histogram (about 220 KiB), 8 bytes per class for
//! each 10 ms of the run. A server that falls behind costs no memory here: requests that are due but
//! cannot be written are a number, and are made when the socket takes them.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod arguments;
pub mod clock;
pub mod connection;
pub mod hostile;
pub mod load;
pub mod opening;
pub mod outcome;
pub mod progress;
pub mod statistics;
pub mod workload;
