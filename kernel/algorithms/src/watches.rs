//! The watches on one queue: the watchers that are to be notified of its next event.
//!
//! A watch is notified of one event and is then over; its watcher arms it again when it wants to be
//! notified again. An event makes all armed watches *due*. Those are taken out one after the other,
//! so that the caller can stop after a few and continue later. The most urgent ones come first, and
//! the oldest of a level.
//!
//! An event while watches are due makes those due that are armed when the last of them is taken
//! out. Some of these may have been armed after the event, and are notified of nothing. No watch
//! that was armed before an event misses it.

use cops_abi::Priority;
use cops_fallible::Map;
use cops_fallible::map::Spare;

use super::priority::Rank;

/// Names a watch of a queue.
pub type Key = (Rank, u64);

/// Memory for a watch.
pub type Place<W> = Spare<Key, W>;

/// The watches on a queue; see the module.
#[derive(Debug)]
pub struct Watches<W> {
    armed: Map<Key, W>,
    due: Map<Key, W>,
    /// There was an event while watches were due.
    is_repeated: bool,
    arrivals: u64,
}

impl<W> Default for Watches<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W> Watches<W> {
    /// No watches.
    #[must_use]
    pub const fn new() -> Self {
        Self { armed: Map::new(), due: Map::new(), is_repeated: false, arrivals: 0 }
    }

    /// Arms a watch. The caller must look at the condition afterwards.
    pub fn arm(&mut self, place: Place<W>, priority: Priority, watcher: W) -> Key {
        self.arrivals += 1;
        let key = (Rank(priority), self.arrivals);
        // No watch has this key, because its arrival is new.
        let _ = self.armed.insert_with(place, key, watcher);
        key
    }

    /// Removes a watch that has not been notified.
    pub fn disarm(&mut self, key: Key) -> Option<(W, Place<W>)> {
        self.armed.take(&key).or_else(|| self.due.take(&key))
    }

    /// Makes all armed watches due.
    pub fn event(&mut self) {
        if self.due.is_empty() {
            core::mem::swap(&mut self.armed, &mut self.due);
        } else {
            self.is_repeated = true;
        }
    }

    /// Takes out the next due watch, which is to be notified.
    pub fn next_due(&mut self) -> Option<(W, Place<W>)> {
        if self.due.is_empty() && core::mem::take(&mut self.is_repeated) {
            core::mem::swap(&mut self.armed, &mut self.due);
        }
        let ((_, watcher), place) = self.due.take_first()?;
        Some((watcher, place))
    }

    /// The level of the most urgent watch that is due.
    #[must_use]
    pub fn due_priority(&self) -> Option<Priority> {
        let next = if self.due.is_empty() && self.is_repeated { &self.armed } else { &self.due };
        next.first().map(|(key, _)| key.0.0)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn level(level: u8) -> Priority {
        Priority::new(level).unwrap()
    }

    fn arm(watches: &mut Watches<u32>, urgency: u8, name: u32) -> Key {
        watches.arm(Place::try_new().unwrap(), level(urgency), name)
    }

    fn notified(watches: &mut Watches<u32>) -> Vec<u32> {
        core::iter::from_fn(|| watches.next_due().map(|(name, _)| name)).collect()
    }

    #[test]
    fn an_event_tells_each_once_the_most_urgent_first() {
        let mut watches = Watches::new();
        for (urgency, name) in [(32, 1), (5, 2), (32, 3), (60, 4), (5, 5)] {
            arm(&mut watches, urgency, name);
        }
        assert_eq!(watches.due_priority(), None);
        assert_eq!(notified(&mut watches), []);
        watches.event();
        assert_eq!(watches.due_priority(), Some(level(5)));
        assert_eq!(notified(&mut watches), [2, 5, 1, 3, 4]);
        watches.event();
        assert_eq!(notified(&mut watches), []);
    }

    #[test]
    fn an_event_while_watches_are_due_reaches_those_armed_since() {
        let mut watches = Watches::new();
        arm(&mut watches, 32, 1);
        arm(&mut watches, 32, 2);
        watches.event();
        assert_eq!(watches.next_due().map(|(name, _)| name), Some(1));
        arm(&mut watches, 32, 1);
        assert_eq!(watches.due_priority(), Some(level(32)));
        watches.event();
        assert_eq!(watches.next_due().map(|(name, _)| name), Some(2));
        assert_eq!(watches.due_priority(), Some(level(32)));
        assert_eq!(notified(&mut watches), [1]);
        assert_eq!(watches.due_priority(), None);
    }

    proptest! {
        /// No watch that is armed before an event misses it, and none is notified without an event
        /// since some watch was armed.
        #[test]
        fn no_event_is_missed(steps in prop::collection::vec((0..4u8, 0..64u8, 0..40usize), 0..300)) {
            let mut watches = Watches::new();
            // Each watch by its name: its key, and whether it is owed an event.
            let mut model: BTreeMap<u32, (Key, bool)> = BTreeMap::new();
            let (mut names, mut events) = (0, 0);
            for (what, urgency, which) in steps {
                match what {
                    0 => {
                        names += 1;
                        let key = arm(&mut watches, urgency, names);
                        model.insert(names, (key, false));
                    }
                    1 => {
                        events += 1;
                        watches.event();
                        model.values_mut().for_each(|(_, is_owed)| *is_owed = true);
                    }
                    2 => match watches.next_due() {
                        Some((name, _)) => {
                            prop_assert!(events > 0);
                            prop_assert!(model.remove(&name).is_some(), "notified twice");
                        }
                        None => prop_assert!(model.values().all(|(_, is_owed)| !is_owed)),
                    },
                    _ => {
                        let name = model.keys().nth(which).copied();
                        if let Some((name, (key, _))) = name.and_then(|name| model.remove_entry(&name)) {
                            let removed = watches.disarm(key).map(|(name, _)| name);
                            prop_assert_eq!(removed, Some(name));
                            prop_assert!(watches.disarm(key).is_none());
                        }
                    }
                }
            }
            while let Some((name, _)) = watches.next_due() {
                prop_assert!(model.remove(&name).is_some(), "notified twice");
            }
            prop_assert!(model.values().all(|(_, is_owed)| !is_owed), "missed an event");
        }
    }
}
