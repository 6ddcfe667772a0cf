//! The list of all that is measured, and of the tables it is shown in.

use crate::operation::Operation;

/// One measurement, of every contender that takes it.
#[derive(Debug)]
pub struct Row {
    /// Its name on a command line and in the data.
    pub key: &'static str,
    /// Its columns' head in the table.
    pub head: &'static str,
    /// What is done.
    pub operation: Operation,
}

/// Rows that belong together.
#[derive(Debug)]
pub struct Table {
    /// Its heading.
    pub title: &'static str,
    /// What an operation is, for readers of the table.
    pub note: &'static str,
    /// Its columns.
    pub rows: &'static [Row],
}

impl Row {
    /// By its key.
    pub fn from_key(key: &str) -> Option<&'static Row> {
        TABLES.iter().flat_map(|table| table.rows).find(|row| row.key == key)
    }

    /// Whether a key, or the beginning of some, is this row's.
    pub fn is_meant_by(&self, words: &str) -> bool {
        self.key == words || self.key.starts_with(words) && Row::from_key(words).is_none()
    }
}

const fn row(key: &'static str, head: &'static str, operation: Operation) -> Row {
    Row { key, head, operation }
}

/// All.
pub const TABLES: &[Table] = &[
    Table {
        title: "Yield and pick again",
        note: "A coroutine wakes itself and returns; another is picked and polled. One worker.",
        rows: &[
            row("yield-10", "10", Operation::Yield { coroutines: 10, levels: 1 }),
            row("yield-1000", "1,000", Operation::Yield { coroutines: 1_000, levels: 1 }),
            row("yield-100000", "100,000", Operation::Yield { coroutines: 100_000, levels: 1 }),
            row(
                "yield-levels",
                "1,000 on 64 levels",
                Operation::Yield { coroutines: 1_000, levels: 64 },
            ),
        ],
    },
    Table {
        title: "Spawn, run, exit",
        note: "A parent spawns empty coroutines, 1,000, one or 100,000, and waits until they have finished. Slots are \
               memory that the program owns; all others allocate. A `Runtime`'s spawn, the convenient one, also makes a \
               handle, which is dropped. Threads: with a join.",
        rows: &[
            row("spawn-1000", "1,000 at a time", Operation::Spawn { batch: 1_000 }),
            row("spawn-1", "one at a time", Operation::Spawn { batch: 1 }),
            row("spawn-100000", "100,000 at a time", Operation::Spawn { batch: 100_000 }),
        ],
    },
    Table {
        title: "Wake the next in a ring, and block",
        note: "Wang's test A: 1,000 coroutines, one of them ready. embassy spins as its platform-spin does.",
        rows: &[
            row("ring", "by `Waker`", Operation::Ring),
            row("ring-id", "by `wake_up(id)`", Operation::RingById),
        ],
    },
    Table {
        title: "Join",
        note: "A parent spawns a coroutine and awaits its output.",
        rows: &[row("join", "spawn, run, output", Operation::Join)],
    },
    Table {
        title: "64 priorities mixed",
        note: "1,000 coroutines of random priorities; each in turn yields, wakes another of a random ring, and waits \
               until it has been woken itself: two scheduling points and a wake. Without priorities: the same program.",
        rows: &[row("mixed", "a round", Operation::Mixed)],
    },
    Table {
        title: "Two workers, 1,000 yielding coroutines",
        note: "Wall time of a poll.",
        rows: &[
            row("contended-1", "1 worker", Operation::Contended { workers: 1, works: false }),
            row("contended-2", "2 workers", Operation::Contended { workers: 2, works: false }),
        ],
    },
    Table {
        title: "Two workers, 1,000 yielding coroutines with some 50 ns of work in each poll",
        note: "Wall time of a poll, the work included.",
        rows: &[
            row("working-1", "1 worker", Operation::Contended { workers: 1, works: true }),
            row("working-2", "2 workers", Operation::Contended { workers: 2, works: true }),
        ],
    },
    Table {
        title: "Wake across threads",
        note: "A turn goes to and fro between two tasks, each with an executor and a thread that sleeps meanwhile; or \
               between a task and a plain thread. Wall time of one way, most of it the operating system's.",
        rows: &[
            row("ping", "task and task", Operation::Ping { is_foreign: false }),
            row("ping-foreign", "task and plain thread", Operation::Ping { is_foreign: true }),
        ],
    },
    Table {
        title: "Wake by a plain thread",
        note: "From before the call of the wake until the task's poll begins: the median of 1,000 wakes. The task's worker \
               has been parked for some time, or polls 100 other tasks that yield.",
        rows: &[
            row("wake-parked", "a parked worker", Operation::Wake { is_busy: false }),
            row("wake-busy", "a busy worker", Operation::Wake { is_busy: true }),
        ],
    },
    Table {
        title: "Urgent wake among 1,000 others that are ready",
        note: "Polls of others that begin after the wake has returned and before the urgent one is polled, in 500 trials: \
               median / 99th percentile / most. The wake comes from one of the others, or from a plain thread. Where \
               there are more threads than processors, the system may suspend a worker that has just picked the \
               urgent one. tokio's multi-thread runtime prefers whatever a task of the same worker woke last, urgent \
               or not; other wakes go through its global queue, where all that exceeds 256 tasks a worker waits too.",
        rows: &[
            row("urgent-1", "1 worker", Operation::Urgent { workers: 1, is_foreign: false }),
            row("urgent-2", "2 workers", Operation::Urgent { workers: 2, is_foreign: false }),
            row("urgent-4", "4 workers", Operation::Urgent { workers: 4, is_foreign: false }),
            row(
                "urgent-foreign-1",
                "1, by a plain thread",
                Operation::Urgent { workers: 1, is_foreign: true },
            ),
            row(
                "urgent-foreign-2",
                "2, by a plain thread",
                Operation::Urgent { workers: 2, is_foreign: true },
            ),
            row(
                "urgent-foreign-4",
                "4, by a plain thread",
                Operation::Urgent { workers: 4, is_foreign: true },
            ),
        ],
    },
    Table {
        title: "Bytes of a coroutine",
        note: "Asked of the allocator and alive after 10,000 spawns of a future of 16 bytes that waits, with queues and \
               tables of the runtime. Threads: resident memory of 1,000, without the kernel's.",
        rows: &[row("bytes", "each", Operation::Bytes)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Contender;

    #[test]
    fn keys_are_unique_and_lead_back() {
        for row in TABLES.iter().flat_map(|table| table.rows) {
            assert_eq!(Row::from_key(row.key).map(|found| found.operation), Some(row.operation));
        }
        for contender in Contender::ALL {
            assert_eq!(Contender::from_key(contender.key()), Some(contender));
        }
        assert!(Row::from_key("").is_none());
    }

    #[test]
    fn a_whole_key_means_one_row() {
        let meant = |words: &str| {
            let rows = TABLES.iter().flat_map(|table| table.rows);
            rows.filter(|row| row.is_meant_by(words)).map(|row| row.key).collect::<Vec<_>>()
        };
        assert_eq!(meant("spawn-1"), ["spawn-1"]);
        assert_eq!(meant("spawn"), ["spawn-1000", "spawn-1", "spawn-100000"]);
        assert!(meant("spawn-2").is_empty());
    }

    #[test]
    fn every_row_is_taken_by_us() {
        for row in TABLES.iter().flat_map(|table| table.rows) {
            assert!(Contender::Cops.takes(row.operation), "{}", row.key);
        }
    }
}
