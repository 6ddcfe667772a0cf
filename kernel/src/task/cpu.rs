//! Virtual CPUs: the kernel-supported threads of a process, on which its workers run.
//!
//! A virtual CPU's *state* is a few words under its process's lock, so that anybody may wake it;
//! its *registers* are behind a lock that the hart running it holds all the while. Nobody but a
//! switching coroutine takes that second lock.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};

use cops_abi::Errno;
use cops_abi::interrupt::{CpuPhase, CpuRecord};
use cops_algorithms::cpu_state;
pub use cops_algorithms::cpu_state::{CpuState, Event as CpuEvent};

use spin::Mutex;

use super::process::Process;
use super::run_queue::Place;
use crate::arch::UserContext;
use crate::mm::quota::{Amounts, Charge, Kind};
use crate::syscall::work::Unfinished;
use crate::trace::Event;

/// A state as its process sees it: without the hart.
fn phase(state: CpuState) -> CpuPhase {
    match state {
        CpuState::Runnable => CpuPhase::Runnable,
        CpuState::Running { .. } => CpuPhase::Running,
        CpuState::Parked => CpuPhase::Parked,
        CpuState::Waiting => CpuPhase::Waiting,
        CpuState::Ended => CpuPhase::Ended,
    }
}

/// What others may know and change about a virtual CPU; guarded by its process's lock.
#[derive(Debug)]
pub struct CpuStatus {
    /// Where it is. Changed by [`CpuStatus::apply`] only.
    state: CpuState,
    /// A wake came while it was not parked: its next `park` returns at once.
    pub wake_pending: bool,
    /// Result of the synchronous call it waited for, to be put into its registers when it next runs.
    pub result: Option<isize>,
}

impl CpuStatus {
    /// A new virtual CPU, which the caller queues.
    pub(super) fn runnable(record: Option<&CpuRecord>) -> Self {
        let status = Self { state: CpuState::Runnable, wake_pending: false, result: None };
        status.publish(record);
        status
    }

    /// Where it is.
    pub fn state(&self) -> CpuState {
        self.state
    }

    /// Changes the state as [`cpu_state::next`] says and publishes it in `record`, the virtual CPU's part of the
    /// process's page. Returns the new state, or `None` if the event is refused.
    ///
    /// The only way a state changes. `ending`: whether the process is ending.
    #[must_use]
    pub(super) fn apply(
        &mut self,
        event: CpuEvent,
        ending: bool,
        record: Option<&CpuRecord>,
    ) -> Option<CpuState> {
        self.state = cpu_state::next(self.state, event, ending)?;
        self.publish(record);
        Some(self.state)
    }

    fn publish(&self, record: Option<&CpuRecord>) {
        if let Some(record) = record {
            record.phase.store(phase(self.state) as u32, Relaxed);
        }
    }
}

/// Where the switching coroutine is that has a virtual CPU in hand.
///
/// Written without the run queue's lock by the switching coroutine itself, and under that lock by whoever raises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is polled by this hart, which runs the virtual CPU or is about to.
    Running { hart: usize },
    /// It waits in the executor at this level until coroutines of the kernel have had their turn.
    Paused { level: u8 },
}

impl Standing {
    const PAUSED: u32 = 1 << 16;

    fn to_word(self) -> u32 {
        match self {
            Standing::Running { hart } => hart as u32,
            Standing::Paused { level } => Self::PAUSED | u32::from(level),
        }
    }

    fn from_word(word: u32) -> Self {
        match word & Self::PAUSED {
            0 => Standing::Running { hart: word as usize },
            _ => Standing::Paused { level: word as u8 },
        }
    }
}

/// One virtual CPU.
pub struct VirtualCpu {
    /// The process it belongs to.
    pub process: Arc<Process>,
    /// Its number within the process: the number of its worker.
    pub index: usize,
    /// Registers; locked by the hart that runs it.
    pub context: Mutex<UserContext>,
    /// The priority it was last made runnable with.
    pub level: AtomicU8,
    /// Where the switching coroutine that has it in hand is; see [`Standing`].
    standing: AtomicU32,
    /// Its place in the run queue, while it is there; changed under the run queue's lock.
    pub(super) queued: Mutex<Place>,
    /// A call of its that is done in portions, between two of them; only the hart that runs it looks.
    pub(crate) unfinished: Mutex<Option<Unfinished>>,
    /// What it takes.
    _charge: Charge,
    /// Ticks that it had a hart.
    pub run_ticks: AtomicU64,
}

impl VirtualCpu {
    /// # Errors
    /// `EAGAIN`, `ENOMEM` by the quotas of the process.
    pub(super) fn new(process: Arc<Process>, index: usize, context: UserContext) -> Result<Self, Errno> {
        let amounts = Amounts::of(Kind::Cpus, 1).and(Kind::Memory, size_of::<Self>() as u64);
        let charge = Charge::new(process.family, &amounts)?;
        let level = AtomicU8::new(cops_abi::Priority::DEFAULT.level());
        Ok(Self {
            _charge: charge,
            process,
            index,
            context: Mutex::new(context),
            level,
            standing: AtomicU32::new(0),
            queued: Mutex::new(Place::new()?),
            unfinished: Mutex::new(None),
            run_ticks: AtomicU64::new(0),
        })
    }

    /// An event about this virtual CPU, made of its process's number and its own.
    pub fn event(&self, event: impl FnOnce(u32, u8) -> Event) -> Event {
        event(self.process.id, self.index as u8)
    }

    /// The priority it was last made runnable with.
    pub fn level(&self) -> u8 {
        self.level.load(Relaxed)
    }

    /// Where its switching coroutine is. Means nothing while it is in nobody's hand.
    pub(super) fn standing(&self) -> Standing {
        Standing::from_word(self.standing.load(SeqCst))
    }

    /// Its switching coroutine is there now. Sequentially consistent: what the caller reads afterwards, others wrote before they
    /// looked here, or they see this.
    pub(super) fn set_standing(&self, standing: Standing) {
        self.standing.store(standing.to_word(), SeqCst);
    }
}
