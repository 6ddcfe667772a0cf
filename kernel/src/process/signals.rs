//! Signals of Linux programs: sending them, choosing the thread that gets one, and calling its
//! handler (decision 28). What is wanted, and what waits, is in `cops_algorithms::signals`.
//!
//! A signal that waits for a virtual CPU sets [`CpuSignals::is_due`], and the virtual CPU looks for
//! signals before it enters user mode again. If it is in user mode it is interrupted; if it waits
//! for a call, the call is taken out of its cell. Native programs have no handlers: a signal has
//! its default effect.
//!
//! Lock order: a call's cell, the signals of the process, `cpus`, the signals of a virtual CPU. A
//! call is attempted with its cell locked, and may want all the others. So [`Process::alert`],
//! which locks the cell of a call that it cuts short, is called without any of them.
#![forbid(unsafe_code)]

mod passing_on;

use alloc::sync::Arc;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicBool, Ordering::*};

use cops_abi::errno::encode;
use cops_abi::linux::{self, signal_code};
use cops_abi::syscall::{self as native, futex, signal};
use cops_abi::{Errno, layout};
use cops_algorithms::signals::{
    Action, Decision, Dispositions, Effect, FORCED, Information, Pending, QueueFull, Set,
    ThreadPending, bit, default_effect, flags, is_real_time,
};
use cops_lock::{Mutex, MutexGuard};

use super::cpu::{CpuState, VirtualCpu};
use super::cpus::Cpus;
use super::undelivered::calls;
use super::{Linux, Process, WaitStatus};
use crate::arch::{
    self, SIGNAL_FRAME_BYTES, SignalHandler, SignalState, SyscallFrame, UserContext,
};
use crate::fs::{Descriptor, Object};
use crate::mm::UserRange;
use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::sched::timer;

/// How many virtual CPUs are asked whether they block a signal to their process. If all of these
/// do, the signal waits until one of the process's virtual CPUs changes what it blocks.
const CPUS_ASKED: usize = 64;

/// How many virtual CPUs forget a signal that is ignored from now on: each may have a queue.
const CPUS_VISITED: usize = 16;

/// The signals of a process.
#[derive(Default)]
pub struct Signals {
    /// What the program wants done.
    pub dispositions: Dispositions,
    /// Signals to the process that no thread has taken.
    pub pending: Pending,
    /// The virtual CPU that has begun to wait for signals last, which is asked first.
    pub(super) waiter: Option<usize>,
}

/// The signals of a virtual CPU.
#[derive(Default)]
pub struct CpuSignals {
    /// Whether it is to look for signals before it enters user mode.
    is_due: AtomicBool,
    state: Mutex<CpuSignalState>,
}

/// The signals of a virtual CPU, behind their lock.
#[derive(Default)]
pub struct CpuSignalState {
    /// The signals that it blocks.
    mask: Set,
    /// Signals to this virtual CPU only.
    pending: ThreadPending,
    /// The charge for the memory of those, while they need any.
    pending_charge: Option<Charge>,
    /// Signals, if it waits for one of them in `rt_sigtimedwait`.
    waits_for: Set,
    /// A fault of its own, with a signal that it handles.
    fault: Option<Information>,
    /// Address and size of the alternate stack; size 0: there is none.
    pub stack: (usize, usize),
    /// What it blocks after `rt_sigsuspend`.
    after_suspend: Option<Set>,
    /// What it waits for, or has waited for.
    wait: Option<Wait>,
    /// That wait was cut short for a signal; for a sleep, until when it would have lasted.
    interrupted: Option<Option<u64>>,
}

/// What a virtual CPU waits for.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// The call with this handle.
    Call(NonZeroU64),
    /// A wake of a futex.
    Futex,
}

/// What has become of the signals that a virtual CPU has found.
enum Delivered {
    /// A handler runs next, or a call has its result, or there was nothing to do.
    ToProgram,
    /// The process is to be stopped: see [`Process::stop`].
    Stop { signal: u8, continued: u64 },
    /// The process is to end.
    Terminate { signal: u8 },
}

impl CpuSignals {
    /// Those of the virtual CPU of a copy: it blocks the same and has the same alternate stack.
    pub fn copy(&self) -> Self {
        let state = self.state.lock();
        let (mask, stack) = (state.mask, state.stack);
        let state = Mutex::new(CpuSignalState { mask, stack, ..CpuSignalState::default() });
        Self { is_due: AtomicBool::new(false), state }
    }

