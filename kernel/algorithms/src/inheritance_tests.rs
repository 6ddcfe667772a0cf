extern crate std;

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

/// Threads by number: the level of each, and what it counts as.
struct World {
    base: Vec<Priority>,
    effective: Vec<Priority>,
}

impl World {
    fn new(levels: &[u8]) -> Self {
        let base: Vec<_> = levels.iter().map(|&at| level(at)).collect();
        Self { effective: base.clone(), base }
    }

    fn levels(&self) -> Vec<u8> {
        self.effective.iter().map(|at| at.level()).collect()
    }
}

type Table = Inheritance<usize, usize, u64>;

impl Key for usize {
    const FIRST: Self = 0;
}

impl Threads<usize> for World {
    fn base(&self, thread: usize) -> Priority {
        self.base[thread]
    }

    fn set_effective(&mut self, thread: usize, priority: Priority) {
        self.effective[thread] = priority;
    }
}

fn level(at: u8) -> Priority {
    Priority::new(at).unwrap()
}

fn wait(
    table: &mut Table,
    world: &mut World,
    thread: usize,
    lock: (usize, usize),
) -> Result<(), Refused> {
    table.wait(thread, lock, thread as u64 + 100, Places::try_new().unwrap(), world)
}

#[test]
fn an_owner_inherits_until_it_unlocks() {
    let (mut table, mut world) = (Table::new(), World::new(&[50, 20, 30]));
    wait(&mut table, &mut world, 2, (8, 0)).unwrap();
    assert_eq!(world.levels(), [30, 20, 30]);
    wait(&mut table, &mut world, 1, (8, 0)).unwrap();
    assert_eq!(world.levels(), [20, 20, 30]);
    assert_eq!(table.next(8), Some(Next { thread: 1, wake: 101, has_more: true }));
    table.hand_over(8, &mut world);
    assert_eq!((world.levels(), table.owner(8)), (Vec::from([50, 20, 30]), Some(1)));
    table.hand_over(8, &mut world);
    assert_eq!((table.next(8), table.is_empty()), (None, true));
}

#[test]
fn a_chain_is_followed_and_a_circle_refused() {
    let (mut table, mut world) = (Table::new(), World::new(&[60, 50, 40, 30]));
    wait(&mut table, &mut world, 1, (8, 0)).unwrap();
    wait(&mut table, &mut world, 2, (16, 1)).unwrap();
    wait(&mut table, &mut world, 3, (24, 2)).unwrap();
    assert_eq!(world.levels(), [30, 30, 30, 30]);
    assert_eq!(wait(&mut table, &mut world, 0, (32, 3)), Err(Refused::Deadlock));
    assert_eq!(wait(&mut table, &mut world, 0, (32, 0)), Err(Refused::Deadlock));
    // The last of the chain gives up: all others are what they were.
    table.leave(3, &mut world);
    assert_eq!(world.levels(), [40, 40, 40, 30]);
    world.base[2] = level(10);
    table.base_changed(2, &mut world);
    assert_eq!(world.levels(), [10, 10, 10, 30]);
}

#[test]
fn a_chain_has_a_limit() {
    let levels: Vec<u8> = (0..60).map(|number| 62 - number).collect();
    let (mut table, mut world) = (Table::new(), World::new(&levels));
    // Each of these waits looks at one owner only; the last one would have to look at all.
    for thread in 0..59 {
        wait(&mut table, &mut world, thread, (thread * 8, thread + 1)).unwrap();
    }
    assert_eq!(wait(&mut table, &mut world, 59, (1000, 0)), Err(Refused::Deadlock));
}

#[test]
fn a_forgotten_wait_changes_no_level() {
    let (mut table, mut world) = (Table::new(), World::new(&[50, 40, 30]));
    wait(&mut table, &mut world, 1, (8, 0)).unwrap();
    wait(&mut table, &mut world, 2, (8, 0)).unwrap();
    table.forget(2);
    assert_eq!(world.levels(), [30, 40, 30]);
    table.forget(1);
    assert!(table.is_empty() && table.owner(8).is_none() && table.lock_of(0).is_none());
    table.base_changed(0, &mut world);
    assert_eq!(world.levels(), [50, 40, 30]);
}

