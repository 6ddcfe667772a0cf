//! Delivering signals to a virtual CPU that is about to enter user mode, and the way back from a
//! handler.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::Ordering::SeqCst;

use cops_abi::errno::encode;
use cops_abi::linux;
use cops_abi::syscall::signal;
use cops_abi::{Errno, layout};
use cops_algorithms::signals::{Action, Decision, Effect, FORCED, Information, bit, flags};

use super::super::cpu::VirtualCpu;
use super::super::{Process, WaitStatus};
use super::{CpuSignalState, Signals};
use crate::arch::{SIGNAL_FRAME_BYTES, SignalHandler, SignalState, UserContext};
use crate::log;
use crate::mm::UserRange;

/// What has become of the signals that a virtual CPU has found.
enum Delivered {
    /// A handler runs next, or a call has its result, or there was nothing to do.
    ToProgram,
    /// The process is to be stopped: see [`Process::stop`].
    Stop { signal: u8, continued: u64 },
    /// The process is to end.
    Terminate { signal: u8 },
}

impl Process {
    /// `cpu`, which runs on this hart, has made a fault for which there is this signal. Returns
    /// whether the program handles it.
    pub(in crate::process) fn handles_fault(&self, cpu: &VirtualCpu, fault: Information) -> bool {
        let Some(linux) = self.personality.as_linux() else { return false };
        let signals = linux.signals.lock();
        let Some(signals) = &*signals else { return false };
        let mut state = cpu.signals.state.lock();
        let is_handled = matches!(signals.dispositions.decide(fault.signal), Decision::Handle(_))
            && state.mask & bit(fault.signal) == 0;
        if is_handled {
            state.fault = Some(fault);
            cpu.signals.is_due.store(true, SeqCst);
        }
        is_handled
    }

    /// `cpu`, which is about to enter user mode, looks for signals: ends the process, or makes
    /// `context` continue in a handler.
    #[cold]
    pub(in crate::process) fn deliver_signals(
        self: &Arc<Self>,
        cpu: &VirtualCpu,
        context: &mut UserContext,
    ) {
        cpu.signals.is_due.store(false, SeqCst);
        let Some(linux) = self.personality.as_linux() else { return };
        let mut guard = linux.signals.lock();
        let Some(signals) = guard.as_mut() else { return };
        let mut state = cpu.signals.state.lock();
        let before = state.taken();
        let delivered = self.deliver_taken(cpu, context, signals, &mut state);
        let given_up = before & !state.taken();
        drop(state);
        drop(guard);
        self.pass_on(cpu, given_up);
        match delivered {
            Delivered::ToProgram => {}
            Delivered::Stop { signal, continued } => self.stop(signal, continued),
            Delivered::Terminate { signal } => {
                self.end(WaitStatus::Signalled(signal));
            }
        }
    }

    /// The part of [`Self::deliver_signals`] with the locks.
    fn deliver_taken(
        &self,
        cpu: &VirtualCpu,
        context: &mut UserContext,
        signals: &mut Signals,
        state: &mut CpuSignalState,
    ) -> Delivered {
        let mut interrupted = state.interrupted.take();
        if interrupted.is_none() {
            state.end_suspension();
        }
        let waited_for = core::mem::take(&mut state.waits_for);
        if interrupted.is_some()
            && waited_for != 0
            && let Some(information) = state.take_one_of(waited_for, &mut signals.pending)
        {
            interrupted = None;
            // As on Linux, the signal is taken also if the address is bad.
            let told = self.tell(context.syscall().arguments[1], &information);
            context.set_result(encode(told.map(|()| information.signal.into())) as usize);
        }
        while let Some(information) = state.take(&mut signals.pending) {
            let number = information.signal;
            match signals.dispositions.deliver(number) {
                Decision::Effect(Effect::Ignore) => {}
                Decision::Effect(Effect::Stop) => {
                    // There may be more, for when it goes on.
                    state.interrupted = interrupted;
                    cpu.signals.is_due.store(true, SeqCst);
                    return Delivered::Stop { signal: number, continued: self.continued() };
                }
                Decision::Effect(Effect::Terminate) => {
                    return Delivered::Terminate { signal: number };
                }
                Decision::Handle(action) => {
                    if let Some(deadline_ticks) = interrupted {
                        self.end_interrupted_call(context, &action, deadline_ticks);
                    }
                    let is_bad = self.call_handler(state, context, &action, &information);
                    // There may be more; their handlers run before this one.
                    cpu.signals.is_due.store(true, SeqCst);
                    if is_bad.is_err() {
                        log::warn!("{self}: no stack for the handler of a signal");
                        return Delivered::Terminate { signal: signal::SIGSEGV };
                    }
                    return Delivered::ToProgram;
                }
            }
        }
        if let Some(deadline_ticks) = interrupted
            && !self.repeat_interrupted_call(context, deadline_ticks)
        {
            // It looks again, which ends the suspension of a call with a mask.
            cpu.signals.is_due.store(true, SeqCst);
        }
        Delivered::ToProgram
    }

