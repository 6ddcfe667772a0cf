//! Threads, mutexes, semaphores and condition variables of one process of the tutorial personality
//! (decision 35): which thread waits for what, and which one gets it.
//!
//! A thread waits for at most one object, so the queues of all objects are linked through the
//! threads' records. What becomes free is given to the first in the queue at once: a thread that
//! waits has it when it is woken, and no other overtakes it. Every operation takes a bounded number
//! of steps.

use cops_fallible::{List, OutOfMemory};

use crate::slots::{CAPACITY, NoSlot, Slots};

/// Maximum number of threads, and of objects of each kind.
pub const COUNT_MAX: usize = CAPACITY;

/// The number of the first thread.
pub const FIRST: usize = 0;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It runs, or waits for something else than an object.
    Active,
    /// It is in the queue of an object. If that is a condition variable, it needs this mutex next.
    Queued { then: Option<usize> },
    /// It has what it waited for, and its call does not know that yet.
    Granted,
    /// It has ended with this code.
    Ended(i32),
}

#[derive(Debug)]
struct Thread {
    state: State,
    /// The thread behind it in the queue.
    next: Option<usize>,
    /// What is to be woken when it is granted what it waits for: a coroutine.
    wake: Option<u64>,
}

impl Thread {
    const ACTIVE: Self = Self { state: State::Active, next: None, wake: None };
}

/// Threads that wait for one object, first come, first served.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    first: Option<usize>,
    last: Option<usize>,
}

/// A semaphore. A mutex is one with a count of at most 1.
#[derive(Clone, Copy, Debug)]
struct Semaphore {
    count: usize,
    queue: Queue,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such thread or object, or it is in a state in which this makes no sense.
    Invalid,
    /// There are [`COUNT_MAX`] already.
    Full,
    /// No memory.
    OutOfMemory,
    /// The thread has not ended yet.
    Running,
}

impl From<OutOfMemory> for Refusal {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl From<NoSlot> for Refusal {
    fn from(reason: NoSlot) -> Self {
        match reason {
            NoSlot::Full => Self::Full,
            NoSlot::OutOfMemory => Self::OutOfMemory,
        }
    }
}

/// The kinds of objects that are taken and released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Released at most as often as taken.
    Mutex,
    /// Without that limit.
    Semaphore,
}

/// Whether the thread has what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has it.
    Now,
    /// It has to wait until [`Threads::take_turn`] returns true.
    Later,
}

/// The threads and the objects of a process.
#[derive(Default)]
pub struct Threads {
    threads: Slots<Thread>,
    mutexes: List<Semaphore>,
    semaphores: List<Semaphore>,
    conditions: List<Queue>,
}

