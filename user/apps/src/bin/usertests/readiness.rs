//! Waiting for one of many files, by native calls that are in flight. The stage `linux` tests the
//! same calls through the C library.

use alloc::vec;
use alloc::vec::Vec;

use cops::abi::Errno::{EBADF, EFAULT, EINVAL, ELOOP};
use cops::abi::poll::{EPOLL_EVENT_BYTES, POLL_BYTES, POLL_MAX, epoll_control, event};
use cops::abi::syscall as number;
use cops::io::{AsFd, Write, pipe};
use cops::time::{Duration, sleep};

use crate::harness::{Failure, Outcome};
use crate::raw::{self, Asked, Handle};
use crate::{check, check_equal, tests};

tests! { readiness:
    errors_of_waits,
    an_event_completes_waits_in_flight,
    one_event_tells_hundreds,
    waits_are_cancelled,
    waits_end_with_their_process,
}

/// A `pollfd`.
fn polled(descriptor: usize, events: u32) -> u64 {
    descriptor as u64 & 0xffff_ffff | u64::from(events) << 32
}

/// The events that the kernel has stored in a `pollfd`.
fn found(polled: &u64) -> u32 {
    (raw::peek(core::ptr::from_ref(polled).expose_provenance()) >> 48) as u32
}

fn address<T>(memory: &[T]) -> usize {
    memory.as_ptr().expose_provenance()
}

fn in_flight(number: usize, arguments: [usize; 6]) -> Result<Handle, Failure> {
    match raw::ask(number, arguments) {
        Asked::InFlight(handle) => Ok(handle),
        Asked::Done(result) => Err(Failure(alloc::format!("a wait is over at once: {result:?}"))),
    }
}

