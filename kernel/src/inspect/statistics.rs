//! The kernel's counters as one record.

use cops_abi::statistics::Statistics;

use crate::arch;
use crate::counters::{COUNTERS, INSTRUCTIONS_ASLEEP};
use crate::mm::{frames, heap};
use crate::net;
use crate::process::children;
use crate::sched::executor;

/// The current counters.
pub fn statistics() -> Statistics {
    let frames = frames::statistics();
    let heap = heap::statistics();
    let network = net::statistics();
    let mut record = Statistics {
        frames_total: frames.total as u64,
        frames_free: frames.free as u64,
        heap_used_bytes: heap.used_bytes as u64,
        heap_reserved_bytes: heap.reserved_bytes as u64,
        processes: children::count() as u64,
        kernel_coroutines: executor().live_count(),
        connections: network.connections_now,
        network_frames_received: network.frames_received,
        network_frames_sent: network.frames_transmitted,
        network_frames_malformed: network.dropped_malformed,
        instructions: arch::instructions_retired().saturating_sub(INSTRUCTIONS_ASLEEP.get()),
        ..Statistics::default()
    };
    COUNTERS.copy_into(&mut record);
    record
}
