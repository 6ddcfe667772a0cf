//! Epoll instances: entries for descriptors, and the list of those that may be ready (decision 31).
//!
//! An entry is *armed* while the queues of its file are to notify it of events, and *listed* while
//! it is in the list of its instance. An event disarms it and lists it. [`Epoll::harvest`] takes
//! listed entries out, arms each again, and then looks at its file. So an event between the two is
//! not missed.
//!
//! ```text
//!   add, modify ---> armed, and listed if ready
//!   event            armed -> listed
//!   harvest          listed -> armed (-> listed, if it is level-triggered and was ready)
//!   look             listed -> armed, if it is not ready
//!   delete, close    -> removed
//! ```
//!
//! An entry has a weak reference to its file: closing the last descriptor closes the file. What has
//! been closed notifies its watches, so its entries are harvested, found without a file, and
//! removed.
//!
//! Lock order: the entries of an instance, then its list; an entry's interest is a leaf.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};

use cops_abi::{Errno, Priority};
use cops_algorithms::fixed_list::FixedList;
use cops_algorithms::interest::{Interest, Report};
use cops_algorithms::terminal::Party;
use cops_fallible::map::Spare;
use cops_fallible::{Map, try_arc, try_box};
use cops_lock::Mutex;

use super::file::{File, Object};
use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::sched::leftovers::{self, Leftover};
use crate::sched::{WATCH_BYTES, WaitQueue, Waiting, WatchSlot, Watcher};

/// Entries that one portion takes from the list: each may have to register with the network.
pub const PER_PORTION: usize = cops_abi::poll::EPOLL_EVENTS_MAX;
/// Entries that are examined for each new one, and removed if their files have been closed.
const EXAMINED_PER_ENTRY: usize = 2;
/// Entries freed in one portion. To free one takes as long as to look at this many.
const FREED_PER_PORTION: usize = 4;

/// A descriptor and its file.
type Key = (usize, usize);
/// Memory for an entry: itself, its file's after it has been closed, its places.
const ENTRY_BYTES: u64 = (size_of::<Entry>()
    + size_of::<File>()
    + 2 * WATCH_BYTES
    + Map::<Key, Arc<Entry>>::ENTRY_BYTES
    + Map::<u64, Arc<Entry>>::ENTRY_BYTES
    + 64) as u64;

/// An instance, as a file.
pub struct Epoll {
    /// `None` once it is being dropped.
    entries: Mutex<Option<Box<Entries>>>,
    ready: Arc<Ready>,
}

/// The entries of an instance.
struct Entries {
    map: Map<Key, Arc<Entry>>,
    /// Where to continue looking for entries without a file.
    cursor: Key,
    /// The standing one, and that for all entries.
    charge: Charge,
    next: Option<Box<dyn Leftover>>,
}

/// The entries that may be ready, oldest first, and the calls that wait for one.
struct Ready {
    list: Mutex<List>,
    queue: WaitQueue,
}

#[derive(Default)]
struct List {
    entries: Map<u64, Arc<Entry>>,
    arrivals: u64,
}

/// A file that is watched.
struct Entry {
    key: Key,
    file: Weak<File>,
    interest: Mutex<Interest>,
    slots: [WatchSlot; 2],
    ready: Arc<Ready>,
    /// Changed only under the list's lock.
    place: Mutex<Place>,
}

/// The place of an entry in the list.
enum Place {
    Unlisted(Spare<u64, Arc<Entry>>),
    Listed(u64),
    Removed,
}

impl Watcher for Entry {
    fn slot(&self, waiting: Waiting) -> &WatchSlot {
        &self.slots[usize::from(waiting == Waiting::ToWrite)]
    }

    fn notify(self: Arc<Self>) {
        let ready = self.ready.clone();
        ready.list(self);
        ready.queue.wake_one();
    }
}

