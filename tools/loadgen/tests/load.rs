//! The program with correct and faulty servers: its reports and exit status.

mod support;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::{Fault, start};

struct Ran {
    status: i32,
    stdout: String,
    stderr: String,
    json: Value,
    directory: PathBuf,
}

impl Ran {
    fn row(&self) -> &Value {
        &self.json["rows"][0]
    }

    fn number(&self, column: &str) -> f64 {
        self.row()[column].as_f64().unwrap_or_else(|| panic!("{column} in {}", self.row()))
    }

    fn latency_us(&self, column: &str) -> f64 {
        self.row()["latency_us"][column].as_f64().unwrap()
    }

    /// Number of answers that took longer.
    fn slower_than(&self, us: f64) -> u64 {
        let series = self.json["latency_distribution"].as_array().unwrap();
        let buckets = series.iter().flat_map(|series| series["buckets"].as_array().unwrap());
        buckets
            .filter(|bucket| bucket[0].as_f64().unwrap() > us)
            .map(|bucket| bucket[1].as_u64().unwrap())
            .sum()
    }
}

fn execute(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cops-loadgen")).args(line.split_whitespace()).output().unwrap()
}

/// Runs the program with a server that has this fault.
fn run(name: &str, fault: Fault, line: &str) -> Ran {
    let server = start(fault);
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let directory_text = directory.to_str().unwrap();
    let output = execute(&format!(
        "--connect {} --ramp-per-second 1000 --json {directory_text}/run.json --csv {directory_text}/run.csv \
         --plots {directory_text} {line}",
        server.address
    ));
    let text = std::fs::read_to_string(directory.join("run.json")).unwrap_or("null".into());
    Ran {
        status: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        json: serde_json::from_str(&text).unwrap(),
        directory,
    }
}

#[test]
fn open_loop_keeps_its_schedule() {
    let ran = run(
        "open",
        Fault::None,
        "--connections 32 --period-ms 50 --seconds 2 --warmup-seconds 0.5 --classes 4 --label model=test",
    );
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    // 32 connections, 2 s, 20 requests per second each: exactly.
    assert_eq!(
        (ran.number("sent"), ran.number("received"), ran.number("errors")),
        (1280.0, 1280.0, 0.0)
    );
    assert!((ran.number("throughput_rps") - 640.0).abs() <= 32.0, "{}", ran.row());
    assert_eq!(ran.row()["model"], "test");

    let classes = ran.json["classes"].as_array().unwrap();
    assert_eq!(classes.len(), 4);
    assert!(classes.iter().all(|class| class["received"] == 320), "{classes:?}");
    let csv = std::fs::read_to_string(ran.directory.join("run.csv")).unwrap();
    assert_eq!(csv.lines().count(), 6);
    for plot in ["latency.svg", "throughput.svg"] {
        let before = std::fs::read_to_string(ran.directory.join(plot)).unwrap();
        assert!(
            before.contains("32 connections, 15 x 15 u64, open loop, period 50 ms")
                && before.contains("0 errors")
        );
        // The plot from the JSON alone is the same.
        let directory = ran.directory.to_str().unwrap();
        let replotted =
            execute(&format!("--replot {directory}/run.json --plots {directory}/again"));
        assert!(replotted.status.success());
        assert_eq!(
            before,
            std::fs::read_to_string(ran.directory.join("again").join(plot)).unwrap()
        );
    }
    assert!(ran.stderr.is_empty(), "no progress without a terminal: {}", ran.stderr);
}

#[test]
fn a_pausing_client_sends_after_the_pause() {
    let ran = run(
        "pause",
        Fault::None,
        "--pause-ms 50 --connections 8 --matrix 4 --seconds 1 --warmup-seconds 0",
    );
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    // Each begins with a pause: at 50 ms, 100 ms and so on, the answers' time later each time. So
    // it is at most 19 each, and fewer where this host is slow.
    let (sent, received) = (ran.number("sent"), ran.number("received"));
    assert!((8.0..=152.0).contains(&sent) && sent == received, "{sent} {received}");
    assert_eq!(ran.row()["loop"], "pause");
    assert_eq!(ran.number("pause_ms"), 50.0);
    assert!(ran.row()["period_ms"].is_null());
    assert!(ran.stdout.contains("pause of 50"), "{}", ran.stdout);
}

