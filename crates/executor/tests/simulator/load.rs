//! Work that arrives at random: jobs of one or more polls, and the connections that do them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::monitor::Key;
use super::random::Random;
use super::world::{Next, Report, World};

pub struct Job {
    pub at: u64,
    pub class: usize,
    /// How long each of its polls takes, in nanoseconds; it yields in between.
    pub polls: VecDeque<u64>,
}

/// A stream of jobs: when they come does not depend on any other stream, nor on the executor.
pub struct Stream {
    pub seed: u64,
    pub jobs: u64,
    /// Of the capacity of all workers, in percent.
    pub load: u64,
    /// The jobs fall into these classes, all alike.
    pub classes: std::ops::Range<usize>,
    pub shape: Shape,
}

#[derive(Clone, Copy)]
pub enum Shape {
    /// One to three polls of 5 to 15 microseconds.
    Mixed,
    /// One poll of 1 to 3 microseconds.
    Short,
    /// One to three polls of 5 to 15 microseconds, and of each hundred jobs one has a poll of
    /// 1,000.
    SometimesLong,
}

/// The longest poll of `Mixed`.
pub const LONGEST_MIXED: u64 = 15_000;
/// The longest poll of `SometimesLong`.
pub const LONGEST: u64 = 1_000_000;

impl Shape {
    pub fn mean_nanos(self) -> u64 {
        match self {
            Shape::Mixed => 20_000,
            Shape::Short => 2_000,
            Shape::SometimesLong => 30_000,
        }
    }

    fn draw(self, random: &mut Random) -> VecDeque<u64> {
        match self {
            Shape::Short => [random.between(1_000, 3_000)].into(),
            Shape::SometimesLong if random.below(100) == 0 => [LONGEST].into(),
            _ => (0..random.between(1, 3)).map(|_| random.between(5_000, LONGEST_MIXED)).collect(),
        }
    }
}

impl Stream {
    pub fn draw(&self, workers: usize) -> Vec<Job> {
        let mut random = Random::new(self.seed);
        let interval = self.shape.mean_nanos() * 100 / self.load / workers as u64;
        let mut at = 0;
        let mut job = |_| {
            at += random.interval(interval);
            let class =
                random.between(self.classes.start as u64, self.classes.end as u64 - 1) as usize;
            Job { at, class, polls: self.shape.draw(&mut random) }
        };
        (0..self.jobs).map(&mut job).collect()
    }
}

/// All streams as one.
pub fn merge(streams: impl IntoIterator<Item = Vec<Job>>) -> Vec<Job> {
    let mut jobs: Vec<Job> = streams.into_iter().flatten().collect();
    jobs.sort_by_key(|job| job.at);
    jobs
}

#[derive(Default)]
struct Office {
    /// By key: what the connection has to do.
    polls: Vec<VecDeque<u64>>,
    /// By class: connections that wait for a job.
    idle: Vec<Vec<Key>>,
}

/// Serves `jobs`, which wake an idle connection of their class if there is one, and spawn another
/// otherwise. `levels` are the classes' priorities.
pub fn serve(workers: usize, levels: &[u8], jobs: Vec<Job>) -> Report {
    let world = World::new(workers, levels.len());
    let office = Office { idle: vec![Vec::new(); levels.len()], ..Office::default() };
    let office = Arc::new(Mutex::new(office));
    world.play(
        |source| {
            for job in jobs {
                source.until(job.at);
                let idle = office.lock().unwrap().idle[job.class].pop();
                if let Some(key) = idle {
                    office.lock().unwrap().polls[key] = job.polls;
                    world.wake(key);
                } else {
                    office.lock().unwrap().polls.push(job.polls);
                    connect(world, &office, job.class, levels[job.class]);
                }
            }
        },
        |_| {
            let idle = std::mem::take(&mut office.lock().unwrap().idle);
            for key in idle.into_iter().flatten() {
                world.wake(key);
            }
        },
    )
}

fn connect(world: &'static World, office: &Arc<Mutex<Office>>, class: usize, level: u8) {
    let office = office.clone();
    world.spawn(class, level, move |turn| {
        let Some(cost) = office.lock().unwrap().polls[turn.key].pop_front() else {
            return Next::End;
        };
        turn.spend(cost);
        let mut office = office.lock().unwrap();
        if !office.polls[turn.key].is_empty() {
            return Next::Yield;
        }
        office.idle[class].push(turn.key);
        Next::Block
    });
}