impl Entry {
    /// Arms it for what it is interested in, then looks at its file. `None`: its file is closed.
    ///
    /// # Errors
    /// `ENOMEM`, only the first time.
    fn look(
        self: &Arc<Self>,
        party: Party,
        priority: Priority,
    ) -> Option<Result<Option<Report>, Errno>> {
        let file = self.file.upgrade()?;
        let Some(wanted) = self.interest.lock().wanted() else { return Some(Ok(None)) };
        if let Err(error) = self.arm(&file, wanted, priority) {
            return Some(Err(error));
        }
        let ready = file.readiness(party);
        Some(Ok(self.interest.lock().report(ready)))
    }

    /// Arms its watches for these events.
    ///
    /// # Errors
    /// `ENOMEM`, only the first time.
    fn arm(self: &Arc<Self>, file: &File, wanted: u32, priority: Priority) -> Result<(), Errno> {
        let watcher: Arc<dyn Watcher> = self.clone();
        file.watch(&watcher, wanted, priority)?;
        // It may have been removed meanwhile, and its watches before they were armed.
        let is_removed = matches!(*self.place.lock(), Place::Removed);
        if is_removed {
            file.unwatch(&**self);
        }
        Ok(())
    }

    /// Whether its file has an event that it is interested in.
    fn is_ready(&self, party: Party) -> bool {
        let wanted = self.interest.lock().wanted();
        match (wanted, self.file.upgrade()) {
            (Some(wanted), Some(file)) => file.readiness(party) & wanted != 0,
            _ => false,
        }
    }

    /// Takes it out of the list and of the queues of its file, for ever.
    fn remove(&self) {
        let removed = {
            let mut list = self.ready.list.lock();
            match core::mem::replace(&mut *self.place.lock(), Place::Removed) {
                Place::Listed(arrival) => list.entries.remove(&arrival),
                Place::Unlisted(_) | Place::Removed => None,
            }
        };
        drop(removed);
        if let Some(file) = self.file.upgrade() {
            file.unwatch(self);
        }
    }
}

impl Ready {
    /// Lists an entry, unless it is listed or removed.
    fn list(&self, entry: Arc<Entry>) {
        let mut list = self.list.lock();
        let mut place = entry.place.lock();
        match core::mem::replace(&mut *place, Place::Removed) {
            Place::Unlisted(spare) => {
                list.arrivals += 1;
                let arrival = list.arrivals;
                *place = Place::Listed(arrival);
                drop(place);
                let _ = list.entries.insert_with(spare, arrival, entry);
            }
            other => *place = other,
        }
    }

    /// The number of the last arrival.
    fn last_arrival(&self) -> u64 {
        self.list.lock().arrivals
    }

    /// The oldest entry.
    fn first(&self) -> Option<Arc<Entry>> {
        self.list.lock().entries.first().map(|(_, entry)| entry.clone())
    }

    /// Takes the oldest entry out of the list, if it did not come after this arrival.
    fn pop(&self, last: u64) -> Option<Arc<Entry>> {
        let mut list = self.list.lock();
        list.entries.first().filter(|&(&arrival, _)| arrival <= last)?;
        let ((_, entry), spare) = list.entries.take_first()?;
        *entry.place.lock() = Place::Unlisted(spare);
        Some(entry)
    }
}

/// What [`Epoll::harvest`] has found.
pub struct Harvest {
    /// The entries that are ready.
    pub reports: FixedList<Report, PER_PORTION>,
    /// There are listed entries that have not been looked at.
    pub has_more: bool,
}

