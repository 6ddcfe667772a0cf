//! Tests `./cops top` with running `./cops serve`s as child processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Case, Context, cops, step};
use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
use crate::process::{Captured, capture};

/// Time limit of one call of `./cops top`, which takes a second by itself.
const LIMIT: Duration = Duration::from_secs(180);
/// Longer than the kernel takes for a picture when nothing is in its way.
const STANDSTILL: Duration = Duration::from_secs(6);
const STATUS_FAILED: i32 = crate::error::STATUS_FAILED as i32;

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    // Built once here, with visible progress.
    context.prepared()?;
    let _step = step("./cops top on two servers");
    let first = Server::start()?;
    let mut cases = vec![
        judge("one picture of one server", &top(&["--once", &first.pid()])?, 0, |result| {
            // Its main coroutine waits for connections, and each hart has a line.
            let harts = result
                .stdout
                .lines()
                .filter(|line| line.trim_end().ends_with(" -") || line.contains("/0"))
                .count();
            let shows = ["bin/matrix-server", "2 harts", "PROCESSES %", "of 5"]
                .iter()
                .all(|part| result.stdout.contains(part));
            if shows && harts >= 2 {
                None
            } else {
                Some("the picture lacks harts or the server".into())
            }
        }),
        judge(
            "as JSON",
            &top(&["--json", &first.pid()])?,
            0,
            |result| match serde_json::from_str::<Value>(&result.stdout) {
                Ok(json) => {
                    let name = json["processes"][0]["name"].as_str().unwrap_or_default();
                    let harts = json["harts"].as_array().map_or(0, Vec::len);
                    let frames = json["statistics"]["frames_total"].as_u64().unwrap_or_default();
                    let is_whole = name.ends_with("bin/matrix-server") && harts == 2 && frames > 0;
                    if is_whole {
                        None
                    } else {
                        Some(format!("{name:?}, {harts} harts, {frames} frames"))
                    }
                }
                Err(error) => Some(format!("no JSON: {error}")),
            },
        ),
    ];
    let name = "a machine that stands still for a while";
    let looked = first.look_while_it_stands_still()?;
    cases.push(judge(name, &looked, 0, |_| None));
    cases.push(judge("the server after that", &top(&["--once", &first.pid()])?, 0, |_| None));
    let second = Server::start()?;
    cases.push(judge("each of two servers", &top(&["--once", &second.pid()])?, 0, |_| None));
    let both = [first.child.id().to_string(), second.child.id().to_string()];
    cases.push(judge("two servers and none chosen", &top(&["--once"])?, STATUS_FAILED, |result| {
        let names =
            both.iter().all(|pid| result.stderr.contains(pid)) && result.stderr.contains("--pid");
        if names { None } else { Some("the message does not say what to do".into()) }
    }));
    let gone = first.pid();
    for (name, server) in
        [("the first server ends in order", first), ("the second does too", second)]
    {
        cases.push(Case::judged(name, &server.end()?));
    }
    cases.push(judge(
        "a server that has ended",
        &top(&["--once", &gone])?,
        STATUS_FAILED,
        |result| {
            if result.stderr.contains("./cops serve") {
                None
            } else {
                Some("the message does not name the command".into())
            }
        },
    ));
    Ok(cases)
}

fn judge(
    name: &str,
    result: &Captured,
    status: i32,
    check: impl FnOnce(&Captured) -> Option<String>,
) -> Case {
    let mut wrong: Vec<String> = check(result).into_iter().collect();
    if result.status.and_then(|status| status.code()) != Some(status) {
        wrong.push(format!("{}, not exit code {status}", result.ending()));
    }
    if !wrong.is_empty() {
        wrong.push(result.everything());
    }
    Case::judged(name, &wrong)
}

fn top(arguments: &[&str]) -> Outcome<Captured> {
    capture(
        cops()?
            .arg("top")
            .args(["--interval", "0.2"].iter().filter(|_| !arguments.contains(&"--json")))
            .args(arguments),
        Some(LIMIT),
        |_| (),
    )
}

/// A running `./cops serve`. Dropping it ends it.
struct Server {
    child: Child,
    _guard: interrupt::Guard,
}

impl Server {
    /// Starts one and waits until it serves.
    fn start() -> Outcome<Self> {
        let mut child = cops()?
            .args(["serve", "--smp", "2", "/bin/matrix-server"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .because(|| "cannot start ./cops serve".into())?;
        let guard = interrupt::guard(&child);
        let errors = child
            .stderr
            .take()
            .ok_or_else(|| Failure::new("./cops serve has no standard error"))?;
        let server = Self { child, _guard: guard };
        let mut lines = BufReader::new(errors).lines();
        let mut said = Vec::new();
        while let Some(Ok(line)) = lines.next() {
            if line.contains("serving") {
                // Later output must not block it.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(server);
            }
            said.push(line);
        }
        Err(Failure::new(format!("./cops serve ended before it served\n{}", said.join("\n"))))
    }

    /// Its process id as an argument.
    fn pid(&self) -> String {
        format!("--pid={}", self.child.id())
    }

    /// Looks at it once while its machine stands still for [`STANDSTILL`], as on a host that is
    /// busy with something else.
    fn look_while_it_stands_still(&self) -> Outcome<Captured> {
        let cannot = || "cannot stop the machine".to_owned();
        let machine = child_of(self.child.id()).ok_or_else(|| Failure::new("no QEMU is found"))?;
        kill_process(machine, Signal::STOP).because(cannot)?;
        let pid = self.pid();
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| top(&["--once", &pid]));
            std::thread::sleep(STANDSTILL);
            kill_process(machine, Signal::CONT).because(cannot)?;
            looking.join().map_err(|_| Failure::new("looking at the server panicked"))?
        })
    }

    /// Interrupts it, as Ctrl-C does. Returns the faults of its end.
    fn end(mut self) -> Outcome<Vec<String>> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::new("./cops serve has no process id"))?;
        kill_process(pid, Signal::INT).because(|| "cannot interrupt ./cops serve".into())?;
        let status = self.child.wait().because(|| "cannot wait for ./cops serve".into())?;
        Ok(if status.success() { Vec::new() } else { vec![format!("it ended with {status}")] })
    }
}

/// A child of the process with this id.
fn child_of(parent: u32) -> Option<Pid> {
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let line = format!("PPid:\t{parent}");
    let is_child = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|other| other == line)
    };
    pids.find(is_child).and_then(Pid::from_raw)
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
