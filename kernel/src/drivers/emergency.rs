//! The console after a panic and at power off: by polling, whatever state the console is in.

use super::console::{Channel, OUTPUT, PORT};
use crate::arch;
use crate::machine::device_tree;
use cops_algorithms::multiplexer::Multiplexer;
use core::fmt;

/// The console after a panic and at power off. It takes the port over and polls it, even if another
/// hart holds the lock.
pub struct Emergency {
    multiplexer: Multiplexer,
}

impl Emergency {
    /// Takes the port over. Sends the queued bytes first, if the lock can be acquired within a
    /// bounded number of attempts.
    pub fn take_over() -> Self {
        for _ in 0..1_000_000 {
            if let Some(mut output) = OUTPUT.try_lock() {
                output.drain();
                // The lock stays held, so that no other writer follows.
                core::mem::forget(output);
                break;
            }
            core::hint::spin_loop();
        }
        let arguments = device_tree::try_facts().map_or("", |facts| facts.boot_arguments);
        let mode = cops_abi::bootargs::console_mode(arguments);
        Self { multiplexer: Multiplexer::new(mode == cops_abi::bootargs::ConsoleMode::Mux) }
    }

    /// Sends the exit status of the run. Nothing is written afterwards.
    pub fn exit(&mut self, status: u8) {
        self.multiplexer.encode_exit(status, put_polling);
    }
}

impl fmt::Write for Emergency {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.multiplexer.encode(Channel::Kernel, text.as_bytes(), put_polling);
        Ok(())
    }
}

fn put_polling(byte: u8) {
    let Some(port) = PORT.get() else { return arch::emergency_write(&[byte]) };
    let mut rest = Some(byte);
    // The number of attempts is bounded, so that a port that never becomes ready cannot keep the
    // machine from powering off.
    for _ in 0..10_000_000 {
        if port.send(|| rest.take()) || rest.is_none() {
            return;
        }
    }
}
