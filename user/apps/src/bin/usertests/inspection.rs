//! What `ps` and `top` read, and the contents of the trace rings. SPEC 3.6.

use alloc::vec;
use alloc::vec::Vec;

use cops::abi::Errno::*;
use cops::abi::inspect::{self as records, InspectHeader, Inspected, request};
use cops::abi::syscall::{COPS_INSPECT, COPS_TRACE, READ, WRITE};
use cops::abi::trace::operation;
use cops::inspect::{self, ProcessRecord, cause, coroutine_kind, state};
use cops::io::{Read, Write, pipe};
use cops::process::{self, Child, ExitCode};
use cops::task::{self, Priority};
use cops::time::{Duration, sleep};
use cops::trace::{self, Event, Record};

use crate::harness::{Failure, Outcome, soon, start};
use crate::processes::HELPER;
use crate::raw::{self, BAD_ADDRESSES};
use crate::{check, check_equal, tests};

tests! { inspection:
    processes_are_seen,
    virtual_cpus_are_seen,
    coroutines_are_seen,
    kinds_are_seen,
    coroutines_of_processes_are_seen,
    lies_about_coroutines_are_harmless,
    harts_are_seen,
    time_is_counted,
    portions_make_the_whole,
    bad_requests,
    exact_sequence,
    a_call_from_end_to_end,
    overwritten_records_are_counted,
    records_lost_by_a_process_are_counted,
    garbage_in_trace_pages,
    off_means_off,
}

/// Second argument of this program for a process that is traced.
pub const TRACED: &str = "traced";

/// The record of a process, if it exists.
pub fn find(process: u32) -> Result<Option<ProcessRecord>, Failure> {
    Ok(inspect::processes()?.into_iter().find(|record| record.process == process))
}