    /// Those of another thread of the same process: it blocks the same.
    pub fn of_new_thread(&self) -> Self {
        let copy = self.copy();
        copy.state.lock().stack = (0, 0);
        copy
    }

    /// Whether the virtual CPU is to look for signals.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        // Relaxed is enough: a sender stores it before it locks `cpus` to see whether the virtual
        // CPU runs. Either it did so before the virtual CPU began to run, under the same lock, or
        // it sees that and interrupts the hart.
        self.is_due.load(Relaxed)
    }

    /// The signals that wait for this virtual CPU only.
    pub fn pending(&self) -> Set {
        self.state.lock().pending.set()
    }

    /// Whether it would take a signal of this number, because it does not block it (`Some(false)`)
    /// or waits for it (`Some(true)`).
    fn takes(&self, signal: u8) -> Option<bool> {
        let state = self.state.lock();
        let waits = state.waits_for & bit(signal) != 0;
        (waits || state.mask & bit(signal) == 0).then_some(waits)
    }

    /// The blocked signals.
    pub fn mask(&self) -> Set {
        self.state.lock().mask
    }

    /// The signals that it takes, as [`Self::takes`] says of each.
    pub(super) fn taken(&self) -> Set {
        self.state.lock().taken()
    }

    /// Blocks these signals and no others. Those that wait are delivered on the way to user mode.
    /// Returns those that it takes no longer, for [`Process::pass_on`].
    #[must_use]
    pub fn set_mask(&self, mask: Set) -> Set {
        let mut state = self.state.lock();
        let before = state.taken();
        state.mask = mask & !FORCED;
        let given_up = before & !state.taken();
        drop(state);
        self.is_due.store(true, SeqCst);
        given_up
    }

    /// Like [`Self::set_mask`], until a handler returns.
    #[must_use]
    pub fn suspend_with(&self, mask: Set) -> Set {
        let mut state = self.state.lock();
        // A call that is made again, because there was no handler, does not change what follows.
        let before = state.mask;
        state.after_suspend.get_or_insert(before);
        drop(state);
        self.set_mask(mask)
    }

    /// The virtual CPU is to come back to the kernel before it enters user mode.
    pub fn demand_attention(&self) {
        self.is_due.store(true, SeqCst);
    }

    /// A signal has interrupted the call that the virtual CPU makes, or was sent because of it: it
    /// makes the call again, unless a handler decides otherwise.
    pub fn interrupt_own_call(&self) {
        self.state.lock().interrupted = Some(None);
        self.demand_attention();
    }

    /// Takes what remains of `other` when the program of the process is replaced: the blocked
    /// signals, and those that wait.
    pub fn take_over(&self, other: &CpuSignals) {
        let mut theirs = other.state.lock();
        let (mask, pending) = (theirs.mask, core::mem::take(&mut theirs.pending));
        let pending_charge = theirs.pending_charge.take();
        drop(theirs);
        *self.state.lock() =
            CpuSignalState { mask, pending, pending_charge, ..CpuSignalState::default() };
        self.demand_attention();
    }

    /// The call that was made with [`Self::suspend_with`] has a result, or (`waits`) waits for one:
    /// then the virtual CPU ends the suspension on its way to user mode, unless a handler has.
    /// Returns as [`Self::set_mask`].
    #[must_use]
    pub fn end_suspension(&self, waits: bool) -> Set {
        let mut state = self.state.lock();
        let before = state.taken();
        if !waits {
            state.end_suspension();
        }
        let given_up = before & !state.taken();
        drop(state);
        self.is_due.store(true, SeqCst);
        given_up
    }

    /// The program is replaced by another one.
    pub fn forget_program(&self) {
        let mut state = self.state.lock();
        (state.stack, state.after_suspend, state.fault) = ((0, 0), None, None);
    }

    /// The state, for changing the alternate stack.
    pub fn lock(&self) -> MutexGuard<'_, CpuSignalState> {
        self.state.lock()
    }
}

impl CpuSignalState {
    /// The signals that it takes, because it does not block them or waits for them.
    fn taken(&self) -> Set {
        !self.mask | self.waits_for
    }

    /// Blocks again what was blocked before `rt_sigsuspend` or a call with a mask.
    fn end_suspension(&mut self) {
        if let Some(mask) = self.after_suspend.take() {
            self.mask = mask;
        }
    }