/// Waits until the call has its result.
async fn completion(handle: &Handle) -> Result<(), Failure> {
    let arguments = [handle.number() as usize, 32];
    while raw::call(number::COPS_SET_CALL_PRIORITY, arguments)? == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// An epoll instance with an entry for `descriptor`.
fn instance(descriptor: usize, events: u32) -> Result<usize, Failure> {
    let instance = raw::call(number::EPOLL_CREATE1, [0])?;
    add(instance, descriptor, events)?;
    Ok(instance)
}

fn add(instance: usize, descriptor: usize, events: u32) -> Result<usize, Failure> {
    let entry = [u64::from(events), descriptor as u64];
    let arguments = [instance, epoll_control::ADD, descriptor, address(&entry)];
    Ok(raw::call(number::EPOLL_CTL, arguments)?)
}

async fn errors_of_waits() -> Outcome {
    let (reader, _writer) = pipe()?;
    let reader = reader.as_fd().raw() as usize;
    let all = [polled(reader, event::IN)];
    let bad_time = [0u64, 1_000_000_000];
    let try_it = |what: &str, call, arguments: [usize; 6], error| {
        raw::refused(what, call, arguments, &[error])
    };
    let (at, time) = (address(&all), address(&bad_time));
    try_it("too many", number::PPOLL, [at, POLL_MAX + 1, 0, 0, 0, 0], EINVAL)?;
    try_it("a bad time", number::PPOLL, [at, 1, time, 0, 0, 0], EINVAL)?;
    try_it("no flags", number::EPOLL_CREATE1, [1, 0, 0, 0, 0, 0], EINVAL)?;
    try_it("no flags", number::EVENTFD2, [0, 2, 0, 0, 0, 0], EINVAL)?;
    let events = vec![0u8; EPOLL_EVENT_BYTES];
    let into = address(&events);
    let first = instance(reader, event::IN)?;
    try_it("no instance", number::EPOLL_PWAIT, [reader, into, 1, 0, 0, 0], EINVAL)?;
    try_it("no events", number::EPOLL_PWAIT, [first, into, 0, 0, 0, 0], EINVAL)?;
    try_it("no file", number::EPOLL_PWAIT, [999, into, 1, 0, 0, 0], EBADF)?;
    let second = instance(reader, event::IN)?;
    let entry = [0u64; 2];
    let entry = address(&entry);
    try_it("in itself", number::EPOLL_CTL, [first, 1, first, entry, 0, 0], EINVAL)?;
    try_it("in another one", number::EPOLL_CTL, [first, 1, second, entry, 0, 0], ELOOP)?;
    try_it("an unknown operation", number::EPOLL_CTL, [first, 9, reader, entry, 0, 0], EINVAL)?;
    for &bad in raw::BAD_ADDRESSES {
        try_it("a bad array", number::PPOLL, [bad, 1, 0, 0, 0, 0], EFAULT)?;
        try_it("a bad time", number::PPOLL, [at, 1, bad.max(1), 0, 0, 0], EFAULT)?;
        try_it("a bad set", number::PSELECT6, [8, bad.max(1), 0, 0, 0, 0], EFAULT)?;
        try_it("bad events", number::EPOLL_PWAIT, [first, bad, 1, 0, 0, 0], EFAULT)?;
        try_it("a bad entry", number::EPOLL_CTL, [first, 1, reader, bad, 0, 0], EFAULT)?;
    }
    Ok(())
}

async fn an_event_completes_waits_in_flight() -> Outcome {
    let (reader, mut writer) = pipe()?;
    let descriptor = reader.as_fd().raw() as usize;
    let all = [polled(usize::MAX, event::IN), polled(descriptor, event::IN)];
    let events = vec![0u64; 2 * EPOLL_EVENT_BYTES / 8];
    let instance = instance(descriptor, event::IN)?;
    let poll = in_flight(number::PPOLL, [address(&all), 2, 0, 0, 0, 0])?;
    let wait = in_flight(number::EPOLL_PWAIT, [instance, address(&events), 2, usize::MAX, 0, 0])?;
    sleep(Duration::from_millis(5)).await;
    for handle in [&poll, &wait] {
        let arguments = [handle.number() as usize, 32];
        check_equal!(raw::call(number::COPS_SET_CALL_PRIORITY, arguments)?, 0, "completed");
    }
    writer.write(&[1]).await?;
    completion(&poll).await?;
    completion(&wait).await?;
    check_equal!(found(&all[1]), event::IN, "events of ppoll");
    check_equal!(found(&all[0]), 0, "events of no file");
    let [events, data] = [0, 8].map(|offset| raw::peek(address(&events) + offset));
    check_equal!((events as u32, data), (event::IN, descriptor as u64), "event of epoll");
    Ok(())
}

/// Far more watches than an event tells in its own portion.
async fn one_event_tells_hundreds() -> Outcome {
    const WAITS: usize = 300;
    let (reader, mut writer) = pipe()?;
    let descriptor = reader.as_fd().raw() as usize;
    let all = vec![polled(descriptor, event::IN); WAITS];
    let mut waits = Vec::new();
    for index in 0..WAITS {
        let one = address(&all[index..]);
        waits.push(in_flight(number::PPOLL, [one, 1, 0, 0, 0, 0])?);
        let arguments = [waits[index].number() as usize, index % 64];
        raw::call(number::COPS_SET_CALL_PRIORITY, arguments)?;
    }
    writer.write(&[1]).await?;
    for wait in &waits {
        completion(wait).await?;
    }
    check!(all.iter().all(|polled| found(polled) == event::IN), "not all have their event");
    Ok(())
}

/// Waits for many files: more than the end of a wait frees in one portion.
const MANY: usize = 100;

fn waits_for_many(instance: usize, all: &[u64], into: &[u8]) -> Result<Vec<Handle>, Failure> {
    let mut waits = Vec::new();
    for _ in 0..50 {
        waits.push(in_flight(number::PPOLL, [address(all), all.len(), 0, 0, 0, 0])?);
        let arguments = [instance, address(into), 1, usize::MAX, 0, 0];
        waits.push(in_flight(number::EPOLL_PWAIT, arguments)?);
    }
    Ok(waits)
}

fn many() -> Result<(usize, Vec<u64>), Failure> {
    let instance = raw::call(number::EPOLL_CREATE1, [0])?;
    let mut all = Vec::new();
    for _ in 0..MANY {
        let counter = raw::call(number::EVENTFD2, [0, 0])?;
        add(instance, counter, event::IN)?;
        all.push(polled(counter, event::IN));
    }
    Ok((instance, all))
}

async fn waits_are_cancelled() -> Outcome {
    let (instance, all) = many()?;
    let into = vec![0u8; EPOLL_EVENT_BYTES];
    for round in 0..3 {
        let waits = waits_for_many(instance, &all, &into)?;
        sleep(Duration::from_millis(5 * round)).await;
        for wait in waits {
            check!(wait.cancel()?, "a wait has completed");
        }
    }
    check_equal!(all.len() * POLL_BYTES, MANY * size_of::<u64>(), "size of an array");
    Ok(())
}

async fn waits_end_with_their_process() -> Outcome {
    let (instance, all) = many()?;
    let into = vec![0u8; EPOLL_EVENT_BYTES];
    let waits = waits_for_many(instance, &all, &into)?;
    sleep(Duration::from_millis(5)).await;
    // The handles are forgotten, and the memory stays until the end.
    core::mem::forget((waits, all, into));
    Ok(())
}
