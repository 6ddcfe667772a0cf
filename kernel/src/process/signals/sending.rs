//! Sending signals, and choosing the thread that gets one.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::Errno;
use cops_abi::errno::encode;
use cops_abi::linux::{self, signal_code};
use cops_abi::syscall::{self as native, signal};
use cops_algorithms::signals::{
    Decision, Effect, Information, QueueFull, SIGNALS, bit, default_effect, flags, is_real_time,
};

use super::super::cpu::{CpuState, VirtualCpu};
use super::super::{Process, WaitStatus};
use super::{CPUS_ASKED, all, sent_to_thread};
use crate::arch::SyscallFrame;
use crate::fs::{Descriptor, Object};

impl Process {
    /// A signal that waits, and ends the process as soon as a virtual CPU looks, if there is one.
    pub(in crate::process) fn pending_signal_that_ends(&self) -> Option<u8> {
        let guard = self.personality.as_linux()?.signals.lock();
        let signals = guard.as_ref()?;
        let ends = |signal: u8| {
            let decision = signals.dispositions.decide(signal);
            matches!(decision, Decision::Effect(Effect::Terminate))
        };
        let (mut to_one, mut unblocked, mut waited_for) = (0, 0, 0);
        let cpus = self.cpus.lock();
        for (cpu, state) in all(&cpus).take(CPUS_ASKED) {
            if state != CpuState::Ended {
                let state = cpu.signals.state.lock();
                to_one |= state.pending.set() & !state.mask;
                unblocked |= !state.mask;
                waited_for |= state.waits_for;
            }
        }
        let found = (signals.pending.set() & unblocked | to_one) & !waited_for;
        (1..=SIGNALS).find(|&signal| found & bit(signal) != 0 && ends(signal))
    }

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
}
