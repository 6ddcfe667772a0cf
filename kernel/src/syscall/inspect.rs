//! Inspecting processes, coroutines and harts, and reading the trace.
//!
//! A reply is assembled in the kernel and copied out once, when no lock is held.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::inspect::{InspectHeader, Inspected, PortionRecord, REPLY_BYTES_MAX, kind};
use cops_abi::trace::{Event, RECORD_BYTES, ReadHeader};

use crate::inspect::{self, Found};
use crate::mm::UserRange;
use crate::portions;
use crate::process::{Process, VirtualCpu, children};
use crate::trace;

/// Maximum number of slots examined in one call: each costs three walks of a page table if it is in
/// a process's memory.
const SLOTS_MAX: u32 = 48;

/// A reply in preparation: records after a header.
struct Reply {
    bytes: [u8; REPLY_BYTES_MAX],
    /// The maximum length, from the caller.
    limit: usize,
    used: usize,
    count: u64,
}

impl Reply {
    fn new(bytes: usize) -> Result<Self, Errno> {
        if bytes < InspectHeader::BYTES {
            return Err(Errno::EINVAL);
        }
        let limit = bytes.min(REPLY_BYTES_MAX);
        Ok(Self { bytes: [0; REPLY_BYTES_MAX], limit, used: InspectHeader::BYTES, count: 0 })
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.limit - self.used >= bytes
    }

    /// Adds a record; the caller has checked that there is room.
    fn put<R: Inspected>(&mut self, record: &R) {
        record.put(&mut self.bytes[self.used..]);
        self.used += R::BYTES;
        self.count += 1;
    }

    /// The complete reply; `next` is where the next call continues.
    fn finish(&mut self, next: u64) -> &[u8] {
        InspectHeader { count: self.count, next }.put(&mut self.bytes);
        &self.bytes[..self.used]
    }

    /// Adds what `next` returns from `from` on, as long as there is room. With each record it
    /// returns the number to continue with.
    fn fill<R: Inspected>(
        &mut self,
        from: u64,
        mut next: impl FnMut(u64) -> Option<(R, u64)>,
    ) -> u64 {
        let mut at = from;
        while self.has_room_for(R::BYTES) {
            let Some((record, behind)) = next(at) else { return 0 };
            self.put(&record);
            at = behind;
        }
        at
    }
}

/// `inspect(kind, from, *mut records, bytes)`; of the buffer at most [`REPLY_BYTES_MAX`] bytes.
pub fn inspect(process: &Process, kind: usize, from: u64, buffer: UserRange) -> CallResult {
    let mut reply = Reply::new(buffer.len())?;
    let next = match kind {
        kind::HARTS => reply.fill(from, |number| Some((inspect::hart(number)?, number + 1))),
        kind::PROCESSES => reply.fill(from, |number| {
            let record = inspect::process_at_or_after(u32::try_from(number).ok()?)?;
            Some((record, u64::from(record.process) + 1))
        }),
        kind::CPUS => {
            let whose = children::find((from >> 32) as u32).ok_or(Errno::ESRCH)?;
            reply.fill(from, |number| {
                let record = whose.cpu_record(number as u32 as usize)?;
                Some((record, number >> 32 << 32 | (u64::from(record.cpu) + 1)))
            })
        }
        kind::COROUTINES => coroutines(&mut reply, from)?,
        kind::PORTIONS => reply.fill(from, portion),
        _ => return Err(Errno::EINVAL),
    };
    let reply = reply.finish(next);
    process.space.copy_out(buffer, reply)?;
    Ok(reply.len())
}

/// The portion record `number`, or the first after it, and the number to continue with.
fn portion(number: u64) -> Option<(PortionRecord, u64)> {
    let (record, number) = portions::at_or_after(number)?;
    Some((PortionRecord { name: inspect::portions::name_of(&record), ..record }, number + 1))
}

/// The coroutines of a process or the kernel (high half of `from`) from a slot (low half) on.
/// Examines a limited number of slots, so that a call takes a bounded time however many of them are
/// empty.
fn coroutines(reply: &mut Reply, from: u64) -> Result<u64, Errno> {
    let whose = match (from >> 32) as u32 {
        0 => None,
        id => Some(children::find(id).ok_or(Errno::ESRCH)?),
    };
    let mut at = from;
    for _ in 0..SLOTS_MAX {
        if !reply.has_room_for(cops_abi::inspect::CoroutineRecord::BYTES) {
            break;
        }
        let slot = (at as u32).max(1);
        let found = match &whose {
            None => inspect::kernel_coroutine(slot),
            Some(process) => inspect::user_coroutine(process, slot),
        };
        match found {
            Found::End => return Ok(0),
            Found::Empty => {}
            Found::Coroutine(record) => reply.put(&record),
        }
        at = from >> 32 << 32 | (u64::from(slot) + 1);
    }
    Ok(at)
}

/// `trace(CONTROL, off)`.
pub fn switch_trace_off(process: &Process) -> CallResult {
    process.check_authority_over_machine()?;
    Ok(trace::switch_prepared(false).into())
}

/// `trace(MARK, value)`.
pub fn mark_trace(cpu: &Arc<VirtualCpu>, value: u64) -> CallResult {
    trace::emit(|| {
        let coroutine = cpu.process.current_coroutine(cpu.index);
        cpu.event(|process, cpu| Event::UserMark { process, cpu, coroutine, value })
    });
    Ok(0)
}

/// `trace(READ, hart, buffer, length)`: copies out the contents of a hart's ring from the number in
/// the header on, at most [`REPLY_BYTES_MAX`] bytes.
pub fn read_trace(process: &Process, hart: usize, buffer: UserRange) -> CallResult {
    let room = buffer.len().min(REPLY_BYTES_MAX).checked_sub(RECORD_BYTES).ok_or(Errno::EINVAL)?;
    let mut header = [0; RECORD_BYTES];
    process.space.copy_in(buffer, &mut header)?;
    let from = ReadHeader::from_bytes(&header).from;
    let extent = trace::extent(hart).ok_or(Errno::ENOENT)?;
    let mut reply = [0; REPLY_BYTES_MAX];
    let mut used = RECORD_BYTES;
    let portion = trace::read(hart, from, room / RECORD_BYTES, |record| {
        reply[used..][..RECORD_BYTES].copy_from_slice(&record.to_bytes());
        used += RECORD_BYTES;
    });
    let portion = portion.ok_or(Errno::ENOENT)?;
    let header = ReadHeader {
        from: portion.first,
        count: portion.count as u64,
        begun: extent.begun,
        capacity: extent.capacity,
    };
    reply[..RECORD_BYTES].copy_from_slice(&header.to_bytes());
    process.space.copy_out(buffer, &reply[..used])?;
    Ok(used)
}