    /// Whether a stack pointer is on the alternate stack.
    pub fn is_on_stack(&self, stack_pointer: usize) -> bool {
        let (start, bytes) = self.stack;
        stack_pointer.checked_sub(start).is_some_and(|offset| offset > 0 && offset <= bytes)
    }

    /// The alternate stack as Linux describes it to a program with this stack pointer.
    pub fn describe_stack(&self, stack_pointer: usize) -> [u64; 3] {
        let (start, bytes) = self.stack;
        let flags = match bytes {
            0 => linux::SS_DISABLE,
            _ if self.is_on_stack(stack_pointer) => linux::SS_ONSTACK,
            _ => 0,
        };
        [start as u64, flags, bytes as u64]
    }
}

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

/// The virtual CPUs, from the first on.
fn all(cpus: &Cpus) -> impl Iterator<Item = (&Arc<VirtualCpu>, CpuState)> {
    let mut next = 0;
    core::iter::from_fn(move || {
        let found = cpus.at_or_after(next)?;
        next = found.0.index + 1;
        Some(found)
    })
}

/// What is known about a signal that process `sender` has sent to a thread.
pub fn sent_to_thread(sender: u32, signal: u8) -> Information {
    Information { code: signal_code::THREAD, ..sent_by(sender, signal) }
}

/// What is known about a signal that process `sender` has sent.
pub fn sent_by(sender: u32, signal: u8) -> Information {
    Information { signal, code: signal_code::USER, fields: [sender.into(), 0] }
}

impl Process {
    /// Sends a signal to the process, 1 to 64; the caller has the authority to do so.
    pub fn signal(self: &Arc<Self>, information: Information) {
        // The queue is full only if there is such a signal already.
        let _ = self.queue_signal(information);
    }

    /// Like [`Self::signal`], for a signal that must not be lost.
    ///
    /// # Errors
    /// `EAGAIN` if too many real-time signals wait.
    pub fn queue_signal(self: &Arc<Self>, information: Information) -> Result<(), Errno> {
        self.control_job(information.signal, || self.send(information))
            .map_err(|QueueFull| Errno::EAGAIN)
    }

    fn send(self: &Arc<Self>, information: Information) -> Result<(), QueueFull> {
        let number = information.signal;
        let end = || {
            self.end(WaitStatus::Signalled(number));
            Ok(())
        };
        let Some(linux) = self.personality.as_linux() else {
            self.signal_native(number);
            return Ok(());
        };
        // Locked before a target is chosen: a virtual CPU that stops blocking the signal, or begins
        // to wait for it, looks at what is pending after that, and finds it.
        let (mut guard, mut stops, mut alerted) = (linux.signals.lock(), None, None);
        let Some(signals) = guard.as_mut() else { return end() };
        // A virtual CPU that takes it. If it waits for it, what the program wants done with it does
        // not count.
        let target = {
            let cpus = self.cpus.lock();
            let waiter = signals.waiter.and_then(|index| cpus.get(index));
            let all = waiter.into_iter().chain(all(&cpus).take(CPUS_ASKED));
            let mut alive = all.filter(|(_, state)| *state != CpuState::Ended);
            alive.find_map(|(cpu, _)| Some((cpu.signals.takes(number)?, cpu.clone())))
        };
        let sent = match (signals.dispositions.decide(number), target) {
            (Decision::Effect(Effect::Terminate), _) if number == signal::SIGKILL => end(),
            (_, Some((true, target))) => {
                alerted = Some(target);
                signals.pending.add(information)
            }
            (Decision::Effect(Effect::Terminate), Some(_)) if !self.is_stopped() => end(),
            (Decision::Effect(Effect::Ignore), Some(_)) => Ok(()),
            (Decision::Effect(Effect::Stop), Some(_)) => {
                stops = Some(self.continued());
                Ok(())
            }
            // To end a stopped process has to wait until it goes on, as on Linux.
            (Decision::Handle(_) | Decision::Effect(Effect::Terminate), Some((_, target))) => {
                alerted = Some(target);
                signals.pending.add(information)
            }
            (_, None) => signals.pending.add(information),
        };
        drop(guard);
        // Without the lock: the call that it waits for may be in an attempt that wants the lock,
        // for instance to read what is pending from `/proc`.
        if let Some(target) = alerted {
            self.alert(&target);
        }
        if let Some(continued) = stops {
            self.stop(number, continued);
        }
        sent
    }

