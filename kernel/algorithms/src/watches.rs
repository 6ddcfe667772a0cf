//! The watches on one queue: the watchers that are to be notified of its next event.
//!
//! A watch is notified of one event and is then over; its watcher arms it again when it wants to be
//! notified again. An event makes all armed watches *due*. Those are taken out one after the other,
//! so that the caller can stop after a few and continue later. The most urgent ones come first, and
//! the oldest of a level, also if they became due by a later event than the others.
//!
//! Armed and due watches are in one map, in the order of level and arrival. Those that arrived
//! before the last event are due: within a level, they are the first ones.

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
    watches: Map<Key, W>,
    arrivals: u64,
    /// The number of arrivals before the last event.
    arrivals_before_event: u64,
    /// The most urgent level that may have a due watch: none has been found at a more urgent one
    /// since the last event. `None`: no watch is due.
    first_priority: Option<Priority>,
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
        Self { watches: Map::new(), arrivals: 0, arrivals_before_event: 0, first_priority: None }
    }

    /// Arms a watch. The caller must look at the condition afterwards.
    pub fn arm(&mut self, place: Place<W>, priority: Priority, watcher: W) -> Key {
        self.arrivals += 1;
        let key = (Rank(priority), self.arrivals);
        // No watch has this key, because its arrival is new.
        let _ = self.watches.insert_with(place, key, watcher);
        key
    }

    /// Removes a watch that has not been notified.
    pub fn disarm(&mut self, key: Key) -> Option<(W, Place<W>)> {
        self.watches.take(&key)
    }

    /// Makes all armed watches due.
    pub fn event(&mut self) {
        self.arrivals_before_event = self.arrivals;
        self.first_priority = Some(Priority::MOST_URGENT);
    }

    /// Takes out the next due watch, which is to be notified.
    pub fn next_due(&mut self) -> Option<(W, Place<W>)> {
        self.first_priority?;
        // Most often the first watch of all is due, which is found without comparisons of keys.
        if self.watches.first().is_some_and(|(key, _)| self.is_due(key)) {
            let ((_, watcher), place) = self.watches.take_first()?;
            return Some((watcher, place));
        }
        let key = self.first_due()?;
        self.watches.take(&key)
    }

    fn is_due(&self, key: &Key) -> bool {
        key.1 <= self.arrivals_before_event
    }

    /// The level of the most urgent watch that is due.
    pub fn due_priority(&mut self) -> Option<Priority> {
        self.first_due().map(|key| key.0.0)
    }

    /// The next due watch. Looks at the first watch of each level, and does not look again at that
    /// of a level without due watches before the next event.
    fn first_due(&mut self) -> Option<Key> {
        let mut from = self.first_priority?;
        self.first_priority = None;
        loop {
            let (&key, _) = self.watches.at_or_after(&(Rank(from), 0))?;
            let Rank(priority) = key.0;
            if self.is_due(&key) {
                self.first_priority = Some(priority);
                return Some(key);
            }
            // All others of this level have arrived later.
            from = Priority::new(priority.level() + 1)?;
        }
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
    fn an_urgent_watch_that_is_armed_late_overtakes_those_that_are_due() {
        let mut watches = Watches::new();
        (0..20).for_each(|name| _ = arm(&mut watches, 60, name));
        watches.event();
        assert!((0..8).all(|name| watches.next_due().is_some_and(|(due, _)| due == name)));
        arm(&mut watches, 5, 100);
        assert_eq!(watches.due_priority(), Some(level(60)));
        watches.event();
        assert_eq!(watches.due_priority(), Some(level(5)));
        assert_eq!(watches.next_due().map(|(name, _)| name), Some(100));
        assert_eq!(watches.due_priority(), Some(level(60)));
        assert_eq!(notified(&mut watches), (8..20).collect::<Vec<_>>());
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
        /// Exactly those watches are notified that were armed before an event, the most urgent
        /// first, and the oldest of a level.
        #[test]
        fn no_event_is_missed(steps in prop::collection::vec((0..5u8, 0..64u8, 0..40usize), 0..300)) {
            let mut watches = Watches::new();
            // Each watch by its level and name: its key, and whether it is owed an event.
            let mut model: BTreeMap<(u8, u32), (Key, bool)> = BTreeMap::new();
            let first_owed = |model: &BTreeMap<_, (Key, bool)>| {
                model.iter().find(|(_, (_, is_owed))| *is_owed).map(|(watch, _)| *watch)
            };
            let mut names = 0;
            for (what, urgency, which) in steps {
                match what {
                    0 | 1 => {
                        names += 1;
                        // Few levels, and many.
                        let urgency = if what == 0 { urgency } else { 63 * (urgency % 2) };
                        let key = arm(&mut watches, urgency, names);
                        model.insert((urgency, names), (key, false));
                    }
                    2 => {
                        watches.event();
                        model.values_mut().for_each(|(_, is_owed)| *is_owed = true);
                    }
                    3 => {
                        let first = first_owed(&model);
                        let due = watches.next_due().map(|(name, _)| name);
                        prop_assert_eq!(due, first.map(|(_, name)| name));
                        first.map(|watch| model.remove(&watch));
                    }
                    _ => {
                        let watch = model.keys().nth(which).copied();
                        if let Some(((_, name), (key, _))) = watch.and_then(|watch| model.remove_entry(&watch)) {
                            let removed = watches.disarm(key).map(|(name, _)| name);
                            prop_assert_eq!(removed, Some(name));
                            prop_assert!(watches.disarm(key).is_none());
                        }
                    }
                }
                let first = first_owed(&model).map(|(urgency, _)| level(urgency));
                prop_assert_eq!(watches.due_priority(), first);
            }
            let owed = model.iter().filter(|(_, (_, is_owed))| *is_owed);
            let owed = owed.map(|((_, name), _)| *name).collect::<Vec<_>>();
            prop_assert_eq!(notified(&mut watches), owed);
        }
    }
}
