//! The run queue: virtual CPUs that want a hart, in order of urgency and fairness, and what the switching coroutines have in hand.
//!
//! In order of level, then of what its process has been charged, then of arrival (decision 10). One lock, taken once per switch of a
//! virtual CPU, which costs thousands of instructions anyway; coroutines do not pass through here.
//!
//! No wake is lost between a hart that enters user mode and somebody who queues: the switching coroutine notes the hart on which it
//! runs (`RunQueue::entering`), then looks at `ready`; who queues sets `ready`, then looks where the switching coroutines run. All
//! four are sequentially consistent.
//! May touch: the kernel's executor (to wake switching coroutines), interprocessor interrupts, the system page's `waiting`.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use cops_abi::inspect::portion;
use cops_abi::{CoroutineId, Priority};
use spin::{Mutex, MutexGuard};

use super::counters::COUNTERS;
use super::cpu::VirtualCpu;
use super::process::Process;
use super::slice::Slice;
use super::{system_page, timer};
use crate::arch;
use crate::portions::Stretch;
use crate::trace::{self, Event};

/// The order of the queue. Derived: level first, then charge, then number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    level: u8,
    charge: i64,
    number: u64,
}

/// What a process has been charged: ticks times its divisor, relative to others of the level. Changed under the run queue's lock.
#[derive(Debug)]
pub struct Account {
    charge: AtomicI64,
    /// How much of it is for slices that are not over.
    advance: AtomicI64,
    /// The level whose others `charge` compares with.
    level: AtomicU8,
}

impl Account {
    /// An account with the debts of the process that opens it, and one slice more: whoever is short of time does not get more by
    /// starting others.
    pub fn of_child(parent: Option<&Account>, divisor: u32) -> Self {
        let (inherited, level) = parent.map_or((0, 0), |parent| {
            (parent.charge() - parent.advance.load(Relaxed), parent.level.load(Relaxed))
        });
        let debit = timer::slice_ticks() as i64 * i64::from(divisor);
        Self {
            charge: AtomicI64::new(inherited.saturating_add(debit)),
            advance: AtomicI64::new(0),
            level: AtomicU8::new(level),
        }
    }

    fn charge(&self) -> i64 {
        self.charge.load(Relaxed)
    }

    fn add(&self, ticks: i64) {
        self.charge.store(self.charge().saturating_add(ticks), Relaxed);
    }

    /// Charges for a slice that begins.
    fn begin(&self, slice: &Slice) {
        self.add(slice.whole_charge());
        self.advance.fetch_add(slice.whole_charge(), Relaxed);
    }

    /// Gives back what is left of a slice.
    fn end(&self, slice: &Slice) {
        self.add(-slice.remaining_charge());
        self.advance.fetch_sub(slice.whole_charge(), Relaxed);
    }
}

/// What a switching coroutine has taken and not given back.
struct InHand {
    cpu: Arc<VirtualCpu>,
    slice_end_ticks: u64,
    divisor: u32,
    /// It has been granted its slice: nobody is to take it away.
    granted: bool,
    switcher: CoroutineId,
}

struct Inner {
    queued: BTreeMap<Key, Arc<VirtualCpu>>,
    /// Virtual CPUs at each level.
    counts: [u32; 64],
    /// Those that are not 0.
    levels: u64,
    /// The least that anybody's charge was who was chosen last, at each level: newcomers begin there.
    floors: [i64; 64],
    next_number: u64,
    /// The switching coroutine of each hart while it has nothing to run.
    idle: [Option<CoroutineId>; arch::MAX_HARTS],
    in_hand: [Option<InHand>; arch::MAX_HARTS],
    /// Time that others had to wait for more urgent ones and have not been compensated for.
    passed_over_ticks: u64,
}