#[test]
fn closed_loop_has_one_request_in_flight() {
    for (operation, matrix) in [("u64", 1), ("f64", 15), ("echo", 128)] {
        let line = format!(
            "--closed --connections 4 --matrix {matrix} --operation {operation} --seconds 0.5"
        );
        let ran = run(&format!("closed-{operation}"), Fault::None, &line);
        assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.row()["period_ms"], Value::Null);
        // Little's law: with 4 in flight, rate times latency is 4, minus the client's own time.
        let in_flight = ran.number("throughput_rps") * ran.latency_us("mean") / 1e6;
        assert!((1.0..=4.4).contains(&in_flight), "{in_flight}: {}", ran.row());
    }
}

#[test]
fn a_counted_run_sends_exactly_that_many() {
    let ran = run(
        "counted",
        Fault::None,
        "--closed --requests 250 --connections 4 --matrix 1 --seconds 20",
    );
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!((ran.number("sent"), ran.number("received")), (1000.0, 1000.0));
    assert!(
        ran.number("throughput_rps") > 50.0,
        "by the time of the last answer, not by 20 s: {}",
        ran.row()
    );

    let ran = run(
        "counted-short",
        Fault::Death,
        "--closed --requests 1000000000 --connections 2 --seconds 0.2 --drain-seconds 0",
    );
    assert_eq!(ran.status, 1);
    assert_eq!(
        ran.number("received") + ran.number("missing"),
        2e9,
        "what time did not allow for is missing"
    );
}

#[test]
fn a_wrong_product_is_an_error() {
    let ran = run(
        "wrong",
        Fault::WrongProduct,
        "--connections 4 --period-ms 10 --seconds 1 --warmup-seconds 0",
    );
    assert_eq!(ran.status, 1, "{}", ran.stdout);
    // Every 50th of 400 and of the 4 that opened the connections.
    assert_eq!(
        (ran.number("wrong"), ran.number("errors"), ran.number("lost")),
        (8.0, 8.0, 0.0),
        "{}",
        ran.row()
    );
    assert_eq!(ran.number("received"), 392.0);
    assert!(ran.stderr.contains("wrong product, element 0"), "{}", ran.stderr);
    assert!(ran.stdout.contains("8 wrong products"), "{}", ran.stdout);
}

#[test]
fn an_answer_to_another_request_costs_the_connection() {
    for (name, fault) in [("sequence", Fault::WrongSequence), ("lost-answer", Fault::LostAnswer)] {
        let line =
            "--connections 4 --period-ms 10 --seconds 1 --warmup-seconds 0 --drain-seconds 0.3";
        let ran = run(name, fault, line);
        assert_eq!(ran.status, 1, "{}", ran.stdout);
        assert!((1.0..=4.0).contains(&ran.number("lost")), "{}", ran.row());
        // Requests that were due after the loss still count.
        assert_eq!(
            (ran.number("sent"), ran.number("received") + ran.number("missing")),
            (400.0, 400.0)
        );
        assert!(ran.number("missing") > 0.0);
    }
}

#[test]
fn a_stalled_server_is_charged_for_every_request_that_waits() {
    let line = "--connections 4 --period-ms 10 --seconds 2 --warmup-seconds 0";
    let ran = run("stall", Fault::Stall, line);
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!((ran.number("sent"), ran.number("received")), (800.0, 800.0), "nothing is left out");
    // Half a second of stall delays 200 requests, 120 of them for more than 200 ms.
    let slow = ran.slower_than(200e3);
    assert!((100..=250).contains(&slow), "{slow} slow answers: {}", ran.row());
    assert!((450e3..900e3).contains(&ran.latency_us("max")));

    // A closed loop sees the same stall as only four slow answers, which is why it is not the
    // default.
    let ran = run("stall-closed", Fault::Stall, &format!("{line} --closed"));
    assert!(ran.slower_than(200e3) <= 4, "{}", ran.row());
}

