//! The queue with processes of several virtual CPUs, on harts that run what it chooses.

extern crate std;

use std::sync::Mutex;

use alloc::vec::Vec;
use proptest::prelude::*;

use super::*;
use crate::priority::AtomicPriority;

const SLICE: u64 = 1000;
const LEVEL: Priority = Priority::DEFAULT;

struct Process {
    vruntime: Vruntime,
    divisor: u32,
    lines: Lines,
    ends: Mutex<Ends<Cpu>>,
}

struct Cpu {
    process: Arc<Process>,
    number: usize,
    /// The level of what it could run.
    urgency: AtomicPriority,
    /// Its next levels, each after one look.
    later: Mutex<Vec<Priority>>,
    /// The level of the poll in which it was stopped.
    polls: AtomicPriority,
    /// The level with which it was made runnable.
    priority: AtomicPriority,
    place: Mutex<Place<Self>>,
}

impl Member for Cpu {
    fn urgency(&self) -> Priority {
        let now = self.urgency.load();
        if let Some(next) = self.later.lock().unwrap().pop() {
            self.urgency.store(next);
        }
        now
    }

    fn may_rise(&self) -> bool {
        true
    }

    fn must_end_less_urgent(&self, priority: Priority) -> bool {
        priority.is_more_urgent_than(self.polls.load())
    }

    fn priority(&self) -> Priority {
        self.priority.load()
    }

    fn set_priority(&self, priority: Priority) {
        self.priority.store(priority);
    }

    fn vruntime(&self) -> &Vruntime {
        &self.process.vruntime
    }

    fn divisor(&self) -> u32 {
        self.process.divisor
    }

    fn lines(&self) -> &Lines {
        &self.process.lines
    }

    fn with_place<R>(&self, act: impl FnOnce(&mut Place<Self>) -> R) -> R {
        act(&mut self.place.lock().unwrap())
    }

    fn with_ends<R>(&self, act: impl FnOnce(&mut Ends<Self>) -> R) -> R {
        act(&mut self.process.ends.lock().unwrap())
    }
}

/// A queue, and what the harts have taken out of it.
struct Machine {
    queue: Queue<Cpu>,
    cpus: Vec<Arc<Cpu>>,
    /// Ticks that each virtual CPU has run.
    ran: Vec<u64>,
    share: u32,
}

/// What a hart runs.
type Held = (Arc<Cpu>, Slice);

fn level(level: u8) -> Priority {
    Priority::new(level).unwrap()
}

impl Machine {
    /// Processes with these divisors and numbers of virtual CPUs, none of which is in the queue.
    fn new(processes: &[(u32, usize)]) -> Self {
        let mut cpus = Vec::new();
        for &(divisor, count) in processes {
            let process = Arc::new(Process {
                vruntime: Vruntime::of_child(None, 0),
                divisor,
                lines: Lines::new(),
                ends: Mutex::new(Ends::try_new().unwrap()),
            });
            for _ in 0..count {
                cpus.push(Arc::new(Cpu {
                    process: process.clone(),
                    number: cpus.len(),
                    urgency: AtomicPriority::new(LEVEL),
                    later: Mutex::new(Vec::new()),
                    polls: AtomicPriority::new(Priority::MOST_URGENT),
                    priority: AtomicPriority::new(LEVEL),
                    place: Mutex::new(Place::try_new().unwrap()),
                }));
            }
        }
        let ran = alloc::vec![0; cpus.len()];
        Self { queue: Queue::new(), cpus, ran, share: 0 }
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        let is_first = |number: usize| {
            number == 0 || !Arc::ptr_eq(&self.cpus[number].process, &self.cpus[number - 1].process)
        };
        let numbers = (0..self.cpus.len()).filter(move |&number| is_first(number));
        numbers.map(|number| &*self.cpus[number].process)
    }

    fn enter(&mut self, number: usize) -> Position {
        let cpu = self.cpus[number].clone();
        cpu.set_priority(cpu.urgency());
        self.queue.insert(cpu, SLICE)
    }

    fn enter_all(&mut self) {
        (0..self.cpus.len()).for_each(|number| _ = self.enter(number));
    }

    fn set_urgency(&self, number: usize, urgency: Priority) {
        self.cpus[number].urgency.store(urgency);
    }