/// See the module.
pub struct RunQueue {
    inner: Mutex<Inner>,
    /// A bit for each level with somebody in it; written under the lock, read by anybody as a hint.
    ready: AtomicU64,
    /// The hart on which each switching coroutine enters user mode or is in it, or [`NOWHERE`].
    running_on: [AtomicUsize; arch::MAX_HARTS],
    /// Somebody with a better claim waits: what this switching coroutine has in hand is to be put back.
    give_way: [AtomicBool; arch::MAX_HARTS],
    /// Per mille of the time for those who are not the most urgent.
    share: AtomicU32,
}

/// For what the lock is held, in the order of [`HOLDS`].
#[derive(Clone, Copy)]
enum Hold {
    Push,
    PutBack,
    Renew,
    Raise,
    Pop,
    Settle,
    Inherit,
}

const HOLDS: [&str; 7] = ["push", "put-back", "renew", "raise", "pop", "settle", "inherit"];

/// The name of a hold by its number, for what measures them.
pub fn name_of_hold(number: u32) -> &'static str {
    HOLDS.get(number as usize).copied().unwrap_or("?")
}

/// The lock held, and measured.
struct Held<'a> {
    inner: MutexGuard<'a, Inner>,
    /// Ends after the lock is free.
    _measured: Stretch,
}

impl Deref for Held<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

const NOWHERE: usize = usize::MAX;
/// Into how many parts a slice is divided at most when many of a level are ready.
const SLICE_PARTS_MAX: u64 = 10;
/// Most that can be granted to the less urgent, per mille.
pub const SHARE_MAX: u32 = 500;

/// The machine's run queue.
pub static RUN_QUEUE: RunQueue = RunQueue {
    inner: Mutex::new(Inner {
        queued: BTreeMap::new(),
        counts: [0; 64],
        levels: 0,
        floors: [0; 64],
        next_number: 0,
        idle: [None; arch::MAX_HARTS],
        in_hand: [const { None }; arch::MAX_HARTS],
        passed_over_ticks: 0,
    }),
    ready: AtomicU64::new(0),
    running_on: [const { AtomicUsize::new(NOWHERE) }; arch::MAX_HARTS],
    give_way: [const { AtomicBool::new(false) }; arch::MAX_HARTS],
    share: AtomicU32::new(0),
};

/// Whom to tell that somebody has come who goes before.
enum Victim {
    /// In user mode on this hart, or about to be.
    Hart(usize),
    /// It waits for kernel coroutines to end; its switching coroutine.
    Paused(CoroutineId),
}

