//! The benefit and the cost of priorities: how soon a most urgent coroutine runs that a timer or a
//! packet wakes while every hart computes for another process, with preemption on wake and with the
//! clock tick alone; and the instructions of each way across the boundary.
//!
//! A test (`usertests order`) shows that two processes run their coroutines in a common order; its
//! figures are repeated here.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::{Map, Value};

use super::Rows;
use super::table::Table;
use super::words::{self, Line};
use crate::cli::{Bench, Machine};
use crate::commands::Prepared;
use crate::error::{Because, Failure, Outcome};
use crate::qemu::command::{Boot, Idle};
use crate::qemu::console::PassThrough;
use crate::qemu::server::Server;
use crate::service;

/// Time limit of a boot for one measurement.
const LIMIT: Duration = Duration::from_secs(300);
/// Interval between two packets. Not a multiple of a time slice, so that packets arrive at all
/// positions within a slice.
const PACKET_PAUSE: Duration = Duration::from_micros(3700);
/// The guest's answer for a packet that was found late, without an interrupt (decision 59). A
/// greater one is for a packet that cannot be told from others.
const LATE: u64 = u64::MAX - 1;
/// The percentiles of a row, in thousandths.
const PERCENTILES: [(&str, usize); 4] = [("p50", 500), ("p95", 950), ("p99", 990), ("max", 1000)];

/// The configuration of kernel and machine.
struct Setting {
    clock: &'static str,
    harts: u32,
    preemption: &'static str,
}

/// One hart that counts instructions, with the kernel as it is.
const ONE_COUNTED_HART: Setting = Setting { clock: "instructions", harts: 1, preemption: "wake" };

pub fn measure(prepared: &Prepared, options: &Bench) -> Outcome<(Rows, String)> {
    let mut rows = Rows::new();
    let mut report = String::from("# What urgency is worth, and what it costs\n");

    let costs = costs(prepared, options)?;
    let table = cost_table(&costs);
    println!("\ninstructions, one hart\n{}", table.plain());
    report += &format!(
        "\n## Across the boundary, in instructions (one hart, counted)\n\n{}",
        table.markdown()
    );
    rows.extend(costs);

    let order = order(prepared, options)?;
    println!("order across two processes with the same eight priorities, all ready at once");
    let table = order_table(&order);
    println!("{}", table.plain());
    report += &format!(
        "\n## Order across two processes with the same eight priorities, all ready at once\n\n`yielding`: of both processes; `out of order`: pairs of \
         coroutines of which the less urgent began first; `overtaken`: most less urgent ones that began before one.\n\n{}",
        table.markdown()
    );
    rows.extend(order);

    let mut latencies = Rows::new();
    for setting in settings(options) {
        latencies.push(timer(prepared, options, &setting)?);
        let count = if options.quick { 60 } else { 500 };
        latencies.push(packets(prepared, &options.machine, &setting, count)?);
    }
    let table = latency_table(&latencies);
    println!(
        "a most urgent coroutine is woken while all harts compute at the least urgent level\n{}",
        table.plain()
    );
    report += &format!(
        "\n## A most urgent coroutine is woken while all harts compute at the least urgent level\n\nMicroseconds from the moment \
         the timer was to ring, or the kernel took the network device's interrupt, to the coroutine's next instruction. `tick`: a kernel \
         that looks for something more urgent only when a time slice of 10 ms is over (boot argument `preempt=tick`). \
         `found late`: packets that were looked for, within a millisecond, instead of interrupting \
         (decision 59). How long they took is not measured: they count as the longest, and a \
         percentile among them has no value.\n\n{}",
        table.markdown()
    );
    rows.extend(latencies);
    Ok((rows, report))
}

fn settings(options: &Bench) -> Vec<Setting> {
    let mut settings = Vec::new();
    let machines: &[(&str, u32)] = if options.icount {
        &[("instructions", 1)]
    } else {
        &[("instructions", 1), ("wall", 1), ("wall", 4)]
    };
    for &(clock, harts) in machines {
        for preemption in ["wake", "tick"] {
            settings.push(Setting { clock, harts, preemption });
        }
    }
    settings
}

