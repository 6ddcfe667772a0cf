//! What parts of the system cost a Linux program, in counted instructions: `user/linux/costs.c` on
//! COPS, and the same file on Linux for riscv64 in the same emulator.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Map;

use super::Rows;
use super::cpio::archive;
use super::linux;
use super::table::Table;
use super::words::{Line, listen_to_success};
use crate::build::linux::compile;
use crate::cli::Bench;
use crate::commands::Prepared;
use crate::error::{Because, Failure, Outcome};
use crate::linux_kernel::{self, LinuxKernel};
use crate::packages;
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

/// The program that measures, and the one that it starts.
const PROGRAMS: [&str; 2] = ["costs", "seven"];
/// Time limit of each of the two boots; not a criterion.
const LIMIT: Duration = Duration::from_secs(300);

/// The rows of the program, and what each of them measures.
const MEANINGS: [(&str, &str); 14] = [
    ("call", "a system call that does nothing: `getppid`"),
    ("fork_wait", "fork, a child that ends at once, wait"),
    ("fork_exec_wait", "fork, exec of a static program that ends at once, wait"),
    ("spawn_wait", "the same with `posix_spawn` instead of fork and exec"),
    ("pipe_round_trip", "a byte to another process and one back, through two pipes"),
    ("pipe_kibibyte", "1 KiB to another process, in writes of 64 KiB"),
    ("map_unmap", "`mmap` and `munmap` of 2 MiB that are not accessed"),
    ("page_fault", "the first write to an anonymous page"),
    ("copy_on_write_fault", "the first write to a page after a fork"),
    ("signal_handled", "`raise`, the handler, the return from it"),
    ("thread_create_join", "a thread that ends at once, and the wait for it"),
    ("futex_switch", "a switch to another thread that sleeps in a futex"),
    ("mutex_uncontended", "lock and unlock of a free mutex"),
    ("mutex_contended", "lock and unlock of a mutex for which another thread competes"),
];

/// A measured operation.
#[derive(Debug, Clone, PartialEq)]
struct Cost {
    name: String,
    /// Instructions per operation.
    cops: f64,
    linux: Option<f64>,
    /// Number of operations, of which this is the mean.
    count: u64,
}

impl Cost {
    /// COPS's instructions in relation to those of Linux.
    fn ratio(&self) -> Option<f64> {
        self.linux.map(|linux| self.cops / linux)
    }
}

/// What was measured.
pub struct Measured {
    pub rows: Rows,
    /// The version of the kernel of Linux. `None`: only COPS was measured.
    pub linux: Option<String>,
    /// The report in Markdown, if both were measured.
    pub report: Option<String>,
}

/// Measures and prints.
pub fn measure(workspace: &Workspace, prepared: &Prepared, options: &Bench) -> Outcome<Measured> {
    packages::ensure(&[packages::LINUX_GCC], Progress::Lines)?;
    let programs = build(workspace)?;
    let kernel = match linux_kernel::ensure(workspace, Progress::Lines) {
        Ok(kernel) => Some(kernel),
        Err(error) => {
            eprintln!(
                "cops: the kernel of Linux cannot be fetched, only COPS is measured:\n{error}"
            );
            None
        }
    };
    let cops = on_cops(prepared, options, &programs)?;
    let linux = match &kernel {
        Some(kernel) => on_linux(prepared, options, kernel, &programs)?,
        None => Vec::new(),
    };
    let costs = beside(&cops, &linux)?;
    println!("instructions per operation, one hart\n{}", table(&costs).plain());
    let report = kernel.as_ref().map(|kernel| report(&kernel.version, &costs));
    let rows = costs.iter().map(row).collect();
    Ok(Measured { rows, linux: kernel.map(|kernel| kernel.version), report })
}

/// Names of rows, and their instructions.
pub type NamedCosts = Vec<(String, f64)>;

