//! The switching coroutines of the harts, with the virtual CPUs that they have taken out of the
//! queue. `cops_algorithms::switchers` has the transitions of their states and the effect of a
//! newcomer.

use alloc::sync::Arc;
use core::mem::replace;
use core::ptr;

use cops_abi::{CoroutineId, Priority};
use cops_algorithms::run_queue::Position;
use cops_algorithms::slice::Slice;
use cops_algorithms::switchers::{Claim, Switcher};

use crate::arch;
use crate::sched::entity::{Client, Standing};
use crate::sched::switching;

/// A virtual CPU that a switching coroutine has taken out of the queue and not put back.
struct InHand<C> {
    cpu: Arc<C>,
    slice_end_ticks: u64,
    divisor: u32,
    /// Its slice is granted: it is not preempted.
    granted: bool,
    /// Its slice, while it has been handed over and its switching coroutine has not taken it yet.
    handed_over: Option<Slice>,
}

/// The states of a switching coroutine.
enum State<C> {
    Absent,
    Idle,
    Choosing,
    Ready {
        priority: Priority,
    },
    /// Running, or paused, or handed over, which counts as paused.
    /// [`Entity::standing`](crate::sched::Entity::standing) tells which, because that changes
    /// without the lock.
    Holds(InHand<C>),
}

/// A switching coroutine.
pub(super) struct Member<C> {
    identity: Option<switching::Switcher>,
    state: State<C>,
}

impl<C: Client> InHand<C> {
    fn new(cpu: Arc<C>, slice: &Slice) -> Self {
        let slice_end_ticks = arch::now_ticks() + slice.remaining_ticks();
        let (divisor, granted) = (slice.divisor(), slice.is_granted());
        Self { cpu, slice_end_ticks, divisor, granted, handed_over: None }
    }

    /// If it has been handed over, ends that. Returns its slice.
    fn take_handed_over(&mut self) -> Option<Slice> {
        let slice = self.handed_over.take()?;
        self.cpu.lines().end_hand_over();
        Some(slice)
    }

    /// Its claim compared with `newcomer`; that of a peer is weaker if it has had more time by more
    /// than `tolerated`.
    fn claim(&self, newcomer: Position, tolerated: i64) -> Claim {
        if self.granted {
            return Claim::Granted;
        }
        let priority = self.cpu.urgency();
        // Its vruntime if it stops now.
        let unused =
            self.slice_end_ticks.saturating_sub(arch::now_ticks()) as i64 * i64::from(self.divisor);
        let excess = self.cpu.account().vruntime().now() - unused - newcomer.vruntime;
        if newcomer.priority.is_more_urgent_than(priority)
            || priority == newcomer.priority && excess > tolerated
        {
            Claim::Weaker { priority, excess }
        } else {
            Claim::Stronger
        }
    }
}

impl<C: Client> Member<C> {
    /// One that has not been polled yet.
    pub(super) const ABSENT: Self = Self { identity: None, state: State::Absent };

    /// One that has taken this virtual CPU with this slice out of the queue; `None`: it found none,
    /// and is idle.
    pub(super) fn after_choice(
        identity: switching::Switcher,
        chosen: Option<&(Arc<C>, Slice)>,
    ) -> Self {
        let held = chosen.map(|(cpu, slice)| State::Holds(InHand::new(cpu.clone(), slice)));
        Self { identity: Some(identity), state: held.unwrap_or(State::Idle) }
    }

    /// It is idle, and gets `cpu` with this slice, as if it had taken it and paused before running
    /// it. Returns its coroutine, which the caller wakes.
    pub(super) fn hand_over(&mut self, cpu: Arc<C>, slice: Slice) -> Option<CoroutineId> {
        let priority = cpu.entity().priority();
        cpu.entity().set_standing(Standing::Paused { priority });
        self.set_priority(priority);
        let mut held = InHand::new(cpu, &slice);
        held.handed_over = Some(slice);
        self.state = State::Holds(held);
        self.id()
    }

    /// It is polled: takes what it has been handed over, if it has.
    pub(super) fn take_handed_over(&mut self) -> Option<(Arc<C>, Slice)> {
        let State::Holds(held) = &mut self.state else { return None };
        let slice = held.take_handed_over()?;
        held.slice_end_ticks = arch::now_ticks() + slice.remaining_ticks();
        Some((held.cpu.clone(), slice))
    }