    /// Sends a signal to a native program, which has no handlers: it has its default effect, unless
    /// the program ignores it.
    fn signal_native(self: &Arc<Self>, number: u8) {
        match default_effect(number) {
            _ if self.ignored.load(Relaxed) & bit(number) != 0 => {}
            Effect::Ignore => {}
            Effect::Stop => self.stop(number, self.continued()),
            Effect::Terminate => {
                self.end(WaitStatus::Signalled(number));
            }
        }
    }

    /// Sets what the program wants done with `signal`, and returns what it wanted before. A signal
    /// that waits, blocked or not, is forgotten if it is ignored from now on; of those to a single
    /// virtual CPU, those to `cpu` and to the first [`CPUS_VISITED`].
    ///
    /// # Errors
    /// `EINVAL` for a signal that cannot have an action; `ENOSYS`.
    pub fn set_action(
        &self,
        cpu: &VirtualCpu,
        linux: &Linux,
        signal: u8,
        new: Action,
    ) -> Result<Action, Errno> {
        let mut guard = linux.signals.lock();
        let signals = guard.as_mut().ok_or(Errno::ENOSYS)?;
        let old = signals.dispositions.get(signal);
        if !signals.dispositions.set(signal, new) {
            return Err(Errno::EINVAL);
        }
        if signals.dispositions.decide(signal) == Decision::Effect(Effect::Ignore) {
            signals.pending.remove(bit(signal));
            cpu.signals.state.lock().forget(signal);
            let cpus = self.cpus.lock();
            for (other, _) in all(&cpus).take(CPUS_VISITED) {
                other.signals.state.lock().forget(signal);
            }
        }
        Ok(old)
    }

    /// The native program ignores these signals from now on, and no others. Returns those that it
    /// ignored before.
    pub fn ignore(&self, signals: Set) -> Set {
        self.ignored.swap(signals & !FORCED, Relaxed)
    }

    /// Whether `signal` would have no effect on `cpu`, because it ignores or blocks it.
    pub fn disregards(&self, cpu: &VirtualCpu, signal: u8) -> bool {
        let Some(linux) = self.personality.as_linux() else {
            return self.ignored.load(Relaxed) & bit(signal) != 0;
        };
        let ignores = |signals: &Signals| {
            matches!(signals.dispositions.decide(signal), Decision::Effect(Effect::Ignore))
        };
        cpu.signals.mask() & bit(signal) != 0
            || linux.signals.lock().as_deref().is_some_and(ignores)
    }

    /// Sends a signal, 1 to 64, to one virtual CPU of the process.
    ///
    /// # Errors
    /// `EAGAIN` if too many signals wait of which there is more to know than the number.
    pub fn signal_cpu(
        self: &Arc<Self>,
        cpu: &Arc<VirtualCpu>,
        information: Information,
    ) -> Result<(), Errno> {
        self.control_job(information.signal, || self.send_to_cpu(cpu, information))
            .map_err(|QueueFull| Errno::EAGAIN)
    }

    fn send_to_cpu(
        self: &Arc<Self>,
        cpu: &Arc<VirtualCpu>,
        information: Information,
    ) -> Result<(), QueueFull> {
        let number = information.signal;
        let end = || {
            self.end(WaitStatus::Signalled(number));
        };
        let Some(linux) = self.personality.as_linux() else {
            self.signal_native(number);
            return Ok(());
        };
        let continued = self.continued();
        let decision = match &*linux.signals.lock() {
            Some(signals) => signals.dispositions.decide(number),
            None => {
                end();
                return Ok(());
            }
        };
        let is_blocked = cpu.signals.mask() & bit(number) != 0;
        match decision {
            Decision::Effect(Effect::Terminate) if number == signal::SIGKILL => end(),
            Decision::Effect(Effect::Ignore) if !is_blocked => {}
            Decision::Effect(Effect::Stop) if !is_blocked => self.stop(number, continued),
            Decision::Effect(Effect::Terminate) if !is_blocked && !self.is_stopped() => end(),
            _ => {
                let mut state = cpu.signals.state.lock();
                let wakes = state.taken() & bit(number) != 0;
                if information.code == signal_code::THREAD && !is_real_time(number) {
                    state.pending.add_simple(number, information.fields[0] as u32);
                } else {
                    state.add(information, self.family)?;
                }
                drop(state);
                // One that blocks it looks for signals when it stops doing so.
                if wakes {
                    self.alert(cpu);
                }
            }
        }
        Ok(())
    }

