//! The kernel's half of the models that the papers compare (decision 56).
//!
//! For experiments: threads block in the kernel themselves, or calls are polled. It concerns reads
//! and writes of TCP connections that have to wait.

use cops_abi::syscall::kernel_model;

/// What waits in the kernel for calls of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum KernelModel {
    /// A kernel coroutine completes the call.
    #[default]
    Coroutines = kernel_model::COROUTINES,
    /// The calling thread sleeps, is woken, and completes the call. Coroutines' calls are as usual.
    Threads = kernel_model::THREADS,
    /// The calling thread retries and yields. Coroutines' calls are as usual.
    RetryingThreads = kernel_model::RETRYING_THREADS,
    /// One kernel thread polls the calls of coroutines. Threads' calls are as usual.
    Polling = kernel_model::POLLING,
}

/// Chooses it, for calls from now on.
///
/// # Errors
/// A kernel of this version returns none.
pub fn set_kernel_model(model: KernelModel) -> crate::io::Result<()> {
    Ok(crate::system::set_kernel_model(model as u8)?)
}
