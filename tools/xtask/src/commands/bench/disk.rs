//! Requests that the guest's disk serves, by the number of coroutines that make them: the guest's
//! `measure disk`, which checks what it reads, on a disk where each word contains its position.

use std::time::Duration;

use serde_json::{Map, Value};

use super::Rows;
use super::words::{Line, listen_to_success};
use crate::cli::Bench;
use crate::commands::{Prepared, disk_of_positions};
use crate::error::Outcome;
use crate::qemu::command::Disk;

/// Size of the disk: larger than what one row transfers.
const BYTES: u64 = 128 << 20;
/// Time limit for all rows.
const LIMIT: Duration = Duration::from_secs(300);

pub fn measure(prepared: &Prepared, options: &Bench) -> Outcome<Rows> {
    let file = prepared.scratch_file("disk");
    disk_of_positions(&file, BYTES)?;
    let argv = ["/bin/measure".to_owned(), "disk".to_owned()];
    let mut boot = prepared.boot(&options.machine, &argv, &[])?;
    boot.disk = Some(Disk { file, requests_per_second: None });
    let lines = listen_to_success(&prepared.qemu, &boot, LIMIT)?;
    let rows =
        lines.iter().filter(|line| line.tag == "disk").map(row).collect::<Outcome<Rows>>()?;
    println!("operation  order       bytes  coroutines  requests/s    MB/s");
    for row in &rows {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        println!(
            "{:<9}  {:<10}  {:>5}  {:>10}  {:>10.0}  {:>6.1}",
            text("operation"),
            text("order"),
            row["bytes"].to_string(),
            row["coroutines"].to_string(),
            row["requests_per_second"].as_f64().unwrap_or_default(),
            row["megabytes_per_second"].as_f64().unwrap_or_default(),
        );
    }
    Ok(rows)
}

/// The row of a line of the guest.
fn row(line: &Line) -> Outcome<Map<String, Value>> {
    let seconds = line.number("microseconds")?.max(1) as f64 / 1e6;
    let (requests, bytes) = (line.number("requests")?, line.number("bytes")?);
    let per_second = requests as f64 / seconds;
    let mut row = Map::new();
    row.insert("operation".into(), line.text("operation").into());
    row.insert("order".into(), line.text("order").into());
    row.insert("bytes".into(), bytes.into());
    row.insert("coroutines".into(), line.number("coroutines")?.into());
    row.insert("requests".into(), requests.into());
    row.insert("requests_per_second".into(), per_second.into());
    row.insert("megabytes_per_second".into(), (per_second * bytes as f64 / 1e6).into());
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_rates() {
        let line = Line::parse(
            "disk: operation=read order=random bytes=4096 coroutines=16 requests=5000 microseconds=2000000",
        );
        let row = row(&line.unwrap()).unwrap();
        assert_eq!(row["requests_per_second"], 2500.0);
        assert_eq!(row["megabytes_per_second"], 10.24);
    }
}