    fn choose(&mut self) -> Option<Held> {
        self.queue.choose(self.share, SLICE, 1)
    }

    /// A hart takes the next one. Returns its number as well.
    fn take(&mut self) -> (usize, Held) {
        let held = self.choose().unwrap();
        (held.0.number, held)
    }

    /// What a hart has held ran for `ticks`, at most its slice, and does not want more.
    fn end(&mut self, (cpu, mut slice): Held, ticks: u64) {
        let ticks = ticks.min(slice.remaining_ticks());
        slice.begin(0);
        slice.pause(ticks);
        cpu.process.vruntime.end(&slice);
        self.ran[cpu.number] += ticks;
        self.queue.use_ticks(ticks);
        if self.share > 0 && !slice.is_granted() && !self.queue.is_empty() {
            self.queue.pass_over(ticks);
        }
    }

    /// What a hart has held ran for `ticks`, at most its slice, and goes back into the queue.
    fn requeue(&mut self, held: Held, ticks: u64) {
        let number = held.0.number;
        self.end(held, ticks);
        self.enter(number);
    }

    /// A hart takes the next one, which runs for `ticks`, at most a slice. Returns its number.
    fn run_next(&mut self, ticks: u64) -> usize {
        let (number, held) = self.take();
        self.requeue(held, ticks);
        number
    }
}

#[test]
fn the_order_is_by_level_then_by_time_then_by_arrival() {
    let mut machine = Machine::new(&[(1, 1); 5]);
    machine.set_urgency(3, level(4));
    machine.set_urgency(4, level(3));
    machine.cpus[0].process.vruntime.add(10);
    machine.enter_all();
    assert_eq!(machine.queue.levels(), LEVEL.bit() | level(3).bit() | level(4).bit());
    assert_eq!(machine.queue.most_urgent(), Some(level(3)));
    assert_eq!(machine.queue.count_as_urgent(level(4), 10), 2);
    assert_eq!(machine.queue.count_as_urgent(LEVEL, 3), 3);
    let order: Vec<usize> =
        core::iter::from_fn(|| machine.choose()).map(|held| held.0.number).collect();
    assert_eq!(order, [4, 3, 1, 2, 0]);
    assert!(machine.queue.is_empty() && machine.queue.levels() == 0);
}

/// What a switch costs does not depend on how many threads wait.
#[test]
fn a_line_has_one_place_in_the_tree() {
    let mut machine = Machine::new(&[(1, 300), (1, 2)]);
    machine.set_urgency(301, level(4));
    machine.enter_all();
    assert_eq!((machine.queue.fronts.len(), machine.queue.length), (3, 302));
    machine.run_next(1);
    machine.run_next(1);
    assert_eq!((machine.queue.fronts.len(), machine.queue.length), (3, 302));
}

#[test]
fn a_withdrawn_one_is_not_chosen_and_a_raised_one_is_first() {
    let mut machine = Machine::new(&[(1, 1); 3]);
    machine.enter_all();
    let (first, last) = (machine.cpus[0].clone(), machine.cpus[2].clone());
    assert!(machine.queue.withdraw(&first).is_some());
    assert!(machine.queue.withdraw(&first).is_none());
    machine.set_urgency(2, level(9));
    assert!(machine.queue.raise(&last, LEVEL, SLICE).is_none(), "it has this level");
    let place = machine.queue.raise(&last, level(9), SLICE);
    assert_eq!(place.map(|place| place.priority), Some(level(9)));
    assert!(machine.queue.raise(&first, level(9), SLICE).is_none(), "it is not in the queue");
    assert_eq!((machine.take().0, machine.take().0, machine.choose().is_none()), (2, 1, true));
}

/// A process that polls for what its sibling does must not hold that up.
#[test]
fn one_that_yields_at_once_does_not_pass_a_woken_sibling_over() {
    let mut machine = Machine::new(&[(1, 2), (1, 1)]);
    machine.enter(0);
    for round in 0..100 {
        let (number, held) = machine.take();
        assert_eq!(number, 0);
        // It wakes its sibling, and yields.
        machine.enter(1);
        machine.requeue(held, 1);
        let (number, held) = machine.take();
        assert_eq!(number, 1, "round {round}");
        machine.end(held, 1);
    }
}