impl RunQueue {
    fn lock(&self, hold: Hold) -> Held<'_> {
        let inner = self.inner.lock();
        Held { inner, _measured: Stretch::begin(portion::RUN_QUEUE, hold as u32) }
    }

    /// The most urgent level with somebody in it, or 64.
    pub fn most_urgent(&self) -> u32 {
        self.ready.load(SeqCst).trailing_zeros()
    }

    /// A bit for each level with somebody in it.
    pub fn levels(&self) -> u64 {
        self.ready.load(Relaxed)
    }

    /// Switching coroutine `switcher` is about to enter user mode on this hart. [`must_stop`](Self::must_stop) is asked afterwards.
    pub fn entering(&self, switcher: usize) {
        self.running_on[switcher].store(arch::hart_index(), SeqCst);
    }

    /// It has left user mode and what it ran.
    pub fn left(&self, switcher: usize) {
        self.running_on[switcher].store(NOWHERE, Relaxed);
    }

    /// Whether somebody waits who goes before what `switcher` runs, which is of `level` now.
    pub fn must_stop(&self, switcher: usize, level: u8, slice: &Slice) -> bool {
        !slice.is_granted()
            && (self.most_urgent() < u32::from(level) || self.give_way[switcher].load(Relaxed))
    }

    /// Puts `cpu` in by its level, and sees to it that a hart runs it if one should: wakes a switching coroutine if one is idle,
    /// otherwise interrupts who has the weakest claim, if that is weaker than this.
    pub fn push(&self, cpu: Arc<VirtualCpu>) {
        let mut inner = self.lock(Hold::Push);
        let key = inner.key_for(&cpu.process, cpu.level() & 63);
        inner.insert(key, cpu);
        self.announce(inner, key);
    }

    /// Puts `cpu` back, which its switching coroutine has stopped: that takes whose turn it is next, and tells others of the rest.
    pub fn put_back(&self, cpu: Arc<VirtualCpu>) {
        let mut inner = self.lock(Hold::PutBack);
        let key = inner.key_for(&cpu.process, cpu.level() & 63);
        inner.insert(key, cpu);
        self.publish(&inner);
    }

    /// Gives what `number` runs, which is of `level`, another slice if nobody is there to take turns with.
    pub fn renew(&self, number: usize, level: u8, process: &Process, slice: &mut Slice) -> bool {
        let mut inner = self.lock(Hold::Renew);
        if inner.levels.trailing_zeros() <= u32::from(level) || self.share.load(Relaxed) != 0 {
            return false;
        }
        slice.pause();
        process.account.end(slice);
        *slice = Slice::new(timer::slice_ticks(), process.share.divisor(), false);
        process.account.begin(slice);
        let floor = process.account.charge() - slice.whole_charge();
        let place = &mut inner.floors[usize::from(level)];
        *place = floor.max(*place);
        if let Some(held) = &mut inner.in_hand[number] {
            held.slice_end_ticks = arch::now_ticks() + timer::slice_ticks();
            held.divisor = slice.divisor();
            held.granted = false;
        }
        true
    }

    /// Moves `cpu` forward if it waits here and has become more urgent.
    pub fn raise(&self, cpu: &Arc<VirtualCpu>, level: u8) {
        let mut inner = self.lock(Hold::Raise);
        let Some(key) = *cpu.queued.lock() else { return };
        if key.level <= level {
            return;
        }
        let Some(cpu) = inner.remove(key) else { return };
        cpu.level.store(level, Relaxed);
        let key = inner.key_for(&cpu.process, level);
        inner.insert(key, cpu);
        self.announce(inner, key);
    }

    fn announce(&self, mut inner: Held<'_>, key: Key) {
        self.publish(&inner);
        if let Some(switcher) = inner.take_idle() {
            drop(inner);
            return wake_idle(switcher, key.level);
        }
        let here = arch::hart_index();
        let victim = self.weakest(&inner, key);
        drop(inner);
        match victim {
            Some(Victim::Hart(hart)) if hart != here => {
                COUNTERS.preemptions.add(1);
                trace::emit(move || Event::SendInterrupt { hart: hart as u64, why: 2 });
                arch::send_interrupt_to(hart);
            }
            Some(Victim::Paused(switcher)) => {
                // It is polled by this priority, finds that it must stop, and takes the newcomer.
                cops_executor::set_priority(switcher, Priority::saturating(key.level.into()));
            }
            // This hart is in the kernel and looks before it goes on.
            Some(Victim::Hart(_)) | None => {}
        }
    }

    /// Who of those that run has the weakest claim, if it is weaker than that of `key`. Their pages are read as they are now.
    fn weakest(&self, inner: &Inner, key: Key) -> Option<Victim> {
        let now = arch::now_ticks();
        let mut worst: Option<(u8, i64, usize)> = None;
        for (number, held) in inner.in_hand.iter().enumerate() {
            let Some(held) = held.as_ref().filter(|held| !held.granted) else { continue };
            let process = &held.cpu.process;
            let level = process.urgency(held.cpu.index);
            // What it will have been charged if it stops now.
            let unused = held.slice_end_ticks.saturating_sub(now) as i64 * i64::from(held.divisor);
            let excess = process.account.charge() - unused - key.charge;
            // By what a process is charged that shares with nobody: of a thousand children, each must run for next to nothing.
            let tolerated = timer::slice_ticks() as i64 / 4;
            let is_weaker = level > key.level || level == key.level && excess > tolerated;
            if is_weaker
                && worst.is_none_or(|(level_so_far, excess_so_far, _)| {
                    (level, excess) > (level_so_far, excess_so_far)
                })
            {
                worst = Some((level, excess, number));
            }
        }
        let (_, _, number) = worst?;
        let switcher = inner.in_hand[number].as_ref()?.switcher;
        self.give_way[number].store(true, SeqCst);
        match self.running_on[number].load(SeqCst) {
            NOWHERE => Some(Victim::Paused(switcher)),
            hart => Some(Victim::Hart(hart)),
        }
    }

    /// Takes the virtual CPU whose turn it is, and charges its process for a slice; if there is none, notes that
    /// `switcher`, that of hart `number`, is idle.
    pub fn pop_or_idle(&self, number: usize, switcher: CoroutineId) -> Option<(Arc<VirtualCpu>, Slice)> {
        let mut inner = self.lock(Hold::Pop);
        let chosen = inner.choose(self.share.load(Relaxed));
        match &chosen {
            None => inner.idle[number] = Some(switcher),
            Some((cpu, slice)) => {
                inner.in_hand[number] = Some(InHand {
                    cpu: cpu.clone(),
                    slice_end_ticks: arch::now_ticks() + slice.remaining_ticks(),
                    divisor: slice.divisor(),
                    granted: slice.is_granted(),
                    switcher,
                });
            }
        }
        self.publish(&inner);
        // What was put back, perhaps: nobody else has been told of it.
        if let Some((key, _)) = inner.queued.first_key_value()
            && let level = key.level
            && let Some(switcher) = inner.take_idle()
        {
            drop(inner);
            wake_idle(switcher, level);
        }
        chosen
    }

    /// Switching coroutine `number` gives up a virtual CPU of `process`: what is left of the slice is given back.
    pub fn settle(&self, number: usize, process: &Process, slice: &Slice) {
        let mut inner = self.lock(Hold::Settle);
        let held = inner.in_hand[number].take();
        self.give_way[number].store(false, Relaxed);
        process.account.end(slice);
        if self.share.load(Relaxed) != 0 && !slice.is_granted() && !inner.queued.is_empty() {
            inner.passed_over_ticks += slice.used_ticks();
        }
        drop(inner);
        // Perhaps the last that holds it: not under the lock.
        drop(held);
    }

    /// `process` has ended: what it used last is its parent's to pay, so that a process gets no time for nothing by running it in children
    /// that end before they are charged.
    pub fn inherit_debt(&self, process: &Process, parent: &Process) {
        let inner = self.lock(Hold::Inherit);
        let ticks = process.used_ticks.load(Relaxed).min(timer::slice_ticks());
        parent.account.add(ticks as i64 * i64::from(parent.share.divisor()));
        drop(inner);
    }

    /// Sets the share that is guaranteed to the less urgent, in per mille; returns what it was.
    pub fn set_share(&self, per_mille: u32) -> u32 {
        self.share.swap(per_mille.min(SHARE_MAX), Relaxed)
    }

    /// Shows which levels wait. Under the lock.
    fn publish(&self, inner: &Inner) {
        let levels = inner.levels;
        if self.ready.load(Relaxed) != levels {
            self.ready.store(levels, SeqCst);
            system_page().waiting.store(levels, Relaxed);
        }
    }
}

