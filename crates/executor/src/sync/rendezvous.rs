//! Keyed rendezvous (Wang's WakerMap): wait for a key, signal a key, in whatever order.

use ::core::fmt;
use ::core::future::poll_fn;
use ::core::pin::pin;

use super::monitor::{Line, Monitor, Resource, Ticket, Wakes};
use crate::core::CoroutineId;

/// A place to meet by integer keys. The order of the two calls does not matter: a signal without a
/// waiter is remembered, and the next wait for its key returns immediately.
///
/// One signal releases one waiter, the most urgent first, then the one that came first. Signals of
/// a key are counted.
///
/// Memory is bounded and lies in the rendezvous: signals on their way, that is remembered, or
/// granted to a future which was not polled since, have at most `KEYS` different keys, or waits;
/// beyond that a signal is refused. Waiters are not bounded, they bring their own memory.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// use cops_executor::sync::Rendezvous;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// static REPLIES: Rendezvous<16> = Rendezvous::new();
///
/// REPLIES.signal(7)?; // without a waiter yet
/// let early = EXECUTOR.spawn_join(REPLIES.wait_on(7), Priority::DEFAULT)?;
/// let late = EXECUTOR.spawn_join(REPLIES.wait_on(8), Priority::DEFAULT)?;
/// EXECUTOR.block_on(early)?;
/// EXECUTOR.run_until_stalled(0);
/// assert!(!late.is_finished());
/// REPLIES.signal(8)?;
/// EXECUTOR.block_on(late)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rendezvous<const KEYS: usize> {
    monitor: Monitor<Keys<KEYS>>,
}

/// A key, and how many signals of it are remembered; 0: the entry is free.
#[derive(Clone, Copy)]
struct Remembered {
    key: u64,
    signals: u32,
}

/// How a wait ended.
#[derive(Clone, Copy)]
enum Met {
    /// A remembered signal.
    AtOnce,
    /// A signal came, and counts as on its way until the waiter is polled.
    OnItsWay,
    /// One signal for all came, which is not passed on.
    WithAll,
}

/// What a waiter asks for.
#[derive(Clone, Copy)]
struct Wait {
    key: u64,
    /// Counts waiters of all keys, in the order in which they came.
    number: u64,
}

struct Keys<const KEYS: usize> {
    /// The number of the next waiter.
    next: u64,
    /// Waiters by a hash of their key.
    lines: [Line<Keys<KEYS>>; KEYS],
    remembered: [Remembered; KEYS],
    /// Entries of `remembered` in use, and signals granted to waiters that were not polled since.
    used: usize,
    on_their_way: usize,
}

impl<const KEYS: usize> Keys<KEYS> {
    fn entry(&mut self, key: u64) -> Option<&mut Remembered> {
        if self.used == 0 {
            return None;
        }
        self.remembered.iter_mut().find(|entry| entry.signals != 0 && entry.key == key)
    }

    /// Fibonacci hashing: keys are often multiples of something.
    fn bucket(key: u64) -> usize {
        ((key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize) % KEYS
    }

    fn signal(&mut self, key: u64, wakes: &mut Wakes) -> Result<(), Full> {
        let room = self.used + self.on_their_way < KEYS;
        let line = &mut self.lines[Self::bucket(key)];
        if room && line.grant_where(|wait| wait.key == key, Met::OnItsWay, wakes) {
            self.on_their_way += 1;
            return Ok(());
        }
        if let Some(entry) = self.entry(key) {
            entry.signals = entry.signals.checked_add(1).ok_or(Full)?;
            return Ok(());
        }
        let free = self.remembered.iter_mut().find(|entry| entry.signals == 0);
        let free = free.filter(|_| room).ok_or(Full)?;
        *free = Remembered { key, signals: 1 };
        self.used += 1;
        Ok(())
    }
}

impl<const KEYS: usize> Resource for Keys<KEYS> {
    type Demand = Wait;
    type Grant = Met;

    fn accept(&mut self, _: u64) {}

    fn try_now(&mut self, wait: &mut Wait, _: Option<CoroutineId>) -> Option<Met> {
        // A waiter for this key would have got it: none is passed.
        let Some(entry) = self.entry(wait.key) else {
            wait.number = self.next;
            self.next += 1;
            return None;
        };
        entry.signals -= 1;
        if entry.signals == 0 {
            self.used -= 1;
        }
        Some(Met::AtOnce)
    }

    fn line(&mut self, wait: Wait) -> &mut Line<Self> {
        &mut self.lines[Self::bucket(wait.key)]
    }

    /// Nothing: signals are handed over as they come.
    fn distribute(&mut self, _: &mut Wakes) {}

    fn release_grant(&mut self, wait: Wait, met: Met, wakes: &mut Wakes) {
        if let Met::OnItsWay = met {
            self.on_their_way -= 1;
            // There is room now; of 2^32 signals of a key one may be lost.
            let _ = self.signal(wait.key, wakes);
        }
    }
}

/// The signal was refused: as many are on their way as the rendezvous can remember, or 2^32 of this
/// key.
///
/// ```
/// use cops_executor::sync::{Full, Rendezvous};
/// let small = Rendezvous::<1>::new();
/// small.signal(1)?;
/// assert_eq!(small.signal(2), Err(Full), "there is room for one key");
/// # Ok::<(), cops_executor::sync::Full>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl<const KEYS: usize> Rendezvous<KEYS> {
    /// A rendezvous without waiters and remembered signals.
    ///
    /// ```
    /// # use cops_executor::sync::Rendezvous;
    /// static REPLIES: Rendezvous<16> = Rendezvous::new();
    /// assert_eq!(REPLIES.remembered(1), 0);
    /// ```
    #[must_use]
    pub const fn new() -> Rendezvous<KEYS> {
        const { assert!(KEYS != 0, "a rendezvous has room for at least one key") };
        Rendezvous {
            monitor: Monitor::new(Keys {
                next: 0,
                lines: [const { Line::new() }; KEYS],
                remembered: [Remembered { key: 0, signals: 0 }; KEYS],
                used: 0,
                on_their_way: 0,
            }),
        }
    }

