//! Tracing: events of this process's coroutines, recorded without system calls; and reading traces.
//!
//! A process that was started while tracing was on has a page for each virtual CPU, in which its
//! polls, wakes and spawns are recorded. The kernel collects them at each entry. In other processes
//! this module costs a load and a branch for each poll, and nothing for a wake. See
//! `docs/book/inspection.md`.
//!
//! May touch: the trace pages, the table of the scheduler's functions.
#![allow(unsafe_code)]

use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::task::{Context, Poll};

use cops_abi::trace::{RECORD_BYTES, ReadHeader};
use cops_executor::image::{self, CoreTable, Observer};
use cops_executor::{NO_CURRENT_WORKER, current, priority};

use crate::io::Result;
use crate::{arch, shared, system, worker};

pub use cops_abi::trace::{Event, Record};

/// Whether this process has trace pages. Set before its first coroutine and never changed.
static ON: AtomicBool = AtomicBool::new(false);
static OBSERVED: spin::Once<CoreTable> = spin::Once::new();
static OBSERVER: Observer = Observer {
    wake: |id| {
        let (coroutine, by) = (id.raw(), current().map_or(0, |by| by.raw()));
        emit(|cpu| Event::UserWake { process: 0, cpu, coroutine, by });
    },
    spawn: |id, priority| {
        let (coroutine, by) = (id.raw(), current().map_or(0, |by| by.raw()));
        emit(|cpu| Event::UserSpawn { process: 0, cpu, coroutine, by, level: priority.level() });
    },
    set_priority: |_, _| {},
};

/// Installs the scheduler's functions: `plain`, or with an observer if this process is traced.
pub(crate) fn install(plain: &'static CoreTable) {
    let traced = shared::trace_page(0).is_some();
    image::install(if traced {
        OBSERVED.call_once(|| CoreTable::observed(plain, &OBSERVER))
    } else {
        plain
    });
    ON.store(traced, Relaxed);
}

/// A trace point.
#[inline(always)]
fn emit(event: impl FnOnce(u8) -> Event) {
    if ON.load(Relaxed) {
        record(event);
    }
}

#[cold]
#[inline(never)]
fn record(event: impl FnOnce(u8) -> Event) {
    let word = worker::current_word();
    if word == NO_CURRENT_WORKER {
        return;
    }
    // The kernel fills in the process and the hart.
    let cpu = word as u8;
    if let Some(page) = shared::trace_page(cpu.into()) {
        page.ring().write(Record { time_ticks: arch::clock_ticks(), ..event(cpu).to_record() });
    }
}

/// The future of a coroutine of a [kind](cops_abi::inspect::coroutine_kind), with traced polls.
#[repr(transparent)]
pub(crate) struct Traced<F, const KIND: usize>(pub(crate) F);

impl<F: Future, const KIND: usize> Future for Traced<F, KIND> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: structural pinning: the field is pinned with the whole, no other code reaches it,
        // and `Traced` has no `Drop`.
        let future = unsafe { self.map_unchecked_mut(|traced| &mut traced.0) };
        if ON.load(Relaxed) { poll_traced(future, context, KIND) } else { future.poll(context) }
    }
}

#[cold]
#[inline(never)]
fn poll_traced<F: Future>(
    future: Pin<&mut F>,
    context: &mut Context<'_>,
    kind: usize,
) -> Poll<F::Output> {
    let kind = kind as u64;
    let (coroutine, level) =
        current().map_or((0, 0), |id| (id.raw(), priority(id).unwrap_or_default().level()));
    record(|cpu| Event::UserPollBegin { process: 0, cpu, coroutine, level, kind });
    let poll = future.poll(context);
    let finished = poll.is_ready().into();
    record(|cpu| Event::UserPollEnd { process: 0, cpu, coroutine, finished });
    poll
}

/// Whether this process's coroutines are traced, which is so if tracing was on when it was started.
#[must_use]
pub fn is_traced() -> bool {
    ON.load(Relaxed)
}

/// Marks this moment in the trace with a number, if this process is traced. Makes no system call.
pub fn mark(value: u64) {
    let coroutine = current().map_or(0, |id| id.raw());
    emit(|cpu| Event::UserMark { process: 0, cpu, coroutine, value });
}

/// Switches tracing of the whole machine on or off. Returns whether it was on. Processes that are
/// started while it is on are traced.
///
/// # Errors
/// `ENOMEM` if there is no memory for the kernel's rings.
pub fn switch(on: bool) -> Result<bool> {
    Ok(system::trace_control(on)?)
}

/// A part of the records of a hart.
#[derive(Clone, Copy, Debug)]
pub struct Portion {
    /// Number of the first record, counted since tracing was first on. Records between the one
    /// asked for and this one were overwritten.
    pub first: u64,
    /// Number of records.
    pub count: usize,
    /// Number of records that the hart has ever written.
    pub begun: u64,
    /// Number of records that its ring holds.
    pub capacity: u64,
}

/// Reads records of a hart into `put`, oldest first, beginning with number `from`; some dozens per
/// call.
///
/// # Errors
/// `ENOENT` if there is no such hart or tracing was never on.
pub fn read(hart: usize, from: u64, mut put: impl FnMut(Record)) -> Result<Portion> {
    let mut bytes = [0; 2048];
    if let Some(place) = bytes.first_chunk_mut() {
        *place = ReadHeader { from, ..ReadHeader::default() }.to_bytes();
    }
    let length = system::trace_read(hart, &mut bytes)?;
    let (records, _) = bytes.get(..length).unwrap_or_default().as_chunks::<RECORD_BYTES>();
    let [header, records @ ..] = records else { return Err(cops_abi::Errno::EIO.into()) };
    let header = ReadHeader::from_bytes(header);
    for record in records {
        put(Record::from_bytes(record));
    }
    Ok(Portion {
        first: header.from,
        count: records.len(),
        begun: header.begun,
        capacity: header.capacity,
    })
}
