//! Stacks of threads: what ended threads have left is used again, and nothing else is.
#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use cops::abi::syscall::{self as number, clone_flags, futex};
use cops::process::{self, Resource};
use cops::thread::{self, Builder, MIN_STACK_BYTES};

use crate::harness::{Failure, Outcome, until};
use crate::raw;
use crate::{check, tests};

tests! { stacks:
    are_used_again,
    in_use_do_not_keep_others_back,
}

/// Memory that this process is charged for, when it has no more than `held` threads.
async fn charged(held: u64) -> Result<u64, Failure> {
    let is_over = || Ok(process::quota(0, Resource::Cpus)?.used <= 1 + held);
    until("the end of the other threads", is_over).await?;
    Ok(process::quota(0, Resource::Memory)?.used)
}

/// Starts many threads, some at a time, on stacks of two sizes; `held` others never end. Fails if
/// new memory was used for many of them.
async fn start_many(held: u64) -> Outcome {
    let rounds = |count: usize, bytes: usize| -> Outcome {
        for _ in 0..count {
            let handles = [(); 3].map(|()| Builder::new().stack_size(bytes).spawn(|| ()));
            for handle in handles {
                let Ok(()) = handle?.join();
            }
        }
        Ok(())
    };
    rounds(10, thread::DEFAULT_STACK_BYTES)?;
    rounds(10, 4 * MIN_STACK_BYTES)?;
    let before = charged(held).await?;
    rounds(300, thread::DEFAULT_STACK_BYTES)?;
    rounds(300, 4 * MIN_STACK_BYTES)?;
    let grown = charged(held).await?.saturating_sub(before);
    // A few more stacks may be kept, or not be free yet, than before.
    check!(grown < 24 * (thread::DEFAULT_STACK_BYTES as u64 + 4096), "{grown} bytes more");
    Ok(())
}

async fn are_used_again() -> Outcome {
    start_many(0).await
}

/// What a thread that is preempted for long before its last instruction does to others: its stack
/// is retired, and in use.
async fn in_use_do_not_keep_others_back() -> Outcome {
    const HELD: u64 = 10;
    const BYTES: u64 = 256 * 1024;
    static RELEASED: [AtomicU32; HELD as usize] = [const { AtomicU32::new(0) }; HELD as usize];
    for released in &RELEASED {
        let builder = Builder::new().stack_size(BYTES as usize);
        let Ok(result) = builder.spawn(|| leave_stack_to_another_thread(released))?.join();
        check!(result == 0, "clone: {result}");
    }
    start_many(HELD).await?;
    let before = charged(HELD).await?;
    // The one that retired last is still in use, and so is the first.
    for released in &RELEASED[1..RELEASED.len() - 1] {
        release(released)?;
    }
    charged(2).await?;
    let Ok(()) = thread::spawn(|| ()).join();
    let freed = before.saturating_sub(charged(2).await?);
    check!(freed >= (HELD - 2) * BYTES, "{freed} bytes freed");
    release(&RELEASED[0])?;
    release(&RELEASED[RELEASED.len() - 1])?;
    start_many(0).await
}

/// Lets the thread end that has called [`leave_stack_to_another_thread`] with this word.
fn release(released: &AtomicU32) -> Outcome {
    released.store(1, SeqCst);
    let word = released.as_ptr().expose_provenance();
    raw::call(number::FUTEX, [word, futex::WAKE, 1, 0, 0, 0])?;
    Ok(())
}

/// Another thread of the kernel continues in place of the calling one, on its stack. The stack is
/// free when the calling one ends, which touches it no more and ends after `released` is set.
/// Returns 0, or an error.
fn leave_stack_to_another_thread(released: &'static AtomicU32) -> isize {
    let result: isize;
    // SAFETY: only one thread leaves this block, with the registers that the calling one had, and
    // on its stack. The other accesses nothing but its registers and a word that lives forever.
    unsafe {
        asm!(
            "ecall",
            "blez a0, 2f",
            "1:",
            "mv   a0, s2",
            "li   a1, {wait}",
            "li   a2, 0",
            "li   a3, 0",
            "li   a4, 0",
            "li   a5, 0",
            "li   a6, 0",
            "li   a7, {futex}",
            "li   t0, 0",
            "ecall",
            "lw   a0, 0(s2)",
            "beqz a0, 1b",
            "li   a0, 0",
            "li   a6, 0",
            "li   a7, {exit}",
            "li   t0, 0",
            "ecall",
            "2:",
            wait = const futex::WAIT,
            futex = const number::FUTEX,
            exit = const number::EXIT,
            inlateout("a0") clone_flags::THREAD_SHARES => result,
            in("a1") 0,
            in("a2") 0,
            in("a3") 0,
            in("a4") 0,
            in("a6") 0,
            in("s2") released.as_ptr().expose_provenance(),
            in("a7") number::CLONE,
            in("t0") 0,
            clobber_abi("C"),
        );
    }
    result
}