impl Setting {
    fn boot(
        &self,
        prepared: &Prepared,
        machine: &Machine,
        argv: &[&str],
        idle: Idle,
    ) -> Outcome<Boot> {
        let mut machine = machine.clone();
        machine.smp = self.harts;
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        let mut boot = prepared.boot(&machine, &argv, &[])?;
        if self.preemption == "tick" {
            boot.boot_arguments.push("preempt=tick".into());
        }
        match idle {
            _ if self.clock == "wall" => {}
            Idle::Skipped => boot.make_repeatable(),
            // The benchmark's peer is outside.
            Idle::Waited | Idle::Aligned => boot.count_instructions = Some(idle),
        }
        Ok(boot)
    }

    fn row(&self, cause: &str) -> Map<String, Value> {
        let mut row = Map::new();
        row.insert("what".into(), "latency".into());
        row.insert("cause".into(), cause.into());
        row.insert("clock".into(), self.clock.into());
        row.insert("harts".into(), self.harts.into());
        row.insert("preemption".into(), self.preemption.into());
        row
    }
}

/// Runs on one hart that counts instructions.
fn counted(prepared: &Prepared, options: &Bench, argv: &[&str]) -> Outcome<Vec<Line>> {
    words::listen_to_success(
        &prepared.qemu,
        &ONE_COUNTED_HART.boot(prepared, &options.machine, argv, Idle::Skipped)?,
        LIMIT,
    )
}

// ---- what it costs
// ----------------------------------------------------------------------------------------------------

/// The program's names of operations, and their descriptions.
const OPERATIONS: [(&str, &str); 12] = [
    ("coroutine-switch", "one coroutine yields to another"),
    ("sync-getpid", "system call, synchronous: getpid"),
    ("sync-read-at-once", "read of a byte that is there, synchronous"),
    ("sync-write-at-once", "write of a byte without a waiting reader, synchronous"),
    ("async-read-at-once", "read of a byte that is there, asynchronous"),
    ("async-read-submitted", "asynchronous read that has to wait: until it is in flight"),
    (
        "async-read-completed",
        "... from the write that ends the wait (without it) until the reader resumes",
    ),
    (
        "wake-suppressed",
        "timer rings for a coroutine that is less urgent than the one that runs: it waits, and nothing is sent",
    ),
    ("user-interrupt", "... that is more urgent: posted, handler, id in the ready queue, return"),
    ("spawn-process", "start of a small process"),
    ("spawn-exit-wait", "... its whole life, and the wait for its end"),
    ("nothing", "nothing: what measuring takes, included above"),
];

