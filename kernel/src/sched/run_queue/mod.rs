//! The run queue: virtual CPUs that are ready to run, and the switching coroutines that take them.
//!
//! - `cops_algorithms::run_queue` has the waiting virtual CPUs in their order.
//! - `switchers` has the switching coroutines, with the virtual CPUs that they hold.
//! - `hold` is the lock of both, with a measurement.
//!
//! There is one lock, taken once per switch of a virtual CPU, which costs thousands of instructions
//! anyway; coroutines do not pass through this queue.
//!
//! No wake is lost between a switching coroutine that enters user mode or pauses and a hart that
//! queues a virtual CPU. The switching coroutine writes where it is (`RunQueue::entering`,
//! `pause`), then reads `ready`. The hart that queues sets `ready`, then reads where the switching
//! coroutines are. All four accesses are sequentially consistent. The states of a switching
//! coroutine, and the effect of a newcomer in each of them, are in `cops_algorithms::switchers`.

mod hold;
mod switchers;

use alloc::sync::Arc;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use cops_abi::{CoroutineId, Priority};
use cops_algorithms::run_queue::{Position, Queue};
use cops_algorithms::slice::Slice;
use cops_algorithms::switchers::{Action, Switcher, on_newcomer};
use cops_lock::Mutex;

use super::account::Account;
use super::entity::{Client, Standing};
use super::switching;
use super::system_page::system_page;
use super::timer;
use crate::arch;
use crate::counters::COUNTERS;
use crate::trace::{self, Event};
use hold::{Held, Purpose, hold};
use switchers::Member;

pub use hold::name_of_hold;

struct Inner<C> {
    queue: Queue<C>,
    /// The switching coroutine of each hart.
    switchers: [Member<C>; arch::MAX_HARTS],
}

impl<C: Client> Inner<C> {
    /// The switching coroutine that holds `cpu`.
    fn holder(&self, cpu: &C) -> Option<&Member<C>> {
        self.switchers.iter().find(|member| member.holds(cpu))
    }
}

/// The run queue: see the module.
pub struct RunQueue<C> {
    inner: Mutex<Inner<C>>,
    /// A bit for each level with a virtual CPU in the queue; written under the lock, read by any
    /// hart as a hint.
    ready: AtomicU64,
    /// One with a higher claim is waiting: this switching coroutine preempts what it holds.
    need_resched: [AtomicBool; arch::MAX_HARTS],
    /// Share of the time for less urgent virtual CPUs, per mille.
    share: AtomicU32,
}

/// Maximum share for the less urgent, per mille.
pub const SHARE_MAX: u32 = 500;