/// The version of Linux, and the names and instructions of its rows; `None` if its kernel or what
/// its program is built with is not there.
///
/// # Errors
/// If the program fails.
pub fn only_linux(
    workspace: &Workspace,
    prepared: &Prepared,
    options: &Bench,
) -> Outcome<Option<(String, NamedCosts)>> {
    let ready = packages::ensure(&[packages::LINUX_GCC], Progress::Lines)
        .and_then(|()| linux_kernel::ensure(workspace, Progress::Lines));
    let kernel = match ready {
        Ok(kernel) => kernel,
        Err(error) => {
            eprintln!("cops: only COPS is measured, because Linux cannot be prepared:\n{error}");
            return Ok(None);
        }
    };
    let lines = on_linux(prepared, options, &kernel, &build(workspace)?)?;
    let rows = beside(&lines, &[])?.into_iter().map(|cost| (cost.name, cost.cops)).collect();
    Ok(Some((kernel.version, rows)))
}

/// Builds the programs into a folder that contains nothing else.
fn build(workspace: &Workspace) -> Outcome<PathBuf> {
    let folder = workspace.target.join("linux-costs");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).because(|| format!("cannot make {}", folder.display()))?;
    let mut step = Step::begin(Progress::Lines, "programs for Linux");
    for program in PROGRAMS {
        compile(workspace, program, &folder, &mut step)?;
    }
    step.done();
    Ok(folder)
}

fn on_cops(prepared: &Prepared, options: &Bench, programs: &Path) -> Outcome<Vec<Line>> {
    let step = Step::begin(Progress::Lines, "costs on COPS");
    let argv = [format!("/{}", PROGRAMS[0])];
    let mut boot = prepared.boot(&options.machine, &argv, &[programs.to_owned()])?;
    boot.make_repeatable();
    let lines = listen_to_success(&prepared.qemu, &boot, LIMIT)?;
    step.done();
    Ok(lines)
}

/// The lines of the program, which is process 1 of Linux and powers the machine off at its end.
fn on_linux(
    prepared: &Prepared,
    options: &Bench,
    kernel: &LinuxKernel,
    programs: &Path,
) -> Outcome<Vec<Line>> {
    let mut step = Step::begin(Progress::Lines, format!("costs on Linux {}", kernel.version));
    let root = initramfs(programs)?;
    let machine = linux::Machine { harts: 1, memory: &options.machine.mem };
    // The same clock, date and random numbers as COPS has in a repeatable run.
    let more = ["-icount", "shift=0,sleep=off", "-seed", "1"];
    let clock = ["-rtc", "base=2026-01-01T00:00:00,clock=vm"];
    let more: Vec<String> = more.iter().chain(&clock).map(ToString::to_string).collect();
    let lines = linux::run(prepared, kernel, &machine, &more, &root, LIMIT, &mut step)?;
    step.done();
    Ok(lines)
}

/// The root file system of Linux: the program as process 1, and a console for its output.
fn initramfs(programs: &Path) -> Outcome<Vec<u8>> {
    let read = |name: &str| {
        let file = programs.join(name);
        std::fs::read(&file).because(|| format!("cannot read {}", file.display()))
    };
    let [init, started] = [read(PROGRAMS[0])?, read(PROGRAMS[1])?];
    Ok(archive(
        &[
            &linux::console()[..],
            &[linux::program("init", &init), linux::program(PROGRAMS[1], &started)],
        ]
        .concat(),
    ))
}

/// The rows of both; `linux` is empty if it was not measured.
fn beside(cops: &[Line], linux: &[Line]) -> Outcome<Vec<Cost>> {
    let rows = |lines: &[Line]| {
        let rows = lines.iter().filter(|line| line.tag == "cost").map(|line| {
            let (name, instructions) = (line.text("name").to_owned(), line.text("nanoseconds"));
            let instructions = instructions.parse::<f64>().map_err(|_| {
                Failure::new(format!("the row {name} has no number: {instructions:?}"))
            })?;
            Ok(Cost { name, cops: instructions, linux: None, count: line.number("count")? })
        });
        rows.collect::<Outcome<Vec<_>>>()
    };
    let (mut costs, linux) = (rows(cops)?, rows(linux)?);
    for cost in &mut costs {
        cost.linux = linux.iter().find(|row| row.name == cost.name).map(|row| row.cops);
    }
    if costs.is_empty() || costs.iter().any(|cost| cost.linux.is_some() == linux.is_empty()) {
        return Err(Failure::new("the rows of COPS and Linux are not the same"));
    }
    Ok(costs)
}

