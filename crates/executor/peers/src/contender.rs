//! The contenders, the operations in which each takes part, and the binary that has it.

use crate::operation::Operation;

/// One way of running tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// cops-executor, futures boxed.
    Cops,
    /// cops-executor, futures in slots that the program owns.
    CopsSlots,
    /// cops-executor's `Runtime`, with a handle to each coroutine.
    CopsRuntime,
    /// Boxed futures polled in turn.
    Raw,
    /// tokio's current-thread runtime.
    TokioCurrent,
    /// tokio's multi-thread runtime.
    TokioMulti,
    /// async-executor.
    AsyncExecutor,
    /// embassy-executor without priorities.
    Embassy,
    /// embassy-executor, futures boxed.
    EmbassyBoxed,
    /// embassy-executor with its priorities.
    EmbassyPriority,
    /// LocalPool of futures.
    LocalPool,
    /// Threads of the operating system.
    Threads,
}

use Contender::*;

impl Contender {
    /// All, in the order of the tables.
    pub const ALL: [Contender; 12] = [
        Cops,
        CopsSlots,
        CopsRuntime,
        Raw,
        Embassy,
        EmbassyBoxed,
        EmbassyPriority,
        TokioCurrent,
        TokioMulti,
        AsyncExecutor,
        LocalPool,
        Threads,
    ];

    /// The name on a command line and in the data.
    pub fn key(self) -> &'static str {
        match self {
            Cops => "cops",
            CopsSlots => "cops-slots",
            CopsRuntime => "cops-runtime",
            Raw => "raw",
            TokioCurrent => "tokio-current",
            TokioMulti => "tokio-multi",
            AsyncExecutor => "async-executor",
            Embassy => "embassy",
            EmbassyBoxed => "embassy-boxed",
            EmbassyPriority => "embassy-priority",
            LocalPool => "local-pool",
            Threads => "threads",
        }
    }

    /// The name in a table.
    pub fn title(self) -> &'static str {
        match self {
            Cops => "**cops-executor**, futures boxed",
            CopsSlots => "**cops-executor**, futures in slots",
            CopsRuntime => "**cops-executor**, `Runtime` and handles",
            Raw => "raw polling of boxed futures",
            TokioCurrent => "tokio, current-thread",
            TokioMulti => "tokio, multi-thread",
            AsyncExecutor => "async-executor",
            Embassy => "embassy-executor, futures in slots",
            EmbassyBoxed => "embassy-executor, futures boxed",
            EmbassyPriority => "embassy-executor, its priorities",
            LocalPool => "futures LocalPool",
            Threads => "OS threads",
        }
    }

    /// By its key.
    pub fn from_key(key: &str) -> Option<Contender> {
        Self::ALL.into_iter().find(|contender| contender.key() == key)
    }

    /// Whether it keeps priorities.
    pub fn has_priorities(self) -> bool {
        matches!(self, Cops | CopsSlots | CopsRuntime | EmbassyPriority)
    }

    /// Whether several threads may poll the tasks of one executor.
    pub fn has_workers(self) -> bool {
        matches!(self, Cops | TokioMulti | AsyncExecutor)
    }

    /// Whether a runtime's own thread takes part in a count: then it varies with how the threads
    /// meet.
    pub fn is_counted_with_threads(self) -> bool {
        matches!(self, CopsRuntime | TokioMulti)
    }

    /// Whether the operation means something here, and comes to an end.
    pub fn takes(self, operation: Operation) -> bool {
        match (self, operation) {
            (Threads, Operation::Yield { coroutines, levels: 1 }) => coroutines <= 1_000,
            (Threads, Operation::Spawn { batch }) => batch == 1,
            (Threads, Operation::Join | Operation::Ring | Operation::Bytes) => true,
            (Threads, Operation::Ping { is_foreign }) => !is_foreign,
            (Threads, _) => false,
            (Raw, Operation::Yield { levels: 1, .. }) => true,
            (Raw, Operation::Spawn { .. }) => true,
            (Raw, _) => false,
            // In the other operations spawning does not count.
            (CopsSlots, Operation::Spawn { .. } | Operation::Bytes) => true,
            (EmbassyBoxed, Operation::Spawn { .. }) => true,
            (CopsRuntime, Operation::Spawn { .. } | Operation::Join) => true,
            (CopsSlots | CopsRuntime | EmbassyBoxed, _) => false,
            // Sorting 100,000 peers takes their square of steps; the others have no part for
            // priorities.
            (EmbassyPriority, Operation::Yield { coroutines, .. }) => coroutines <= 1_000,
            (EmbassyPriority, Operation::Spawn { batch }) => batch <= 1_000,
            (EmbassyPriority, Operation::Ping { .. } | Operation::Bytes) => false,
            (_, Operation::Contended { .. }) => self.has_workers(),
            (_, Operation::Yield { levels, .. }) => levels == 1 || self.has_priorities(),
            (_, Operation::Urgent { workers, .. }) => workers == 1 || self.has_workers(),
            (Embassy | EmbassyPriority, Operation::Join | Operation::Wake { .. }) => false,
            (_, Operation::RingById) => self == Cops,
            _ => true,
        }
    }

    /// Which binary measures it.
    pub fn binary(self, operation: Operation) -> Binary {
        match (self, operation) {
            (EmbassyPriority, _) => Binary::EmbassyPriority,
            (Threads, _) => Binary::Main,
            (_, Operation::Bytes) => Binary::LiveBytes,
            _ => Binary::Main,
        }
    }

    /// How many times fewer operations make a run of about the same length.
    pub fn slowness(self, operation: Operation) -> u64 {
        match (self, operation) {
            (Threads, Operation::Spawn { .. } | Operation::Join) => 1_000,
            (Threads, Operation::Ping { .. }) => 1,
            (Threads, _) => 20,
            (EmbassyPriority, Operation::Yield { coroutines: 1_000, .. } | Operation::Mixed) => 50,
            _ => 1,
        }
    }
}

/// The binaries of this package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// The one that was started.
    Main,
    /// With an allocator that counts.
    LiveBytes,
    /// With embassy's priorities.
    EmbassyPriority,
}
