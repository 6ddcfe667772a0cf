//! Priority inheritance: exact priorities and numbers of polls on one worker, and random histories
//! against the rule.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex as PlainMutex};
use std::task::{Context, Poll, Waker};

use cops_executor::sync::*;
use cops_executor::*;
use proptest::prelude::*;

macro_rules! executor {
    ($number:literal) => {{
        static EXECUTOR: Executor = Executor::with_number($number);
        EXECUTOR.start_on_host(1).unwrap();
        &EXECUTOR
    }};
}

fn at_level(level: u8) -> Priority {
    Priority::new(level).unwrap()
}

/// What is leaked: kept, so that Miri takes it for what statics have.
static KEPT: PlainMutex<Vec<Box<dyn Any + Send>>> = PlainMutex::new(Vec::new());

/// Something for the program's lifetime.
fn leak<T: Send + Sync>(value: T) -> &'static T {
    let leaked: &'static T = Box::leak(Box::new(value));
    KEPT.lock().unwrap().push(Box::new(leaked));
    leaked
}

fn levels(ids: &[CoroutineId]) -> Vec<Option<u8>> {
    ids.iter().map(|&id| priority(id).map(Priority::level)).collect()
}

/// Locks `mutexes` one after the other, keeps them until `finish`, and unlocks them in the same
/// order, an event each.
async fn holder(mutexes: &'static [Mutex<()>], finish: &'static [Event]) {
    let mut guards = Vec::new();
    for mutex in mutexes {
        guards.push(mutex.lock().await);
    }
    for (event, guard) in finish.iter().zip(guards) {
        event.wait().await;
        drop(guard);
    }
}

fn mutexes<const COUNT: usize>() -> &'static [Mutex<()>; COUNT] {
    leak([const { Mutex::new(()) }; COUNT])
}

fn events<const COUNT: usize>() -> &'static [Event; COUNT] {
    leak([const { Event::new() }; COUNT])
}

/// Spawns and runs until nothing is ready.
fn start(
    executor: &Executor,
    future: impl Future<Output = ()> + Send + 'static,
    of: u8,
) -> CoroutineId {
    let id = executor.spawn(future, at_level(of)).unwrap();
    executor.run_until_stalled(0);
    id
}

/// As that of the crate; and what follows from it for other coroutines has been done when this
/// returns. If another test uses the table of contended mutexes at this moment, it does that before
/// it unlocks the table, so this locks the table once.
fn set_priority(id: CoroutineId, priority: Priority) -> bool {
    let changed = cops_executor::set_priority(id, priority);
    let mutex = Mutex::new(());
    let _held = mutex.try_lock();
    let mut waits = pin!(mutex.lock());
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    changed
}

#[test]
fn a_chain_of_three_is_raised_and_lowered() {
    let executor = executor!(10);
    let ([one, two], events) = (mutexes::<2>(), events::<3>());
    let low = start(executor, holder(std::slice::from_ref(one), &events[..1]), 50);
    // Holds the second, waits for the first.
    let middle = async {
        let _second = two.lock().await;
        let _first = one.lock().await;
        events[1].wait().await;
    };
    let middle = start(executor, middle, 40);
    assert_eq!(levels(&[low, middle]), [Some(40), Some(40)]);
    let urgent = async {
        let _second = two.lock().await;
        events[2].wait().await;
    };
    let urgent = start(executor, urgent, 3);
    assert_eq!(levels(&[low, middle, urgent]), [Some(3), Some(3), Some(3)]);
    assert_eq!(base_priority(low), Some(at_level(50)));
    events[0].set();
    executor.run(0, 1);
    // The low one has unlocked, in its last poll.
    assert_eq!(levels(&[low, middle, urgent]), [None, Some(3), Some(3)]);
    executor.run_until_stalled(0);
    events[1].set();
    executor.run_until_stalled(0);
    assert_eq!(levels(&[middle, urgent]), [None, Some(3)]);
    events[2].set();
    executor.run_until_stalled(0);
    assert_eq!(executor.live_count(), 0);
    assert!(!one.is_locked() && !two.is_locked());
}