#[test]
fn a_process_that_runs_nowhere_comes_before_one_that_runs_on_another_hart() {
    let mut machine = Machine::new(&[(1, 3), (1, 3)]);
    machine.enter_all();
    let mut held = Vec::new();
    let mut order = Vec::new();
    for _ in 0..4 {
        let (number, one) = machine.take();
        order.push(number);
        held.push(one);
    }
    assert_eq!(order, [0, 3, 1, 4]);
}

#[test]
fn what_a_process_is_charged_while_it_waits_counts() {
    let mut machine = Machine::new(&[(1, 2), (1, 1)]);
    machine.enter_all();
    machine.cpus[0].process.vruntime.add(SLICE as i64 / 2);
    assert_eq!([machine.take().0, machine.take().0, machine.take().0], [2, 0, 1]);
}

/// As if it had been the front when the others began their slices.
#[test]
fn the_next_of_a_line_does_not_pay_for_slices_that_are_not_used() {
    let mut machine = Machine::new(&[(1, 3), (1, 1)]);
    (0..3).for_each(|number| _ = machine.enter(number));
    let held = [machine.take().1, machine.take().1];
    held.into_iter().for_each(|held| machine.end(held, 1));
    machine.cpus[3].process.vruntime.add(SLICE as i64 / 8);
    machine.enter(3);
    assert_eq!([machine.take().0, machine.take().0], [2, 3]);
}

#[test]
fn one_that_has_lost_its_urgency_is_chosen_by_the_current_one() {
    let mut machine = Machine::new(&[(1, 1); 3]);
    machine.set_urgency(0, level(1));
    machine.set_urgency(1, level(2));
    machine.enter_all();
    machine.set_urgency(0, level(50));
    assert_eq!([machine.take().0, machine.take().0, machine.take().0], [1, 2, 0]);
}

/// Of a process's workers that could run what waits, one that was stopped within a less urgent poll
/// would end that first.
#[test]
fn a_worker_that_can_run_it_now_comes_before_one_that_must_end_a_less_urgent_poll() {
    let mut machine = Machine::new(&[(1, 5), (1, 1)]);
    for number in [0, 1, 3] {
        machine.cpus[number].polls.store(level(60));
    }
    machine.enter_all();
    let order: Vec<usize> = (0..3).map(|_| machine.run_next(SLICE)).collect();
    assert_eq!(order, [2, 5, 4], "the other process gets its turn");
}

/// The one that is preferred may wait for what the other does, within a poll that does not end.
#[test]
fn a_worker_within_a_less_urgent_poll_gets_a_turn_after_a_slice() {
    let mut machine = Machine::new(&[(1, 2)]);
    machine.cpus[0].polls.store(level(60));
    machine.enter_all();
    let order: Vec<usize> = (0..7).map(|_| machine.run_next(SLICE / 2)).collect();
    assert_eq!(order, [1, 1, 0, 1, 1, 1, 0], "the front is not passed over at first");
}

/// If each has such a poll to end, a preemption does not let another one begin with its own.
#[test]
fn of_workers_that_must_end_a_less_urgent_poll_the_last_one_continues() {
    let mut machine = Machine::new(&[(1, 4)]);
    machine.cpus.iter().for_each(|cpu| cpu.polls.store(level(60)));
    machine.enter_all();
    let order: Vec<usize> = (0..3).map(|_| machine.run_next(1)).collect();
    assert_eq!(order, [3, 3, 3]);
    machine.cpus[3].polls.store(LEVEL);
    machine.cpus[1].polls.store(LEVEL);
    assert_eq!([machine.run_next(1), machine.run_next(1)], [1, 3], "in the order of arrival");
}

/// The places of some virtual CPUs, for [`Queue::raise_all`].
fn some(machine: &Machine, numbers: [usize; 4]) -> [Option<Arc<Cpu>>; 6] {
    let mut cpus = [const { None }; 6];
    for (place, number) in cpus.iter_mut().zip(numbers) {
        *place = Some(machine.cpus[number].clone());
    }
    cpus
}

