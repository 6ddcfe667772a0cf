//! Tables and plots from raw data: aligned text tables for terminals, and SVG files. It defines the
//! style of figures and does not depend on COPS: callers provide plain data and labels; the
//! functions return strings, which callers write to files.
//!
//! SVG text uses the generic family `sans-serif`, which the viewer lays out, so no font library is
//! needed.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod canvas;
mod latency;
mod table;
mod throughput;
pub mod units;

pub use canvas::{Colours, PlotError};
pub use latency::{LatencyPlot, LatencySeries};
pub use table::Table;
pub use throughput::{ThroughputPlot, ThroughputSeries};
