//! Counters of the kernel in one record. Tests, benchmarks and `ps` read it.

macro_rules! statistics {
    ($($(#[$doc:meta])+ $name:ident,)*) => {
        /// Values obtained by `COPS_STATISTICS`: counters since boot, or, where the field says
        /// "now", current amounts.
        ///
        /// New fields are only ever added at the end; a program built earlier asks for fewer bytes.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Statistics { $($(#[$doc])+ pub $name: u64,)* }

        impl Statistics {
            /// Names of the fields in order, for printing.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];
            /// The fields as bytes: little endian, in order.
            #[must_use]
            pub fn to_bytes(&self) -> [u8; size_of::<Self>()] {
                let mut bytes = [0; size_of::<Self>()];
                let words = [$(self.$name),*];
                for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
                bytes
            }
            /// Reads [`Self::to_bytes`] back.
            #[must_use]
            pub fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
                let mut words = bytes.chunks_exact(8).map(|word| {
                    let mut array = [0; 8];
                    array.copy_from_slice(word);
                    u64::from_le_bytes(array)
                });
                let mut next = || words.next().unwrap_or(0);
                Self { $($name: next(),)* }
            }
        }
    };
}

statistics! {
    /// Frames of 4 KiB in all, now.
    frames_total,
    /// Frames free, now.
    frames_free,
    /// Bytes of kernel heap allocated, now.
    heap_used_bytes,
    /// Bytes of frames that the kernel heap has, now.
    heap_reserved_bytes,
    /// Processes that have not been reaped, now.
    processes,
    /// Kernel coroutines alive, now.
    kernel_coroutines,
    /// Connections that the network has, in any state, now.
    connections,
    /// Frames received from the network device.
    network_frames_received,
    /// Frames handed to the network device.
    network_frames_sent,
    /// Frames dropped because they were malformed.
    network_frames_malformed,
    /// Entries into the kernel from user mode, of any kind.
    traps_from_user,
    /// System calls.
    system_calls,
    /// Interrupts taken, in user or kernel mode.
    interrupts,
    /// Asynchronous calls that completed immediately, without a kernel coroutine.
    calls_completed_at_once,
    /// Kernel coroutines created for calls that had to wait.
    calls_deferred,
    /// Calls in flight, now.
    calls_in_flight,
    /// Calls cancelled before they completed.
    calls_cancelled,
    /// Results that found the wake ring full and were kept in the kernel.
    ring_overflows,
    /// Times a virtual CPU parked.
    parks,
    /// Times a parked virtual CPU was woken by the kernel.
    unparks,
    /// Times a hart switched to another virtual CPU.
    cpu_switches,
    /// Instructions executed by all harts, without those during sleep. Meaningful only on an
    /// emulator that counts instructions (`-icount`).
    instructions,
    /// Interrupts sent from one hart to another, for any reason.
    interprocessor_interrupts,
    /// Interprocessor interrupts sent to preempt a hart that ran something less urgent in user
    /// mode.
    preemptions,
    /// User-level interrupts posted: results put into a ring while no interrupt was pending for its
    /// process.
    user_interrupts_posted,
    /// User-level interrupts for which a hart was interrupted.
    user_interrupts_sent,
    /// User-level interrupts suppressed, because the executor is about to read the ring anyway or
    /// no worker polls anything less urgent.
    user_interrupts_suppressed,
    /// Times a user-level interrupt handler was entered.
    user_interrupts_taken,
    /// What `rdtime` returned when the last device interrupt was taken, or when frames were found
    /// without one.
    device_interrupt_ticks,
    /// Interprocessor interrupts taken. Several that are sent to a hart before it takes them count
    /// as one.
    interprocessor_interrupts_taken,
    /// Times a hart made others forget translations of a program that they run, and waited for
    /// them.
    remote_flushes,
    /// Times received frames were found late: without an interrupt, by the clock or by a look that
    /// came long after the one before. At most a millisecond late.
    frames_found_late,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_survives_the_boundary() {
        let mut bytes = [0; size_of::<Statistics>()];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = index as u8;
        }
        assert_eq!(Statistics::from_bytes(&bytes).to_bytes(), bytes);
        assert_eq!(Statistics::NAMES.len() * 8, bytes.len());
    }
}