#[test]
fn those_that_are_raised_together_keep_their_order() {
    // Process 0 has lines at two levels; 4 is urgent already, 5 is not in the queue.
    let mut machine = Machine::new(&[(1, 6), (1, 1)]);
    for (number, at) in [(3, 40), (0, 50), (1, 40), (2, 50), (4, 5)] {
        machine.set_urgency(number, level(at));
        machine.enter(number);
    }
    machine.set_urgency(6, level(45));
    machine.enter(6);
    let cpus = some(&machine, [0, 1, 2, 4]);
    for number in [0, 1, 2] {
        machine.set_urgency(number, level(10));
    }
    let raised = machine.queue.raise_all(&cpus, level(10), SLICE);
    assert_eq!(raised.map(|(count, position)| (count, position.priority)), Some((3, level(10))));
    assert_eq!(
        machine.queue.levels(),
        level(5).bit() | level(10).bit() | level(40).bit() | level(45).bit()
    );
    assert!([0, 1, 2].iter().all(|&number| machine.cpus[number].priority.load() == level(10)));
    assert_eq!(machine.queue.raise_all(&cpus, level(10), SLICE), None, "they are that urgent");
    let order: Vec<usize> = (0..6).map(|_| machine.take().0).collect();
    assert_eq!(order, [4, 0, 1, 2, 3, 6], "by arrival; 3 was not among them");
    assert!(machine.queue.is_empty());
    assert_eq!(machine.queue.raise_all(&cpus, level(1), SLICE), None, "none is in the queue");
}

/// The order by arrival decides which one continues.
#[test]
fn of_those_that_are_raised_together_the_last_one_continues() {
    let mut machine = Machine::new(&[(1, 4)]);
    machine.cpus.iter().for_each(|cpu| cpu.polls.store(level(60)));
    for number in [2, 3, 0, 1] {
        machine.enter(number);
    }
    let cpus = some(&machine, [0, 1, 2, 3]);
    (0..4).for_each(|number| machine.set_urgency(number, level(3)));
    machine.queue.raise_all(&cpus, level(3), SLICE).unwrap();
    assert_eq!(machine.take().0, 1);
}

#[test]
fn a_line_that_has_lost_its_urgency_is_lowered_at_once_in_its_order() {
    let mut machine = Machine::new(&[(1, 4), (1, 1)]);
    machine.cpus.iter().for_each(|cpu| cpu.urgency.store(level(9)));
    (0..4).for_each(|number| _ = machine.enter(number));
    machine.set_urgency(4, level(30));
    machine.enter(4);
    // What they wait for is over, except for the last one.
    for (number, at) in [(0, 40), (1, 50), (2, 40)] {
        machine.set_urgency(number, level(at));
    }
    assert_eq!(machine.take().0, 3, "it is still urgent");
    assert_eq!(machine.queue.levels(), level(30).bit() | level(40).bit() | level(50).bit());
    let order: Vec<usize> = (0..4).map(|_| machine.take().0).collect();
    assert_eq!(order, [4, 0, 2, 1]);
}

#[test]
fn one_that_is_still_urgent_does_not_arrive_again_when_its_line_is_lowered() {
    let mut machine = Machine::new(&[(1, 2), (1, 1)]);
    (0..3).for_each(|number| machine.set_urgency(number, level(9)));
    (0..3).for_each(|number| _ = machine.enter(number));
    machine.set_urgency(0, level(40));
    let order: Vec<usize> = (0..3).map(|_| machine.take().0).collect();
    assert_eq!(order, [1, 2, 0], "1 was there before 2");
}

/// A choice is short, whatever the length of a line.
#[test]
fn a_choice_lowers_a_few_of_a_long_line() {
    let mut machine = Machine::new(&[(1, 30), (1, 1)]);
    (0..30).for_each(|number| machine.set_urgency(number, level(9)));
    (0..30).for_each(|number| _ = machine.enter(number));
    machine.set_urgency(30, level(10));
    machine.enter(30);
    (0..30).for_each(|number| machine.set_urgency(number, level(40)));
    machine.take();
    let lowered = |cpu: &&Arc<Cpu>| cpu.priority.load() == level(40);
    let count = machine.cpus.iter().filter(lowered).count();
    assert_eq!(count, LOOKS_MAX / 2);
}

