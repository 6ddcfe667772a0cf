//! The switching coroutine: one per hart, an ordinary coroutine of the kernel that enters user mode
//! in its poll.
//!
//! So there is no second scheduler for processes: the executor chooses by priority between this
//! coroutine and the kernel's others, and this coroutine chooses the virtual CPU that it runs. Its
//! priority is that of its current or next virtual CPU.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::Poll;

use cops_abi::{CoroutineId, Priority};
use cops_algorithms::slice::Slice;
use cops_algorithms::standing::Level;
use cops_algorithms::turn::Turn;

use super::doorbell;
use super::entity::{Client, Standing};
use super::peers::{self, others_are_behind};
use super::run_queue::RunQueue;
use super::timer;
use super::urgency::kernel_waiting;
use crate::arch;
use crate::counters::COUNTERS;

/// Why a virtual CPU has stopped for now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Coroutines of the kernel are to run first; it keeps the hart.
    Paused,
    /// Another virtual CPU is to run; this one goes back into the run queue.
    Preempted,
    /// It sleeps, waits or has ended, according to its state.
    Gone,
}

/// The switching coroutine of `hart`. It never ends.
///
/// It may be polled on another hart if its own is busy; it then runs its virtual CPU there.
///
/// `run` runs a virtual CPU of `queue` on the current hart until it stops, and charges its slice
/// from the given time on. It returns why and when the virtual CPU stopped.
pub async fn switching<C: Client>(
    hart: usize,
    queue: &RunQueue<C>,
    run: impl Fn(Switcher, &Arc<C>, &mut Slice, &mut Turn, u64) -> (Stopped, u64),
) {
    let Some(id) = cops_executor::current() else { return };
    let me = Switcher { id, number: hart };
    let mut in_hand: Option<(Arc<C>, Slice)> = None;
    let mut turn = Turn::new();
    poll_fn(|context| {
        // The cost of choosing a virtual CPU, and later of putting it back, is charged to its
        // process too. Otherwise a process that always gives up its slices at once would get most
        // of its time free of charge.
        let begin_ticks = arch::now_ticks();
        if let Some((cpu, slice)) = &in_hand {
            if lets_peers_run(queue, hart, cpu, slice, &mut turn) {
                peers::let_through(cpu.account(), slice.used_vruntime());
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            cpu.end_pause();
            if is_passed(queue, hart, &**cpu, slice) {
                queue.release(hart, cpu.account(), slice);
                doorbell::settle();
                cpu.stop_running();
                cpu.account().charge(arch::now_ticks().saturating_sub(begin_ticks));
                in_hand = None;
            }
        }
        if in_hand.is_none() {
            in_hand = queue.pop_or_idle(me);
            if in_hand.is_some() {
                COUNTERS.cpu_switches.add(1);
            }
        }
        // Where it is: to move it out for each poll and back takes some 50 instructions.
        let Some((cpu, slice)) = &mut in_hand else { return Poll::<()>::Pending };
        let alternates = peers::alternates(hart);
        turn.begin(alternates);
        if alternates {
            cpu.comes_after_others();
        }
        let (stopped, stopped_ticks) = run(me, cpu, slice, &mut turn, begin_ticks);
        let is_paused = matches!(stopped, Stopped::Paused);
        let is_ready = match stopped {
            Stopped::Paused => {
                peers::let_through(cpu.account(), slice.used_vruntime());
                queue.pause(me, cpu);
                true
            }
            Stopped::Preempted => {
                queue.release(hart, cpu.account(), slice);
                cpu.stop_running();
                queue.rest(hart)
            }
            Stopped::Gone => queue.release_and_rest(hart, cpu.account(), slice),
        };
        if is_ready {
            // To the end of the queue of its level: other coroutines of this level run first.
            context.waker().wake_by_ref();
        }
        cpu.account().charge(arch::now_ticks().saturating_sub(stopped_ticks));
        if !is_paused {
            in_hand = None;
        }
        Poll::Pending
    })
    .await;
}

/// Whether coroutines of the kernel that are as urgent as the switching coroutine of `hart` run
/// before it resumes `cpu`, which it has paused: they have become ready since.
///
/// Otherwise it would enter `cpu` and pause it again for the same reason, which costs much more.
fn lets_peers_run<C: Client>(
    queue: &RunQueue<C>,
    hart: usize,
    cpu: &C,
    slice: &Slice,
    turn: &mut Turn,
) -> bool {
    let Standing::Paused { priority } = cpu.entity().standing() else { return false };
    Priority::most_urgent_in(kernel_waiting()) == Some(priority)
        && !queue.must_stop(hart, priority, slice)
        && turn.give(arch::now_ticks(), timer::slice_ticks(), others_are_behind())
}

/// Whether a virtual CPU waits that takes precedence over `cpu`, which the switching coroutine of
/// `hart` has paused, and over the kernel's coroutines: it is chosen in this poll.
///
/// Otherwise `cpu` would be prepared for user mode, stopped for the same reason, and the one that
/// waits would be chosen in the next poll.
fn is_passed<C: Client>(queue: &RunQueue<C>, hart: usize, cpu: &C, slice: &Slice) -> bool {
    let Some(first) = queue.most_urgent() else { return false };
    let kernel = Priority::most_urgent_in(kernel_waiting());
    kernel.is_none_or(|kernel| first.is_more_urgent_than(kernel))
        && cpu.yields_to_others()
        && queue.must_stop(hart, cpu.urgency(), slice)
}

/// A switching coroutine.
#[derive(Clone, Copy)]
pub struct Switcher {
    /// Its coroutine.
    pub id: CoroutineId,
    /// The number of its hart, by which the run queue identifies it.
    pub number: usize,
}

/// The level of each in the executor.
static LEVELS: [Level; arch::MAX_HARTS] = [const { Level::new(FIRST_PRIORITY) }; arch::MAX_HARTS];

/// The priority of a switching coroutine that has not run anything yet.
pub const FIRST_PRIORITY: Priority = Priority::DEFAULT;

impl Switcher {
    /// Sets its priority in the executor, if it has another one.
    #[inline]
    pub fn set_priority(self, priority: Priority) {
        LEVELS[self.number].set(priority, |priority| {
            cops_executor::set_priority(self.id, priority);
        });
    }
}