/// Has an idle switching coroutine look into the queue, where something of `level` waits.
fn wake_idle(switcher: CoroutineId, level: u8) {
    cops_executor::set_priority(switcher, Priority::saturating(level.into()));
    cops_executor::wake_up(switcher);
    // Should this hart go on with what it does, a sleeping one takes over what waits here.
    super::executor().offer(arch::hart_index() as u32);
}

impl Inner {
    /// A switching coroutine that has nothing to run. This hart's own is preferred unless it is running something: then whoever
    /// queues goes on at once, and another hart, asleep, takes the newcomer.
    fn take_idle(&mut self) -> Option<CoroutineId> {
        let here = arch::hart_index();
        let number =
            if self.idle[here].is_some() { here } else { self.idle.iter().position(Option::is_some)? };
        self.idle[number].take()
    }

    /// The place of a virtual CPU of `process` at `level`. Who comes back after a while is credited a slice, no more; debts remain.
    fn key_for(&mut self, process: &Process, level: u8) -> Key {
        let account = &process.account;
        let (old, new) =
            (self.floors[usize::from(account.level.load(Relaxed))], self.floors[usize::from(level)]);
        let credit = timer::slice_ticks() as i64;
        let charge = new.saturating_add(account.charge().saturating_sub(old).max(-credit));
        account.charge.store(charge, Relaxed);
        account.level.store(level, Relaxed);
        self.next_number += 1;
        Key { level, charge, number: self.next_number }
    }