#[test]
fn a_backlog_of_the_warm_up_is_not_answered_in_the_window() {
    // The server stalls from 1 s to 1.5 s: at the end of the warm-up some 80 requests wait.
    let line = "--connections 4 --period-ms 10 --seconds 1 --warmup-seconds 1.2";
    let ran = run("settle", Fault::Stall, &format!("{line} --settle-seconds 5"));
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!((ran.number("sent"), ran.number("received")), (400.0, 400.0));
    // At most one request in 50 is from before.
    assert!(ran.number("throughput_rps") <= 409.0, "{}", ran.row());
    let warm_up = ran.json["config"]["warmup_seconds"].as_f64().unwrap();
    assert!((1.2..6.2).contains(&warm_up), "{warm_up}");
    assert!((ran.number("warm_up_seconds") - warm_up).abs() < 1e-3, "{}", ran.row());
    assert_eq!(ran.json["rows"][0]["settled"], true, "{}", ran.row());
}

#[test]
fn answers_that_never_come_are_missing() {
    let line = "--connections 4 --period-ms 10 --seconds 2 --warmup-seconds 0 --drain-seconds 0.2";
    let ran = run("death", Fault::Death, line);
    assert_eq!(ran.status, 1, "{}", ran.stdout);
    assert_eq!(ran.number("received") + ran.number("missing"), 800.0, "{}", ran.row());
    assert!(
        (350.0..=650.0).contains(&ran.number("missing")),
        "dead for half of the time or more: {}",
        ran.row()
    );
    assert!(ran.stderr.contains("requests unanswered"));
}

#[test]
fn a_server_that_is_late_to_start_is_waited_for_and_a_missing_one_not_for_ever() {
    let address = start(Fault::None).address;
    // A port that was just released, so it has no listener.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let line = format!("--connect {free} --connections 2 --connect-timeout 0.5");
    let output = execute(&line);
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("did not open in time (0 did)") && stderr.contains("refused"),
        "{stderr}"
    );

    // A port that first accepts and closes, and serves only later, like a forwarded port.
    let late = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let late_address = late.local_addr().unwrap();
    std::thread::spawn(move || {
        (0..10).for_each(|_| drop(late.accept()));
        for client in late.incoming().flatten() {
            let server = std::net::TcpStream::connect(address).unwrap();
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    let output = execute(&format!(
        "--connect {late_address} --connections 8 --seconds 0.3 --warmup-seconds 0"
    ));
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn wrong_usage_is_told_apart() {
    assert_eq!(execute("--matrix 0").status.code(), Some(2));
    let help = String::from_utf8(execute("--help").stdout).unwrap();
    assert!(help.contains("EXAMPLES") && help.contains("mean absolute difference"), "{help}");
}

#[test]
fn files_are_written_also_if_the_output_is_closed_or_full() {
    let server = start(Fault::None);
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let closed = || std::io::pipe().unwrap().1;
    let outputs: [(&str, Stdio, i32); 2] =
        [("closed", closed().into(), 0), ("full", full().into(), 3)];
    for (name, stdout, status) in outputs {
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"));
        let _ = std::fs::remove_file(&file);
        let mut command = Command::new(env!("CARGO_BIN_EXE_cops-loadgen"));
        command.args(["--connect", &server.address.to_string(), "--connections", "1"]);
        command.args(["--seconds", "0.2", "--warmup-seconds", "0"]).arg("--json").arg(&file);
        let ended = command.stdout(stdout).stderr(closed()).status().unwrap();
        assert_eq!(ended.code(), Some(status), "{name}");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(serde_json::from_str::<Value>(&text).unwrap()["rows"][0].is_object(), "{name}");
    }
}