/// What another hart does between the look at the urgency and the insertion is not lost.
#[test]
fn one_that_becomes_more_urgent_while_it_is_inserted_is_placed_by_that() {
    let mut machine = Machine::new(&[(1, 2)]);
    machine.set_urgency(0, level(40));
    *machine.cpus[0].later.lock().unwrap() = alloc::vec![level(3), level(20)];
    assert_eq!(machine.enter(0).priority, level(3), "after two more looks");
    let lines = &machine.cpus[0].process.lines;
    assert!(lines.any_less_urgent_than(level(2)) && !lines.any_less_urgent_than(level(3)));

    // A choice that corrects its place does the same.
    machine.set_urgency(0, level(40));
    *machine.cpus[0].later.lock().unwrap() = alloc::vec![level(5)];
    machine.set_urgency(1, level(10));
    machine.enter(1);
    assert_eq!(machine.take().0, 0, "it has lost its urgency, and got another one");
    assert_eq!(machine.cpus[0].priority.load(), level(5));
}

/// Whatever it has been charged, and whatever others have: the same as if it had waited.
fn is_handed_over_as_if_it_had_waited(charges: [i64; 3], level_of_one: Priority) {
    let [mut handed, mut chosen] = [(), ()].map(|()| {
        let mut machine = Machine::new(&[(1, 1), (3, 1), (1, 1)]);
        for (number, charge) in charges.into_iter().enumerate() {
            machine.cpus[number].process.vruntime.add(charge);
        }
        machine.set_urgency(1, level_of_one);
        machine.enter(0);
        machine.run_next(7);
        let (_, held) = machine.take();
        machine.end(held, 3);
        machine
    });
    let cpu = handed.cpus[1].clone();
    cpu.set_priority(cpu.urgency());
    let slice = handed.queue.hand_over(&cpu, SLICE).unwrap();
    chosen.enter(1);
    let (number, (other, other_slice)) = chosen.take();
    assert_eq!(number, 1);
    assert_eq!(slice.remaining_ticks(), other_slice.remaining_ticks());
    assert_eq!((slice.divisor(), slice.is_granted()), (3, false));
    let [one, two] = [&cpu, &other].map(|cpu| {
        let vruntime = &cpu.process.vruntime;
        (vruntime.now(), vruntime.open_slices(), cpu.priority())
    });
    assert_eq!(one, two);
    // What comes later is compared with it in the same way.
    handed.end((cpu, slice), 5);
    chosen.end((other, other_slice), 5);
    assert_eq!(handed.enter(2), chosen.enter(2));
}

#[test]
fn one_that_is_handed_over_gets_what_it_would_have_got_by_waiting() {
    for charges in [[0, 0, 0], [5, 900, 0], [40, -7, 3000], [0, 50_000, 1]] {
        for level_of_one in [LEVEL, level(3), level(60)] {
            is_handed_over_as_if_it_had_waited(charges, level_of_one);
        }
    }
}

#[test]
fn none_is_handed_over_while_others_wait() {
    let mut machine = Machine::new(&[(1, 1); 2]);
    machine.enter(0);
    let second = machine.cpus[1].clone();
    assert!(machine.queue.hand_over(&second, SLICE).is_none());
    assert!(!second.process.lines.any_less_urgent_than(level(0)), "nothing is left of the attempt");
    let (_, held) = machine.take();
    machine.end(held, 1);
    assert!(machine.queue.hand_over(&second, SLICE).is_some());
}

/// Until it is taken, others of its process find it, and what they have made ready in between is
/// not lost.
#[test]
fn one_that_is_handed_over_is_found_and_raised() {
    let mut machine = Machine::new(&[(1, 2)]);
    let cpu = machine.cpus[0].clone();
    cpu.set_priority(level(40));
    machine.set_urgency(0, level(3));
    assert!(machine.queue.hand_over(&cpu, SLICE).is_some());
    assert_eq!(cpu.priority(), level(3), "by a look after it could be found");
    let lines = &cpu.process.lines;
    assert!(lines.any_less_urgent_than(level(2)));
    // The next of its process waits in a line of its own.
    machine.set_urgency(1, level(3));
    machine.enter(1);
    assert_eq!(machine.take().0, 1);
    lines.end_hand_over();
    assert!(!lines.any_less_urgent_than(level(2)));
}

