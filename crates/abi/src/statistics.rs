//! Counters of the kernel, as one plain record: what tests, benchmarks and `ps` read.

macro_rules! statistics {
    ($($(#[$doc:meta])+ $name:ident,)*) => {
        /// Counters since boot, or amounts now, as each says. Obtained by `COPS_STATISTICS`.
        ///
        /// New fields are only ever added at the end; a process built earlier asks for fewer bytes.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Statistics { $($(#[$doc])+ pub $name: u64,)* }

        impl Statistics {
            /// Names of the fields in order, for printing.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];
            /// The fields as they travel: little endian, in order.
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
    /// Bytes of kernel heap handed out, now.
    heap_used_bytes,
    /// Bytes of kernel heap taken from the frames, now.
    heap_reserved_bytes,
    /// Processes that have not been reaped, now.
    processes,
    /// Kernel coroutines alive, now.
    kernel_coroutines,
    /// Connections the network holds, in any state, now.
    connections,
    /// Frames received from the network device.
    network_frames_received,
    /// Frames handed to the network device.
    network_frames_sent,
    /// Frames dropped because they made no sense.
    network_frames_malformed,
    /// Entries into the kernel from user mode, of any kind.
    traps_from_user,
    /// System calls.
    system_calls,
    /// Interrupts taken, in user or kernel mode.
    interrupts,
    /// Asynchronous calls that completed at once: no kernel coroutine was made.
    calls_completed_at_once,
    /// Kernel coroutines made for calls that had to wait.
    calls_deferred,
    /// Calls waiting in the kernel, now.
    calls_in_flight,
    /// Calls cancelled before they completed.
    calls_cancelled,
    /// Results that found the wake ring full and were kept aside.
    ring_overflows,
    /// Times a virtual CPU was parked.
    parks,
    /// Times a parked virtual CPU was woken by the kernel.
    unparks,
    /// Times a hart began to run another virtual CPU than before.
    cpu_switches,
    /// Instructions executed, sleep left out. Means something on one hart of an emulator that counts them (`-icount`).
    instructions,
    /// Interrupts sent from one hart to another, whatever for.
    interprocessor_interrupts,
    /// Those of them sent because something more urgent than what a hart ran in user mode was to have it.
    preemptions,
    /// User-level interrupts posted: results put into a ring that nobody had been told of.
    user_interrupts_posted,
    /// Those for which a hart was interrupted.
    user_interrupts_sent,
    /// Those that needed none: the executor is about to look, or nothing less urgent is in its way.
    user_interrupts_suppressed,
    /// Times a handler was entered.
    user_interrupts_taken,
    /// What `rdtime` showed when the last interrupt of a device was taken.
    device_interrupt_ticks,
    /// Interrupts of other harts that were taken. Several sent to one hart before it takes them count as one.
    interprocessor_interrupts_taken,
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
