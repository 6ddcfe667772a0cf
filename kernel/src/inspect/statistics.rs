//! The kernel's counters as one record.

use cops_abi::statistics::Statistics;

use crate::arch;
use crate::counters::COUNTERS;
use crate::mm::{frames, heap};
use crate::net;
use crate::process::children;
use crate::sched::executor;

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
        kernel_coroutines: executor().live_count(),
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
        instructions: arch::instructions_retired()
            .saturating_sub(COUNTERS.instructions_asleep.get()),
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