#[test]
fn a_slice_is_renewed_while_none_as_urgent_waits() {
    let mut machine = Machine::new(&[(1, 1); 2]);
    machine.enter_all();
    machine.set_urgency(0, level(9));
    let (number, (cpu, mut slice)) = machine.take();
    assert_eq!(number, 0);
    slice.begin(0);
    assert!(machine.queue.renew(level(9), &cpu.process.vruntime, &mut slice, SLICE, SLICE));
    assert_eq!(slice.whole_vruntime(), SLICE as i64);
    assert!(!machine.queue.renew(LEVEL, &cpu.process.vruntime, &mut slice, SLICE, SLICE));
    slice.pause(SLICE);
    cpu.process.vruntime.end(&slice);
    assert_eq!(cpu.process.vruntime.open_slices(), 0);
}

#[test]
fn the_less_urgent_get_their_share() {
    let mut machine = Machine::new(&[(1, 1); 3]);
    machine.share = 250;
    machine.set_urgency(0, level(9));
    machine.enter_all();
    (0..4000).for_each(|_| _ = machine.run_next(SLICE));
    let whole: u64 = machine.ran.iter().sum();
    let less = machine.ran[1] + machine.ran[2];
    assert!((240..=260).contains(&(less * 1000 / whole)), "{:?}", machine.ran);
    assert!(machine.ran[1].abs_diff(machine.ran[2]) <= 2 * SLICE, "{:?}", machine.ran);
}

/// A crowd that was urgent, and is not now, delays what is more urgent than it by some choices, of
/// which each corrects as many places as it can.
#[test]
fn a_crowd_that_was_urgent_is_corrected_by_a_few_choices() {
    const CROWD: usize = 40;
    let mut machine = Machine::new(&[(1, 1); CROWD + 1]);
    for number in 0..CROWD {
        machine.set_urgency(number, level(10));
    }
    machine.set_urgency(CROWD, level(30));
    machine.enter_all();
    for cpu in &machine.cpus[..CROWD] {
        cpu.urgency.store(level(40));
    }
    let choices = (1..).find(|_| machine.run_next(SLICE) == CROWD);
    // Each corrects five, and takes out one more.
    assert_eq!(choices, Some(CROWD.div_ceil(LOOKS_MAX / 2 + 1)));
}

