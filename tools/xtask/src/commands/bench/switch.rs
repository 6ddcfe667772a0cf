//! What switches and entries into the kernel cost, in counted instructions: `/bin/measure costs`,
//! `switches` and `interrupts`, beside the rows of Linux that measure the same
//! (`user/linux/costs.c`), and beside what the tests allow. The rows of a coroutine that yields
//! have the order that two processes keep with that kind of yielding (`usertests order::`).

use std::time::Duration;

use serde_json::{Map, Value};

use super::Rows;
use super::costs;
use super::table::Table;
use super::wakeups::{COUNTED, ORDER, order_on};
use super::words::{Line, listen_to_success};
use crate::cli::Bench;
use crate::commands::Prepared;
use crate::error::{Failure, Outcome};
use crate::switch_budget::SwitchBudget;
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

/// Time limit of a boot; not a criterion.
const LIMIT: Duration = Duration::from_secs(300);

/// Parts of `/bin/measure` that measure operations.
pub const PARTS: [&str; 3] = ["switches", "costs", "interrupts"];

/// A row of `user/linux/costs.c`, and how many operations one of it consists of.
type OfLinux = Option<(&'static str, f64)>;

/// The operations: name, what it is, the row of Linux.
const OPERATIONS: [(&str, &str, OfLinux); 18] = [
    ("coroutine-switch", "one coroutine yields to another, relaxed", None),
    ("coroutine-switch-strict", "... with strict yielding", None),
    ("coroutine-wake-switch", "a coroutine wakes another one and blocks", None),
    ("coroutine-spawn-join", "the whole life of a coroutine, and the wait for it", None),
    ("thread-yield-switch", "one thread yields to another", None),
    ("thread-wake-switch", "a thread wakes another one and sleeps", Some(("futex_switch", 1.0))),
    (
        "thread-spawn-join",
        "the whole life of a thread, and the wait for it",
        Some(("thread_create_join", 1.0)),
    ),
    ("process-yield-switch", "one process yields to another", None),
    (
        "process-pipe-switch",
        "a byte to another process, which waits for it",
        Some(("pipe_round_trip", 2.0)),
    ),
    ("sync-getpid", "a system call that does nothing", Some(("call", 1.0))),
    ("sync-read-at-once", "a read of a byte that is there, synchronous", None),
    ("sync-write-at-once", "a write of a byte, synchronous", None),
    ("async-read-at-once", "a read of a byte that is there, asynchronous", None),
    ("async-read-submitted", "an asynchronous read that waits: until it is in flight", None),
    ("async-read-completed", "... from the write that ends the wait to the reader", None),
    ("wake-suppressed", "a clock interrupt that wakes a less urgent coroutine", None),
    (
        "user-interrupt",
        "... a more urgent one, by a user-level interrupt",
        Some(("signal_handled", 1.0)),
    ),
    ("spawn-exit-wait", "the whole life of a process, and the wait for it", None),
];

/// The operations that differ in the kind of yielding.
const YIELDING: [(&str, &str); 2] =
    [("coroutine-switch", "relaxed"), ("coroutine-switch-strict", "strict")];

/// What was measured.
pub struct Measured {
    pub rows: Rows,
    /// The version of the kernel of Linux. `None`: only COPS was measured.
    pub linux: Option<String>,
}

/// The lines of one part of `/bin/measure`.
///
/// # Errors
/// If it does not end with success.
pub fn counted(prepared: &Prepared, options: &Bench, part: &str) -> Outcome<Vec<Line>> {
    let argv = ["/bin/measure", part].map(str::to_owned);
    let mut boot = prepared.boot(&options.machine, &argv, &[])?;
    boot.make_repeatable();
    listen_to_success(&prepared.qemu, &boot, LIMIT)
}

/// The median of an operation in these lines.
pub fn median(lines: &[Line], operation: &str) -> Option<u64> {
    let line = lines.iter().find(|line| line.tag == "cost" && line.text("op") == operation)?;
    line.number("p50").ok()
}

/// Measures and prints.
pub fn measure(workspace: &Workspace, prepared: &Prepared, options: &Bench) -> Outcome<Measured> {
    let budget = SwitchBudget::read(workspace)?;
    let mut lines = Vec::new();
    for part in PARTS {
        let step = Step::begin(Progress::Lines, format!("{part} on COPS"));
        lines.extend(counted(prepared, options, part)?);
        step.done();
    }
    let step = Step::begin(Progress::Lines, "order of two processes".to_owned());
    let orders = order_on(prepared, options, COUNTED)?;
    step.done();
    let linux = costs::only_linux(workspace, prepared, options)?;
    let rows = OPERATIONS.iter().map(|(operation, what, of_linux)| {
        let instructions = median(&lines, operation)
            .ok_or_else(|| Failure::new(format!("/bin/measure said nothing of {operation}")))?;
        let of_linux = of_linux.and_then(|(name, count)| {
            let (_, rows) = linux.as_ref()?;
            let (_, each) = rows.iter().find(|(row, _)| row == name)?;
            Some(each / count)
        });
        let mut row = Map::new();
        row.insert("op".into(), (*operation).into());
        row.insert("what".into(), (*what).into());
        row.insert("instructions".into(), instructions.into());
        // The emulator's clock counts instructions, one for each nanosecond.
        row.insert("ns".into(), instructions.into());
        row.insert("allowed".into(), budget.allowed(operation).into());
        row.insert("linux_instructions".into(), of_linux.into());
        row.extend(order_of(operation, &orders)?);
        Ok(row)
    });
    let rows = rows.collect::<Outcome<Rows>>()?;
    println!("instructions, one hart\n{}", table(&rows).plain());
    Ok(Measured { rows, linux: linux.map(|(version, _)| version) })
}

/// The order with the kind of yielding of an operation: the pairs of coroutines, and those of which
/// the less urgent one began first. Nothing for operations that do not depend on it.
fn order_of(operation: &str, orders: &Rows) -> Outcome<Map<String, Value>> {
    let Some((_, yielding)) = YIELDING.iter().find(|(name, _)| *name == operation) else {
        return Ok(Map::new());
    };
    let order = orders.iter().find(|order| order["yielding"] == *yielding);
    let order = order.ok_or_else(|| Failure::new(format!("usertests said no {yielding} order")))?;
    Ok(ORDER.iter().map(|name| ((*name).to_owned(), order[*name].clone())).collect())
}

fn table(rows: &Rows) -> Table {
    let columns = ["op", "what", "COPS", "allowed", "Linux", "ratio", "out of order"];
    let mut table = Table::new(2, &columns);
    for row in rows {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| row[name].as_f64();
        let shown = |number: Option<f64>, digits: usize| {
            number.map_or_else(|| "-".to_owned(), |number| format!("{number:.digits$}"))
        };
        let [cops, linux] = ["instructions", "linux_instructions"].map(number);
        let ratio = cops.zip(linux).map(|(cops, linux)| cops / linux);
        let allowed = number("allowed");
        let count = |name: &str| row.get(name)?.as_u64();
        let order = count("out_of_order").zip(count("pairs"));
        let order = order.map_or_else(|| "-".to_owned(), |(out, all)| format!("{out} of {all}"));
        table.add(
            [text("op"), text("what"), shown(cops, 0), shown(allowed, 0)].into_iter().chain([
                shown(linux, 0),
                shown(ratio, 2),
                order,
            ]),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_median_of_an_operation_is_found() {
        let text = "cost: op=a count=3 p50=7 max=9\ncost: op=b count=3 p50=8 max=9\n";
        let lines: Vec<Line> = text.lines().filter_map(Line::parse).collect();
        assert_eq!((median(&lines, "b"), median(&lines, "c")), (Some(8), None));
    }

    #[test]
    fn each_operation_has_a_budget() {
        let budget = include_str!("../../../../../docs/switch-budget.txt");
        for (operation, ..) in OPERATIONS {
            let is_there = |line: &str| line.split_whitespace().next() == Some(operation);
            assert!(budget.lines().any(is_there), "{operation}");
        }
    }

    #[test]
    fn a_table_has_the_ratio_to_linux() {
        let row = |linux: Value| {
            let mut row = Map::new();
            for (name, value) in
                [("op", "a".into()), ("what", "b".into()), ("instructions", 50.into())]
            {
                row.insert(name.to_owned(), value);
            }
            row.insert("allowed".into(), 60.into());
            row.insert("linux_instructions".into(), linux);
            row
        };
        let text = table(&vec![row(100.0.into()), row(Value::Null)]).plain();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert!(lines[0].ends_with("0.50             -") && lines[1].ends_with('-'), "{text}");
    }

    #[test]
    fn the_rows_of_yielding_have_their_order() {
        let order = |yielding: &str, out: u64| {
            let order = json!({ "yielding": yielding, "coroutines": 48, "pairs": 1008,
                "out_of_order": out, "overtaken": 0 });
            order.as_object().expect("an object").clone()
        };
        let orders = vec![order("strict", 0), order("relaxed", 252)];
        let of = |operation: &str| order_of(operation, &orders).expect("has an order");
        assert_eq!(of("coroutine-switch")["out_of_order"], 252);
        assert_eq!(of("coroutine-switch-strict")["out_of_order"], 0);
        assert!(of("sync-getpid").is_empty());
        assert!(order_of("coroutine-switch", &vec![]).is_err());
    }
}