#[test]
fn of_several_mutexes_the_most_urgent_waiter_counts() {
    let executor = executor!(11);
    let (mutexes, events) = (mutexes::<3>(), events::<3>());
    let id = start(executor, holder(mutexes, events), 60);
    for (mutex, of) in mutexes.iter().zip([20, 10, 30]) {
        start(executor, async { drop(mutex.lock().await) }, of);
    }
    let mut seen = Vec::new();
    for event in events {
        seen.extend(levels(&[id]));
        event.set();
        executor.run_until_stalled(0);
    }
    assert_eq!(seen, [Some(10), Some(10), Some(30)]);
    assert_eq!(executor.live_count(), 0);
}

#[test]
fn a_waiter_that_gives_up_or_changes_is_followed_at_once() {
    let executor = executor!(12);
    let (mutexes, events) = (mutexes::<1>(), events::<1>());
    let id = start(executor, holder(mutexes, events), 60);
    let lock = || async { drop(mutexes[0].lock().await) };
    let (one, two) = (start(executor, lock(), 10), start(executor, lock(), 20));
    let mut seen = levels(&[id]);
    set_priority(one, at_level(5));
    seen.extend(levels(&[id]));
    set_priority(one, at_level(40));
    seen.extend(levels(&[id]));
    cancel(two);
    executor.run_until_stalled(0);
    seen.extend(levels(&[id]));
    cancel(one);
    executor.run_until_stalled(0);
    seen.extend(levels(&[id]));
    assert_eq!(seen, [Some(10), Some(5), Some(20), Some(40), Some(60)]);
    events[0].set();
    executor.run_until_stalled(0);
    assert_eq!(executor.live_count(), 0);
}

#[test]
fn set_priority_on_a_holder_changes_what_it_goes_back_to() {
    let executor = executor!(13);
    let (mutexes, events) = (mutexes::<1>(), events::<2>());
    let keeper = async {
        let guard = mutexes[0].lock().await;
        events[0].wait().await;
        drop(guard);
        events[1].wait().await;
    };
    let id = start(executor, keeper, 60);
    start(executor, async { drop(mutexes[0].lock().await) }, 10);
    set_priority(id, at_level(50));
    assert_eq!((priority(id), base_priority(id)), (Some(at_level(10)), Some(at_level(50))));
    set_priority(id, at_level(4));
    assert_eq!((priority(id), base_priority(id)), (Some(at_level(4)), Some(at_level(4))));
    set_priority(id, at_level(55));
    assert_eq!(priority(id), Some(at_level(10)));
    events[0].set();
    executor.run_until_stalled(0);
    assert_eq!((priority(id), base_priority(id)), (Some(at_level(55)), Some(at_level(55))));
    events[1].set();
    executor.run_until_stalled(0);
    assert_eq!(executor.live_count(), 0);
}

#[test]
fn a_raised_holder_that_waits_for_permits_moves_up_there() {
    let executor = executor!(14);
    let (mutex, semaphore) = (leak(Mutex::new(())), leak(Semaphore::new(0)));
    let log = leak(PlainMutex::new(Vec::new()));
    let take = move |name: &'static str| async move {
        semaphore.acquire(1).await.forget();
        log.lock().unwrap().push(name);
    };
    start(executor, take("middle"), 30);
    let low = async move {
        let _guard = mutex.lock().await;
        take("low").await;
    };
    start(executor, low, 60);
    start(executor, async { drop(mutex.lock().await) }, 10);
    semaphore.add_permits(2);
    executor.run_until_stalled(0);
    assert_eq!(*log.lock().unwrap(), ["low", "middle"]);
}

#[test]
fn a_child_does_not_begin_with_what_its_parent_inherits() {
    let executor = executor!(15);
    let (mutex, event) = (leak(Mutex::new(())), leak(Event::new()));
    let child = leak(PlainMutex::new(None));
    let parent = async move {
        let _guard = mutex.lock().await;
        event.wait().await;
        let id = current().unwrap();
        assert_eq!(priority(id), Some(at_level(10)));
        *child.lock().unwrap() = executor.spawn_inheriting(std::future::pending()).ok();
    };
    start(executor, parent, 60);
    start(executor, async { drop(mutex.lock().await) }, 10);
    event.set();
    executor.run_until_stalled(0);
    assert_eq!(child.lock().unwrap().and_then(priority), Some(at_level(60)));
}

