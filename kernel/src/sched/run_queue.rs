//! The run queue: virtual CPUs that are ready to run, ordered by urgency and fairness, and the
//! virtual CPUs that the switching coroutines hold.
//!
//! The order is by level, then by what the process has been charged, then by arrival (decision 10).
//! There is one lock, taken once per switch of a virtual CPU, which costs thousands of instructions
//! anyway; coroutines do not pass through this queue.
//!
//! No wake is lost between a switching coroutine that enters user mode or pauses and a hart that
//! queues a virtual CPU. The switching coroutine writes where it is (`RunQueue::entering`,
//! `pause`), then reads `ready`. The hart that queues sets `ready`, then reads where the switching
//! coroutines are. All four accesses are sequentially consistent. The states of a switching
//! coroutine, and the effect of a newcomer in each of them, are in `cops_algorithms::switchers`.

use alloc::sync::Arc;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use cops_abi::inspect::portion;
use cops_abi::{CoroutineId, Priority};
use cops_algorithms::compensation::Compensation;
use cops_algorithms::levels::LevelCounts;
use cops_algorithms::priority::Rank;
use cops_algorithms::slice::{self, Slice};
use cops_algorithms::switchers::{Action, Claim, Switcher, on_newcomer};
use cops_algorithms::vruntime::MinVruntimes;
use cops_fallible::Map;
use spin::{Mutex, MutexGuard};

use super::account::Account;
use super::entity::{Client, Place, Standing};
use super::service::set_priority;
use super::system_page::system_page;
use super::timer;
use crate::arch;
use crate::counters::COUNTERS;
use crate::portions::Stretch;
use crate::trace::{self, Event};

/// The order of the queue, which is that of the fields: level, charge, number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    rank: Rank,
    charge: i64,
    number: u64,
}

impl Key {
    fn level(&self) -> Priority {
        self.rank.0
    }
}

/// A virtual CPU that a switching coroutine has taken out of the queue and not put back.
struct InHand<C> {
    cpu: Arc<C>,
    slice_end_ticks: u64,
    divisor: u32,
    /// Its slice is granted: it is not preempted.
    granted: bool,
}

/// The states of a switching coroutine. `cops_algorithms::switchers` has their transitions and the
/// effect of a newcomer.
enum State<C> {
    Absent,
    Idle,
    Choosing,
    Ready {
        level: Priority,
    },
    /// Running or paused. [`Entity::standing`](super::Entity::standing) tells which, because that
    /// changes without the lock.
    Holds(InHand<C>),
}

/// A switching coroutine.
struct Member<C> {
    id: Option<CoroutineId>,
    state: State<C>,
}

impl<C> Member<C> {
    /// Sets its level in the executor. Called under the run queue's lock, so that the last decision
    /// is also the last one to take effect.
    fn set_level(&self, level: Priority) {
        if let Some(id) = self.id {
            set_priority(id, level);
        }
    }
}

struct Inner<C> {
    queued: Map<Key, Arc<C>>,
    /// The levels of the queued virtual CPUs.
    counts: LevelCounts,
    minimums: MinVruntimes,
    next_number: u64,
    /// The switching coroutine of each hart.
    switchers: [Member<C>; arch::MAX_HARTS],
    compensation: Compensation,
}

/// The run queue: see the module.
pub struct RunQueue<C> {
    inner: Mutex<Inner<C>>,
    /// A bit for each level with a virtual CPU in the queue; written under the lock, read by any
    /// hart as a hint.
    ready: AtomicU64,
    /// One with a higher claim is waiting: what this switching coroutine holds is to be put back.
    give_way: [AtomicBool; arch::MAX_HARTS],
    /// Share of the time for less urgent virtual CPUs, per mille.
    share: AtomicU32,
}

/// The purposes for which the lock is held, in the order of [`HOLDS`].
#[derive(Clone, Copy)]
enum Hold {
    Push,
    PutBack,
    Renew,
    Raise,
    Pop,
    Release,
    Inherit,
    Pause,
    Rest,
}

const HOLDS: [&str; 9] =
    ["push", "put-back", "renew", "raise", "pop", "release", "inherit", "pause", "rest"];