    /// Sends `SIGCHLD` about process `child` to a Linux program, with this code and status.
    pub fn signal_about_child(self: &Arc<Self>, child: u32, code: i32, status: i32) {
        let Some(linux) = self.personality.as_linux() else { return };
        let is_end = matches!(code, signal_code::CHILD_EXITED | signal_code::CHILD_KILLED);
        let wants_ends_only = linux.signals.lock().as_ref().is_some_and(|signals| {
            signals.dispositions.get(signal::SIGCHLD).flags & flags::NO_CHILD_STOP != 0
        });
        if is_end || !wants_ends_only {
            let fields = [child.into(), status as u64];
            self.signal(Information { signal: signal::SIGCHLD, code, fields });
        }
    }

    /// `cpu`, which runs on this hart, has made a fault for which there is this signal. Returns
    /// whether the program handles it.
    pub(super) fn handles_fault(&self, cpu: &VirtualCpu, fault: Information) -> bool {
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

    /// `call` of `cpu` has ended with `result`: sends `SIGPIPE` if it has written to a broken pipe.
    /// Returns whether that is its result: not if a signal has interrupted it (`ERESTARTSYS`). Then
    /// the delivery of the signal decides.
    pub fn after_call(
        self: &Arc<Self>,
        cpu: &Arc<VirtualCpu>,
        call: &SyscallFrame,
        result: isize,
    ) -> bool {
        if result >= 0 || !self.personality.is_linux() {
            return true;
        }
        if result == encode(Err(Errno::ERESTARTSYS)) {
            cpu.signals.interrupt_own_call();
            return false;
        }
        if result == encode(Err(Errno::EPIPE)) {
            self.signal_broken_pipe(cpu, call);
        }
        true
    }

    /// `call` of `cpu` has written to a broken pipe.
    fn signal_broken_pipe(self: &Arc<Self>, cpu: &Arc<VirtualCpu>, call: &SyscallFrame) {
        let flags = match call.number {
            native::SENDTO | linux::SENDMMSG => call.arguments[3],
            linux::SENDMSG => call.arguments[2],
            _ => 0,
        };
        let file = self.files.lock().get(Descriptor(call.arguments[0]));
        // As on Linux, sockets for datagrams cause no signal.
        let is_quiet = flags & linux::MSG_NOSIGNAL != 0
            || file.is_ok_and(|file| matches!(file.object, Object::Datagrams(_)));
        if !is_quiet {
            // A standard signal is never refused.
            let _ = self.signal_cpu(cpu, sent_to_thread(self.id, signal::SIGPIPE));
        }
    }

    /// Makes `cpu` look for signals. Called without a lock of this module, see there.
    fn alert(self: &Arc<Self>, cpu: &Arc<VirtualCpu>) {
        cpu.signals.is_due.store(true, SeqCst);
        let state = {
            let cpus = self.cpus.lock();
            let found = cpus.get(cpu.index).filter(|(other, _)| Arc::ptr_eq(other, cpu));
            found.map(|(_, state)| state)
        };
        match state {
            Some(CpuState::Running { hart }) if hart != arch::hart_index() => {
                arch::send_interrupt_to(hart);
            }
            Some(CpuState::Waiting) => self.interrupt_wait(cpu),
            // It looks before it enters user mode.
            _ => {}
        }
    }

    /// `cpu` has begun to wait for this, and its registers do not change until then.
    pub fn waits_for(self: &Arc<Self>, cpu: &VirtualCpu, wait: Wait) {
        if self.personality.is_linux() {
            cpu.signals.state.lock().wait = Some(wait);
            // After that is stored: otherwise a signal that arrives now finds nothing to cut short.
            if cpu.signals.is_due() {
                self.interrupt_wait(cpu);
            }
        }
    }

    /// Cuts short what `cpu` waits for if it would take a signal now, unless that has happened.
    ///
    /// The sender of a signal may come here late: `cpu` has found the signal itself, has run its
    /// handler, and waits for something else, which this signal does not concern.
    fn interrupt_wait(self: &Arc<Self>, cpu: &VirtualCpu) {
        let Some(wait) = self.take_wait_to_interrupt(cpu) else { return };
        let interrupted = match wait {
            Wait::Call(call) => calls().interrupt(self, call.get()),
            Wait::Futex => cpu.leave_futex().then_some(None),
        };
        if let Some(deadline_ticks) = interrupted {
            cpu.signals.state.lock().interrupted = Some(deadline_ticks);
            // The signal may be another one, of which the virtual CPU has not been told yet.
            cpu.signals.demand_attention();
            self.end_wait_of(cpu, None);
        }
    }

    /// What `cpu` waits for, if it would take a signal now.
    fn take_wait_to_interrupt(&self, cpu: &VirtualCpu) -> Option<Wait> {
        self.if_signalled(cpu, |state| state.wait.take()).flatten()
    }

    /// Whether `cpu`, which runs on this hart, would take a signal now.
    pub fn has_signal(&self, cpu: &VirtualCpu) -> bool {
        cpu.signals.is_due() && self.if_signalled(cpu, |_| ()).is_some()
    }

    /// Does this if `cpu` would take a signal now.
    fn if_signalled<T>(
        &self,
        cpu: &VirtualCpu,
        then: impl FnOnce(&mut CpuSignalState) -> T,
    ) -> Option<T> {
        let linux = self.personality.as_linux()?;
        let signals = linux.signals.lock();
        let of_process = signals.as_ref().map_or(0, |signals| signals.pending.set());
        // Under both locks: whatever takes the signal takes it before this or after it.
        let mut state = cpu.signals.state.lock();
        let is_signalled = (of_process | state.pending.set()) & state.taken() != 0;
        is_signalled.then(|| then(&mut state))
    }

    /// `cpu`, which is about to enter user mode, looks for signals: ends the process, or makes
    /// `context` continue in a handler.
    #[cold]
    pub(super) fn deliver_signals(self: &Arc<Self>, cpu: &VirtualCpu, context: &mut UserContext) {
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

    /// The registers after a call that `action` interrupts: it is made again, or has failed.
    fn end_interrupted_call(
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
    fn repeat_interrupted_call(
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

    /// Takes one of `signals` for `cpu`, which runs on this hart. `None`: it waits for them from
    /// now on, until it returns to user mode.
    ///
    /// # Errors
    /// `ENOSYS` for a program that has no signals.
    pub fn take_signal_or_wait(
        &self,
        cpu: &VirtualCpu,
        signals: Set,
    ) -> Result<Option<Information>, Errno> {
        let linux = self.personality.as_linux().ok_or(Errno::ENOSYS)?;
        let mut guard = linux.signals.lock();
        let of_process = guard.as_mut().ok_or(Errno::ENOSYS)?;
        let mut state = cpu.signals.state.lock();
        let taken = state.take_one_of(signals, &mut of_process.pending);
        if taken.is_none() {
            state.waits_for = signals;
            of_process.waiter = Some(cpu.index);
            drop(state);
            // On its way to user mode it stops waiting.
            cpu.signals.demand_attention();
        }
        Ok(taken)
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
}

impl CpuSignalState {
    /// Adds any signal to this virtual CPU, of a process of this family.
    ///
    /// # Errors
    /// [`QueueFull`], also if its memory is not within the quota.
    fn add(&mut self, information: Information, family: Family) -> Result<(), QueueFull> {
        if self.pending_charge.is_none() {
            let bytes = Amounts::of(Kind::Memory, ThreadPending::QUEUE_BYTES as u64);
            self.pending_charge = Some(Charge::new(family, &bytes).map_err(|_| QueueFull)?);
        }
        self.pending.add(information)
    }

    /// Forgets the signals of this number that wait for this virtual CPU.
    fn forget(&mut self, signal: u8) {
        self.pending.remove(bit(signal));
        if !self.pending.has_queue() {
            self.pending_charge = None;
        }
    }

    /// Takes a signal that is not blocked: a fault, then one to this virtual CPU, then one of those
    /// to the process.
    fn take(&mut self, of_process: &mut Pending) -> Option<Information> {
        if let Some(fault) = self.fault.take() {
            return Some(fault);
        }
        self.take_one_of(!self.mask, of_process)
    }

    /// Takes one of these signals.
    fn take_one_of(&mut self, signals: Set, of_process: &mut Pending) -> Option<Information> {
        match self.pending.take(!signals) {
            Some(Ok(information)) => {
                if !self.pending.has_queue() {
                    self.pending_charge = None;
                }
                Some(information)
            }
            Some(Err((signal, sender))) => Some(sent_to_thread(sender, signal)),
            None => of_process.take(!signals),
        }
    }
}
