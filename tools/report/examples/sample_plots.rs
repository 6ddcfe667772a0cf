//! Draws both plots from invented data, to check the style: `cargo run -p cops-report --example
//! sample_plots -- DIRECTORY`.

use std::path::PathBuf;

use cops_report::{Colours, LatencyPlot, LatencySeries, ThroughputPlot, ThroughputSeries};

fn latencies(label: &str, middle_us: f64, tail: f64) -> LatencySeries {
    let count = |at: i32| {
        (4000.0 * (-f64::from(at * at) / 900.0).exp() + 60.0 * (-f64::from(at) / tail).exp()) as u64
    };
    let buckets = (-60..120)
        .map(|at| (middle_us * 1.02_f64.powi(at), count(at.max(-60))))
        .filter(|(_, n)| *n > 0);
    LatencySeries { label: label.into(), buckets: buckets.collect() }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("usage: sample_plots DIRECTORY")?);
    for classes in [1, 8] {
        let name = |at: i32| if classes == 1 { "all".into() } else { format!("class {at}") };
        let latency = LatencyPlot {
            title: "Latency (invented data)".into(),
            subtitle: "64 connections, 15 x 15 u64, open loop, period 100 ms, 5 s measured".into(),
            colours: Colours::Ordered,
            series: (0..classes)
                .map(|at| {
                    latencies(&name(at), 400.0 * 1.5_f64.powi(at), 20.0 + 5.0 * f64::from(at))
                })
                .collect(),
        };
        let throughput = ThroughputPlot {
            title: "Throughput (invented data)".into(),
            subtitle: latency.subtitle.clone(),
            colours: Colours::Ordered,
            interval_seconds: 0.1,
            window_seconds: (1.0, 6.0),
            offered_rps: Some(640.0),
            series: (0..classes)
                .map(|at| ThroughputSeries {
                    label: name(at),
                    answers: (0..61)
                        .map(|t| (64 + (t * 7 + at as u64 * 3) % 5 - 2) / classes as u64)
                        .collect(),
                })
                .collect(),
        };
        std::fs::write(directory.join(format!("latency-{classes}.svg")), latency.to_svg()?)?;
        std::fs::write(directory.join(format!("throughput-{classes}.svg")), throughput.to_svg()?)?;
    }
    Ok(())
}