    fn insert(&mut self, key: Key, cpu: Arc<VirtualCpu>) {
        *cpu.queued.lock() = Some(key);
        self.counts[usize::from(key.level)] += 1;
        self.levels |= 1 << key.level;
        self.queued.insert(key, cpu);
    }

    fn remove(&mut self, key: Key) -> Option<Arc<VirtualCpu>> {
        let cpu = self.queued.remove(&key)?;
        *cpu.queued.lock() = None;
        let count = &mut self.counts[usize::from(key.level)];
        *count -= 1;
        if *count == 0 {
            self.levels &= !(1 << key.level);
        }
        Some(cpu)
    }

    /// Takes whose turn it is.
    fn choose(&mut self, share: u32) -> Option<(Arc<VirtualCpu>, Slice)> {
        let (key, granted) = match self.compensated(share) {
            Some(key) => (key, true),
            None => (self.first()?, false),
        };
        let cpu = self.remove(key)?;
        let divisor = cpu.process.share.divisor();
        if !granted {
            let floor = &mut self.floors[usize::from(key.level)];
            *floor = key.charge.max(*floor);
        }
        // A round of all of this level takes a whole slice, as long as that leaves each a worthwhile time.
        let equals = u64::from(self.counts[usize::from(key.level)]) + 1;
        let ticks = if granted { timer::slice_ticks() } else { timer::slice_ticks() / equals };
        let slice = Slice::new(ticks.max(timer::slice_ticks() / SLICE_PARTS_MAX), divisor, granted);
        cpu.process.account.begin(&slice);
        Some((cpu, slice))
    }

    /// The first by what is true now: others of its process may have run since it was queued, or have taken what made it urgent.
    fn first(&mut self) -> Option<Key> {
        // A process that rewrites its page all the while is not followed for ever.
        for _ in 0..32 {
            let (&key, cpu) = self.queued.first_key_value()?;
            let now = Key {
                level: cpu.process.urgency(cpu.index).max(key.level),
                charge: cpu.process.account.charge().max(key.charge),
                ..key
            };
            if now == key || self.queued.len() == 1 {
                return Some(key);
            }
            let cpu = self.remove(key)?;
            cpu.level.store(now.level, Relaxed);
            let place =
                if now.level == key.level { now } else { self.key_for(&cpu.process.clone(), now.level) };
            self.insert(place, cpu);
        }
        self.queued.first_key_value().map(|(&key, _)| key)
    }

    /// If the less urgent have been passed over for so long that they are due: who of them has waited longest.
    fn compensated(&mut self, share: u32) -> Option<Key> {
        if share == 0 {
            self.passed_over_ticks = 0;
            return None;
        }
        let due_ticks = timer::slice_ticks() * u64::from(1000 - share) / u64::from(share);
        let (first, _) = self.queued.first_key_value()?;
        if self.passed_over_ticks < due_ticks {
            return None;
        }
        let below = self.queued.keys().filter(|key| key.level > first.level);
        let longest = *below.min_by_key(|key| key.number)?;
        self.passed_over_ticks -= due_ticks;
        Some(longest)
    }
}
