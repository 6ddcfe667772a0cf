//! What a load asks of the servers of file systems (decision 49).
//!
//! Each attempt is one operation of a node. Its result is kept by the load, so an attempt that had
//! to wait is the next one that is made, and finds its reply.

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_fallible::try_arc;
use cops_lock::Mutex;

use crate::fs::{Ask, Attempt, NodeRef, SharedAsk};
use crate::mm::quota::Family;
use crate::process::{Process, ProcessId};

/// The error of a file that cannot be executed for what it is, or where it is.
pub const NOT_EXECUTABLE: Errno = Errno::EACCES;

/// The requests of a load.
pub struct Asking {
    /// The process that asks; 0: the kernel.
    caller: ProcessId,
    /// Its family, which pays; `None`: the load cannot wait.
    payer: Option<Family>,
    /// The requests, from the first node of such a file system on. The operation that waits for a
    /// reply has them too.
    ask: Option<SharedAsk>,
}

impl Asking {
    /// On behalf of a process; `None`: of the kernel, which cannot wait.
    pub fn of(process: Option<&Process>) -> Self {
        let (caller, payer) = (process.map_or(0, |own| own.id), process.map(|own| own.family));
        Self { caller, payer, ask: None }
    }

    /// The process that asks; 0: the kernel.
    pub fn caller(&self) -> ProcessId {
        self.caller
    }

    /// The family that pays for the load; `None`: the kernel itself loads the program.
    pub fn payer(&self) -> Option<Family> {
        self.payer
    }

    /// Attempts an operation of `node`; `None` if it has to wait: then the same operation is
    /// attempted next.
    ///
    /// Fails with `EACCES` if it would have to wait, and the load cannot.
    pub fn attempt<T>(
        &mut self,
        node: &NodeRef,
        operation: impl FnOnce(&mut Ask) -> Attempt<T>,
    ) -> Attempt<T> {
        if node.served().is_none() {
            return Some(operation(&mut Ask::of(self.caller)).unwrap_or(Err(NOT_EXECUTABLE)));
        }
        let Some(payer) = self.payer else { return Some(Err(NOT_EXECUTABLE)) };
        if self.ask.is_none() {
            match try_arc(Mutex::new(Ask::default())) {
                Ok(ask) => self.ask = Some(ask),
                Err(error) => return Some(Err(error.into())),
            }
        }
        let mut ask = self.ask.as_ref()?.lock();
        ask.begin(self.caller, payer);
        let result = operation(&mut ask)?;
        ask.next_step();
        Some(result)
    }

    /// The requests, for the operation that waits for a reply. After an attempt that has to wait.
    pub fn awaited(&self) -> Option<SharedAsk> {
        self.ask.as_ref().map(Arc::clone)
    }
}
