//! A barrier: threads wait for each other.

use super::condvar::Condvar;
use super::mutex::Mutex;

#[derive(Debug)]
struct State {
    arrived: usize,
    generation: usize,
}

/// Lets a number of threads continue together.
#[derive(Debug)]
pub struct Barrier {
    state: Mutex<State>,
    complete: Condvar,
    count: usize,
}

/// Whether a thread was the last to arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// True for one of the threads.
    #[must_use]
    pub fn is_leader(self) -> bool {
        self.0
    }
}

impl Barrier {
    /// For `count` threads; 0 is as 1.
    #[must_use]
    pub const fn new(count: usize) -> Self {
        let state = Mutex::new(State { arrived: 0, generation: 0 });
        Self { state, complete: Condvar::new(), count }
    }

    /// Waits until all have arrived. Then it can be used again.
    pub fn wait(&self) -> BarrierWaitResult {
        let mut state = self.state.lock();
        let generation = state.generation;
        state.arrived += 1;
        if state.arrived < self.count {
            drop(self.complete.wait_while(state, |state| state.generation == generation));
            return BarrierWaitResult(false);
        }
        state.arrived = 0;
        state.generation = generation.wrapping_add(1);
        drop(state);
        self.complete.notify_all();
        BarrierWaitResult(true)
    }
}