#[test]
fn a_deadlock_is_a_deadlock_and_nothing_worse() {
    let executor = executor!(16);
    let [one, two] = mutexes::<2>();
    let event = leak(Event::new());
    let grab = |first: &'static Mutex<()>, second: &'static Mutex<()>| async move {
        let _first = first.lock().await;
        event.wait().await;
        let _second = second.lock().await;
    };
    let ids = [start(executor, grab(one, two), 30), start(executor, grab(two, one), 40)];
    event.set();
    executor.run_until_stalled(0);
    let third = start(executor, async { drop(one.lock().await) }, 5);
    assert_eq!(levels(&ids), [Some(5), Some(5)]);
    cancel(third);
    executor.run_until_stalled(0);
    cancel(ids[0]);
    executor.run_until_stalled(0);
    assert_eq!(executor.live_count(), 0, "the other got both");
    assert!(!one.is_locked() && !two.is_locked());
}

/// What both kinds of lock have in common.
trait Lock: Send + Sync + 'static {
    fn with_lock<T: Future<Output = ()> + Send>(
        &self,
        section: T,
    ) -> impl Future<Output = ()> + Send;
}

impl Lock for Mutex<()> {
    async fn with_lock<T: Future<Output = ()> + Send>(&self, section: T) {
        let _guard = self.lock().await;
        section.await;
    }
}

/// A semaphore with one permit is a lock, and nothing records its holder.
impl Lock for Semaphore {
    async fn with_lock<T: Future<Output = ()> + Send>(&self, section: T) {
        let _permit = self.acquire(1).await;
        section.await;
    }
}

/// A low coroutine holds the lock for 10 polls, an urgent one wants it, a medium one computes for
/// 1,000 polls: how many of its polls the urgent one waits for.
fn polls_of_the_medium_one(executor: &Executor, lock: &'static impl Lock) -> u32 {
    let polls = leak(AtomicU32::new(0));
    let waited = leak(AtomicU32::new(u32::MAX));
    let low = lock.with_lock(async {
        for _ in 0..10 {
            yield_now().await;
        }
    });
    executor.spawn(low, Priority::LEAST_URGENT).unwrap();
    // It has the lock.
    executor.run(0, 1);
    let medium = async {
        for _ in 0..1_000 {
            polls.fetch_add(1, Relaxed);
            yield_now().await;
        }
    };
    executor.spawn(medium, Priority::DEFAULT).unwrap();
    let urgent = lock.with_lock(async { waited.store(polls.load(Relaxed), Relaxed) });
    executor.spawn(urgent, Priority::MOST_URGENT).unwrap();
    executor.run_until_stalled(0);
    assert_eq!((executor.live_count(), polls.load(Relaxed)), (0, 1_000));
    waited.load(Relaxed)
}

#[test]
fn inversion_with_and_without_inheritance() {
    let executor = executor!(17);
    let without = polls_of_the_medium_one(executor, leak(Semaphore::new(1)));
    let with = polls_of_the_medium_one(executor, leak(Mutex::new(())));
    assert_eq!((without, with), (1_000, 0));
}

const ACTORS: usize = 6;
const MUTEXES: usize = 4;

/// What an actor does at its next poll.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Lock, if it neither waits nor holds that one.
    Lock(usize, usize),
    Unlock(usize, usize),
    /// Drop the future that waits.
    GiveUp(usize),
    SetPriority(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (actor, mutex) = (0..ACTORS, 0..MUTEXES);
    prop_oneof![
        4 => (actor.clone(), mutex.clone()).prop_map(|(actor, mutex)| Step::Lock(actor, mutex)),
        3 => (actor.clone(), mutex).prop_map(|(actor, mutex)| Step::Unlock(actor, mutex)),
        1 => actor.clone().prop_map(Step::GiveUp),
        2 => (actor, 0..8_u8).prop_map(|(actor, of)| Step::SetPriority(actor, of)),
    ]
}

type Guard = MutexGuard<'static, ()>;
type Locking = Pin<Box<dyn Future<Output = Guard> + Send>>;

/// What a test sees of an actor.
#[derive(Default)]
struct Actor {
    told: Option<Step>,
    waits_for: Option<usize>,
    holds: [bool; MUTEXES],
}