#[test]
fn another_owner_is_refused() {
    let (mut table, mut world) = (Table::new(), World::new(&[3, 2, 1]));
    wait(&mut table, &mut world, 1, (8, 0)).unwrap();
    assert_eq!(wait(&mut table, &mut world, 2, (8, 1)), Err(Refused::AnotherOwner));
    assert_eq!((table.lock_of(0), table.lock_of(1)), (Some(8), None));
}

const COUNT: usize = 8;

/// The same without indexes: the lock for which a thread waits, and the owner of each lock.
#[derive(Default)]
struct Model {
    waits: Vec<(usize, usize)>,
    owners: Vec<(usize, usize)>,
}

impl Model {
    fn owner(&self, address: usize) -> Option<usize> {
        self.owners.iter().find(|lock| lock.0 == address).map(|lock| lock.1)
    }

    fn effective(&self, thread: usize, base: &[Priority]) -> u8 {
        let of_lock = |address: usize| {
            let waiters = self.waits.iter().filter(move |wait| wait.1 == address);
            waiters.map(|wait| self.effective(wait.0, base)).min()
        };
        let owned = self.owners.iter().filter(|lock| lock.1 == thread);
        let inherited = owned.filter_map(|lock| of_lock(lock.0)).min();
        inherited.unwrap_or(63).min(base[thread].level())
    }

    fn leads_to(&self, from: usize, thread: usize) -> bool {
        let mut at = from;
        loop {
            if at == thread {
                return true;
            }
            let Some(wait) = self.waits.iter().find(|wait| wait.0 == at) else { return false };
            match self.owner(wait.1) {
                Some(owner) => at = owner,
                None => return false,
            }
        }
    }
}

proptest! {
    #[test]
    fn it_is_what_a_search_finds(
        levels in prop::collection::vec(0..64u8, COUNT),
        steps in prop::collection::vec((0..4u8, 0..COUNT, 0..5usize, 0..COUNT, 0..64u8), 0..150),
    ) {
        let (mut table, mut world) = (Table::new(), World::new(&levels));
        let mut model = Model::default();
        for (what, thread, address, owner, at) in steps {
            let waits = model.waits.iter().any(|wait| wait.0 == thread);
            match what {
                0 if !waits => {
                    let owner = model.owner(address).unwrap_or(owner);
                    let result = wait(&mut table, &mut world, thread, (address, owner));
                    if model.leads_to(owner, thread) {
                        prop_assert_eq!(result, Err(Refused::Deadlock));
                    } else {
                        prop_assert_eq!(result, Ok(()));
                        model.waits.push((thread, address));
                        if model.owner(address).is_none() {
                            model.owners.push((address, owner));
                        }
                    }
                }
                1 => {
                    let next = table.next(address);
                    let urgent = model.waits.iter().filter(|wait| wait.1 == address);
                    let urgent = urgent.map(|wait| model.effective(wait.0, &world.base)).min();
                    let found = next.map(|next| model.effective(next.thread, &world.base));
                    prop_assert_eq!(found, urgent);
                    table.hand_over(address, &mut world);
                    if let Some(next) = next {
                        model.waits.retain(|wait| wait.0 != next.thread);
                        model.owners.retain(|lock| lock.0 != address);
                        if next.has_more {
                            model.owners.push((address, next.thread));
                        }
                    }
                }
                2 => {
                    table.leave(thread, &mut world);
                    let left = model.waits.iter().find(|wait| wait.0 == thread).copied();
                    model.waits.retain(|wait| wait.0 != thread);
                    if let Some((_, address)) = left
                        && !model.waits.iter().any(|wait| wait.1 == address)
                    {
                        model.owners.retain(|lock| lock.0 != address);
                    }
                }
                3 => {
                    world.base[thread] = level(at);
                    table.base_changed(thread, &mut world);
                }
                _ => {}
            }
            let expected: Vec<u8> =
                (0..COUNT).map(|thread| model.effective(thread, &world.base)).collect();
            prop_assert_eq!(world.levels(), expected);
            prop_assert_eq!(table.is_empty(), model.waits.is_empty());
        }
    }
}
