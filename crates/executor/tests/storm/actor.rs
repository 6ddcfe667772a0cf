//! The coroutines: what they do to each other, and what each checks of itself.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::task::{Context, Poll};

use cops_executor::sync::Mutex;
use cops_executor::*;

use crate::mood::Mood;
use crate::order::Order;
use crate::stage::Stage;
use crate::{Random, require};

/// Actors at once; each has a seat by which the others find it.
const SEATS: usize = 96;
const MUTEXES: usize = 6;

#[derive(Default)]
struct Seat {
    id: AtomicU64,
    /// Given by others; an actor waits for the next one.
    tokens: AtomicU32,
    taken: AtomicBool,
}

/// What the actors of one round share.
pub struct World {
    stage: &'static Stage,
    pub mood: Mood,
    seats: [Seat; SEATS],
    mutexes: [Mutex<bool>; MUTEXES],
    order: Order,
    over: AtomicBool,
    begun: AtomicU64,
    dropped: AtomicU64,
}

/// What every coroutine here checks of itself.
struct Watched<F> {
    inner: Pin<Box<F>>,
    world: Arc<World>,
    seat: Option<usize>,
    polling: AtomicBool,
    finished: bool,
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        require(!self.polling.swap(true, SeqCst), "a coroutine is polled by one worker at a time");
        require(!self.finished, "a coroutine is never polled after its end");
        let stage = self.world.stage;
        self.world.order.poll_begins(stage, current_worker_of(stage.executor.number().unwrap()));
        let polled = self.inner.as_mut().poll(context);
        self.finished = polled.is_ready();
        require(self.polling.swap(false, SeqCst), "a coroutine is polled by one worker at a time");
        polled
    }
}

impl<F> Drop for Watched<F> {
    fn drop(&mut self) {
        require(!self.polling.load(SeqCst), "a coroutine is never dropped during its poll");
        self.world.dropped.fetch_add(1, SeqCst);
        if let Some(seat) = self.seat {
            require(
                self.world.seats[seat].taken.swap(false, SeqCst),
                "a coroutine is dropped once",
            );
        }
    }
}

