//! Those with which a service has to continue, the most urgent first and the oldest of a level.
//!
//! One that is enqueued again keeps its place, unless it has become more urgent. The memory for its
//! place belongs to it, so nothing is allocated when it is enqueued.

use core::mem::replace;

use cops_abi::Priority;
use cops_fallible::map::Spare;
use cops_fallible::{Map, OutOfMemory};

use super::priority::Rank;

type Key = (Rank, u64);

/// The place of a member, which has one.
#[derive(Debug)]
pub struct Place<M>(State<M>);

#[derive(Debug)]
enum State<M> {
    Idle(Spare<Key, M>),
    Waiting(Key),
}

impl<M> Place<M> {
    /// The place of a member that does not wait.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new() -> Result<Self, OutOfMemory> {
        Ok(Self(State::Idle(Spare::try_new()?)))
    }
}

/// Those that wait: see the module.
#[derive(Debug)]
pub struct Later<M> {
    members: Map<Key, M>,
    arrivals: u64,
}

impl<M> Default for Later<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> Later<M> {
    /// None waits.
    #[must_use]
    pub const fn new() -> Self {
        Self { members: Map::new(), arrivals: 0 }
    }

    /// The level of the most urgent member that waits.
    #[must_use]
    pub fn priority(&self) -> Option<Priority> {
        self.members.first().map(|(key, _)| key.0.0)
    }

    /// `member`, which has this place, has something that is this urgent.
    pub fn enqueue(&mut self, place: &mut Place<M>, priority: Priority, member: M) {
        self.arrivals += 1;
        let key = (Rank(priority), self.arrivals);
        let memory = match replace(&mut place.0, State::Waiting(key)) {
            State::Idle(memory) => memory,
            State::Waiting(before) if !priority.is_more_urgent_than(before.0.0) => {
                place.0 = State::Waiting(before);
                return;
            }
            State::Waiting(before) => {
                // It is there, because `pop` ends the state.
                let Some((_, memory)) = self.members.take(&before) else { return };
                memory
            }
        };
        self.members.insert_with(memory, key, member);
    }

    /// Takes out the next one. `leave` sets its place, before another one enqueues it.
    pub fn pop(&mut self, leave: impl FnOnce(&M, Place<M>)) -> Option<M> {
        let ((_, member), memory) = self.members.take_first()?;
        leave(&member, Place(State::Idle(memory)));
        Some(member)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const MEMBERS: usize = 8;

    fn pop(later: &mut Later<usize>, places: &mut [Place<usize>]) -> Option<usize> {
        later.pop(|&member, place| places[member] = place)
    }

    fn places() -> Vec<Place<usize>> {
        (0..MEMBERS).map(|_| Place::try_new().unwrap()).collect()
    }

    fn level(level: u8) -> Priority {
        Priority::new(level).unwrap()
    }

    #[test]
    fn one_that_becomes_urgent_overtakes_the_others() {
        let (mut later, mut places) = (Later::new(), places());
        assert_eq!(later.priority(), None);
        for (member, urgency) in [(0, 60), (1, 60), (2, 40), (1, 5), (2, 41), (0, 60)] {
            later.enqueue(&mut places[member], level(urgency), member);
        }
        assert_eq!(later.priority(), Some(level(5)));
        assert_eq!(pop(&mut later, &mut places), Some(1));
        later.enqueue(&mut places[1], level(60), 1);
        assert_eq!(later.priority(), Some(level(40)));
        let order: Vec<_> = core::iter::from_fn(|| pop(&mut later, &mut places)).collect();
        assert_eq!(order, [2, 0, 1]);
        assert_eq!(later.priority(), None);
    }

    proptest! {
        /// The same as a list of members with their levels that is searched for the most urgent.
        #[test]
        fn the_most_urgent_comes_first_and_the_oldest_of_those(
            steps in prop::collection::vec((0..3u8, 0..MEMBERS, 0..4usize), 0..200),
        ) {
            let (mut later, mut places) = (Later::new(), places());
            let mut model = Vec::<(u8, usize)>::new();
            let next = |model: &[(u8, usize)]| model.iter().copied().min_by_key(|(level, _)| *level);
            for (step, member, urgency) in steps {
                if step < 2 {
                    let urgency = [0, 5, 32, 63][urgency];
                    later.enqueue(&mut places[member], level(urgency), member);
                    let at = model.iter().position(|&(_, waiting)| waiting == member);
                    if at.is_none_or(|at| urgency < model[at].0) {
                        at.map(|at| model.remove(at));
                        model.push((urgency, member));
                    }
                } else {
                    let first = next(&model);
                    model.retain(|waiting| Some(*waiting) != first);
                    prop_assert_eq!(pop(&mut later, &mut places), first.map(|(_, member)| member));
                }
                let urgency = next(&model).map(|(urgency, _)| level(urgency));
                prop_assert_eq!(later.priority(), urgency);
            }
        }
    }
}