fn urgency_of(cpu: &Arc<Cpu>) -> Priority {
    cpu.urgency()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Nothing that can run is passed over for ever, even if more places are out of date at each
    /// choice than it looks at, and a process has hundreds of virtual CPUs.
    #[test]
    fn each_one_runs(
        counts in prop::collection::vec(1..40usize, 1..20),
        stays in prop::collection::vec(0..2 * SLICE, 1..20),
        charge in 0..2 * SLICE,
    ) {
        let processes: Vec<_> = counts.iter().map(|&count| (1, count)).collect();
        let mut machine = Machine::new(&processes);
        machine.enter_all();
        // Processes have equal shares, so a virtual CPU waits for its siblings, and for as much
        // time of each other process, which is up to so many stays.
        let parts = slice::PARTS_MAX as usize + 1;
        let limit = parts * counts.len() * counts.iter().max().copied().unwrap_or(1);
        let mut last = alloc::vec![0; machine.cpus.len()];
        for (now, &stay) in (0..2 * limit).zip(stays.iter().cycle()) {
            let number = machine.run_next(stay.max(SLICE / slice::PARTS_MAX));
            prop_assert!(now - last[number] <= limit, "{} has waited since {}, now {}", number, last[number], now);
            last[number] = now;
            for process in machine.processes() {
                process.vruntime.add(charge as i64);
            }
        }
        prop_assert!(last.iter().all(|&then| then >= limit), "{:?}", last);
    }

    /// The virtual CPUs of a process take turns.
    #[test]
    fn siblings_come_in_the_order_of_arrival(
        counts in prop::collection::vec(1..40usize, 1..4),
        stays in prop::collection::vec(0..2 * SLICE, 1..20),
    ) {
        let processes: Vec<_> = counts.iter().map(|&count| (1, count)).collect();
        let mut machine = Machine::new(&processes);
        machine.enter_all();
        let mut expected: Vec<usize> = (0..machine.cpus.len()).collect();
        for &stay in stays.iter().cycle().take(400) {
            let number = machine.run_next(stay);
            let process = &machine.cpus[number].process;
            let is_sibling = |&other: &usize| Arc::ptr_eq(&machine.cpus[other].process, process);
            let at = expected.iter().position(is_sibling).unwrap();
            prop_assert_eq!(expected.remove(at), number);
            expected.push(number);
        }
    }

    /// Whichever leaves its line, wherever it stands, for another line or for good: the others keep
    /// their order.
    #[test]
    fn each_may_leave_its_line(
        steps in prop::collection::vec((0..8usize, 0..4u8, 0..4u8), 1..200),
    ) {
        let mut machine = Machine::new(&[(1, 8)]);
        // What waits, by level and then by arrival.
        let mut waiting: Vec<(u8, usize)> = Vec::new();
        for (number, what, at) in steps {
            let cpu = machine.cpus[number].clone();
            let place = waiting.iter().position(|&(_, other)| other == number);
            match what {
                0 => {
                    let found = machine.queue.withdraw(&cpu);
                    prop_assert_eq!(found.map(|found| found.number), place.map(|_| number));
                    place.map(|place| waiting.remove(place));
                }
                1 if !waiting.is_empty() => {
                    let (chosen, held) = machine.take();
                    machine.end(held, 1);
                    prop_assert_eq!(chosen, waiting.remove(0).1);
                }
                _ => {
                    if place.is_some_and(|place| waiting[place].0 <= at) {
                        continue;
                    }
                    machine.set_urgency(number, level(at));
                    if let Some(place) = place {
                        prop_assert!(machine.queue.raise(&cpu, level(at), SLICE).is_some());
                        waiting.remove(place);
                    } else {
                        machine.enter(number);
                    }
                    let behind = waiting.iter().filter(|&&(other, _)| other <= at).count();
                    waiting.insert(behind, (at, number));
                }
            }
            let levels = waiting.iter().fold(0, |levels, &(at, _)| levels | level(at).bit());
            prop_assert_eq!(machine.queue.levels(), levels);
            prop_assert_eq!(machine.queue.is_empty(), waiting.is_empty());
        }
        for (_, number) in waiting {
            prop_assert_eq!(machine.take().0, number);
        }
        prop_assert!(machine.choose().is_none());
    }

    /// Processes get time by their divisors, however many virtual CPUs they have and however these
    /// use their slices, on any number of harts that the processes can fill.
    #[test]
    fn processes_get_time_by_their_shares(
        processes in prop::collection::vec((1..8u32, 1..6usize), 2..6),
        stays in prop::collection::vec(1..SLICE, 100..400),
    ) {
        let mut machine = Machine::new(&processes);
        machine.enter_all();
        for &stay in &stays {
            machine.run_next(stay);
        }
        let mut first = 0;
        let times: Vec<u64> = processes.iter().map(|&(divisor, count)| {
            let ran: u64 = machine.ran[first..first + count].iter().sum();
            first += count;
            ran * u64::from(divisor)
        }).collect();
        let (least, greatest) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        let slice = SLICE * u64::from(processes.iter().map(|&(divisor, _)| divisor).max().unwrap());
        prop_assert!(greatest - least <= 2 * slice, "{:?} of {:?}", times, processes);
    }

    /// The one that is chosen is as urgent as any that waits, whatever the changes, as long as they
    /// are announced: one that gets more urgent is raised. A choice corrects only some places, so
    /// this is not so if more of them are out of date.
    #[test]
    fn nothing_more_urgent_waits(
        counts in prop::collection::vec(1..3usize, 1..4),
        steps in prop::collection::vec((0..12usize, 0..64u8, 0..SLICE), 1..200),
    ) {
        let processes: Vec<_> = counts.iter().map(|&count| (1, count)).collect();
        let mut machine = Machine::new(&processes);
        machine.enter_all();
        for (number, urgency, stay) in steps {
            let cpu = machine.cpus[number % machine.cpus.len()].clone();
            let urgency = level(urgency);
            cpu.urgency.store(urgency);
            machine.queue.raise(&cpu, urgency, SLICE);
            let looks = machine.cpus.iter().map(|cpu| if cpu.priority() == urgency_of(cpu) { 1 } else { 2 });
            let can_be_corrected = looks.sum::<usize>() <= LOOKS_MAX;
            let (chosen, held) = machine.take();
            let first = machine.cpus.iter().map(urgency_of).reduce(Priority::more_urgent_of);
            prop_assert!(!can_be_corrected || Some(urgency_of(&machine.cpus[chosen])) == first, "{}", chosen);
            machine.requeue(held, stay);
        }
    }
}