impl World {
    pub fn new(stage: &'static Stage, mood: Mood) -> Arc<World> {
        Arc::new(World {
            stage,
            mood,
            seats: std::array::from_fn(|_| Seat::default()),
            mutexes: std::array::from_fn(|_| Mutex::new(false)),
            order: Order::new(),
            over: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }

    pub fn populate(self: &Arc<World>, seed: u64) {
        let world = self.clone();
        let urgent =
            poll_fn(move |_| if world.order.answer() { Poll::Ready(()) } else { Poll::Pending });
        self.order.set_urgent(self.stage.executor.spawn(urgent, Priority::MOST_URGENT).unwrap());
        // Once at least, however little this thread gets to do; the last wake is answered at the
        // end of the round.
        self.order.announce();
        for seat in 0..SEATS {
            self.seat_actor(seat, seed.wrapping_add(seat as u64));
        }
    }

    pub fn begun(&self) -> u64 {
        self.begun.load(SeqCst)
    }

    fn watched<F: Future>(self: &Arc<World>, seat: Option<usize>, inner: F) -> Watched<F> {
        self.begun.fetch_add(1, SeqCst);
        let (inner, world) = (Box::pin(inner), self.clone());
        Watched { inner, world, seat, polling: AtomicBool::new(false), finished: false }
    }

    /// Puts a new actor on a seat, if that is free.
    fn seat_actor(self: &Arc<World>, seat: usize, seed: u64) {
        if self.seats[seat].taken.swap(true, SeqCst) {
            return;
        }
        let mut random = Random(seed);
        let urgency = self.priority(&mut random);
        let actor = self.watched(Some(seat), act(self.clone(), seat, random));
        let id = self.stage.executor.spawn(actor, urgency).unwrap();
        self.seats[seat].id.store(id.raw(), SeqCst);
    }

    /// Seats that are empty, because an actor was cancelled, get another.
    pub fn refill(self: &Arc<World>, random: &mut Random) {
        for seat in 0..SEATS {
            self.seat_actor(seat, random.next());
        }
    }

    /// Level 0 is the urgent one's alone.
    fn priority(&self, random: &mut Random) -> Priority {
        let spread = 63 / self.mood.levels;
        Priority::saturating(1 + random.below(self.mood.levels as usize) as u32 * spread)
    }

    fn any_id(&self, random: &mut Random) -> Option<CoroutineId> {
        CoroutineId::from_raw(self.seats[random.below(SEATS)].id.load(SeqCst))
    }

    /// Makes one request of any kind.
    pub fn meddle(self: &Arc<World>, random: &mut Random) {
        let choice = random.below(64);
        match choice {
            0 => self.order.announce(),
            1 => {
                if let Some(id) = self.any_id(random) {
                    let _ = cancel(id);
                }
            }
            2..20 => {
                if let Some(id) = self.any_id(random) {
                    let _ = set_priority(id, self.priority(random));
                }
            }
            20..50 => {
                let seat = &self.seats[random.below(SEATS)];
                seat.tokens.fetch_add(1, SeqCst);
                if let Some(id) = CoroutineId::from_raw(seat.id.load(SeqCst)) {
                    let _ = wake_up(id);
                }
            }
            _ => {
                // A wake without a reason.
                if let Some(id) = self.any_id(random) {
                    let _ = wake_up(id);
                }
            }
        }
    }

    /// All shall end: each is woken once, after that was said.
    pub fn end(&self) {
        self.over.store(true, SeqCst);
        for seat in &self.seats {
            if let Some(id) = CoroutineId::from_raw(seat.id.load(SeqCst)) {
                let _ = wake_up(id);
            }
        }
        self.order.end();
    }

    pub fn balances(&self) {
        require(
            self.begun.load(SeqCst) == self.dropped.load(SeqCst),
            "as many were dropped as were begun",
        );
        require(self.mutexes.iter().all(|mutex| !mutex.is_locked()), "no mutex is held");
        require(self.order.rounds() > 0, "the urgent one was woken at all");
    }

    pub fn describe(&self) {
        self.stage.executor.coroutines().for_each(|left| eprintln!("left over: {left:?}"));
        for worker in 0..self.stage.workers {
            eprintln!("worker {worker}: {:?}", self.stage.records[worker as usize]);
        }
        eprintln!("at rest: {:?}", self.stage.executor.core().verify());
    }
}

/// What an actor does until it ends; `refill` puts another on its seat.
async fn act(world: Arc<World>, seat: usize, mut random: Random) {
    for _ in 0..random.below(400) {
        if world.over.load(SeqCst) {
            return;
        }
        match choose(&mut random, &world.mood.weights()) {
            0 => yield_now().await,
            1 => wait_for_token(&world, seat).await,
            2 => world.meddle(&mut random),
            3 => hold_mutexes(&world, &mut random).await,
            4 => {
                if let Some(me) = current() {
                    let _ = set_priority(me, world.priority(&mut random));
                }
            }
            5 => {
                let child = world.watched(None, yield_often(random.below(3)));
                let _ = world.stage.executor.spawn(child, world.priority(&mut random));
            }
            _ => join_child(&world, &mut random).await,
        }
    }
}

/// An index, as often as its weight says.
fn choose(random: &mut Random, weights: &[u32]) -> usize {
    let mut left = random.below(weights.iter().sum::<u32>() as usize) as u32;
    weights
        .iter()
        .position(|&weight| left.checked_sub(weight).map(|rest| left = rest).is_none())
        .unwrap_or(0)
}

async fn wait_for_token(world: &World, seat: usize) {
    let seat = &world.seats[seat];
    poll_fn(|_| {
        let had = seat.tokens.load(SeqCst) != 0;
        if had {
            seat.tokens.store(0, SeqCst);
        }
        if had || world.over.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// One mutex, or two in their order: the holder inherits from those that wait, through a chain.
async fn hold_mutexes(world: &World, random: &mut Random) {
    let first = random.below(MUTEXES);
    let outer = Release::take(world.mutexes[first].lock().await);
    let second = first + 1 + random.below(MUTEXES);
    if second < MUTEXES {
        let inner = Release::take(world.mutexes[second].lock().await);
        if random.below(2) == 0 {
            yield_now().await;
        }
        drop(inner);
    }
    for _ in 0..random.below(3) {
        yield_now().await;
    }
    drop(outer);
}

/// Marks the mutex free before it is unlocked, also when the holder is cancelled.
struct Release<'a>(sync::MutexGuard<'a, bool>);

impl<'a> Release<'a> {
    fn take(mut guard: sync::MutexGuard<'a, bool>) -> Release<'a> {
        require(!std::mem::replace(&mut *guard, true), "a mutex has one holder");
        Release(guard)
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        *self.0 = false;
    }
}

async fn yield_often(yields: usize) {
    for _ in 0..yields {
        yield_now().await;
    }
}

async fn yield_and_end(yields: usize, output: u64) -> u64 {
    yield_often(yields).await;
    output
}

/// Awaits a child's output, or cancels it, or leaves it.
async fn join_child(world: &Arc<World>, random: &mut Random) {
    let output = random.next();
    let child = world.watched(None, yield_and_end(random.below(3), output));
    let handle = world.stage.executor.spawn_join(child, world.priority(random)).unwrap();
    match random.below(3) {
        0 => {
            handle.abort();
            let _ = handle.await;
        }
        1 => match handle.await {
            Ok(joined) => require(joined == output, "a coroutine's output is its own"),
            Err(_) => require(false, "a coroutine that was not cancelled has an output"),
        },
        _ => drop(handle),
    }
}
