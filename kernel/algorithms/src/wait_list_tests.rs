//! The list compared with a model, and the baton in every interleaving of a small system.

extern crate std;

use std::collections::HashSet;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

struct Table(Vec<Node>);

impl Table {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| Node::new()).collect())
    }
}

impl Nodes for Table {
    fn node(&self, number: u32) -> &Node {
        &self.0[number as usize]
    }
}

fn priority(level: u8) -> Priority {
    Priority::new(level).unwrap()
}

const WAITERS: u32 = 12;

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert { number: u32, level: u8 },
    Remove { number: u32, ready: bool },
    One,
    All,
    Pass { number: u32 },
    Found { number: u32 },
    Stay { number: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0..WAITERS;
    prop_oneof![
        4 => (number(), 0..5u8).prop_map(|(number, level)| Step::Insert { number, level }),
        2 => (number(), any::<bool>()).prop_map(|(number, ready)| Step::Remove { number, ready }),
        2 => Just(Step::One),
        1 => Just(Step::All),
        1 => number().prop_map(|number| Step::Pass { number }),
        1 => number().prop_map(|number| Step::Found { number }),
        1 => number().prop_map(|number| Step::Stay { number }),
    ]
}

/// The list's specification: a sorted vector.
#[derive(Default)]
struct Model {
    /// Level and position within it; number; round.
    queued: Vec<((u8, i64), u32, u32)>,
    woken: Vec<(u32, bool)>,
    /// Those of the queued ones that stay.
    stay: HashSet<u32>,
    clock: i64,
    round: u32,
}

impl Model {
    fn take(&mut self, position: Option<usize>, in_round: bool) -> Option<u64> {
        let (_, number, _) = self.queued.remove(position?);
        self.stay.remove(&number);
        self.woken.push((number, in_round));
        Some(number.into())
    }

    fn first(&self) -> Option<usize> {
        (0..self.queued.len()).min_by_key(|&at| self.queued[at].0)
    }

    fn one(&mut self) -> Option<u64> {
        let first = self.first()?;
        let number = self.queued[first].1;
        if self.stay.contains(&number) {
            Some(number.into())
        } else {
            self.take(Some(first), false)
        }
    }

    fn next_of_round(&mut self) -> Option<u64> {
        let old = (0..self.queued.len()).filter(|&at| self.queued[at].2 < self.round);
        let at = old.min_by_key(|&at| self.queued[at].0);
        self.take(at, true)
    }

    fn forget(&mut self, number: u32) -> Option<bool> {
        let at = self.woken.iter().position(|&(woken, _)| woken == number)?;
        Some(self.woken.remove(at).1)
    }

    fn apply(&mut self, step: Step) -> Option<u64> {
        self.clock += 1;
        match step {
            Step::Insert { number, level } => {
                if let Some(at) = self.queued.iter().position(|&(_, queued, _)| queued == number) {
                    if self.queued[at].0.0 == level {
                        return None;
                    }
                    self.queued.remove(at);
                    self.stay.remove(&number);
                }
                let woken = self.forget(number);
                let is_front = woken == Some(false);
                let order = if is_front { -self.clock } else { self.clock };
                // As if it had waited as long as the one behind it.
                let behind = self.queued.iter().filter(|queued| is_front && queued.0.0 == level);
                let round = behind.min().map_or(self.round, |&(_, _, round)| round);
                self.queued.push(((level, order), number, round));
                if woken == Some(true) { self.next_of_round() } else { None }
            }
            Step::Remove { number, ready } => {
                self.queued.retain(|&(_, queued, _)| queued != number);
                let stayed = self.stay.remove(&number);
                match self.forget(number) {
                    Some(true) => self.next_of_round(),
                    Some(false) if ready => self.one(),
                    None if stayed && ready => self.one(),
                    _ => None,
                }
            }
            Step::Stay { number } => {
                if self.queued.iter().any(|&(_, queued, _)| queued == number) {
                    self.stay.insert(number);
                }
                None
            }
            Step::One => self.one(),
            Step::All => {
                self.round += 1;
                self.next_of_round()
            }
            Step::Pass { number } if self.stay.contains(&number) => {
                self.apply(Step::Remove { number, ready: true })
            }
            Step::Pass { number } => {
                match self.woken.iter().find(|&&(woken, _)| woken == number)?.1 {
                    true => self.next_of_round(),
                    false => self.one(),
                }
            }
            Step::Found { number } => {
                if !self.stay.contains(&number) {
                    let at = self.queued.iter().position(|&(_, queued, _)| queued == number);
                    self.take(at, false);
                }
                None
            }
        }
    }
}