impl<C: Client> RunQueue<C> {
    /// A queue without virtual CPUs and switching coroutines.
    pub const fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                queue: Queue::new(),
                switchers: [Member::ABSENT; arch::MAX_HARTS],
            }),
            ready: AtomicU64::new(0),
            need_resched: [const { AtomicBool::new(false) }; arch::MAX_HARTS],
            share: AtomicU32::new(0),
        }
    }

    fn lock(&self, purpose: Purpose) -> Held<'_, Inner<C>> {
        hold(&self.inner, purpose)
    }

    /// The most urgent level with a virtual CPU in the queue.
    pub fn most_urgent(&self) -> Option<Priority> {
        Priority::most_urgent_in(self.ready.load(SeqCst))
    }

    /// A bit for each level with a virtual CPU in the queue.
    pub fn levels(&self) -> u64 {
        self.ready.load(Relaxed)
    }

    /// This hart is about to enter user mode with `cpu`. It calls [`must_stop`](Self::must_stop)
    /// afterwards.
    pub fn entering(&self, cpu: &C) {
        cpu.entity().set_standing(Standing::Running { hart: arch::hart_index() });
    }

    /// `switcher` keeps `cpu` and ends its poll, because coroutines of the kernel are to run first.
    /// Sets the priority with which it will be polled again.
    pub fn pause(&self, switcher: switching::Switcher, cpu: &Arc<C>) {
        let priority = cpu.entity().priority();
        let priority =
            self.most_urgent().map_or(priority, |waiting| waiting.more_urgent_of(priority));
        switcher.set_priority(priority);
        cpu.entity().set_standing(Standing::Paused { priority });
        // A hart that queued a virtual CPU, put a result into the ring, or made more urgent what
        // `cpu` polls, and did not yet see this pause, did so before this point.
        // What waits in the queue has passed the ceiling of its own process.
        let risen = cpu.begin_pause();
        let wanted = self.most_urgent().into_iter().chain(risen);
        if let Some(wanted) = wanted.reduce(Priority::more_urgent_of)
            && wanted.is_more_urgent_than(priority)
        {
            self.lock(Purpose::Pause).switchers[switcher.number].raise_paused(wanted);
        }
    }

    /// `cpu` was found paused and has become as urgent as `priority`: raises its switching
    /// coroutine to that.
    pub fn raise_paused(&self, cpu: &Arc<C>, priority: Priority) {
        if let Some(holder) = self.lock(Purpose::Pause).holder(cpu) {
            holder.raise_paused(priority);
        }
    }

    /// Those paused virtual CPUs that `is_one` names have to leave their harts: their switching
    /// coroutines are polled before all others.
    pub fn hurry_paused(&self, is_one: impl Fn(&C) -> bool) {
        let inner = self.lock(Purpose::Pause);
        for member in inner.switchers.iter().filter(|member| member.cpu().is_some_and(&is_one)) {
            member.raise_paused(Priority::MOST_URGENT);
        }
    }

    /// Whether a virtual CPU waits that takes precedence over the one that `switcher` runs, which
    /// has this `priority` now.
    pub fn must_stop(&self, switcher: usize, priority: Priority, slice: &Slice) -> bool {
        !slice.is_granted()
            && (self.most_urgent().is_some_and(|waiting| waiting.is_more_urgent_than(priority))
                || self.need_resched[switcher].load(Relaxed))
    }

    /// Puts `cpu` into the queue. If a hart should run it now, wakes an idle switching coroutine;
    /// if there is none, interrupts the hart with the weakest claim, if that is weaker than this
    /// one.
    ///
    /// If nothing waits and the switching coroutine of this hart is idle, hands `cpu` over to that
    /// instead: to put it into the queue and to take it out again would be most of what a request
    /// to an idle service costs here (decision 67).
    pub fn enqueue(&self, cpu: Arc<C>) {
        let mut inner = self.lock(Purpose::Enqueue);
        let here = arch::hart_index();
        // With a share for the less urgent, each choice counts.
        if inner.switchers[here].is_idle()
            && self.share.load(Relaxed) == 0
            && let Some(slice) = inner.queue.hand_over(&cpu, timer::slice_ticks())
        {
            let id = inner.switchers[here].hand_over(cpu, slice);
            return wake_switcher(inner, id);
        }
        let open = cpu.account().vruntime().open_slices();
        let newcomer = inner.queue.insert(cpu, timer::slice_ticks());
        self.publish_newcomer(inner, newcomer, open);
    }

    /// Puts `cpu`, which its switching coroutine has stopped, into the queue again. That coroutine
    /// takes the next one, and others are woken for the rest.
    pub fn requeue(&self, cpu: Arc<C>) {
        let mut inner = self.lock(Purpose::Requeue);
        inner.queue.insert(cpu, timer::slice_ticks());
        self.publish(&inner);
    }

    /// Gives another slice to what `number` runs, which is of `priority`, if there is no other
    /// virtual CPU of this level to alternate with.
    pub fn renew(
        &self,
        number: usize,
        priority: Priority,
        account: &Account,
        slice: &mut Slice,
    ) -> bool {
        let mut inner = self.lock(Purpose::Renew);
        let (now, whole) = (arch::now_ticks(), timer::slice_ticks());
        let is_renewed = self.share.load(Relaxed) == 0
            && inner.queue.renew(priority, account.vruntime(), slice, now, whole);
        if is_renewed {
            inner.switchers[number].renew(slice);
        }
        is_renewed
    }

    /// Takes `cpu` out of the queue, or back from the switching coroutine to which it was handed
    /// over. Returns whether it was there.
    pub fn withdraw(&self, cpu: &C) -> bool {
        let mut inner = self.lock(Purpose::Withdraw);
        let mut found = inner.queue.withdraw(cpu);
        if found.is_none() {
            let mut members = inner.switchers.iter_mut().zip(&self.need_resched);
            found = members.find_map(|(member, need_resched)| {
                let found = member.withdraw(cpu)?;
                need_resched.store(false, Relaxed);
                Some(found)
            });
        }
        self.publish(&inner);
        drop(inner);
        // Without the lock, if it is the last reference.
        found.is_some()
    }

    /// Moves `cpu` forward if it is in the queue and has become more urgent. If it has been handed
    /// over, raises its switching coroutine.
    pub fn raise(&self, cpu: &C, priority: Priority) {
        let mut inner = self.lock(Purpose::Raise);
        if let Some(newcomer) = inner.queue.raise(cpu, priority, timer::slice_ticks()) {
            self.publish_newcomer(inner, newcomer, cpu.account().vruntime().open_slices());
        } else if let Some(holder) = inner.holder(cpu) {
            holder.raise_handed_over(priority);
        }
    }

    /// Moves those of `cpus` forward, all of one process, that are in the queue and less urgent
    /// than `priority`. They keep their order. Raises the switching coroutines to which others of
    /// them have been handed over.
    pub fn raise_all<const N: usize>(&self, cpus: &[Option<Arc<C>>; N], priority: Priority) {
        let Some(account) = cpus.iter().flatten().next().map(|cpu| cpu.account()) else { return };
        let mut inner = self.lock(Purpose::Raise);
        if account.lines().have_handed_over() {
            for holder in cpus.iter().flatten().filter_map(|cpu| inner.holder(cpu)) {
                holder.raise_handed_over(priority);
            }
        }
        let raised = inner.queue.raise_all(cpus, priority, timer::slice_ticks());
        let Some((count, newcomer)) = raised else { return };
        let open = account.vruntime().open_slices();
        self.publish_newcomer(inner, newcomer, open);
        // One switching coroutine was told of them. Each of the others takes one more.
        for _ in 1..count.min(arch::hart_count()) {
            let inner = self.lock(Purpose::Raise);
            let Some(first) = inner.queue.first() else { return };
            if priority.is_more_urgent_than(first.priority) {
                return;
            }
            self.ensure_taken_of(inner, first, open);
        }
    }

    /// Publishes which levels wait, and ensures that `newcomer` is taken, of a process with so much
    /// vruntime in `open` slices: one that runs already does not preempt others for its share.
    fn publish_newcomer(&self, inner: Held<'_, Inner<C>>, newcomer: Position, open: i64) {
        self.publish(&inner);
        self.ensure_taken_of(inner, newcomer, open);
    }

    /// As [`Self::ensure_taken`], of a process with so much vruntime in `open` slices.
    fn ensure_taken_of(&self, inner: Held<'_, Inner<C>>, newcomer: Position, open: i64) {
        // In units of the vruntime of a process that shares with no other: of a thousand children,
        // each must be able to run for a very short time.
        self.ensure_taken(inner, newcomer, open.saturating_add(timer::slice_ticks() as i64 / 4));
    }

    /// Ensures that a switching coroutine takes `newcomer`, which is in the queue. One that holds
    /// an equally urgent virtual CPU is preempted if that has had more time by more than
    /// `tolerated`.
    #[inline]
    fn ensure_taken(&self, inner: Held<'_, Inner<C>>, newcomer: Position, tolerated: i64) {
        let here = arch::hart_index();
        // The first rule of `on_newcomer`, which needs to know nothing of the others.
        if inner.switchers[here].is_idle() {
            self.wake_idle(inner, here, newcomer.priority);
        } else {
            self.ensure_taken_by_any(inner, newcomer, tolerated);
        }
    }

    /// Switching coroutine `number` is idle: it takes what waits, which is of `priority`.
    fn wake_idle(&self, mut inner: Held<'_, Inner<C>>, number: usize, priority: Priority) {
        let id = inner.switchers[number].make_ready(priority);
        wake_switcher(inner, id);
    }

    /// As [`Self::ensure_taken`], by the states of all switching coroutines.
    #[inline(never)]
    fn ensure_taken_by_any(
        &self,
        mut inner: Held<'_, Inner<C>>,
        newcomer: Position,
        tolerated: i64,
    ) {
        let here = arch::hart_index();
        let harts = arch::hart_count();
        let mut observed = [Switcher::Absent; arch::MAX_HARTS];
        for (number, place) in observed[..harts].iter_mut().enumerate() {
            let need_resched = self.need_resched[number].load(SeqCst);
            *place = inner.switchers[number].observe(newcomer, tolerated, need_resched);
        }
        let ahead = inner.queue.count_as_urgent(newcomer.priority, harts);
        match on_newcomer(&observed[..harts], newcomer.priority, ahead, here) {
            Action::Nothing => {}
            Action::Wake(number) => self.wake_idle(inner, number, newcomer.priority),
            Action::Raise(number) => inner.switchers[number].raise(newcomer.priority),
            Action::Preempt { number, raise, interrupt } => {
                self.need_resched[number].store(true, SeqCst);
                if raise {
                    inner.switchers[number].raise(newcomer.priority);
                }
                let hart = inner.switchers[number].hart().filter(|_| interrupt);
                drop(inner);
                // Without a hart to interrupt: this hart is in the kernel and checks before it
                // continues.
                if let Some(hart) = hart {
                    COUNTERS.preemptions.add(1);
                    trace::emit(move || Event::SendInterrupt { hart: hart as u64, why: 2 });
                    arch::send_interrupt_to(hart);
                }
            }
        }
    }

    /// Takes the virtual CPU that was handed over to `switcher`, or the next one, and charges its
    /// process for a slice. If there is none, records that `switcher` is idle.
    pub fn pop_or_idle(&self, switcher: switching::Switcher) -> Option<(Arc<C>, Slice)> {
        let mut inner = self.lock(Purpose::Pop);
        if let Some(taken) = inner.switchers[switcher.number].take_handed_over() {
            self.entering(&taken.0);
            return Some(taken);
        }
        let (share, slice_ticks) = (self.share.load(Relaxed), timer::slice_ticks());
        let chosen = inner.queue.choose(share, slice_ticks, arch::hart_count());
        if let Some((cpu, _)) = &chosen {
            self.entering(cpu);
        }
        inner.switchers[switcher.number] = Member::after_choice(switcher, chosen.as_ref());
        self.publish(&inner);
        // The virtual CPU that is first now may have been left to this switching coroutine, or was
        // requeued. If another one is less urgent, it takes this virtual CPU.
        if arch::hart_count() > 1
            && let Some(first) = inner.queue.first()
        {
            self.ensure_taken(inner, first, i64::MAX);
        }
        chosen
    }

    /// Switching coroutine `number` no longer holds a virtual CPU with this account; the rest of
    /// the slice is refunded. The caller may requeue it, and calls [`Self::rest`] then.
    pub fn release(&self, number: usize, account: &Account, slice: &Slice) {
        let mut inner = self.lock(Purpose::Release);
        let held = self.give_up(&mut inner, number, account, slice);
        drop(inner);
        // This may be the last reference to the process: drop it without the lock.
        drop(held);
    }

    /// [`Self::release`] and [`Self::rest`] at once, for a virtual CPU that is not requeued.
    pub fn release_and_rest(&self, number: usize, account: &Account, slice: &Slice) -> bool {
        let mut inner = self.lock(Purpose::Release);
        let held = self.give_up(&mut inner, number, account, slice);
        let is_ready = rest(&mut inner, number);
        drop(inner);
        drop(held);
        is_ready
    }

    /// The state of switching coroutine `number`, and its account, after it has given up what it
    /// held, which is returned.
    fn give_up(
        &self,
        inner: &mut Inner<C>,
        number: usize,
        account: &Account,
        slice: &Slice,
    ) -> impl Sized + use<C> {
        let held = inner.switchers[number].release();
        self.need_resched[number].store(false, Relaxed);
        account.vruntime().end(slice);
        inner.queue.use_ticks(slice.used_ticks());
        if self.share.load(Relaxed) != 0 && !slice.is_granted() && !inner.queue.is_empty() {
            inner.queue.pass_over(slice.used_ticks());
        }
        held
    }

    /// Switching coroutine `number`, which holds nothing, ends its poll: with the priority of what
    /// waits, or idle if nothing does. Returns whether it is to be polled again.
    pub fn rest(&self, number: usize) -> bool {
        rest(&mut self.lock(Purpose::Rest), number)
    }

    /// The process of `child` has ended: charges its most recent use of time to its parent. So a
    /// process gets no free time by running in children that end before they are charged.
    pub fn inherit_debt(&self, child: &Account, parent: &Account) {
        let inner = self.lock(Purpose::Inherit);
        let ticks = child.used_ticks().min(timer::slice_ticks());
        parent.charge(ticks);
        drop(inner);
    }

    /// Sets the share guaranteed to the less urgent, per mille; returns the previous one.
    pub fn set_share(&self, per_mille: u32) -> u32 {
        self.share.swap(per_mille.min(SHARE_MAX), Relaxed)
    }

    /// Publishes which levels wait. Called under the lock.
    fn publish(&self, inner: &Inner<C>) {
        let levels = inner.queue.levels();
        if self.ready.load(Relaxed) != levels {
            self.ready.store(levels, SeqCst);
            system_page().waiting.store(levels, Relaxed);
        }
    }
}

/// See [`RunQueue::rest`].
fn rest<C: Client>(inner: &mut Inner<C>, number: usize) -> bool {
    let first = inner.queue.most_urgent();
    let member = &mut inner.switchers[number];
    match first {
        Some(priority) => _ = member.make_ready(priority),
        None => member.make_idle(),
    }
    first.is_some()
}

/// Wakes the switching coroutine `id`, which was idle.
fn wake_switcher<C>(inner: Held<'_, Inner<C>>, id: Option<CoroutineId>) {
    drop(inner);
    if let Some(id) = id {
        // If this hart continues with its current work, it looks whether a sleeping one takes over
        // what waits here.
        cops_executor::wake_up(id);
    }
}