impl Threads {
    /// The first thread, which has the number [`FIRST`], and no objects.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new() -> Result<Self, OutOfMemory> {
        let mut threads = Slots::new();
        threads.put(Thread::ACTIVE).map_err(|_| OutOfMemory)?;
        Ok(Self { threads, ..Self::default() })
    }

    /// Adds a thread, and returns its number, the lowest that no thread has.
    ///
    /// # Errors
    /// [`Refusal::Full`], [`Refusal::OutOfMemory`].
    pub fn add(&mut self) -> Result<usize, Refusal> {
        Ok(self.threads.put(Thread::ACTIVE)?)
    }

    /// Removes a thread that could not be started.
    pub fn remove(&mut self, thread: usize) {
        self.threads.take(thread);
    }

    /// `thread` ends with this code, for [`Self::wait`].
    pub fn end(&mut self, thread: usize, code: i32) {
        if let Some(thread) = self.threads.get_mut(thread) {
            thread.state = State::Ended(code);
        }
    }

    /// The code with which `thread` has ended; its number is free then.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] if there is no such thread or it is the `caller`,
    /// [`Refusal::Running`].
    pub fn wait(&mut self, caller: usize, thread: usize) -> Result<i32, Refusal> {
        match self.threads.get(thread).map(|thread| thread.state) {
            Some(State::Ended(code)) => {
                self.threads.take(thread);
                Ok(code)
            }
            Some(_) if thread != caller => Err(Refusal::Running),
            _ => Err(Refusal::Invalid),
        }
    }

    /// Creates an object with this count (1 for a mutex), and returns its number, the first of
    /// which is 0.
    ///
    /// # Errors
    /// [`Refusal::Full`], [`Refusal::OutOfMemory`].
    pub fn create(&mut self, kind: Kind, count: usize) -> Result<usize, Refusal> {
        let new = Semaphore { count, queue: Queue::default() };
        push(self.objects(kind), new)
    }

    /// Creates a condition variable, and returns its number, the first of which is 0.
    ///
    /// # Errors
    /// [`Refusal::Full`], [`Refusal::OutOfMemory`].
    pub fn create_condition(&mut self) -> Result<usize, Refusal> {
        push(&mut self.conditions, Queue::default())
    }

    /// `thread`, which is active, takes an object if it is free. Returns whether it has it.
    ///
    /// # Errors
    /// [`Refusal::Invalid`].
    pub fn take(&mut self, kind: Kind, object: usize, thread: usize) -> Result<bool, Refusal> {
        self.expect_active(thread)?;
        let semaphore = self.objects(kind).get_mut(object).ok_or(Refusal::Invalid)?;
        let is_free = semaphore.count > 0;
        semaphore.count -= usize::from(is_free);
        Ok(is_free)
    }

    /// As [`Self::take`]; if the object is not free, `thread` waits for it.
    ///
    /// # Errors
    /// [`Refusal::Invalid`].
    pub fn down(&mut self, kind: Kind, object: usize, thread: usize) -> Result<Turn, Refusal> {
        if self.take(kind, object, thread)? {
            return Ok(Turn::Now);
        }
        let mut queue = self.objects(kind)[object].queue;
        self.append(&mut queue, thread, None);
        self.objects(kind)[object].queue = queue;
        Ok(Turn::Later)
    }

    /// Releases an object, to the first that waits for it if there is one. Returns what is to be
    /// woken.
    ///
    /// # Errors
    /// [`Refusal::Invalid`], also for a mutex that is free and a count that has reached its
    /// maximum.
    pub fn up(&mut self, kind: Kind, object: usize) -> Result<Option<u64>, Refusal> {
        let semaphore = self.objects(kind).get_mut(object).ok_or(Refusal::Invalid)?;
        let max = if kind == Kind::Mutex { 1 } else { usize::MAX };
        if semaphore.count == max {
            return Err(Refusal::Invalid);
        }
        let mut queue = semaphore.queue;
        let Some(thread) = self.take_first(&mut queue) else {
            self.objects(kind)[object].count += 1;
            return Ok(None);
        };
        self.objects(kind)[object].queue = queue;
        Ok(self.grant(thread))
    }

    /// `thread`, which is active, releases `mutex` and waits until `condition` is signalled and
    /// the mutex is its own again. Returns what is to be woken.
    ///
    /// # Errors
    /// [`Refusal::Invalid`], as for [`Self::up`]; nothing has changed then.
    pub fn wait_for_condition(
        &mut self,
        condition: usize,
        mutex: usize,
        thread: usize,
    ) -> Result<Option<u64>, Refusal> {
        self.expect_active(thread)?;
        let mut queue = *self.conditions.get(condition).ok_or(Refusal::Invalid)?;
        let woken = self.up(Kind::Mutex, mutex)?;
        self.append(&mut queue, thread, Some(mutex));
        self.conditions[condition] = queue;
        Ok(woken)
    }

    /// Signals `condition`: the first that waits for it gets its mutex, or waits for that. Returns
    /// what is to be woken. A signal for which no thread waits is lost.
    ///
    /// # Errors
    /// [`Refusal::Invalid`].
    pub fn signal(&mut self, condition: usize) -> Result<Option<u64>, Refusal> {
        let mut queue = *self.conditions.get(condition).ok_or(Refusal::Invalid)?;
        let Some(thread) = self.take_first(&mut queue) else { return Ok(None) };
        self.conditions[condition] = queue;
        let state = self.threads.get(thread).map(|thread| thread.state);
        let Some(State::Queued { then: Some(mutex) }) = state else {
            return Err(Refusal::Invalid);
        };
        let semaphore = &mut self.mutexes[mutex];
        if semaphore.count > 0 {
            semaphore.count -= 1;
            return Ok(self.grant(thread));
        }
        let mut queue = semaphore.queue;
        self.append(&mut queue, thread, None);
        self.mutexes[mutex].queue = queue;
        Ok(None)
    }

    /// `wake` is to be woken when `thread` is granted what it waits for.
    pub fn set_wake(&mut self, thread: usize, wake: u64) {
        if let Some(thread) = self.threads.get_mut(thread) {
            thread.wake = Some(wake);
        }
    }

    /// Whether `thread` has got what it waited for. It is active then.
    pub fn take_turn(&mut self, thread: usize) -> bool {
        match self.threads.get_mut(thread) {
            Some(thread) if thread.state == State::Granted => {
                *thread = Thread::ACTIVE;
                true
            }
            _ => false,
        }
    }

    fn objects(&mut self, kind: Kind) -> &mut List<Semaphore> {
        match kind {
            Kind::Mutex => &mut self.mutexes,
            Kind::Semaphore => &mut self.semaphores,
        }
    }

    fn expect_active(&self, thread: usize) -> Result<(), Refusal> {
        match self.threads.get(thread) {
            Some(thread) if thread.state == State::Active => Ok(()),
            _ => Err(Refusal::Invalid),
        }
    }

    /// Appends `thread` to `queue`, which the caller has copied.
    fn append(&mut self, queue: &mut Queue, thread: usize, then: Option<usize>) {
        match queue.last.and_then(|last| self.threads.get_mut(last)) {
            Some(last) => last.next = Some(thread),
            None => queue.first = Some(thread),
        }
        queue.last = Some(thread);
        if let Some(record) = self.threads.get_mut(thread) {
            (record.state, record.next) = (State::Queued { then }, None);
        }
    }

    fn take_first(&mut self, queue: &mut Queue) -> Option<usize> {
        let first = queue.first?;
        queue.first = self.threads.get(first).and_then(|thread| thread.next);
        if queue.first.is_none() {
            queue.last = None;
        }
        Some(first)
    }

    fn grant(&mut self, thread: usize) -> Option<u64> {
        let thread = self.threads.get_mut(thread)?;
        thread.state = State::Granted;
        thread.wake.take()
    }
}

/// Appends to a list of objects. Returns the number of the new one.
fn push<T>(list: &mut List<T>, object: T) -> Result<usize, Refusal> {
    if list.len() >= COUNT_MAX {
        return Err(Refusal::Full);
    }
    list.try_push(object)?;
    Ok(list.len() - 1)
}

#[cfg(test)]
#[path = "tutorial_tests.rs"]
mod tests;
