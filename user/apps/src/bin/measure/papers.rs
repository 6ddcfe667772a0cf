//! Two experiments of "A Design and Implementation of Rust Coroutine with priority in Operating
//! System" (Wang): `ring` without system calls, `pipe` with them.
//!
//! `measure papers EXPERIMENT MODES MODELS COUNTS BYTES TURNS REPEATS`, where modes, models,
//! counts and bytes are lists with commas, starts a process for each combination. The process
//! prints what it measured itself:
//!
//! - mode `literal`, as in the paper: from the start of its `main` to its end. It creates the
//!   tasks, each of which acts once, and waits for their ends.
//! - mode `steady`: from the moment when all tasks wait to the end of the last round. The tasks
//!   have at least `TURNS` turns together, and ten each. `create_instructions` is what led to this
//!   moment.
//!
//! The line that follows has what the whole process took, measured from outside: with its start,
//! and with its end, which frees its memory.

use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use cops::abi::Errno;
use cops::io;
use cops::process::{ExitCode, spawn};
use cops::task;
use cops::thread;
use cops::thread::sync::Mutex;

use crate::meter::{Meter, Passed};
use crate::{pipe, ring};

/// How the tasks are made, and how they wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// Coroutines, which are woken.
    Coroutine,
    /// Threads, which sleep and are woken.
    Thread,
    /// Threads as in the paper, which yield until it is their turn.
    Yielding,
}

/// What a process does.
#[derive(Clone, Copy)]
pub struct Plan {
    pub model: Model,
    /// Whether tasks act more than once, measured without their creation.
    pub is_steady: bool,
    pub tasks: u64,
    /// Bytes of a message; of `pipe`.
    pub bytes: usize,
    pub rounds: u64,
}

/// Stack of each thread: that of the threads of Linux, where the C library takes no smaller one.
pub const STACK_BYTES: usize = 16 * 1024;

/// The number of tasks that are about to wait for the first time.
static ARRIVED: AtomicU64 = AtomicU64::new(0);
/// When the last round ended.
static END: Mutex<Option<Meter>> = Mutex::new(None);

/// A task is about to wait for the first time.
pub fn arrive() {
    ARRIVED.fetch_add(1, SeqCst);
}

/// The last round has ended.
pub fn finish() {
    *END.lock() = Some(Meter::now());
}

/// What a process has measured.
pub struct Measured {
    begin: Meter,
    /// When the tasks had been created.
    created: Meter,
}

impl Measured {
    /// The process begins.
    pub fn begin() -> Self {
        let now = Meter::now();
        Self { begin: now, created: now }
    }

    /// All tasks have been created by coroutines of this virtual CPU. In the steady mode, returns
    /// when all of them wait.
    pub async fn coroutines_created(&mut self, plan: &Plan) {
        while plan.is_steady && ARRIVED.load(SeqCst) < plan.tasks {
            task::yield_now().await;
        }
        self.created = Meter::now();
    }

    /// The same for threads.
    pub fn threads_created(&mut self, plan: &Plan) {
        while plan.is_steady && ARRIVED.load(SeqCst) < plan.tasks {
            thread::yield_now();
        }
        self.created = Meter::now();
    }

    /// What counts: see the top of this file.
    fn passed(&self, plan: &Plan) -> io::Result<Passed> {
        if !plan.is_steady {
            return Ok(self.begin.passed());
        }
        let end = END.lock().ok_or(Errno::EIO)?;
        Ok(self.created.until(end))
    }
}

/// The error for a wrong answer.
pub fn wrong(what: &str, found: u64, expected: u64) -> io::Error {
    cops::eprintln!("papers: {what} is {found}, not {expected}");
    Errno::EIO.into()
}

/// Starts a process for each combination.
pub async fn run(words: &[&str]) -> io::Result<ExitCode> {
    let [experiment, modes, models, counts, bytes, turns, repeats] = *words else {
        return Ok(usage());
    };
    let Ok(repeats) = repeats.parse::<u32>() else { return Ok(usage()) };
    // The first process of a system also makes what the kernel keeps for later ones.
    spawn("/bin/measure", &["papers-process"])?.wait().await?;
    for bytes in bytes.split(',') {
        for tasks in counts.split(',') {
            for mode in modes.split(',') {
                // The models take turns, so that a slow moment of the host slows all of them.
                for _ in 0..repeats {
                    for model in models.split(',') {
                        let words =
                            ["papers-process", experiment, mode, model, tasks, bytes, turns];
                        let before = Meter::now();
                        let status = spawn("/bin/measure", &words)?.wait().await?;
                        let passed = before.passed();
                        if status.code() != Some(0) {
                            cops::eprintln!("papers: {words:?} ended with {status:?}");
                            return Ok(ExitCode(1));
                        }
                        cops::println!(
                            "process: instructions={} nanoseconds={}",
                            passed.instructions,
                            passed.nanoseconds
                        );
                    }
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn usage() -> ExitCode {
    cops::println!(
        "usage: measure papers ring|pipe literal,steady coroutine,thread,thread-yield,thread-retry \
         TASKS,.. BYTES,.. TURNS REPEATS"
    );
    ExitCode(2)
}

/// The process of one combination.
pub async fn process(words: &[&str]) -> io::Result<ExitCode> {
    let mut measured = Measured::begin();
    let [experiment, mode, model, tasks, bytes, turns] = *words else {
        return Ok(ExitCode(2));
    };
    let number = |word: &str| word.parse::<u64>().map_err(|_| Errno::EINVAL);
    let tasks = number(tasks)?.max(1);
    let plan = Plan {
        model: match model {
            "coroutine" => Model::Coroutine,
            "thread" => Model::Thread,
            "thread-yield" | "thread-retry" => Model::Yielding,
            _ => return Ok(ExitCode(2)),
        },
        is_steady: mode == "steady",
        tasks,
        bytes: usize::try_from(number(bytes)?).unwrap_or(usize::MAX),
        rounds: if mode == "steady" { (number(turns)? / tasks).max(10) } else { 1 },
    };
    match experiment {
        "ring" => ring::run(&plan, &mut measured).await?,
        "pipe" => pipe::run(&plan, &mut measured).await?,
        _ => return Ok(ExitCode(2)),
    }
    let passed = measured.passed(&plan)?;
    let line: String = [
        format!("{experiment}: mode={mode} model={model} n={} ", plan.tasks),
        format!("bytes={} rounds={} ", plan.bytes, plan.rounds),
        format!("instructions={} nanoseconds={} ", passed.instructions, passed.nanoseconds),
        format!("create_instructions={}", measured.begin.until(measured.created).instructions),
    ]
    .concat();
    cops::println!("{line}");
    Ok(ExitCode::SUCCESS)
}