/// A coroutine that performs the steps in `Actor::told`.
fn actor(
    mutexes: &'static [Mutex<()>; MUTEXES],
    shown: Arc<PlainMutex<Actor>>,
) -> impl Future<Output = ()> + Send {
    let mut waiting: Option<(usize, Locking)> = None;
    let mut guards: [Option<Guard>; MUTEXES] = [const { None }; MUTEXES];
    poll_fn(move |context| {
        let told = shown.lock().unwrap().told.take();
        match told {
            Some(Step::Lock(_, mutex)) if waiting.is_none() && guards[mutex].is_none() => {
                waiting = Some((mutex, Box::pin(mutexes[mutex].lock())));
            }
            Some(Step::Unlock(_, mutex)) => guards[mutex] = None,
            Some(Step::GiveUp(_)) => waiting = None,
            _ => {}
        }
        if let Some((mutex, lock)) = &mut waiting
            && let Poll::Ready(guard) = lock.as_mut().poll(context)
        {
            guards[*mutex] = Some(guard);
            waiting = None;
        }
        let mut shown = shown.lock().unwrap();
        shown.waits_for = waiting.as_ref().map(|(mutex, _)| *mutex);
        shown.holds = std::array::from_fn(|mutex| guards[mutex].is_some());
        Poll::Pending
    })
}

/// The rule, by repeating until nothing changes: the least fixed point, from the base priorities
/// up.
fn by_the_rule(bases: &[u8; ACTORS], actors: &[Arc<PlainMutex<Actor>>]) -> Vec<Option<u8>> {
    let mut levels = *bases;
    loop {
        let before = levels;
        for (waiter, mutex) in actors
            .iter()
            .enumerate()
            .filter_map(|(n, actor)| Some((n, actor.lock().unwrap().waits_for?)))
        {
            for holder in 0..ACTORS {
                if actors[holder].lock().unwrap().holds[mutex] {
                    levels[holder] = levels[holder].min(levels[waiter]);
                }
            }
        }
        if levels == before {
            return levels.map(Some).to_vec();
        }
    }
}

/// Whether actors wait for each other in a circle: what such a circle inherits may outlive its
/// cause.
fn is_circle(actors: &[Arc<PlainMutex<Actor>>]) -> bool {
    (0..ACTORS).any(|start| {
        let mut here = start;
        for _ in 0..ACTORS {
            let Some(mutex) = actors[here].lock().unwrap().waits_for else { return false };
            let Some(holder) = (0..ACTORS).find(|&n| actors[n].lock().unwrap().holds[mutex]) else {
                return false;
            };
            here = holder;
        }
        true
    })
}

static HISTORIES: Executor = Executor::with_number(18);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn random_histories_obey_the_rule(steps in proptest::collection::vec(step(), 1..60)) {
        // The first case starts it.
        let _ = HISTORIES.start_on_host(1);
        let mutexes = mutexes::<MUTEXES>();
        let mut bases = [32; ACTORS];
        let actors: Vec<_> = (0..ACTORS).map(|_| Arc::new(PlainMutex::new(Actor::default()))).collect();
        let ids: Vec<_> = actors.iter()
            .map(|shown| HISTORIES.spawn(actor(mutexes, shown.clone()), Priority::DEFAULT).unwrap())
            .collect();
        HISTORIES.run_until_stalled(0);
        for step in steps {
            match step {
                Step::SetPriority(actor, of) => {
                    bases[actor] = of * 9;
                    prop_assert!(set_priority(ids[actor], at_level(of * 9)));
                    // At once; no actor is polled in between.
                    if !is_circle(&actors) {
                        prop_assert_eq!(levels(&ids), by_the_rule(&bases, &actors));
                    }
                }
                Step::Lock(actor, _) | Step::Unlock(actor, _) | Step::GiveUp(actor) => {
                    actors[actor].lock().unwrap().told = Some(step);
                    prop_assert!(wake_up(ids[actor]));
                }
            }
            HISTORIES.run_until_stalled(0);
            if is_circle(&actors) {
                break;
            }
            prop_assert_eq!(levels(&ids), by_the_rule(&bases, &actors));
            for mutex in 0..MUTEXES {
                let holders = actors.iter().filter(|actor| actor.lock().unwrap().holds[mutex]).count();
                let waiters = actors.iter().filter(|actor| actor.lock().unwrap().waits_for == Some(mutex)).count();
                prop_assert!(holders == 1 || holders == 0 && waiters == 0);
            }
        }
        for id in ids {
            cancel(id);
        }
        HISTORIES.run_until_stalled(0);
        prop_assert_eq!(HISTORIES.live_count(), 0);
        prop_assert!(mutexes.iter().all(|mutex| !mutex.is_locked()));
    }
}