proptest! {
    #[test]
    fn the_list_does_what_a_sorted_vector_would(steps in prop::collection::vec(step(), 1..200)) {
        let nodes = Table::new(WAITERS as usize);
        let (mut list, mut model) = (WaitList::new(), Model::default());
        for step in steps {
            let woken = match step {
                Step::Insert { number, level } => list.insert(&nodes, number, priority(level), number.into()),
                Step::Remove { number, ready } => list.remove(&nodes, number, ready),
                Step::One => list.wake_one(&nodes),
                Step::All => list.wake_all(&nodes),
                Step::Pass { number } => list.pass_on(&nodes, number),
                Step::Found { number } => {
                    list.found(&nodes, number);
                    None
                }
                Step::Stay { number } => {
                    list.stay(&nodes, number);
                    None
                }
            };
            prop_assert_eq!(woken, model.apply(step), "{:?}", step);
            prop_assert_eq!(list.is_empty(), model.queued.is_empty());
        }
    }
}

#[test]
fn one_that_comes_back_to_the_front_hides_none_from_a_round() {
    let nodes = Table::new(3);
    let mut list = WaitList::new();
    let insert =
        |list: &mut WaitList, number: u32| list.insert(&nodes, number, priority(1), number.into());
    for number in 0..3 {
        assert_eq!(insert(&mut list, number), None);
    }
    assert_eq!(list.wake_one(&nodes), Some(0));
    assert_eq!(list.wake_all(&nodes), Some(1));
    assert_eq!(insert(&mut list, 0), None);
    assert_eq!(list.remove(&nodes, 1, false), Some(0), "the one in front is woken once more");
    assert_eq!(list.remove(&nodes, 0, false), Some(2), "and so is the one behind it");
}

#[test]
fn a_wake_takes_the_same_number_of_steps_however_many_wait() {
    struct Counting(Vec<Node>, core::cell::Cell<usize>);
    impl Nodes for Counting {
        fn node(&self, number: u32) -> &Node {
            self.1.set(self.1.get() + 1);
            &self.0[number as usize]
        }
    }
    const COUNT: u32 = 30_000;
    let nodes = Counting((0..COUNT).map(|_| Node::new()).collect(), Default::default());
    let mut list = WaitList::new();
    let mut most = 0;
    let mut measured = |list: &mut WaitList, operation: &dyn Fn(&mut WaitList) -> Option<u64>| {
        nodes.1.set(0);
        let woken = operation(list);
        most = nodes.1.get().max(most);
        woken
    };
    for number in 0..COUNT {
        let level = (number % 64) as u8;
        assert_eq!(
            measured(&mut list, &|list| list.insert(
                &nodes,
                number,
                priority(level),
                number.into()
            )),
            None
        );
    }
    let mut woken = measured(&mut list, &|list| list.wake_all(&nodes));
    let mut count = 0;
    while let Some(number) = woken {
        count += 1;
        woken = measured(&mut list, &|list| list.remove(&nodes, number as u32, true));
    }
    assert_eq!(count, COUNT);
    // Each of the 64 levels visited twice, and the neighbours.
    assert!(most <= 64 * 2 + 12, "{most} nodes looked at in one operation");
}

// ---- every interleaving -------------------------------------------------------------------