impl Epoll {
    /// An instance without entries; those that it gets are charged to `family`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(family: Family) -> Result<Self, Errno> {
        let entries = try_box(Entries {
            map: Map::new(),
            cursor: (0, 0),
            charge: Charge::standing(family)?,
            next: None,
        })?;
        let ready = Ready { list: Mutex::default(), queue: WaitQueue::new() };
        Ok(Self { entries: Mutex::new(Some(entries)), ready: try_arc(ready)? })
    }

    /// The calls in `epoll_pwait`.
    pub fn queue(&self) -> &WaitQueue {
        &self.ready.queue
    }

    /// Whether entries are listed.
    pub fn has_listed(&self) -> bool {
        !self.ready.list.lock().entries.is_empty()
    }

    /// Whether an entry is ready, for a process of `party`. An entry at the head of the list that
    /// is not ready is taken out and armed with `priority`: its next event notifies those that
    /// wait for the instance. Arms at most `visits`, and subtracts those that it has armed. `None`:
    /// there are more.
    pub fn look(&self, party: Party, priority: Priority, visits: &mut usize) -> Option<bool> {
        loop {
            let Some(first) = self.ready.first() else { return Some(false) };
            if first.is_ready(party) {
                return Some(true);
            }
            if *visits == 0 {
                return None;
            }
            *visits -= 1;
            // Another one, if a harvest has taken that.
            let Some(entry) = self.ready.pop(u64::MAX) else { return Some(false) };
            if entry.file.strong_count() == 0 {
                self.remove(&entry);
                *visits = 0;
                continue;
            }
            // Every direction has been armed before, so there is no error. It is listed again if it
            // is ready now.
            let _ = self.arm(&entry, party, priority);
        }
    }

    fn key(descriptor: usize, file: &Arc<File>) -> Key {
        (descriptor, Arc::as_ptr(file).addr())
    }

    /// Adds `file`, which has this descriptor.
    ///
    /// # Errors
    /// `EPERM` for a file that is always ready, `ELOOP` for an epoll instance, `EEXIST`, `ENOMEM`.
    pub fn add(
        &self,
        (descriptor, file): (usize, &Arc<File>),
        interest: Interest,
        (party, priority): (Party, Priority),
    ) -> Result<(), Errno> {
        if !file.can_be_watched() {
            return Err(Errno::EPERM);
        }
        if matches!(file.object, Object::Epoll(_)) {
            return Err(Errno::ELOOP);
        }
        let key = Self::key(descriptor, file);
        let entry = try_arc(Entry {
            key,
            file: Arc::downgrade(file),
            interest: Mutex::new(interest),
            slots: Default::default(),
            ready: self.ready.clone(),
            place: Mutex::new(Place::Unlisted(Spare::try_new()?)),
        })?;
        {
            let mut entries = self.entries.lock();
            let entries = entries.as_mut().ok_or(Errno::EBADF)?;
            if entries.map.contains_key(&key) {
                return Err(Errno::EEXIST);
            }
            let spare = Spare::try_new()?;
            entries.charge.grow(&Amounts::of(Kind::Memory, ENTRY_BYTES))?;
            let _ = entries.map.insert_with(spare, key, entry.clone());
        }
        self.remove_closed();
        let armed = self.arm(&entry, party, priority);
        if armed.is_err() {
            self.remove(&entry);
        }
        armed
    }

    /// Arms an entry with a new interest, and lists it if it is ready.
    fn arm(&self, entry: &Arc<Entry>, party: Party, priority: Priority) -> Result<(), Errno> {
        let Some(file) = entry.file.upgrade() else { return Ok(()) };
        let Some(wanted) = entry.interest.lock().wanted() else { return Ok(()) };
        entry.arm(&file, wanted, priority)?;
        if file.readiness(party) & wanted != 0 {
            entry.clone().notify();
        }
        Ok(())
    }

    fn find(&self, descriptor: usize, file: &Arc<File>) -> Result<Arc<Entry>, Errno> {
        let entries = self.entries.lock();
        let entry = entries.as_ref().and_then(|all| all.map.get(&Self::key(descriptor, file)));
        entry.cloned().ok_or(Errno::ENOENT)
    }

    /// Changes the interest of an entry.
    ///
    /// # Errors
    /// `ENOENT`, `ENOMEM`.
    pub fn modify(
        &self,
        (descriptor, file): (usize, &Arc<File>),
        interest: Interest,
        (party, priority): (Party, Priority),
    ) -> Result<(), Errno> {
        let entry = self.find(descriptor, file)?;
        // Before it is armed: an event that comes then must find it.
        let before = core::mem::replace(&mut *entry.interest.lock(), interest);
        let armed = self.arm(&entry, party, priority);
        if armed.is_err() {
            *entry.interest.lock() = before;
        }
        armed
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn delete(&self, descriptor: usize, file: &Arc<File>) -> Result<(), Errno> {
        let entry = self.find(descriptor, file)?;
        self.remove(&entry);
        Ok(())
    }

    fn remove(&self, entry: &Arc<Entry>) {
        let removed = {
            let mut entries = self.entries.lock();
            entries.as_mut().and_then(|entries| entries.take(&entry.key))
        };
        if let Some(entry) = removed {
            entry.remove();
        }
    }

    /// Examines some entries, and removes those without a file.
    fn remove_closed(&self) {
        for _ in 0..EXAMINED_PER_ENTRY {
            let closed = {
                let mut entries = self.entries.lock();
                let Some(entries) = entries.as_mut() else { return };
                let Some((&key, entry)) = entries.map.at_or_after(&entries.cursor) else {
                    entries.cursor = (0, 0);
                    return;
                };
                let is_closed = entry.file.strong_count() == 0;
                entries.cursor = (key.0, key.1 + 1);
                if is_closed { entries.take(&key) } else { None }
            };
            if let Some(entry) = closed {
                entry.remove();
            }
        }
    }

    /// Takes entries from the list, at most `max`, and reports those that are ready, for a
    /// process of `party`. Each is armed again with `priority`.
    pub fn harvest(&self, party: Party, priority: Priority, max: usize) -> Harvest {
        let mut reports = FixedList::new(Report { events: 0, data: 0, stays: false });
        let mut stay: [Option<Arc<Entry>>; PER_PORTION] = Default::default();
        let mut freed = 0;
        // An entry with an event after its report is listed again. It waits for the next harvest:
        // a program may close the file when it gets the first report.
        let last = self.ready.last_arrival();
        for place in stay.iter_mut().take(max) {
            if freed == FREED_PER_PORTION {
                break;
            }
            let Some(entry) = self.ready.pop(last) else { break };
            match entry.look(party, priority) {
                Some(Ok(Some(report))) => {
                    let _ = reports.push(report);
                    *place = report.stays.then_some(entry);
                }
                // Every direction has been armed before, so there is no error.
                Some(Ok(None) | Err(_)) => {}
                None => {
                    self.remove(&entry);
                    freed += 1;
                }
            }
        }
        let has_more = self.has_listed();
        let mut is_back = false;
        for entry in stay.into_iter().flatten() {
            self.ready.list(entry);
            is_back = true;
        }
        if is_back {
            // A call that has found the list without them waits in vain.
            self.ready.queue.wake_one();
        }
        Harvest { reports, has_more }
    }
}

impl Entries {
    fn take(&mut self, key: &Key) -> Option<Arc<Entry>> {
        let entry = self.map.remove(key)?;
        self.charge.shrink(&Amounts::of(Kind::Memory, ENTRY_BYTES));
        Some(entry)
    }
}

impl Leftover for Entries {
    fn free_some(&mut self) -> bool {
        for _ in 0..FREED_PER_PORTION {
            let Some((_, entry)) = self.map.pop_first() else { return false };
            entry.remove();
            drop(entry);
            self.charge.shrink(&Amounts::of(Kind::Memory, ENTRY_BYTES));
        }
        !self.map.is_empty()
    }

    fn next(&mut self) -> &mut Option<Box<dyn Leftover>> {
        &mut self.next
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        if let Some(entries) = self.entries.lock().take() {
            leftovers::free(entries);
        }
    }
}