    /// If it has been handed over `cpu` and has not taken it, it does not get it. Returns it.
    pub(super) fn withdraw(&mut self, cpu: &C) -> Option<Arc<C>> {
        let State::Holds(held) = &mut self.state else { return None };
        if !ptr::eq(&*held.cpu, cpu) {
            return None;
        }
        let slice = held.take_handed_over()?;
        cpu.account().vruntime().end(&slice);
        // It has been woken, and finds out that nothing is left for it.
        let priority = match cpu.entity().standing() {
            Standing::Paused { priority } => priority,
            Standing::Running { .. } => cpu.entity().priority(),
        };
        match replace(&mut self.state, State::Ready { priority }) {
            State::Holds(held) => Some(held.cpu),
            _ => None,
        }
    }

    /// Whether it is idle.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Its state, for the decision about `newcomer`. The pages are read at this moment.
    /// `need_resched`: it is to preempt what it holds.
    pub(super) fn observe(
        &self,
        newcomer: Position,
        tolerated: i64,
        need_resched: bool,
    ) -> Switcher {
        let held = match &self.state {
            State::Absent => return Switcher::Absent,
            State::Idle => return Switcher::Idle,
            State::Choosing => return Switcher::Choosing,
            State::Ready { priority } => return Switcher::Ready { priority: *priority },
            State::Holds(held) => held,
        };
        let claim = held.claim(newcomer, tolerated);
        match held.cpu.entity().standing() {
            Standing::Running { hart } => {
                Switcher::Running { claim, here: hart == arch::hart_index(), need_resched }
            }
            Standing::Paused { priority } => Switcher::Paused { priority, claim, need_resched },
        }
    }

    /// Sets its priority in the executor. Called under the run queue's lock, so that the last
    /// decision is also the last one to take effect.
    fn set_priority(&self, priority: Priority) {
        if let Some(identity) = self.identity {
            identity.set_priority(priority);
        }
    }

    /// It holds nothing and is ready in the executor, with `priority`. Returns its coroutine, which
    /// the caller wakes if it was idle.
    pub(super) fn make_ready(&mut self, priority: Priority) -> Option<CoroutineId> {
        self.set_priority(priority);
        self.state = State::Ready { priority };
        self.id()
    }

    fn id(&self) -> Option<CoroutineId> {
        self.identity.map(|identity| identity.id)
    }

    /// It holds nothing and is idle.
    pub(super) fn make_idle(&mut self) {
        self.state = State::Idle;
    }

    /// What it holds has got another slice.
    pub(super) fn renew(&mut self, slice: &Slice) {
        if let State::Holds(held) = &mut self.state {
            held.slice_end_ticks = arch::now_ticks() + slice.remaining_ticks();
            held.divisor = slice.divisor();
            held.granted = slice.is_granted();
        }
    }

    /// It does not hold anything any more. Returns what it held, to be dropped without the lock.
    pub(super) fn release(&mut self) -> impl Sized + use<C> {
        replace(&mut self.state, State::Choosing)
    }

    /// What it holds.
    pub(super) fn cpu(&self) -> Option<&C> {
        if let State::Holds(held) = &self.state { Some(&held.cpu) } else { None }
    }

    /// Whether it holds `cpu`.
    pub(super) fn holds(&self, cpu: &C) -> bool {
        matches!(&self.state, State::Holds(held) if ptr::eq(&*held.cpu, cpu))
    }

    /// The hart that runs its virtual CPU.
    pub(super) fn hart(&self) -> Option<usize> {
        let State::Holds(held) = &self.state else { return None };
        match held.cpu.entity().standing() {
            Standing::Running { hart } => Some(hart),
            Standing::Paused { .. } => None,
        }
    }

    /// Raises it to `priority` if it is ready in the executor.
    pub(super) fn raise(&mut self, priority: Priority) {
        if let State::Ready { .. } = self.state {
            let _ = self.make_ready(priority);
        } else {
            self.raise_paused(priority);
        }
    }

    /// If it has been handed over a virtual CPU, and has not taken it: that has become as urgent as
    /// `priority`.
    pub(super) fn raise_handed_over(&self, priority: Priority) {
        if let State::Holds(held) = &self.state
            && held.handed_over.is_some()
        {
            let entity = held.cpu.entity();
            entity.set_priority(priority.more_urgent_of(entity.priority()));
            self.raise_paused(priority);
        }
    }

    /// Raises it if it holds a virtual CPU and is paused with less urgency than `priority`.
    pub(super) fn raise_paused(&self, priority: Priority) {
        if let State::Holds(held) = &self.state
            && held.cpu.entity().raise_standing(priority)
        {
            self.set_priority(priority);
        }
    }
}