/// The cells of a row: name, COPS, Linux, ratio, count.
fn cells(cost: &Cost) -> [String; 5] {
    let optional = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    [
        cost.name.clone(),
        format!("{:.0}", cost.cops),
        optional(cost.linux.map(|linux| format!("{linux:.0}"))),
        optional(cost.ratio().map(|ratio| format!("{ratio:.2}"))),
        cost.count.to_string(),
    ]
}

fn table(costs: &[Cost]) -> Table {
    let mut table = Table::new(1, &["name", "COPS", "Linux", "ratio", "count"]);
    for cost in costs {
        table.add(cells(cost));
    }
    table
}

fn report(version: &str, costs: &[Cost]) -> String {
    let mut table = Table::new(2, &["name", "what", "COPS", "Linux", "ratio", "count"]);
    for cost in costs {
        let [name, rest @ ..] = cells(cost);
        table.add([name, meaning(&cost.name).to_owned()].into_iter().chain(rest));
    }
    format!(
        "# What parts of the system cost a Linux program\n\n\
         Instructions per operation, of program and kernel together. The same file, the static \
         program `user/linux/costs.c`, runs on COPS and on Debian's Linux {version} for riscv64, in \
         the same QEMU with one hart. The emulator counts instructions as time (`-icount`), so the \
         speed of the host does not matter; caches and the time of memory accesses are not \
         modelled. Each row is the mean of `count` operations. `ratio` is COPS divided by Linux: \
         less than 1 if COPS executes fewer instructions.\n\n{}",
        table.markdown()
    )
}

/// What a row measures; empty if it is not known.
fn meaning(name: &str) -> &'static str {
    MEANINGS.iter().find(|(known, _)| *known == name).map_or("", |(_, meaning)| meaning)
}

fn row(cost: &Cost) -> Map<String, serde_json::Value> {
    let mut row = Map::new();
    row.insert("name".into(), cost.name.clone().into());
    row.insert("cops_instructions".into(), cost.cops.into());
    if let (Some(linux), Some(ratio)) = (cost.linux, cost.ratio()) {
        row.insert("linux_instructions".into(), linux.into());
        row.insert("ratio".into(), ratio.into());
    }
    row.insert("count".into(), cost.count.into());
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Line> {
        text.lines().filter_map(Line::parse).collect()
    }

    #[test]
    fn rows_are_shown_beside_each_other() {
        let cops = lines("cost: name=call nanoseconds=300.4 count=10\nall rows");
        let linux = lines("\r\ncost: name=call nanoseconds=600.8 count=10\r\nall rows\r\n");
        let costs = beside(&cops, &linux).unwrap();
        assert_eq!(cells(&costs[0]), ["call", "300", "601", "0.50", "10"]);
        assert_eq!(row(&costs[0])["ratio"], 0.5);
        assert!(report("6.1", &costs).contains("| call | a system call"));
        let alone = beside(&cops, &[]).unwrap();
        assert_eq!(cells(&alone[0]), ["call", "300", "-", "-", "10"]);
    }

    #[test]
    fn rows_that_do_not_match_are_an_error() {
        let good = lines("cost: name=call nanoseconds=1.0 count=10");
        for text in ["", "cost: name=call nanoseconds=x count=10", "cost: name=call nanoseconds=1"]
        {
            assert!(beside(&lines(text), &good).is_err(), "{text}");
        }
        assert!(beside(&good, &lines("cost: name=other nanoseconds=1.0 count=10")).is_err());
    }

    /// The names of the program's rows are the first arguments of two of its functions.
    #[test]
    fn each_row_of_the_program_has_a_meaning() {
        let source = include_str!("../../../../../user/linux/costs.c");
        let calls = ["row(\"", "faults(\""].map(|call| source.split(call).skip(1));
        let names = calls.into_iter().flatten().filter_map(|rest| rest.split('"').next());
        let mut names: Vec<_> = names.collect();
        let mut known = MEANINGS.map(|(name, _)| name);
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
    }
}
