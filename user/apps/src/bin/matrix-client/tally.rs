//! What a connection has seen.

use alloc::sync::Arc;
use alloc::vec::Vec;

use cops::thread::sync::Mutex;
use cops::time::Duration;

/// Counts, and the times of answers.
#[derive(Default, Clone)]
pub struct Tally {
    /// Requests of the measured time.
    pub sent: u64,
    /// Right answers to those.
    pub received: u64,
    /// Wrong answers, whenever.
    pub wrong: u64,
    /// Right answers in the measured time.
    pub in_window: u64,
    /// Nanoseconds of each answer in `received`.
    pub latencies: Vec<u64>,
    /// Sum and number of the differences of latencies that follow each other on a connection.
    pub jitter: (u64, u64),
}

impl Tally {
    /// An answer came after `latency`.
    pub fn answered(
        &mut self,
        latency: Duration,
        is_right: bool,
        is_measured: bool,
        is_in_window: bool,
    ) {
        if !is_right {
            self.wrong += 1;
            return;
        }
        self.in_window += u64::from(is_in_window);
        if !is_measured {
            return;
        }
        self.received += 1;
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        if let Some(last) = self.latencies.last() {
            self.jitter.0 += last.abs_diff(nanoseconds);
            self.jitter.1 += 1;
        }
        self.latencies.push(nanoseconds);
    }

    /// Wrong and missing answers.
    pub fn errors(&self) -> u64 {
        self.wrong + self.sent.saturating_sub(self.received + self.wrong)
    }

    /// All of them together, with sorted latencies.
    pub fn sum<'a>(tallies: impl Iterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for tally in tallies {
            sum.sent += tally.sent;
            sum.received += tally.received;
            sum.wrong += tally.wrong;
            sum.in_window += tally.in_window;
            sum.latencies.extend_from_slice(&tally.latencies);
            sum.jitter.0 += tally.jitter.0;
            sum.jitter.1 += tally.jitter.1;
        }
        sum.latencies.sort_unstable();
        sum
    }
}

/// The tallies of all connections, by their numbers.
pub type Shared = Arc<Vec<Mutex<Tally>>>;

/// Empty tallies.
pub fn shared(connections: usize) -> Shared {
    Arc::new((0..connections).map(|_| Mutex::new(Tally::default())).collect())
}

/// Takes the tallies out; later answers do not count.
pub fn take(shared: &Shared) -> Vec<Tally> {
    shared.iter().map(|tally| core::mem::take(&mut *tally.lock())).collect()
}

/// The tally of one connection.
pub struct Place(Shared, usize);

impl Place {
    pub fn new(shared: Shared, connection: u32) -> Self {
        Self(shared, connection as usize)
    }

    /// Changes it. Its lock is held for this only, by coroutines of one virtual CPU.
    pub fn tally(&self, change: impl FnOnce(&mut Tally)) {
        if let Some(tally) = self.0.get(self.1) {
            change(&mut tally.lock());
        }
    }
}