/// The name of a purpose by its number, for measurements.
pub fn name_of_hold(number: u32) -> &'static str {
    HOLDS.get(number as usize).copied().unwrap_or("?")
}

/// The locked run queue, with a measurement of how long it is locked.
struct Held<'a, C> {
    inner: MutexGuard<'a, Inner<C>>,
    /// Ends after the lock is free.
    _measured: Stretch,
}

impl<C> Deref for Held<'_, C> {
    type Target = Inner<C>;

    fn deref(&self) -> &Inner<C> {
        &self.inner
    }
}

impl<C> DerefMut for Held<'_, C> {
    fn deref_mut(&mut self) -> &mut Inner<C> {
        &mut self.inner
    }
}

/// Places that one choice corrects at most, each by a removal and an insertion of some 850
/// instructions: together with the rest of the choice fewer than 30,000 with the lock held, and
/// with interrupts enabled. With many virtual CPUs of a process that has just run, all of their
/// places are out of date. Those that one choice does not correct the next one does.
const CORRECTIONS_MAX: usize = 32;
/// Maximum share for the less urgent, per mille.
pub const SHARE_MAX: u32 = 500;

impl<C: Client> RunQueue<C> {
    /// A queue without virtual CPUs and switching coroutines.
    pub const fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                queued: Map::new(),
                counts: LevelCounts::new(),
                minimums: MinVruntimes::new(),
                next_number: 0,
                switchers: [const { Member { id: None, state: State::Absent } }; arch::MAX_HARTS],
                compensation: Compensation::new(),
            }),
            ready: AtomicU64::new(0),
            give_way: [const { AtomicBool::new(false) }; arch::MAX_HARTS],
            share: AtomicU32::new(0),
        }
    }

    fn lock(&self, hold: Hold) -> Held<'_, C> {
        let inner = self.inner.lock();
        Held { inner, _measured: Stretch::begin(portion::RUN_QUEUE, hold as u32) }
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

    /// Switching coroutine `number` keeps `cpu` and ends its poll, because coroutines of the kernel
    /// are to run first. Sets the level at which it will be polled again.
    pub fn pause(&self, number: usize, switcher: CoroutineId, cpu: &Arc<C>) {
        let level = cpu.entity().level();
        let level = self.most_urgent().map_or(level, |waiting| waiting.more_urgent_of(level));
        set_priority(switcher, level);
        cpu.entity().set_standing(Standing::Paused { level });
        // A hart that queued a virtual CPU, or put a result into the ring, and did not yet see this
        // pause, did so before this point.
        let wanted = self.most_urgent().into_iter().chain(cpu.most_urgent_result());
        if let Some(wanted) = wanted.reduce(Priority::more_urgent_of)
            && wanted.is_more_urgent_than(level)
        {
            self.lock(Hold::Pause).raise_paused(number, cpu.cap(wanted));
        }
    }

    /// `cpu` was found paused and has become as urgent as `level`: raises its switching coroutine
    /// to that level.
    pub fn raise_paused(&self, cpu: &Arc<C>, level: Priority) {
        let inner = self.lock(Hold::Pause);
        let holder = inner.switchers.iter().position(
            |member| matches!(&member.state, State::Holds(held) if Arc::ptr_eq(&held.cpu, cpu)),
        );
        if let Some(number) = holder {
            inner.raise_paused(number, level);
        }
    }

    /// Whether a virtual CPU waits that takes precedence over the one that `switcher` runs, which
    /// has this `level` now.
    pub fn must_stop(&self, switcher: usize, level: Priority, slice: &Slice) -> bool {
        !slice.is_granted()
            && (self.most_urgent().is_some_and(|waiting| waiting.is_more_urgent_than(level))
                || self.give_way[switcher].load(Relaxed))
    }

    /// Puts `cpu` into the queue. If a hart should run it now, wakes an idle switching coroutine;
    /// if there is none, interrupts the hart with the weakest claim, if that is weaker than this
    /// one.
    pub fn push(&self, cpu: Arc<C>) {
        let mut inner = self.lock(Hold::Push);
        let key = inner.key_for(cpu.account(), cpu.entity().level());
        inner.insert(key, cpu);
        self.announce(inner, key);
    }

    /// Puts back `cpu`, which its switching coroutine has stopped. That coroutine takes the next
    /// one, and others are woken for the rest.
    pub fn put_back(&self, cpu: Arc<C>) {
        let mut inner = self.lock(Hold::PutBack);
        let key = inner.key_for(cpu.account(), cpu.entity().level());
        inner.insert(key, cpu);
        self.publish(&inner);
    }

    /// Gives another slice to what `number` runs, which is of `level`, if there is no other virtual
    /// CPU of this level to alternate with.
    pub fn renew(
        &self,
        number: usize,
        level: Priority,
        account: &Account,
        slice: &mut Slice,
    ) -> bool {
        let mut inner = self.lock(Hold::Renew);
        let others = Priority::most_urgent_in(inner.counts.levels());
        if others.is_some_and(|first| !level.is_more_urgent_than(first))
            || self.share.load(Relaxed) != 0
        {
            return false;
        }
        slice.pause(arch::now_ticks());
        account.vruntime.end(slice);
        *slice = Slice::new(timer::slice_ticks(), account.divisor(), false);
        account.vruntime.begin(slice);
        inner.minimums.choose(level, account.vruntime.now() - slice.whole_charge());
        if let State::Holds(held) = &mut inner.switchers[number].state {
            held.slice_end_ticks = arch::now_ticks() + timer::slice_ticks();
            held.divisor = slice.divisor();
            held.granted = false;
        }
        true
    }

    /// Moves `cpu` forward if it is in the queue and has become more urgent.
    pub fn raise(&self, cpu: &Arc<C>, level: Priority) {
        let mut inner = self.lock(Hold::Raise);
        let Some(key) = cpu.entity().queued.lock().key else { return };
        if !level.is_more_urgent_than(key.level()) {
            return;
        }
        let Some(cpu) = inner.remove(key) else { return };
        cpu.entity().set_level(level);
        let key = inner.key_for(cpu.account(), level);
        inner.insert(key, cpu);
        self.announce(inner, key);
    }

    fn announce(&self, inner: Held<'_, C>, key: Key) {
        self.publish(&inner);
        // In units of the charge of a process that shares with no other: of a thousand children,
        // each must be able to run for a very short time.
        self.tell(inner, key, timer::slice_ticks() as i64 / 4);
    }

    /// Ensures that a switching coroutine takes `key`, which is in the queue. One that holds an
    /// equally urgent virtual CPU is preempted if that has had more time by more than `tolerated`.
    fn tell(&self, mut inner: Held<'_, C>, key: Key, tolerated: i64) {
        let here = arch::hart_index();
        let harts = arch::hart_count();
        let mut seen = [Switcher::Absent; arch::MAX_HARTS];
        for (number, place) in seen[..harts].iter_mut().enumerate() {
            *place = self.see(&inner, number, key, tolerated);
        }
        let ahead = inner
            .queued
            .iter()
            .map(|(key, _)| key)
            .take_while(|other| !key.level().is_more_urgent_than(other.level()))
            .take(harts)
            .count();
        match on_newcomer(&seen[..harts], key.level(), ahead, here) {
            Action::Nothing => {}
            Action::Wake(number) => {
                let member = &mut inner.switchers[number];
                member.set_level(key.level());
                member.state = State::Ready { level: key.level() };
                let id = member.id;
                drop(inner);
                if let Some(id) = id {
                    cops_executor::wake_up(id);
                    // If this hart continues with its current work, a sleeping one takes over what
                    // waits here.
                    super::executor().offer(here as u32);
                }
            }
            Action::Raise(number) => inner.raise(number, key.level()),
            Action::Preempt { number, raise, interrupt } => {
                self.give_way[number].store(true, SeqCst);
                if raise {
                    inner.raise(number, key.level());
                }
                let hart = inner.hart_of(number).filter(|_| interrupt);
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

    /// The state of switching coroutine `number`, for the decision about `key`. The pages are read
    /// at this moment.
    fn see(&self, inner: &Inner<C>, number: usize, key: Key, tolerated: i64) -> Switcher {
        let held = match &inner.switchers[number].state {
            State::Absent => return Switcher::Absent,
            State::Idle => return Switcher::Idle,
            State::Choosing => return Switcher::Choosing,
            State::Ready { level } => return Switcher::Ready { level: *level },
            State::Holds(held) => held,
        };
        let told = self.give_way[number].load(SeqCst);
        let claim = if held.granted { Claim::Granted } else { held.claim(key, tolerated) };
        match held.cpu.entity().standing() {
            Standing::Running { hart } => {
                Switcher::Running { claim, here: hart == arch::hart_index(), told }
            }
            Standing::Paused { level } => Switcher::Paused { level, claim, told },
        }
    }

    /// Takes the next virtual CPU and charges its process for a slice. If there is none, records
    /// that `switcher`, which belongs to hart `number`, is idle.
    pub fn pop_or_idle(&self, number: usize, switcher: CoroutineId) -> Option<(Arc<C>, Slice)> {
        let mut inner = self.lock(Hold::Pop);
        let chosen = inner.choose(self.share.load(Relaxed));
        let state = match &chosen {
            None => State::Idle,
            Some((cpu, slice)) => {
                self.entering(cpu);
                State::Holds(InHand {
                    cpu: cpu.clone(),
                    slice_end_ticks: arch::now_ticks() + slice.remaining_ticks(),
                    divisor: slice.divisor(),
                    granted: slice.is_granted(),
                })
            }
        };
        inner.switchers[number] = Member { id: Some(switcher), state };
        self.publish(&inner);
        // The virtual CPU that is first now may have been told to wait for this switching
        // coroutine, or was put back. If another one is less urgent, it takes this virtual CPU.
        if let Some((&first, _)) = inner.queued.first() {
            self.tell(inner, first, i64::MAX);
        }
        chosen
    }

    /// Switching coroutine `number` no longer holds a virtual CPU with this account; the rest of
    /// the slice is refunded.
    pub fn release(&self, number: usize, account: &Account, slice: &Slice) {
        let mut inner = self.lock(Hold::Release);
        let held = core::mem::replace(&mut inner.switchers[number].state, State::Choosing);
        self.give_way[number].store(false, Relaxed);
        account.vruntime.end(slice);
        if self.share.load(Relaxed) != 0 && !slice.is_granted() && !inner.queued.is_empty() {
            inner.compensation.pass_over(slice.used_ticks());
        }
        drop(inner);
        // This may be the last reference to the process: drop it without the lock.
        drop(held);
    }

    /// Switching coroutine `number`, which holds nothing, ends its poll: with the level of what
    /// waits, or idle if nothing does. Returns whether it is to be polled again.
    pub fn rest(&self, number: usize) -> bool {
        let mut inner = self.lock(Hold::Rest);
        let first = Priority::most_urgent_in(inner.counts.levels());
        let member = &mut inner.switchers[number];
        let Some(level) = first else {
            member.state = State::Idle;
            return false;
        };
        member.set_level(level);
        member.state = State::Ready { level };
        true
    }

    /// The process of `child` has ended: charges its most recent use of time to its parent. So a
    /// process gets no free time by running in children that end before they are charged.
    pub fn inherit_debt(&self, child: &Account, parent: &Account) {
        let inner = self.lock(Hold::Inherit);
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
        let levels = inner.counts.levels();
        if self.ready.load(Relaxed) != levels {
            self.ready.store(levels, SeqCst);
            system_page().waiting.store(levels, Relaxed);
        }
    }
}

impl<C: Client> InHand<C> {
    /// Its claim compared with `key`; that of an equal is weaker if it has had more time by more
    /// than `tolerated`.
    fn claim(&self, key: Key, tolerated: i64) -> Claim {
        let level = self.cpu.urgency();
        // Its charge if it stops now.
        let unused =
            self.slice_end_ticks.saturating_sub(arch::now_ticks()) as i64 * i64::from(self.divisor);
        let excess = self.cpu.account().vruntime.now() - unused - key.charge;
        if key.level().is_more_urgent_than(level) || level == key.level() && excess > tolerated {
            Claim::Weaker { level, excess }
        } else {
            Claim::Stronger
        }
    }
}

impl<C: Client> Inner<C> {
    /// The hart that runs the virtual CPU of switching coroutine `number`.
    fn hart_of(&self, number: usize) -> Option<usize> {
        match &self.switchers[number].state {
            State::Holds(held) => match held.cpu.entity().standing() {
                Standing::Running { hart } => Some(hart),
                Standing::Paused { .. } => None,
            },
            _ => None,
        }
    }

    /// Raises switching coroutine `number`, which is ready in the executor, to `level`.
    fn raise(&mut self, number: usize, level: Priority) {
        match &mut self.switchers[number].state {
            State::Ready { level: at } => *at = level,
            State::Holds(_) => return self.raise_paused(number, level),
            _ => return,
        }
        self.switchers[number].set_level(level);
    }

    /// Raises it if it holds a virtual CPU and is paused at a less urgent level.
    fn raise_paused(&self, number: usize, level: Priority) {
        let member = &self.switchers[number];
        if let State::Holds(held) = &member.state
            && let Standing::Paused { level: at } = held.cpu.entity().standing()
            && level.is_more_urgent_than(at)
        {
            held.cpu.entity().set_standing(Standing::Paused { level });
            member.set_level(level);
        }
    }

    /// The position for a virtual CPU with this account at `level`. A process that has been absent
    /// for a while is credited one slice at most; debts remain.
    fn key_for(&mut self, account: &Account, level: Priority) -> Key {
        let charge = self.minimums.enter(&account.vruntime, level, timer::slice_ticks() as i64);
        self.next_number += 1;
        Key { rank: Rank(level), charge, number: self.next_number }
    }

    fn insert(&mut self, key: Key, cpu: Arc<C>) {
        let mut place = cpu.entity().queued.lock();
        place.key = Some(key);
        // A virtual CPU is in the queue at most once, so it has its node.
        let Some(node) = place.node.take() else { return };
        drop(place);
        self.counts.add(key.level());
        self.queued.insert_with(node, key, cpu);
    }

    fn remove(&mut self, key: Key) -> Option<Arc<C>> {
        let (cpu, node) = self.queued.take(&key)?;
        *cpu.entity().queued.lock() = Place { key: None, node: Some(node) };
        self.counts.remove(key.level());
        Some(cpu)
    }

    /// Takes the next virtual CPU out of the queue.
    fn choose(&mut self, share: u32) -> Option<(Arc<C>, Slice)> {
        let (key, granted) = match self.compensated(share) {
            Some(key) => (key, true),
            None => (self.first()?, false),
        };
        let cpu = self.remove(key)?;
        let divisor = cpu.account().divisor();
        if !granted {
            self.minimums.choose(key.level(), key.charge);
        }
        let peers = if granted { 1 } else { u64::from(self.counts.of(key.level())) + 1 };
        let slice = Slice::new(slice::ticks_among(timer::slice_ticks(), peers), divisor, granted);
        cpu.account().vruntime.begin(&slice);
        Some((cpu, slice))
    }

    /// The first one according to the current values: others of its process may have run since it
    /// was queued, or may have taken what made it urgent.
    fn first(&mut self) -> Option<Key> {
        for _ in 0..CORRECTIONS_MAX {
            let (&key, cpu) = self.queued.first()?;
            let now = Key {
                rank: Rank(cpu.urgency()).max(key.rank),
                charge: cpu.account().vruntime.now().max(key.charge),
                ..key
            };
            if now == key || self.queued.len() == 1 {
                return Some(key);
            }
            let cpu = self.remove(key)?;
            cpu.entity().set_level(now.level());
            let place = if now.level() == key.level() {
                now
            } else {
                self.key_for(cpu.account(), now.level())
            };
            self.insert(place, cpu);
        }
        self.queued.first().map(|(&key, _)| key)
    }

    /// If the less urgent are due for a slice: the first of the level that gets it.
    fn compensated(&mut self, share: u32) -> Option<Key> {
        let level = self.compensation.next(share, timer::slice_ticks(), self.counts.levels())?;
        let (&key, _) =
            self.queued.at_or_after(&Key { rank: Rank(level), charge: i64::MIN, number: 0 })?;
        Some(key)
    }
}