/// Waits until a process is in one of these states.
async fn seen_as(process: u32, states: &[u32]) -> Result<ProcessRecord, Failure> {
    let look = async {
        loop {
            match find(process) {
                Ok(Some(record)) if states.contains(&record.state) => return Ok(record),
                Err(failure) => return Err(failure),
                Ok(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    soon("a process in the state expected", look).await?
}

async fn processes_are_seen() -> Outcome {
    let mut computing = start(&[HELPER, "compute"])?;
    // A synchronous sleep: the coroutine keeps its virtual CPU, which waits in the call.
    let mut sleeping = start(&[HELPER, "sleep", "60000"])?;
    let mut parked = start(&[HELPER, TRACED, "wait"])?;
    let record = seen_as(computing.id(), &[state::RUNNING, state::SUSPENDED, state::READY]).await?;
    check_equal!(record.parent, process::id(), "parent");
    check_equal!((record.cpus, record.calls_in_flight), (1, 0), "virtual CPUs, calls");
    check!(record.pages > 10 && record.pages < 10_000, "{} pages", record.pages);
    check!(
        inspect::text(&record.name).ends_with("bin/usertests"),
        "{:?}",
        inspect::text(&record.name)
    );
    seen_as(sleeping.id(), &[state::BLOCKED]).await?;
    let record = seen_as(parked.id(), &[state::PARKED]).await?;
    check_equal!(record.calls_in_flight, 1, "calls of a process with one coroutine, which sleeps");
    let own = find(process::id())?;
    check_equal!(own.map(|own| own.state), Some(state::RUNNING), "this process's state");
    for child in [&mut computing, &mut sleeping, &mut parked] {
        child.kill()?;
        soon("the end of a child", child.wait()).await??;
        check!(find(child.id())?.is_none(), "a process that was waited for is still there");
    }
    Ok(())
}

async fn virtual_cpus_are_seen() -> Outcome {
    task::alloc_cpu(3)?;
    let others_parked = async {
        loop {
            let cpus = inspect::cpus(process::id())?;
            if cpus.iter().filter(|cpu| cpu.state == state::PARKED).count() == 3 {
                return Ok::<_, cops::io::Error>(cpus);
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let cpus = soon("three parked virtual CPUs", others_parked).await??;
    check_equal!(cpus.len(), 4, "virtual CPUs");
    let me = task::current().map_or(0, |id| id.raw());
    let running: Vec<_> = cpus.iter().filter(|cpu| cpu.state == state::RUNNING).collect();
    let [cpu] = running.as_slice() else { return Err(Failure(alloc::format!("{cpus:?}"))) };
    check_equal!(
        (cpu.current_coroutine, cpu.current_priority),
        (me, 32),
        "what the running one polls"
    );
    check!(cpus.iter().all(|cpu| cpu.process == process::id()), "process numbers");
    Ok(())
}

async fn coroutines_are_seen() -> Outcome {
    let kernel = inspect::coroutines(0)?;
    for (name, priority) in [("timer", 0), ("console", 0), ("reaper", 32)] {
        let found = kernel.iter().find(|coroutine| inspect::text(&coroutine.name) == name);
        let Some(found) = found else {
            return Err(Failure(alloc::format!("no {name} in {kernel:?}")));
        };
        check_equal!(found.priority, priority, "priority of {name}");
    }
    let running = kernel.iter().filter(|coroutine| coroutine.state == state::RUNNING);
    check!(running.clone().count() >= 1, "nothing runs: {kernel:?}");
    let mut ids: Vec<u64> = kernel.iter().map(|coroutine| coroutine.coroutine).collect();
    ids.sort_unstable();
    ids.dedup();
    check_equal!(ids.len(), kernel.len(), "different ids");
    Ok(())
}

/// The kind of every coroutine of the kernel, and of a process.
async fn kinds_are_seen() -> Outcome {
    let (mut receiver, mut sender) = pipe()?;
    let waiting =
        task::spawn_join(async move { receiver.read(&mut [0; 1]).await }, Priority::MOST_URGENT);
    task::yield_now().await;
    let kernel = inspect::coroutines(0)?;
    let own = inspect::coroutines(process::id())?;
    sender.write(b".").await?;
    check_equal!(waiting.await, Ok(Ok(1)), "the read");
    for one in &kernel {
        let name = inspect::text(&one.name);
        let expected = match name {
            "" => coroutine_kind::CALL,
            _ if name.starts_with("switching") => coroutine_kind::SWITCHING,
            _ => coroutine_kind::SERVICE,
        };
        check_equal!(one.kind, expected, "the kind of {one:?}");
    }
    for (kind, at_least) in [
        (coroutine_kind::CALL, 1),
        (coroutine_kind::SERVICE, 4),
        (coroutine_kind::SWITCHING, inspect::harts()?.len()),
    ] {
        let count = kernel.iter().filter(|one| one.kind == kind).count();
        check!(count >= at_least, "{count} of kind {}", coroutine_kind::name(kind));
    }
    let mains: Vec<_> = own.iter().filter(|one| one.kind == coroutine_kind::MAIN).collect();
    check_equal!(mains.len(), 1, "coroutines that are main");
    let tasks = own.iter().filter(|one| one.kind == coroutine_kind::TASK).count();
    check_equal!(tasks, own.len() - 1, "all others are tasks");
    check!(tasks >= 1, "no task is seen");
    Ok(())
}

/// Every coroutine of a process, with its state and priority: of this process, and of another one.
async fn coroutines_of_processes_are_seen() -> Outcome {
    let Some(me) = task::current() else { return Err(Failure("no coroutine".into())) };
    let blocked: Vec<_> = (0..300u32)
        .map(|number| task::spawn(core::future::pending(), Priority::saturating(number % 64)))
        .collect();
    task::yield_now().await;
    // The urgent coroutines wait; the others are still ready.
    let all = inspect::coroutines(process::id())?;
    let find = |id: task::CoroutineId| all.iter().find(|coroutine| coroutine.coroutine == id.raw());
    check_equal!(
        find(me).map(|me| (me.state, me.priority)),
        Some((state::RUNNING, 32)),
        "this coroutine"
    );
    for (number, &id) in blocked.iter().enumerate() {
        let (level, found) =
            (number as u32 % 64, find(id).map(|found| (found.state, found.priority)));
        let expected = if level <= 32 { state::BLOCKED } else { state::READY };
        check_equal!(found, Some((expected, level)), "coroutine {number}");
    }
    check_equal!(all.len(), 301, "coroutines");
    for id in blocked {
        task::cancel(id);
    }

    let mut sleeping = start(&[HELPER, "sleep", "60000"])?;
    let mut computing = start(&[HELPER, "compute"])?;
    seen_as(sleeping.id(), &[state::BLOCKED]).await?;
    seen_as(computing.id(), &[state::RUNNING, state::SUSPENDED]).await?;
    let of_sleeping = inspect::coroutines(sleeping.id())?;
    // The process runs before it has a coroutine, and before it polls its first one.
    let mut of_computing = inspect::coroutines(computing.id())?;
    while of_computing.iter().all(|one| one.state == state::READY) {
        sleep(Duration::from_millis(5)).await;
        of_computing = inspect::coroutines(computing.id())?;
    }
    for child in [&mut sleeping, &mut computing] {
        child.kill()?;
        soon("the end of a child", child.wait()).await??;
    }
    let states =
        |list: &[inspect::CoroutineRecord]| list.iter().map(|one| one.state).collect::<Vec<_>>();
    check_equal!(
        states(&of_sleeping),
        [state::SUSPENDED],
        "states in a process that waits in a call"
    );
    check_equal!(of_sleeping[0].cause, cause::CALL, "why it is suspended");
    check_equal!(of_sleeping[0].kind, coroutine_kind::MAIN, "what it is");
    let computing: Vec<_> = of_computing.iter().map(|one| (one.state, one.cause)).collect();
    check!(
        computing == [(state::RUNNING, cause::NONE)]
            || computing == [(state::SUSPENDED, cause::INTERRUPT)],
        "{computing:?}"
    );
    Ok(())
}

/// A process may publish any address for its executor, and have any contents there.
async fn lies_about_coroutines_are_harmless() -> Outcome {
    use cops::abi::layout::{PAGE_BYTES, PROCESS_PAGE};
    const EXECUTOR: usize = PROCESS_PAGE + 1792;
    let honest = raw::peek(EXECUTOR);
    let mut garbage = raw::Garbage::new(0x11e5);
    let mut memory = vec![0u64; 3 * PAGE_BYTES / 8];
    let mut longest = 0;
    for round in 0..200 {
        let inside = memory.as_ptr().addr() as u64;
        // Words that point back into the same memory, mostly to a word, so that the walk continues.
        for word in &mut memory {
            let somewhere = garbage.next() as u64 % (2 * PAGE_BYTES) as u64;
            *word = match garbage.next() % 8 {
                0 => garbage.next() as u64,
                1 => inside + somewhere,
                _ => inside + (somewhere & !7),
            };
        }
        let address = match BAD_ADDRESSES.get(round) {
            Some(&address) => address as u64,
            None => inside + ((garbage.next() % PAGE_BYTES) & !7) as u64,
        };
        raw::poke(EXECUTOR, address);
        // In several calls: a forged list may be as long as ids allow.
        let mut from = (process::id() as usize) << 32;
        let mut buffer = [0u8; 2048];
        for _ in 0..50 {
            let arguments = [request(4), from, buffer.as_mut_ptr().addr(), buffer.len()];
            let length = raw::call(COPS_INSPECT, arguments)?;
            let parsed = records::parse::<inspect::CoroutineRecord>(&buffer[..length]);
            let Some((header, mut coroutines)) = parsed else {
                return Err(Failure("no records".into()));
            };
            longest = longest.max(header.count);
            check!(
                coroutines
                    .all(|one| one.priority < 64 && one.worker < 64 && one.state <= 3
                        || one.state == 4),
                "nonsense"
            );
            if header.next == 0 {
                break;
            }
            check!(header.next > from as u64, "from {from:#x} on to {:#x}", header.next);
            from = header.next as usize;
        }
    }
    raw::poke(EXECUTOR, honest);
    check!(longest > 0, "no forged list was ever read: the test has no effect");
    Ok(())
}

async fn harts_are_seen() -> Outcome {
    let harts = inspect::harts()?;
    check!((1..=8).contains(&harts.len()), "{} harts", harts.len());
    for (number, hart) in harts.iter().enumerate() {
        check_equal!(hart.hart as usize, number, "number");
        check!(
            hart.asleep_ticks <= hart.now_ticks && hart.process_ticks <= hart.now_ticks,
            "{hart:?}"
        );
    }
    check!(
        harts.iter().any(|hart| hart.process == process::id()),
        "no hart runs this process: {harts:?}"
    );
    Ok(())
}

/// A process that computes is charged for it; one that sleeps is not.
async fn time_is_counted() -> Outcome {
    let mut computing = start(&[HELPER, "compute"])?;
    seen_as(computing.id(), &[state::RUNNING, state::SUSPENDED]).await?;
    let run = |process| Ok::<_, Failure>(find(process)?.map_or(0, |record| record.run_ticks));
    let (before, mine_before) = (run(computing.id())?, run(process::id())?);
    sleep(Duration::from_millis(200)).await;
    let (used, mine) = (run(computing.id())? - before, run(process::id())? - mine_before);
    computing.kill()?;
    soon("the end of a child", computing.wait()).await??;
    check!(used > 0 && used > mine, "it ran for {used} ticks, this process for {mine}");
    Ok(())
}

/// A small buffer gives the same list, in more calls.
async fn portions_make_the_whole() -> Outcome {
    let mut children: Vec<Child> = Vec::new();
    for _ in 0..5 {
        children.push(start(&[HELPER, "sleep", "60000"])?);
    }
    let whole: Vec<u32> = inspect::processes()?.iter().map(|record| record.process).collect();
    let mut buffer = [0u8; InspectHeader::BYTES + ProcessRecord::BYTES + 7];
    let (mut from, mut list) = (0, Vec::new());
    loop {
        let arguments =
            [request(ProcessRecord::KIND), from as usize, buffer.as_mut_ptr().addr(), buffer.len()];
        let length = raw::call(COPS_INSPECT, arguments)?;
        let parsed = records::parse::<ProcessRecord>(&buffer[..length]);
        let Some((header, processes)) = parsed else { return Err(Failure("no records".into())) };
        list.extend(processes.map(|record| record.process));
        if header.next == 0 {
            break;
        }
        check!(header.next > from, "from {from} on to {}", header.next);
        from = header.next;
    }
    for mut child in children {
        child.kill()?;
        soon("the end of a child", child.wait()).await??;
    }
    check!(whole.len() > 5 && list == whole, "{list:?} instead of {whole:?}");
    Ok(())
}

async fn bad_requests() -> Outcome {
    let mut buffer = [0u8; 256];
    let place = buffer.as_mut_ptr().addr();
    for kind in [0, 5, 255, 2, 1 << 8 | 2, 3 << 8 | 2, usize::MAX] {
        raw::refused("no such kind", COPS_INSPECT, [kind, 0, place, 256], &[EINVAL])?;
    }
    for bytes in 0..InspectHeader::BYTES {
        raw::refused("no room", COPS_INSPECT, [request(1), 0, place, bytes], &[EINVAL])?;
    }
    let absent = 0xffff_fff0usize << 32;
    raw::refused("no such process", COPS_INSPECT, [request(3), absent, place, 256], &[ESRCH])?;
    raw::refused("no such process", COPS_INSPECT, [request(4), absent, place, 256], &[ESRCH])?;
    raw::refused(
        "the kernel has no virtual CPUs",
        COPS_INSPECT,
        [request(3), 0, place, 256],
        &[ESRCH],
    )?;
    for operation in [3, 99, usize::MAX] {
        raw::refused("no such operation", COPS_TRACE, [operation, 0, place, 256], &[EINVAL])?;
    }
    raw::refused("neither on nor off", COPS_TRACE, [operation::CONTROL, 3], &[EINVAL])?;
    raw::refused("no room", COPS_TRACE, [operation::READ, 0, place, 31], &[EINVAL])?;
    raw::refused("no such hart", COPS_TRACE, [operation::READ, 99, place, 256], &[ENOENT])?;
    for &address in BAD_ADDRESSES {
        raw::refused("inspect", COPS_INSPECT, [request(1), 0, address, 256], &[EFAULT])?;
        raw::refused("trace", COPS_TRACE, [operation::READ, 0, address, 256], &[EFAULT])?;
    }
    // The largest numbers to begin at.
    check!(
        raw::call(COPS_INSPECT, [request(4), u32::MAX as usize, place, 256]).is_ok(),
        "the last slot"
    );
    check!(raw::call(COPS_INSPECT, [request(1), usize::MAX, place, 256]).is_ok(), "the last hart");
    Ok(())
}

// ---- tracing ------------------------------------------------------------------------------

/// The work of another process while it is traced. It then waits to be killed, because its end
/// would be in the trace too.
pub async fn traced(what: &[&str]) -> ExitCode {
    let done = match what {
        ["wait"] => Ok(()),
        ["sequence"] => sequence().await,
        ["call"] => call().await,
        ["flood"] => {
            (0..FLOOD).for_each(trace::mark);
            Ok(())
        }
        ["is-it"] => return ExitCode(u8::from(trace::is_traced())),
        ["garbage"] => {
            write_garbage();
            Ok(())
        }
        _ => return ExitCode(97),
    };
    if done.is_err() {
        return ExitCode(98);
    }
    sleep(Duration::from_secs(60)).await;
    ExitCode::SUCCESS
}

const FLOOD: u64 = 1000;

async fn sequence() -> Outcome {
    trace::mark(1);
    task::spawn_join(async { trace::mark(2) }, Priority::MOST_URGENT).await?;
    trace::mark(3);
    Ok(())
}

async fn call() -> Outcome {
    let (mut reader, writer) = pipe()?;
    let reading = task::spawn_join(
        async move {
            trace::mark(1);
            let result = reader.read(&mut [0; 8]).await;
            trace::mark(2);
            result
        },
        Priority::MOST_URGENT,
    );
    task::yield_now().await;
    trace::mark(3);
    cops::write!(writer, b"one")?;
    reading.await??;
    Ok(())
}

/// Runs a part of this program with tracing on. Returns its records ordered by time, those of one
/// hart in their order. Restores the previous state of tracing.
async fn trace_of(what: &str) -> Result<(u32, Vec<Record>), Failure> {
    let was_on = trace::switch(true)?;
    let harts = inspect::harts()?.len();
    let mut begun = Vec::new();
    for hart in 0..harts {
        begun.push(trace::read(hart, u64::MAX, |_| ())?.begun);
    }
    let mut child = start(&[HELPER, TRACED, what])?;
    seen_as(child.id(), &[state::PARKED]).await?;
    trace::switch(false)?;
    let mut records = Vec::new();
    for (hart, from) in begun.into_iter().enumerate() {
        let mut from = from;
        loop {
            let portion = trace::read(hart, from, |record| records.push(record))?;
            check_equal!(portion.first, from, "the first record: others were lost");
            if portion.count == 0 {
                break;
            }
            from += portion.count as u64;
        }
    }
    trace::switch(was_on)?;
    child.kill()?;
    soon("the end of a traced process", child.wait()).await??;
    records.sort_by_key(|record| record.time_ticks);
    Ok((child.id(), records))
}

/// The events of one process from its mark `first` to its mark `last`.
fn between(records: &[Record], child: u32, first: u64, last: u64) -> Vec<Event> {
    let events = records.iter().filter(|record| record.process == child).filter_map(Record::event);
    let is_mark =
        |event: &Event, number| matches!(*event, Event::UserMark { value, .. } if value == number);
    let mut chosen: Vec<Event> = events.skip_while(|event| !is_mark(event, first)).collect();
    let end = chosen.iter().position(|event| is_mark(event, last));
    chosen.truncate(end.map_or(0, |end| end + 1));
    chosen
}

/// Spawn, switch, wake and switch back: exactly these events in this order, on one hart and on
/// four.
async fn exact_sequence() -> Outcome {
    let (child, records) = trace_of("sequence").await?;
    let mut events = between(&records, child, 1, 3);
    // Events of the kernel, for instance the clock's, are not considered.
    events.retain(|event| Event::is_user_kind(event.to_record().kind));
    let [Event::UserMark { coroutine: main, .. }, Event::UserSpawn { coroutine: other, .. }, ..] =
        *events
    else {
        return Err(Failure(alloc::format!("{events:?}")));
    };
    let (process, cpu) = (child, 0);
    let [task, main_kind] = [coroutine_kind::TASK, coroutine_kind::MAIN].map(u64::from);
    let expected = vec![
        Event::UserMark { process, cpu, coroutine: main, value: 1 },
        Event::UserSpawn { process, cpu, coroutine: other, by: main, level: 0 },
        Event::UserPollEnd { process, cpu, coroutine: main, finished: 0 },
        Event::UserPollBegin { process, cpu, coroutine: other, level: 0, kind: task },
        Event::UserMark { process, cpu, coroutine: other, value: 2 },
        // The handle's owner is woken when the output has been stored.
        Event::UserPollEnd { process, cpu, coroutine: other, finished: 1 },
        Event::UserWake { process, cpu, coroutine: main, by: other },
        Event::UserPollBegin { process, cpu, coroutine: main, level: 32, kind: main_kind },
        Event::UserMark { process, cpu, coroutine: main, value: 3 },
    ];
    check_equal!(events, expected, "events");
    Ok(())
}

/// A read that waits: call, kernel coroutine, completion, wake, next poll, on any hart.
async fn a_call_from_end_to_end() -> Outcome {
    let (child, records) = trace_of("call").await?;
    let events = between(&records, child, 1, 2);
    let [Event::UserMark { coroutine: reader, .. }, ..] = *events else {
        return Err(Failure(alloc::format!("{events:?}")));
    };
    let process = child;
    let mut token = None;
    let mut steps = Vec::new();
    for event in &events {
        match *event {
            Event::SystemCall { coroutine, number, .. }
                if number == READ as u64 && coroutine == reader =>
            {
                steps.push("read");
            }
            Event::CallBegin { coroutine, token: its, level: 0, .. } if coroutine == reader => {
                token = Some(its);
                steps.push("begins to wait");
            }
            Event::SystemCall { coroutine: 0, number, .. } if number == WRITE as u64 => {
                steps.push("write")
            }
            Event::CallComplete { coroutine, token: its, .. }
                if coroutine == reader && token == Some(its) =>
            {
                steps.push("complete");
            }
            Event::UserWake { coroutine, by: 0, .. } if coroutine == reader => {
                steps.push("woken by the result")
            }
            Event::UserPollBegin { coroutine, .. } if coroutine == reader => steps.push("polled"),
            _ => {}
        }
    }
    let expected = ["read", "begins to wait", "write", "complete", "woken by the result", "polled"];
    check_equal!(steps, expected, "steps, of {events:?}");
    // The kernel's coroutine for it: spawned, woken by the write and polled, in this order.
    let time = |wanted: &dyn Fn(&Event) -> bool| {
        let found =
            records.iter().find(|record| record.event().is_some_and(|event| wanted(&event)));
        found
            .map(|record| record.time_ticks)
            .ok_or(Failure("an event of the kernel is missing".into()))
    };
    let completed = records.iter().find(|record| {
        matches!(record.event(), Some(Event::CallComplete { process: its, coroutine, .. })
            if its == process && coroutine == reader)
    });
    let Some(completed) = completed else { return Err(Failure("no completion".into())) };
    let worker = records.iter().rev().find_map(|record| match record.event() {
        Some(Event::PollBegin { coroutine, .. })
            if record.hart == completed.hart && record.time_ticks <= completed.time_ticks =>
        {
            Some(coroutine)
        }
        _ => None,
    });
    let Some(worker) = worker else { return Err(Failure("no worker completed the call".into())) };
    let made = time(
        &|event| matches!(*event, Event::Spawn { coroutine, level: 0, .. } if coroutine == worker),
    )?;
    let woken =
        time(&|event| matches!(*event, Event::Wake { coroutine, .. } if coroutine == worker))?;
    let polled =
        time(&|event| matches!(*event, Event::PollBegin { coroutine, .. } if coroutine == worker))?;
    check!(
        made <= woken && woken <= polled,
        "made at {made}, woken at {woken}, polled at {polled}"
    );
    Ok(())
}

/// More events than a ring has room for: the newest remain, and the number of lost ones is exact.
async fn overwritten_records_are_counted() -> Outcome {
    let was_on = trace::switch(true)?;
    let harts = inspect::harts()?.len();
    let capacity = trace::read(0, u64::MAX, |_| ())?.capacity;
    let mut overfull = None;
    // Each mark makes three records on some hart.
    for value in 0..capacity * harts as u64 {
        raw::call(COPS_TRACE, [operation::MARK, value as usize])?;
        if value % 64 == 0 {
            for hart in 0..harts {
                let begun = trace::read(hart, u64::MAX, |_| ())?.begun;
                overfull = (begun > capacity + 1000).then_some(hart).or(overfull);
            }
            if overfull.is_some() {
                break;
            }
        }
    }
    trace::switch(was_on)?;
    let Some(hart) = overfull else { return Err(Failure("no ring ever overflowed".into())) };
    let mut count = 0;
    let portion = trace::read(hart, 0, |_| count += 1)?;
    let lost = portion.begun - capacity;
    // If tracing was on before, it still is, and a few more are overwritten meanwhile.
    let more = portion.first - lost;
    check!(
        portion.first >= lost && (more == 0 || was_on && more < 1000),
        "{portion:?}, {lost} lost"
    );
    check!(count > 0 && portion.count == count, "{count} records instead of {}", portion.count);
    Ok(())
}

/// A process that writes more than its page holds between two entries into the kernel: lost records
/// are counted.
async fn records_lost_by_a_process_are_counted() -> Outcome {
    let (child, records) = trace_of("flood").await?;
    let (mut marks, mut lost) = (Vec::new(), 0);
    for record in records.iter().filter(|record| record.process == child) {
        match record.event() {
            Some(Event::UserMark { value, .. }) => marks.push(value),
            Some(Event::Lost { count, .. }) => lost += count,
            _ => {}
        }
    }
    check!(lost > 0, "nothing was lost of {FLOOD} marks");
    check_equal!(marks.last(), Some(&(FLOOD - 1)), "the last mark");
    check!(marks.is_sorted(), "marks are out of order: {marks:?}");
    // The polls before and after the flood may be among the lost records.
    let all = marks.len() as u64 + lost;
    check!((FLOOD..FLOOD + 20).contains(&all), "{} marks and {lost} lost of {FLOOD}", marks.len());
    Ok(())
}

/// Writes random values into its own trace pages, then enters the kernel.
fn write_garbage() {
    use cops::abi::layout::{PAGE_BYTES, TRACE_PAGES};
    let mut garbage = raw::Garbage::new(0x6a7b);
    for round in 0..300 {
        for _ in 0..50 {
            let offset = garbage.next() % (PAGE_BYTES / 8) * 8;
            raw::poke(TRACE_PAGES + offset, garbage.next() as u64 >> (garbage.next() % 64));
        }
        if round % 3 == 0 {
            raw::poke(TRACE_PAGES, u64::MAX - round);
        }
        let _ = raw::call(COPS_TRACE, [operation::CONTROL, 2]);
    }
}

/// A process may write anything into its pages: no record has an event of the kernel, another
/// process's number, or a time outside of the interval.
async fn garbage_in_trace_pages() -> Outcome {
    let (child, records) = trace_of("garbage").await?;
    let of_child = records.iter().filter(|record| record.process == child);
    check!(of_child.clone().count() > 300, "hardly anything was recorded");
    for record in &records {
        check!(record.event().is_some(), "a record of no kind: {record:?}");
        let is_said_by_process = Event::is_user_kind(record.kind);
        check!(!is_said_by_process || record.process != 0, "{record:?}");
    }
    let [Some(first), Some(last)] = [
        of_child.clone().find(|record| matches!(record.event(), Some(Event::EnterUser { .. }))),
        of_child.clone().next_back(),
    ] else {
        return Err(Failure("the process was never entered".into()));
    };
    check!(last.time_ticks - first.time_ticks < 100_000_000, "{first:?} to {last:?}");
    Ok(())
}

/// Without tracing there are no pages and no records.
async fn off_means_off() -> Outcome {
    let was_on = trace::switch(true)?;
    trace::switch(false)?;
    let harts = inspect::harts()?.len();
    let begun =
        || (0..harts).map(|hart| trace::read(hart, u64::MAX, |_| ()).map(|portion| portion.begun));
    let before: Vec<u64> = begun().collect::<Result<_, _>>()?;
    let mut child = start(&[HELPER, TRACED, "is-it"])?;
    let status = soon("a process", child.wait()).await??;
    let after: Vec<u64> = begun().collect::<Result<_, _>>()?;
    trace::switch(was_on)?;
    check_equal!(status.code(), Some(0), "whether a process is traced");
    // A record may have been in progress when tracing was switched off.
    let more: u64 = after.iter().zip(&before).map(|(after, before)| after - before).sum();
    check!(more <= harts as u64, "{more} records while tracing was off");
    Ok(())
}
