//! From the booted machine to its first process, and from the end of that process to power-off.
//!
//! May touch: everything that has to be started once.

use core::fmt::Write;

use cops_abi::page::{NO_LEVEL, SystemPage};
use cops_abi::statistics::Statistics;
use cops_abi::syscall::{signal, wait_status};
use cops_abi::{Priority, note};
use cops_fallible::Text;
use core::sync::atomic::Ordering::*;
use spin::Once;

use super::counters::COUNTERS;
use super::process::WaitStatus;
use super::{children, executor, loader, random, reaper, report, switching, timer};
use crate::arch;
use crate::drivers::console::{self, Channel, Request};
use crate::drivers::{device_tree, power, rtc};
use crate::fs::{self, FileTable};
use crate::log;
use crate::mm::{Frame, SharedFrame, frames, heap, quota};
use crate::net;
use crate::portions;
use crate::trace;

/// File of the root image with the path of the first program and its arguments, each ended by a
/// zero byte.
const FIRST_PROGRAM_FILE: &str = "etc/init";

static SYSTEM_PAGE: Once<SharedFrame<SystemPage>> = Once::new();

/// Called by every hart when it is ready; the first one (index 0) sets up what exists only once.
pub fn start() -> ! {
    if arch::hart_index() == 0 {
        set_up();
        arch::start_other_harts();
    }
    executor::run_hart()
}

fn set_up() {
    heap::prepare();
    let real_nanoseconds = rtc::nanoseconds();
    timer::set_real_time(real_nanoseconds);
    random::seed(real_nanoseconds);
    let page = SYSTEM_PAGE.call_once(|| match Frame::allocate_zeroed() {
        Ok(frame) => SharedFrame::new(frame),
        Err(_) => panic!("no memory for the system page"),
    });
    page.version.store(note::ABI_VERSION, Relaxed);
    page.harts.store(arch::hart_count() as u32, Relaxed);
    page.ticks_per_second.store(arch::ticks_per_second(), Relaxed);
    for hart in &page.hart {
        hart.current_priority.store(NO_LEVEL, Relaxed);
    }
    executor::prepare();
    trace::initialise();
    portions::configure();
    switching::configure();

    let files = fs::set_root(device_tree::root_image());
    log::info!("root image: {files} files");

    // Events of devices and clocks are more urgent than any program.
    spawn_service("timer", Priority::MOST_URGENT, timer::service());
    console::set_request_handler(answer);
    console::set_room_handler(fs::console_has_room);
    console::set_input_sink(&fs::TERMINAL);
    spawn_service("console", Priority::MOST_URGENT, console::service());
    spawn_service("inspection", Priority::MOST_URGENT, report::service());
    spawn_service("reaper", Priority::DEFAULT, reaper::service());
    for hart in 0..arch::hart_count() {
        let mut name = Text::new();
        let _ = write!(name, "switching {hart}");
        spawn_service(&name, Priority::DEFAULT, switching::switching(hart));
    }
    net::start();
    if quota::prepare().is_err() {
        panic!("no memory for the quotas");
    }
    spawn_service("first program", Priority::DEFAULT, start_first_program());
}

/// Spawns one of the kernel's own coroutines, which run for ever or almost so.
///
/// # Panics
/// Without memory for it, which can happen only at boot.
pub fn spawn_service(name: &str, priority: Priority, future: impl Future<Output = ()> + Send + 'static) {
    match super::executor().spawn(trace::traced(future), priority) {
        Ok(id) => trace::name(id.raw(), name),
        Err(error) => panic!("no memory for a service of the kernel: {error:?}"),
    }
}

async fn start_first_program() {
    let Ok(fs::Node::File(file)) = fs::root().look_up(FIRST_PROGRAM_FILE) else {
        log::error!("the root image has no {FIRST_PROGRAM_FILE}: nothing to run");
        return shut_down(127);
    };
    let words = file.data.strip_suffix(&[0]).unwrap_or(file.data).split(|&byte| byte == 0);
    let path = words.clone().next().and_then(|path| core::str::from_utf8(path).ok()).unwrap_or_default();
    let started = async {
        let (arguments, files) = (loader::arguments(words)?, FileTable::with_console()?);
        loader::start_program(path, arguments, Priority::MOST_URGENT.level(), files).await
    };
    let started = started.await;
    if let Err(error) = started {
        log::error!("cannot start {path:?}: {error}");
        shut_down(if error == cops_abi::Errno::ENOENT { 127 } else { 126 });
    }
}

/// Powers the machine off after the end of the first process.
pub fn first_process_ended(status: WaitStatus) {
    shut_down(wait_status::shell_code(status));
}

/// Answers a request from the console.
fn answer(request: Request) {
    match (request, children::find(1)) {
        (Request::Report, _) => report::statistics(Channel::Kernel),
        (Request::Inspect, _) => report::request_picture(),
        (Request::Trace, _) => trace::dump(),
        (Request::Quit, Some(process)) => drop(process.end(wait_status::signalled(signal::SIGTERM))),
        (Request::Quit, None) => shut_down(128 + signal::SIGTERM),
    }
}

fn shut_down(status: u8) {
    console::stop_interrupts();
    if ::log::log_enabled!(::log::Level::Info) {
        report::statistics(Channel::Kernel);
    }
    trace::dump_at_power_off();
    portions::print();
    power::power_off(status)
}

/// The page that every process can read.
///
/// # Panics
/// Before [`start`].
pub fn system_page() -> &'static SharedFrame<SystemPage> {
    SYSTEM_PAGE.get().expect("the system page is made before the first process")
}

/// The current counters.
pub fn statistics() -> Statistics {
    let frames = frames::statistics();
    let heap = heap::statistics();
    let network = net::statistics();
    Statistics {
        frames_total: frames.total as u64,
        frames_free: frames.free as u64,
        heap_used_bytes: heap.used_bytes as u64,
        heap_reserved_bytes: heap.reserved_bytes as u64,
        processes: children::count() as u64,
        kernel_coroutines: super::executor().live_count(),
        connections: network.connections,
        network_frames_received: network.frames_received,
        network_frames_sent: network.frames_sent,
        network_frames_malformed: network.frames_malformed,
        traps_from_user: COUNTERS.traps_from_user.get(),
        system_calls: COUNTERS.system_calls.get(),
        interrupts: COUNTERS.interrupts.get(),
        calls_completed_at_once: COUNTERS.calls_completed_at_once.get(),
        calls_deferred: COUNTERS.calls_deferred.get(),
        calls_in_flight: COUNTERS.calls_in_flight.get(),
        calls_cancelled: COUNTERS.calls_cancelled.get(),
        ring_overflows: COUNTERS.ring_overflows.get(),
        parks: COUNTERS.parks.get(),
        unparks: COUNTERS.unparks.get(),
        cpu_switches: COUNTERS.cpu_switches.get(),
        instructions: arch::instructions_retired().saturating_sub(COUNTERS.instructions_asleep.get()),
        interprocessor_interrupts: COUNTERS.interprocessor_interrupts.get(),
        preemptions: COUNTERS.preemptions.get(),
        user_interrupts_posted: COUNTERS.user_interrupts_posted.get(),
        user_interrupts_sent: COUNTERS.user_interrupts_sent.get(),
        user_interrupts_suppressed: COUNTERS.user_interrupts_suppressed.get(),
        user_interrupts_taken: COUNTERS.user_interrupts_taken.get(),
        device_interrupt_ticks: COUNTERS.device_interrupt_ticks.get(),
        interprocessor_interrupts_taken: COUNTERS.interprocessor_interrupts_taken.get(),
    }
}
