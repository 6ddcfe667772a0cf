//! Raw data to tables and plots. Responsible for how figures look: aligned text tables for
//! terminals, SVG files for readers. Knows nothing of COPS: callers bring plain data and
//! labels; the functions return strings, and writing them somewhere is the caller's.
//!
//! SVG text names the generic family `sans-serif` and is laid out by the viewer, so no font
//! library is needed to build or run this.
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
