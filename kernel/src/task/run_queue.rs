//! The run queue: virtual CPUs that want a hart, by priority, and switching coroutines that have none to run.
//!
//! One lock. It is taken once per switch of a virtual CPU, which costs thousands of instructions
//! anyway; coroutines do not pass through here.
//! May touch: the kernel's executor (to wake switching coroutines).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::*};

use cops_abi::{CoroutineId, Priority};
use spin::Mutex;

use super::cpu::VirtualCpu;
use crate::arch;

/// A FIFO of virtual CPUs linked through themselves, so that queueing allocates nothing.
struct Fifo {
    head: Option<Arc<VirtualCpu>>,
    tail: Option<Arc<VirtualCpu>>,
}

struct Inner {
    queues: [Fifo; 64],
    /// The switching coroutine of each hart while it has nothing to run.
    idle: [Option<CoroutineId>; arch::MAX_HARTS],
}

/// See the module.
pub struct RunQueue {
    inner: Mutex<Inner>,
    /// A bit for each queue that is not empty; written under the lock, read by anybody as a hint.
    ready: AtomicU64,
}

/// The machine's run queue.
pub static RUN_QUEUE: RunQueue = RunQueue {
    inner: Mutex::new(Inner {
        queues: [const { Fifo { head: None, tail: None } }; 64],
        idle: [None; arch::MAX_HARTS],
    }),
    ready: AtomicU64::new(0),
};

impl RunQueue {
    /// The most urgent level with somebody in it, or 64.
    pub fn most_urgent(&self) -> u32 {
        self.ready.load(Relaxed).trailing_zeros()
    }

    /// Puts `cpu` at the end of the queue of its level and wakes a switching coroutine if one is idle.
    ///
    /// This hart's own is preferred unless it is running something: then whoever queues goes on at
    /// once, and another hart, asleep, takes the newcomer.
    pub fn push(&self, cpu: Arc<VirtualCpu>) {
        let level = cpu.level() & 63;
        let mut inner = self.inner.lock();
        let queue = &mut inner.queues[level as usize];
        match queue.tail.replace(cpu.clone()) {
            Some(last) => *last.next.lock() = Some(cpu),
            None => queue.head = Some(cpu),
        }
        self.ready.fetch_or(1 << level, Relaxed);
        let here = arch::hart_index();
        let chosen =
            if inner.idle[here].is_some() { Some(here) } else { inner.idle.iter().position(Option::is_some) };
        let Some(hart) = chosen else { return };
        let Some(switcher) = inner.idle[hart].take() else { return };
        drop(inner);
        cops_executor::set_priority(switcher, Priority::saturating(u32::from(level)));
        cops_executor::wake_up(switcher);
        // Should this hart go on with what it does, a sleeping one takes over what waits here.
        super::executor().offer(here as u32);
    }

    /// Takes the most urgent virtual CPU; if there is none, notes that `switcher` of `hart` is idle.
    pub fn pop_or_idle(&self, hart: usize, switcher: CoroutineId) -> Option<Arc<VirtualCpu>> {
        let mut inner = self.inner.lock();
        let level = self.ready.load(Relaxed).trailing_zeros() as usize;
        let Some(queue) = inner.queues.get_mut(level) else {
            inner.idle[hart] = Some(switcher);
            return None;
        };
        let cpu = queue.head.take()?;
        queue.head = cpu.next.lock().take();
        if queue.head.is_none() {
            queue.tail = None;
            self.ready.fetch_and(!(1 << level), Relaxed);
        }
        Some(cpu)
    }
}
