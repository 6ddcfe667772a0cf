//! What a round is mostly about: faults need certain things to happen often, and close to each
//! other.

/// How often an actor does what, and on how many levels.
#[derive(Clone, Copy)]
pub struct Mood {
    /// Levels that are in use, beside the urgent one's.
    pub levels: u32,
    /// Requests at a time of the thread outside.
    pub meddling: u32,
    /// Weights of what an actor does next.
    pub yields: u32,
    pub waits: u32,
    pub meddles: u32,
    pub locks: u32,
    pub moves_itself: u32,
    pub spawns: u32,
    pub joins: u32,
}

const MOODS: [Mood; 4] = [
    // Everything.
    Mood {
        levels: 63,
        meddling: 100,
        yields: 3,
        waits: 2,
        meddles: 3,
        locks: 1,
        moves_itself: 1,
        spawns: 1,
        joins: 1,
    },
    // Long lists from which coroutines block, woken and moved by others of their kind.
    Mood {
        levels: 2,
        meddling: 5,
        yields: 2,
        waits: 8,
        meddles: 16,
        locks: 0,
        moves_itself: 0,
        spawns: 0,
        joins: 0,
    },
    // Much to steal, and to move while it is stolen.
    Mood {
        levels: 8,
        meddling: 400,
        yields: 8,
        waits: 1,
        meddles: 4,
        locks: 0,
        moves_itself: 1,
        spawns: 4,
        joins: 0,
    },
    // Holders that inherit, and joins.
    Mood {
        levels: 16,
        meddling: 20,
        yields: 2,
        waits: 1,
        meddles: 2,
        locks: 8,
        moves_itself: 2,
        spawns: 0,
        joins: 4,
    },
];

impl Mood {
    pub fn of(round: u64) -> Mood {
        MOODS[round as usize % MOODS.len()]
    }

    /// All weights, in the order of the fields.
    pub fn weights(&self) -> [u32; 7] {
        [
            self.yields,
            self.waits,
            self.meddles,
            self.locks,
            self.moves_itself,
            self.spawns,
            self.joins,
        ]
    }
}
