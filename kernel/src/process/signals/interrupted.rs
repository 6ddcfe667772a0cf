//! Calls that a signal has interrupted: they are made again, or have failed.
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::errno::encode;
use cops_abi::linux;
use cops_abi::syscall::{self as native, futex};
use cops_algorithms::signals::{Action, flags};

use super::super::Process;
use crate::arch::{self, SyscallFrame, UserContext};
use crate::mm::UserRange;
use crate::sched::timer;

/// Where a call that is interrupted stores the rest of its time; 0: nowhere.
fn rest_address(call: &SyscallFrame) -> usize {
    match call.number {
        linux::NANOSLEEP => call.arguments[1],
        // As on Linux, but not in its C library, the rest of the time-out replaces it.
        native::PPOLL => call.arguments[2],
        native::PSELECT6 => call.arguments[4],
        native::CLOCK_NANOSLEEP if call.arguments[1] & native::TIMER_ABSTIME == 0 => {
            call.arguments[3]
        }
        _ => 0,
    }
}

impl Process {
    /// The registers after a call that `action` interrupts: it is made again, or has failed.
    pub(super) fn end_interrupted_call(
        &self,
        context: &mut UserContext,
        action: &Action,
        deadline_ticks: Option<u64>,
    ) {
        let call = context.syscall();
        let of_futex = (call.number == native::FUTEX)
            .then_some(call.arguments[1] & !(futex::PRIVATE | futex::CLOCK_REALTIME));
        let is_timed_wait =
            matches!(of_futex, Some(futex::WAIT | futex::WAIT_BITSET)) && call.arguments[3] != 0;
        let is_never_repeated = is_timed_wait || linux::NEVER_REPEATED.contains(&call.number);
        // A program would take an error for the lock.
        let is_always_repeated = matches!(of_futex, Some(futex::LOCK_PI | futex::LOCK_PI2));
        if is_always_repeated || action.flags & flags::RESTART != 0 && !is_never_repeated {
            context.repeat_syscall();
            return;
        }
        self.fail_interrupted_call(context, deadline_ticks);
    }

    /// The registers after a call that was interrupted although there is nothing to tell the
    /// program, for instance because another thread has taken the signal: it is made again, unless
    /// it would last longer than until its deadline. Then it has failed, as after a handler.
    /// Returns whether it is made again.
    pub(super) fn repeat_interrupted_call(
        &self,
        context: &mut UserContext,
        deadline_ticks: Option<u64>,
    ) -> bool {
        let call = context.syscall();
        let [_, second, third, fourth, ..] = call.arguments;
        let may_repeat = match call.number {
            // As on Linux, with what is left of the time.
            native::PPOLL | native::PSELECT6 => deadline_ticks
                .is_none_or(|deadline_ticks| self.store_rest(rest_address(&call), deadline_ticks)),
            linux::NANOSLEEP => false,
            native::CLOCK_NANOSLEEP => second & native::TIMER_ABSTIME != 0,
            native::EPOLL_PWAIT => (fourth as i32) < 0,
            linux::RT_SIGTIMEDWAIT => third == 0,
            native::FUTEX => second & !futex::PRIVATE != futex::WAIT || fourth == 0,
            _ => true,
        };
        if may_repeat {
            context.repeat_syscall();
        } else {
            self.fail_interrupted_call(context, deadline_ticks);
        }
        may_repeat
    }

    /// The registers after a call that has failed because it was interrupted.
    fn fail_interrupted_call(&self, context: &mut UserContext, deadline_ticks: Option<u64>) {
        if let Some(deadline_ticks) = deadline_ticks {
            self.store_rest(rest_address(&context.syscall()), deadline_ticks);
        }
        context.set_result(encode(Err(Errno::EINTR)) as usize);
    }

    /// Stores the time that is left until `deadline_ticks` at `address`, unless that is 0: a
    /// `timespec`. As on Linux, a bad address hides nothing else. Returns whether it is stored.
    pub fn store_rest(&self, address: usize, deadline_ticks: u64) -> bool {
        let mut bytes = [0; 16];
        let Some(place) = UserRange::new(address, bytes.len()).filter(|_| address != 0) else {
            return false;
        };
        let left = deadline_ticks.saturating_sub(arch::now_ticks());
        let nanoseconds = timer::nanoseconds_from_ticks(left);
        bytes[..8].copy_from_slice(&(nanoseconds / 1_000_000_000).to_le_bytes());
        bytes[8..].copy_from_slice(&(nanoseconds % 1_000_000_000).to_le_bytes());
        self.space.copy_out(place, &bytes).is_ok()
    }
}
