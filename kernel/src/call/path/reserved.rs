//! The number that a call has reserved for the file that it is to open.
#![forbid(unsafe_code)]

use alloc::sync::{Arc, Weak};

use cops_abi::Errno;
use cops_abi::errno::CallResult;

use crate::fs::{Descriptor, File};
use crate::process::Process;

/// A reserved number; it is free again when this is dropped. Not dropped under the lock of the
/// process's table.
pub struct Reserved {
    /// Not an owner: the process has its calls in flight.
    process: Weak<Process>,
    number: Descriptor,
}

impl Reserved {
    /// Reserves a number.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn new(process: &Arc<Process>) -> Result<Self, Errno> {
        let number = process.files.lock().reserve_number()?;
        Ok(Self { process: Arc::downgrade(process), number })
    }

    /// Opens `file` with the number, which is the result of the call.
    ///
    /// # Errors
    /// `EBADF` if the process has ended.
    pub fn fill(self, file: Arc<File>, close_on_exec: bool) -> CallResult {
        let process = self.process.upgrade().ok_or(Errno::EBADF)?;
        let filled = process.files.lock().fill(self.number, file, close_on_exec);
        filled.map(|()| self.number.0)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(process) = self.process.upgrade() {
            process.files.lock().give_up(self.number);
        }
    }
}