    /// Puts a frame on the program's stack, and makes `context` continue in the handler.
    fn call_handler(
        &self,
        state: &mut CpuSignalState,
        context: &mut UserContext,
        action: &Action,
        information: &Information,
    ) -> Result<(), Errno> {
        let before = context.stack_pointer();
        let (start, bytes) = state.stack;
        let changes_stack =
            action.flags & flags::ON_STACK != 0 && bytes > 0 && !state.is_on_stack(before);
        let handler = SignalHandler {
            address: action.handler,
            stack_pointer: if changes_stack { start + bytes } else { before },
            return_address: layout::LINUX_TRAMPOLINE,
        };
        let mask = state.after_suspend.take().unwrap_or(state.mask);
        let kept = SignalState { mask, stack: state.describe_stack(before) };
        context.save_floating_point();
        let told = (information.signal, information.code, information.fields);
        context.begin_signal(&handler, told, &kept, |address, frame| {
            let place = UserRange::new(address, frame.len()).ok_or(Errno::EFAULT)?;
            self.space.copy_out(place, frame).map_err(Errno::from)
        })?;
        let own = if action.flags & flags::NO_DEFER != 0 { 0 } else { bit(information.signal) };
        state.mask |= (action.mask | own) & !FORCED;
        Ok(())
    }

    /// `rt_sigreturn`: a handler of `cpu` has returned.
    pub fn return_from_signal(self: &Arc<Self>, cpu: &VirtualCpu, context: &mut UserContext) {
        let mut frame = [0; SIGNAL_FRAME_BYTES];
        let place = UserRange::new(context.stack_pointer(), frame.len());
        let copied = place.map(|place| self.space.copy_in(place, &mut frame));
        if !matches!(copied, Some(Ok(()))) {
            log::warn!("{self}: no frame to return to from the handler of a signal");
            self.end(WaitStatus::Signalled(signal::SIGSEGV));
            return;
        }
        let kept = context.end_signal(&frame);
        let [start, flags, bytes] = kept.stack.map(|word| word as usize);
        let is_none = flags as u64 & linux::SS_DISABLE != 0;
        cpu.signals.state.lock().stack = if is_none { (0, 0) } else { (start, bytes) };
        self.pass_on(cpu, cpu.signals.set_mask(kept.mask));
    }

    /// Stores what is known about a signal at `address`, unless that is 0: the beginning of a
    /// `siginfo`.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn tell(&self, address: usize, information: &Information) -> Result<(), Errno> {
        if address == 0 {
            return Ok(());
        }
        let mut bytes = [0; linux::SIGINFO_BYTES];
        bytes[..4].copy_from_slice(&i32::from(information.signal).to_le_bytes());
        bytes[8..12].copy_from_slice(&information.code.to_le_bytes());
        for (place, field) in bytes[16..].chunks_mut(8).zip(information.fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let place = UserRange::new(address, bytes.len()).ok_or(Errno::EFAULT)?;
        Ok(self.space.copy_out(place, &bytes)?)
    }
}