    /// Waits for a signal of `key`, or takes one that is remembered.
    ///
    /// Cancel-safe: a signal that was granted to a future which is dropped goes to the next waiter
    /// of the key, or is remembered.
    ///
    /// In coroutines, and wherever futures are polled; not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::sync::Rendezvous;
    /// let replies = Rendezvous::<4>::new();
    /// replies.signal(7)?;
    /// EXECUTOR.block_on(replies.wait_on(7));
    /// assert_eq!(replies.remembered(7), 0, "it was taken");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn wait_on(&self, key: u64) {
        let mut ticket = pin!(Ticket::new(&self.monitor, Wait { key, number: 0 }));
        let finish = |keys: &mut Keys<KEYS>, met| {
            if let Met::OnItsWay = met {
                keys.on_their_way -= 1;
            }
        };
        poll_fn(|context| ticket.as_mut().poll(context, finish)).await;
    }

    /// Releases one waiter of `key`, or is remembered. Waits only for the lock; not in interrupt
    /// handlers. Looks at up to `KEYS` entries, and at the waiters for keys with the same hash.
    ///
    /// # Errors
    ///
    /// [`Full`]: nothing has happened.
    ///
    /// ```
    /// # use cops_executor::sync::{Full, Rendezvous};
    /// let rendezvous = Rendezvous::<1>::new();
    /// assert_eq!(rendezvous.signal(1), Ok(()));
    /// assert_eq!(rendezvous.signal(1), Ok(()), "signals of a key are counted");
    /// assert_eq!(rendezvous.signal(2), Err(Full));
    /// ```
    pub fn signal(&self, key: u64) -> Result<(), Full> {
        self.monitor.with(|keys, wakes| keys.signal(key, wakes))
    }

    /// Releases all current waiters for `key`, and is not remembered. Returns their number. Not in
    /// interrupt handlers.
    ///
    /// Current are those that wait when it begins. What their wakers make wait is not released.
    ///
    /// ```
    /// # use cops_executor::sync::Rendezvous;
    /// assert_eq!(Rendezvous::<4>::new().signal_all(1), 0);
    /// ```
    pub fn signal_all(&self, key: u64) -> usize {
        let (mut released, mut end) = (0, None);
        loop {
            let more = self.monitor.with(|keys, wakes| {
                let end = *end.get_or_insert(keys.next);
                let is_current = |wait: Wait| wait.key == key && wait.number < end;
                let line = &mut keys.lines[Keys::<KEYS>::bucket(key)];
                while !wakes.is_full() {
                    if !line.grant_where(is_current, Met::WithAll, wakes) {
                        return false;
                    }
                    released += 1;
                }
                true
            });
            if !more {
                return released;
            }
        }
    }

    /// Signals of `key` that are remembered. Not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::sync::Rendezvous;
    /// let rendezvous = Rendezvous::<4>::new();
    /// rendezvous.signal(9).unwrap();
    /// assert_eq!(rendezvous.remembered(9), 1);
    /// ```
    #[must_use]
    pub fn remembered(&self, key: u64) -> u32 {
        self.monitor.with(|keys, _| keys.entry(key).map_or(0, |entry| entry.signals))
    }
}

impl<const KEYS: usize> Default for Rendezvous<KEYS> {
    fn default() -> Rendezvous<KEYS> {
        Rendezvous::new()
    }
}

impl<const KEYS: usize> fmt::Debug for Rendezvous<KEYS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Rendezvous").finish_non_exhaustive()
    }
}

impl fmt::Display for Full {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("no room for another signal that was not received")
    }
}

impl ::core::error::Error for Full {}

/// The program's own rendezvous, for [`wait_on`] and [`signal`]. Not linked unless they are used.
#[cfg(not(loom))]
static PROGRAM: Rendezvous<256> = Rendezvous::new();

/// Waits for a signal of `key` at the program's own [`Rendezvous`], which has room for 256 keys.
///
/// ```
/// # use cops_executor::{Executor, Priority, sync::{signal, wait_on}};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let waiter = EXECUTOR.spawn_join(wait_on(0xcafe), Priority::DEFAULT)?;
/// EXECUTOR.run_until_stalled(0);
/// signal(0xcafe)?;
/// EXECUTOR.block_on(waiter)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Cancel-safe, as [`Rendezvous::wait_on`]. Not in interrupt handlers.
#[cfg(not(loom))]
pub async fn wait_on(key: u64) {
    PROGRAM.wait_on(key).await;
}

/// As [`Rendezvous::signal`], at the program's own.
///
/// # Errors
///
/// [`Full`].
///
/// Not in interrupt handlers.
///
/// ```
/// # use cops_executor::Executor;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// use cops_executor::sync::{signal, wait_on};
/// signal(0xbeef)?;
/// EXECUTOR.block_on(wait_on(0xbeef)); // It was remembered.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(not(loom))]
pub fn signal(key: u64) -> Result<(), Full> {
    PROGRAM.signal(key)
}
