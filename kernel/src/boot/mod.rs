//! From the booted machine to its first process, and from the end of that process to power-off.

mod handlers;

pub use handlers::HANDLERS;

use core::fmt::Write;

use cops_abi::syscall::{signal, wait_status};
use cops_abi::{Errno, Priority};
use cops_fallible::Text;

use crate::disk;
use crate::drivers::console::{self, Channel, Request};
use crate::drivers::{power, random, rtc};
use crate::fs;
use crate::inspect::{self, report};
use crate::log;
use crate::machine::device_tree;
use crate::mm::{heap, kernel_space, quota};
use crate::net;
use crate::portions;
use crate::process::children::Entry;
use crate::process::{
    self, PersonalityKind, RUN_QUEUE, WaitStatus, children, keys, reaper, sweeper, user_mode,
};
use crate::sched::{self, leftovers, spawn_service, spawn_switching, switching, timer, watch};
use crate::syscall;
use crate::trace;
use crate::{arch, call};

/// File of the root image with the path of the first program and its arguments, each ended by a
/// zero byte.
const FIRST_PROGRAM_FILE: &str = "etc/init";

/// Called by every hart when it is ready; the first one (index 0) sets up what exists only once.
pub fn start() -> ! {
    if arch::hart_index() == 0 {
        set_up();
        arch::start_other_harts(kernel_space::root());
    }
    sched::run_hart()
}

fn set_up() {
    part(prepare);
    part(set_up_files);
    part(spawn_event_services);
    part(spawn_other_services);
    part(net::start);
    part(disk::start);
    if quota::prepare().is_err() {
        panic!("no memory for the quotas");
    }
    part(|| spawn_service("first program", Priority::DEFAULT, start_first_program()));
}

/// Executes a part of the boot with a frame of its own. If the compiler merged the frames of all
/// parts into one, that would take most of the stack.
#[inline(never)]
fn part(execute: impl FnOnce()) {
    execute();
}

fn prepare() {
    arch::offer_while_waiting();
    heap::prepare();
    timer::configure();
    let real_nanoseconds = rtc::nanoseconds();
    timer::set_real_time(real_nanoseconds);
    random::seed(real_nanoseconds);
    sched::make_system_page();
    sched::prepare();
    trace::initialise();
    portions::configure();
    user_mode::configure();
    if device_tree::boot_argument("idle") == Some("poll") {
        log::info!("harts without work wait awake");
        arch::poll_when_idle();
    }
    call::register();
}

fn set_up_files() {
    let files = fs::set_root(device_tree::root_image());
    // Programs are executed where they are in it.
    arch::sync_instruction_stream();
    log::info!("root image: {files} files");
    fs::mount();
    fs::set_facts(&inspect::PROC);
}

/// Events of devices and clocks are more urgent than any program.
fn spawn_event_services() {
    spawn_service("timer", Priority::MOST_URGENT, timer::service());
    console::set_handlers(console::Handlers {
        input: &fs::TERMINAL,
        has_room: fs::console_has_room,
        request: answer,
    });
    spawn_service("console", Priority::MOST_URGENT, console::service());
    spawn_service("key signals", Priority::MOST_URGENT, keys::service());
    spawn_service("inspection", Priority::MOST_URGENT, report::service());
    spawn_service("watches", Priority::MOST_URGENT, watch::service());
}

fn spawn_other_services() {
    spawn_service("reaper", Priority::DEFAULT, reaper::service(first_process_ended));
    spawn_service("sweeper", Priority::DEFAULT, sweeper::service());
    spawn_service("leftovers", Priority::DEFAULT, leftovers::service());
    spawn_service("polling", Priority::DEFAULT, call::polling_service());
    for hart in 0..arch::hart_count() {
        let mut name = Text::new();
        let _ = write!(name, "switching {hart}");
        let run = |me, cpu: &_, slice: &mut _, turn: &mut _, begin_ticks| {
            user_mode::run(syscall::handle, me, cpu, slice, turn, begin_ticks)
        };
        spawn_switching(&name, switching(hart, &RUN_QUEUE, run));
    }
}

async fn start_first_program() {
    let Ok(fs::Node::File(file)) = fs::root().look_up(FIRST_PROGRAM_FILE) else {
        log::error!("the root image has no {FIRST_PROGRAM_FILE}: nothing to run");
        return shut_down(127);
    };
    let words = file.data.strip_suffix(&[0]).unwrap_or(file.data).split(|&byte| byte == 0);
    let path =
        words.clone().next().and_then(|path| core::str::from_utf8(path).ok()).unwrap_or_default();
    let started = async {
        let arguments = process::Arguments::of_words(words)?;
        let forced = match device_tree::boot_argument("personality") {
            Some(name) => Some(PersonalityKind::named(name).ok_or(Errno::EINVAL)?),
            None => None,
        };
        process::start_program(path, arguments, Priority::MOST_URGENT, forced).await
    };
    let started = started.await;
    if let Err(error) = started {
        log::error!("cannot start {path:?}: {error}");
        shut_down(if error == Errno::ENOENT { 127 } else { 126 });
    }
}

/// Powers the machine off after the end of the first process.
fn first_process_ended(status: WaitStatus) {
    shut_down(wait_status::shell_code(status.word()));
}

/// Answers a request from the console.
fn answer(request: Request) {
    match (request, children::find(1)) {
        (Request::Report, _) => report::statistics(Channel::Kernel),
        (Request::Inspect, _) => report::request_picture(),
        (Request::Trace, _) => trace::dump(for_each_process),
        (Request::Quit, Some(process)) => {
            // It may be ending already.
            let _ = process.end(WaitStatus::Signalled(signal::SIGTERM));
        }
        (Request::Quit, None) => shut_down(128 + signal::SIGTERM),
    }
}

/// Calls `each` with the number and the name of each process.
fn for_each_process(each: &mut dyn FnMut(u32, &str)) {
    let mut next = 0;
    while let Some(Entry { id, process, .. }) = children::at_or_after(next) {
        next = id + 1;
        match process {
            Some(process) => each(id, &process.name()),
            None => each(id, ""),
        }
    }
}

fn shut_down(status: u8) {
    console::stop_interrupts();
    if ::log::log_enabled!(::log::Level::Info) {
        report::statistics(Channel::Kernel);
    }
    trace::dump_at_power_off(for_each_process);
    inspect::portions::print();
    power::power_off(status)
}