fn costs(prepared: &Prepared, options: &Bench) -> Outcome<Rows> {
    let mut lines = counted(prepared, options, &["/bin/measure", "costs"])?;
    lines.extend(counted(prepared, options, &["/bin/measure", "interrupts"])?);
    let mut rows = Rows::new();
    for (operation, title) in OPERATIONS {
        let line = lines.iter().find(|line| line.tag == "cost" && line.text("op") == operation);
        let line =
            line.ok_or_else(|| Failure::new(format!("/bin/measure said nothing of {operation}")))?;
        let mut row = Map::new();
        row.insert("what".into(), "cost".into());
        row.insert("op".into(), operation.into());
        row.insert("title".into(), title.into());
        row.insert("instructions".into(), line.number("p50")?.into());
        for name in ["count", "min", "p99", "max"] {
            row.insert(name.into(), line.number(name)?.into());
        }
        if let Some(counters) =
            lines.iter().find(|line| line.tag == "interrupts" && line.text("op") == operation)
        {
            for name in ["rounds", "posted", "sent", "suppressed", "taken"] {
                row.insert(format!("interrupts_{name}"), counters.number(name)?.into());
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

fn cost_table(rows: &Rows) -> Table {
    let mut table = Table::new(1, &["operation", "p50", "p99", "max"]);
    for row in rows {
        table.add([
            row["title"].as_str().unwrap_or_default().to_owned(),
            row["instructions"].to_string(),
            row["p99"].to_string(),
            row["max"].to_string(),
        ]);
    }
    table
}

// ---- what it is worth
// -------------------------------------------------------------------------------------------------

/// The order that the test observes, on one hart that counts instructions and on four.
fn order(prepared: &Prepared, options: &Bench) -> Outcome<Rows> {
    let mut rows = Rows::new();
    for machine in [COUNTED, ("wall", 4)] {
        rows.extend(order_on(prepared, options, machine)?);
    }
    Ok(rows)
}

/// What is counted of an order.
pub(super) const ORDER: [&str; 4] = ["coroutines", "pairs", "out_of_order", "overtaken"];

/// The clock and the harts of a machine that counts.
pub(super) const COUNTED: (&str, u32) = ("instructions", 1);

/// The order of two processes with strict and with relaxed yielding, on a machine.
pub(super) fn order_on(
    prepared: &Prepared,
    options: &Bench,
    (clock, harts): (&'static str, u32),
) -> Outcome<Rows> {
    let setting = Setting { clock, harts, preemption: "wake" };
    let boot =
        setting.boot(prepared, &options.machine, &["/bin/usertests", "order::"], Idle::Skipped)?;
    let said = words::listen(&prepared.qemu, &boot, LIMIT)?;
    let found = said.lines.iter().filter(|line| line.tag == "order");
    let rows = found.map(|line| {
        let mut row = Map::new();
        row.insert("what".into(), "order".into());
        row.insert("yielding".into(), line.text("yielding").into());
        row.insert("clock".into(), clock.into());
        row.insert("harts".into(), harts.into());
        for name in ORDER {
            row.insert(name.into(), line.number(name)?.into());
        }
        Ok(row)
    });
    rows.collect()
}

fn order_table(rows: &Rows) -> Table {
    let mut table = Table::new(
        2,
        &["yielding", "clock", "harts", "coroutines", "pairs", "out of order", "overtaken"],
    );
    for row in rows {
        let text =
            |name: &str| row[name].as_str().map_or_else(|| row[name].to_string(), str::to_owned);
        table.add(
            ["yielding", "clock", "harts", "coroutines", "pairs", "out_of_order", "overtaken"]
                .map(text),
        );
    }
    table
}

/// The clock wakes a sleeper: `/bin/victim` beside a program that computes on all harts.
fn timer(prepared: &Prepared, options: &Bench, setting: &Setting) -> Outcome<Map<String, Value>> {
    let samples = format!("samples={}", if options.quick { 100 } else { 500 });
    // As urgent as its parent before it starts; otherwise it would wait for the end of a time slice
    // before it could raise its level.
    let argv = ["/bin/victim", "beside", &samples, "level=0", "mean-us=3700"];
    let boot = setting.boot(prepared, &options.machine, &argv, Idle::Skipped)?;
    let said = words::listen(&prepared.qemu, &boot, LIMIT)?;
    let probe = said.lines.iter().filter(|line| line.tag == "probe").nth(1);
    let probe = probe.ok_or_else(|| {
        Failure::new(format!("the victim did not finish ({:?})\n{}", said.ending, said.complaints))
    })?;
    let mut row = setting.row("timer");
    row.insert("samples".into(), probe.number("samples")?.into());
    for name in ["p50", "p99", "max"] {
        row.insert(
            format!("{name}_us"),
            (probe.number(&format!("woken_{name}_ns"))? as f64 / 1000.0).into(),
        );
    }
    Ok(row)
}

/// The row of `count` packets for a most urgent coroutine, on one hart with counted instructions.
pub fn counted_packets(
    prepared: &Prepared,
    machine: &Machine,
    count: usize,
) -> Outcome<Map<String, Value>> {
    packets(prepared, machine, &ONE_COUNTED_HART, count)
}

/// Packets come from outside; the guest reports how long each took.
fn packets(
    prepared: &Prepared,
    machine: &Machine,
    setting: &Setting,
    count: usize,
) -> Outcome<Map<String, Value>> {
    // The peer is outside of the machine: the guest's clock must not run ahead of it.
    let boot = setting.boot(prepared, machine, &["/bin/measure", "packets"], Idle::Waited)?;
    let sink = PassThrough { show_firmware: false, show_stdout: false };
    let (mut server, port) =
        Server::start_on_free_port(&prepared.qemu, &boot, service::PORT, sink)?;
    let peer = std::thread::spawn(move || exchange(port, count));
    server.attend(|| Ok(peer.is_finished().then_some(())))?;
    let latencies = peer.join().map_err(|_| Failure::new("the peer of the guest panicked"))??;
    server.shut_down();
    let known = latencies.iter().filter(|&&latency| latency < LATE).count();
    if known < count / 2 {
        let only = format!("of {count} packets only {known} can be told from others");
        return Err(Failure::new(only));
    }
    let mut row = setting.row("packet");
    row.extend(percentiles(latencies));
    Ok(row)
}

/// The columns for the guest's answers. Those that say no time count as longer than those that do:
/// a percentile that is one of them has no value.
fn percentiles(mut answers: Vec<u64>) -> Map<String, Value> {
    answers.sort_unstable();
    let late = answers.iter().filter(|&&answer| answer == LATE).count();
    let mut columns = Map::new();
    columns.insert("samples".into(), answers.len().into());
    columns.insert("found_late".into(), late.into());
    for (name, thousandths) in PERCENTILES {
        let rank = (answers.len() * thousandths).div_ceil(1000).max(1);
        let answer = answers.get(rank - 1).copied().filter(|&answer| answer < LATE);
        let microseconds = answer.map(|nanoseconds| nanoseconds as f64 / 1000.0);
        columns.insert(format!("{name}_us"), microseconds.into());
    }
    columns
}

/// Sends single bytes and collects the answers.
fn exchange(port: u16, count: usize) -> Outcome<Vec<u64>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .because(|| "cannot reach the guest".into())?;
    let lost = || "the guest does not answer".to_owned();
    stream.set_nodelay(true).because(lost)?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).because(lost)?;
    (0..count)
        .map(|_| {
            std::thread::sleep(PACKET_PAUSE);
            let mut answer = [0; 8];
            stream.write_all(&[1]).because(lost)?;
            stream.read_exact(&mut answer).because(lost)?;
            Ok(u64::from_le_bytes(answer))
        })
        .collect()
}

fn latency_table(rows: &Rows) -> Table {
    let mut table = Table::new(
        3,
        &[
            "woken by",
            "clock",
            "preemption",
            "harts",
            "samples",
            "found late",
            "p50 us",
            "p95 us",
            "p99 us",
            "max us",
        ],
    );
    for row in rows {
        let text =
            |name: &str| row[name].as_str().map_or_else(|| row[name].to_string(), str::to_owned);
        let number = |name: &str| {
            let number = row.get(name).and_then(Value::as_f64);
            number.map_or_else(|| "–".to_owned(), |number| format!("{number:.1}"))
        };
        table.add([
            text("cause"),
            text("clock"),
            text("preemption"),
            text("harts"),
            text("samples"),
            row.get("found_late").map_or_else(|| "–".to_owned(), ToString::to_string),
            number("p50_us"),
            number("p95_us"),
            number("p99_us"),
            number("max_us"),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_packet_that_was_found_late_is_no_faster_than_the_others() {
        let columns = |late: u64, unknown: u64| {
            let known = (late + unknown..500).rev().map(|latency| latency * 1000);
            let others = (0..late).map(|_| LATE).chain((0..unknown).map(|_| LATE + 1));
            let columns = percentiles(others.chain(known).collect());
            ["samples", "found_late", "p50_us", "p95_us", "p99_us", "max_us"]
                .map(|name| columns[name].clone())
        };
        let all = columns(0, 0);
        assert_eq!(
            all,
            [json!(500), json!(0), json!(249.0), json!(474.0), json!(494.0), json!(499.0)]
        );
        let some = columns(7, 0);
        assert_eq!(some[..4], [json!(500), json!(7), json!(256.0), json!(481.0)]);
        assert_eq!(some[4..], [Value::Null, Value::Null]);
        assert_eq!(columns(20, 6)[2..4], [json!(275.0), Value::Null]);
    }
}