/// A pipe or a socket with three readers, two of which can be cancelled, and a writer that writes
/// byte after byte and then closes. The first reader may be one that stays: it reads again and
/// again, as long as it leaves nothing. A state contains everything that the next step depends on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    /// Whether an event is announced: for a socket only once after each registration.
    is_registered: bool,
    is_socket: bool,
    /// The last reader leaves what it finds to the others: its buffer is full.
    last_takes_nothing: bool,
    bytes: u8,
    to_write: u8,
    closed: bool,
    readers: Vec<Reader>,
    first_stays: bool,
    list: Contents,
}

/// The contents of a list of four waiters.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Contents {
    first: u32,
    /// State and links of each node, without those that mean nothing.
    nodes: [(u8, [u32; 4]); 4],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Reader {
    /// Has found the condition false and is about to be inserted.
    ToInsert,
    /// Is in the list and is about to register; then it checks, and once more if it was woken.
    ToRegister {
        awake: bool,
    },
    /// Is in the list and is about to check again.
    ToLook,
    /// Waits to be woken.
    Asleep,
    /// Has been woken and is about to check.
    Awake,
    /// Has its result and is about to be removed.
    Took,
    Done,
    Cancelled,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Call {
    Insert(u32),
    Remove(u32, bool),
    Found(u32),
    One,
    Stay(u32),
}

impl Contents {
    fn of(list: &WaitList, nodes: &Table) -> Self {
        let is_linked = |state| state == QUEUED || state == STAYS;
        let of_node = |number: usize| {
            let node = &nodes.0[number];
            let links = [&node.next, &node.previous, &node.next_level, &node.previous_level];
            let state = node.state.load(Relaxed);
            let links = links.map(|link| if is_linked(state) { link.load(Relaxed) } else { NONE });
            (state, links)
        };
        Self { first: list.first, nodes: [0, 1, 2, 3].map(of_node) }
    }

    /// A list with these contents.
    fn list(&self) -> (WaitList, Table) {
        let (mut list, nodes) = (WaitList::new(), Table::new(self.nodes.len()));
        list.first = self.first;
        for (number, (node, (state, links))) in nodes.0.iter().zip(&self.nodes).enumerate() {
            let places = [&node.next, &node.previous, &node.next_level, &node.previous_level];
            node.state.store(*state, Relaxed);
            node.priority.store(level_of(number as u32));
            node.wake.store(number as u64, Relaxed);
            for (place, link) in places.into_iter().zip(links) {
                place.store(*link, Relaxed);
            }
        }
        (list, nodes)
    }

    /// Makes the call. Returns the waiter that it wakes.
    fn call(&mut self, call: Call) -> Option<u64> {
        let (mut list, nodes) = self.list();
        let woken = match call {
            Call::Insert(number) => list.insert(&nodes, number, level_of(number), number.into()),
            Call::Remove(number, ready) => list.remove(&nodes, number, ready),
            Call::Found(number) => {
                list.found(&nodes, number);
                None
            }
            Call::One => list.wake_one(&nodes),
            Call::Stay(number) => {
                list.stay(&nodes, number);
                None
            }
        };
        *self = Self::of(&list, &nodes);
        woken
    }
}

fn level_of(number: u32) -> Priority {
    priority((number % 2) as u8)
}

impl World {
    fn call(&mut self, call: Call) {
        if let Some(number) = self.list.call(call) {
            let reader = &mut self.readers[number as usize];
            match *reader {
                // A wake of a running coroutine makes it check once more.
                Reader::Asleep | Reader::ToLook => *reader = Reader::Awake,
                Reader::ToRegister { .. } => *reader = Reader::ToRegister { awake: true },
                _ => {}
            }
        }
    }

    /// The writer has changed something.
    fn announce(&mut self) {
        if self.is_registered {
            self.is_registered = !self.is_socket;
            self.call(Call::One);
        }
    }

    fn is_ready(&self) -> bool {
        self.bytes > 0 || self.closed
    }

    /// Whether this reader is in the list and stays there.
    fn stays(&self, number: usize) -> bool {
        self.list.nodes[number].0 == STAYS
    }

    /// Reads a byte, or the end of the data.
    fn look(&mut self, number: usize) -> bool {
        if !self.is_ready() {
            return false;
        }
        if !(self.last_takes_nothing && number + 1 == self.readers.len()) {
            self.bytes = self.bytes.saturating_sub(1);
        }
        // One that stays looks at the same moment whether it has left something, and registers if
        // not: what arrives from now on wakes it. If it has, it leaves the list.
        let waits_on = self.stays(number) && !self.is_ready();
        self.is_registered |= waits_on;
        self.readers[number] = if waits_on { Reader::Asleep } else { Reader::Took };
        true
    }

    fn successors(&self) -> Vec<World> {
        let mut next = Vec::new();
        let mut add = |change: &dyn Fn(&mut World)| {
            let mut world = self.clone();
            change(&mut world);
            next.push(world);
        };
        if self.to_write > 0 {
            add(&|world| {
                world.to_write -= 1;
                world.bytes += 1;
                world.announce();
            });
        } else if !self.closed {
            add(&|world| {
                world.closed = true;
                world.announce();
            });
        }
        for number in 0..self.readers.len() {
            let id = number as u32;
            match self.readers[number] {
                Reader::ToInsert => add(&|world| {
                    world.readers[number] = Reader::ToRegister { awake: false };
                    world.call(Call::Insert(id));
                }),
                Reader::ToRegister { awake } => add(&|world| {
                    world.readers[number] = if awake { Reader::Awake } else { Reader::ToLook };
                    world.is_registered = true;
                }),
                Reader::ToLook | Reader::Awake => add(&|world| {
                    let awake = world.readers[number] == Reader::Awake;
                    if world.look(number) {
                        if world.readers[number] == Reader::Took {
                            world.call(Call::Found(id));
                        }
                    } else if awake && !world.stays(number) {
                        world.readers[number] = Reader::ToInsert;
                    } else {
                        world.readers[number] = Reader::Asleep;
                        world.is_registered |= world.stays(number);
                        if number == 0 && world.first_stays && !world.stays(0) {
                            world.call(Call::Stay(0));
                        }
                    }
                }),
                Reader::Took => add(&|world| {
                    // To ask a socket costs as much as an attempt.
                    let ready = world.is_socket || world.is_ready();
                    world.readers[number] = Reader::Done;
                    let ready = ready || world.stays(number);
                    world.call(Call::Remove(id, ready));
                }),
                Reader::Asleep | Reader::Done | Reader::Cancelled => {}
            }
            let can_cancel =
                matches!(self.readers[number], Reader::Asleep | Reader::Awake | Reader::ToInsert);
            if number < 2 && can_cancel {
                add(&|world| {
                    world.readers[number] = Reader::Cancelled;
                    world.call(Call::Remove(id, true));
                });
            }
        }
        next
    }
}

#[test]
fn no_interleaving_of_reads_writes_and_cancels_loses_a_wake() {
    for (is_socket, last_takes_nothing) in [(false, false), (true, false), (true, true)] {
        explore(is_socket, last_takes_nothing);
    }
}

fn explore(is_socket: bool, last_takes_nothing: bool) {
    let mut seen = HashSet::new();
    let world = |first_stays| World {
        is_registered: !is_socket,
        is_socket,
        last_takes_nothing,
        bytes: 0,
        to_write: 3,
        closed: false,
        readers: vec![Reader::ToInsert; 3],
        first_stays,
        list: Contents::of(&WaitList::new(), &Table::new(4)),
    };
    let mut todo = vec![world(false), world(true)];
    while let Some(world) = todo.pop() {
        let next = world.successors();
        let is_any = |which: &dyn Fn(&Reader) -> bool| world.readers.iter().any(which);
        let continues =
            is_any(&|reader| !matches!(reader, Reader::Asleep | Reader::Done | Reader::Cancelled));
        let is_lost = world.is_ready() && !continues && is_any(&|reader| *reader == Reader::Asleep);
        assert!(!is_lost, "a reader sleeps although there is something to read: {world:?}");
        for next in next {
            if seen.insert(next.clone()) {
                todo.push(next);
            }
        }
    }
    assert!(seen.len() > 1000, "{} states", seen.len());
}
