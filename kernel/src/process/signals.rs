//! Signals of Linux programs (decision 28). What is wanted, and what waits, is in
//! `cops_algorithms::signals`.
//!
//! | module | what |
//! | --- | --- |
//! | this one | the state: what each process and virtual CPU wants, blocks, and has pending |
//! | `sending` | sends a signal, and chooses the thread that gets it |
//! | `passing_on` | a signal that the chosen thread does not take any more |
//! | `waiting` | virtual CPUs that wait, for a call or for a signal |
//! | `delivery` | calls the handler on the way to user mode |
//! | `interrupted` | what becomes of the call that a signal has interrupted |
//!
//! A signal that waits for a virtual CPU sets [`CpuSignals::is_due`], and the virtual CPU looks for
//! signals before it enters user mode again. If it is in user mode it is interrupted; if it waits
//! for a call, the call is taken out of its cell. A call on files stays there, and the signal waits
//! until it has ended (decision 32): only the end of the process or an `exec` takes it out. Native
//! programs have no handlers: a signal has its default effect.
//!
//! Lock order: a call's cell, the signals of the process, `cpus`, the signals of a virtual CPU. A
//! call is attempted with its cell locked, and may want all the others. So [`Process::alert`],
//! which locks the cell of a call that it cuts short, is called without any of them.
#![forbid(unsafe_code)]

mod delivery;
mod interrupted;
mod passing_on;
mod sending;
mod waiting;

use alloc::sync::Arc;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicBool, Ordering::*};

use cops_abi::Errno;
use cops_abi::linux::{self, signal_code};
use cops_algorithms::signals::{
    Action, Decision, Dispositions, Effect, FORCED, Information, Pending, QueueFull, Set,
    ThreadPending, bit,
};
use cops_lock::{Mutex, MutexGuard};

use super::cpu::{CpuState, VirtualCpu};
use super::cpus::Cpus;
use super::{Linux, Process};
use crate::mm::quota::{Amounts, Charge, Family, Kind};

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
