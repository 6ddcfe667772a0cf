//! Standing reads: one call that fills the same block again each time the program has emptied it
//! (decision 51).
//!
//! The block begins with its *turn*, which says whether the kernel may fill it. This module is the
//! protocol on that word, for both sides. The kernel trusts it with nothing but the bytes of that
//! one call.

use core::sync::atomic::{AtomicU32, Ordering::*};

/// Number of bytes before those that are received: the turn, and four that are reserved.
pub const HEADER_BYTES: usize = 8;
/// Flag of a result: the call has ended, and this is its last result.
pub const ENDED: usize = 1 << 30;
/// Maximum number of bytes of a block, with its header.
pub const BLOCK_BYTES_MAX: usize = 16 * 1024;

/// The lower bits of a result: the number of bytes in the block.
const COUNT_BITS: u32 = BLOCK_BYTES_MAX.ilog2() + 1;
const COUNT_MAX: usize = (1 << COUNT_BITS) - 1;
/// The bits between these and the flag: how many bytes have no room in the block.
const LEFT_MAX: usize = (ENDED >> COUNT_BITS) - 1;

/// The result of a call that stands: `count` bytes are in the block, and `left` more have arrived.
/// A number that has no room here becomes the largest one: nothing reads that many at once.
#[must_use]
#[inline]
pub fn result(count: usize, left: usize) -> usize {
    debug_assert!(0 < count && count <= COUNT_MAX);
    count | left.min(LEFT_MAX) << COUNT_BITS
}

/// The number of bytes in the block.
#[must_use]
#[inline]
pub fn count(result: usize) -> usize {
    result & COUNT_MAX
}

/// The number of bytes that are the program's to read otherwise, before the block is filled again;
/// or else it calls `resume_read` when it has emptied the block, which fills it again at once. Not
/// of a result with [`ENDED`].
#[must_use]
#[inline]
pub fn left(result: usize) -> usize {
    result >> COUNT_BITS
}

/// The kernel may fill the block.
const EMPTY: u32 = 0;
/// The block is the program's: a result is on its way, or has been taken.
const FULL: u32 = 1;
/// The same, and the program calls `resume_read` when it has emptied the block.
const WANTED: u32 = 2;

/// The program has emptied the block, or makes a new call with it. Returns whether it has to call
/// `resume_read`, because more has arrived meanwhile.
#[must_use]
pub fn empty(turn: &AtomicU32) -> bool {
    turn.swap(EMPTY, AcqRel) == WANTED
}

/// Whether the program has to call `resume_read` after [`empty`], which finds it again.
#[must_use]
pub fn is_wanted(turn: &AtomicU32) -> bool {
    turn.load(Relaxed) == WANTED
}

/// Whether the kernel may fill the block.
#[must_use]
pub fn is_empty(turn: &AtomicU32) -> bool {
    turn.load(Acquire) == EMPTY
}

/// The kernel has filled the block, and delivers a result next.
pub fn fill(turn: &AtomicU32) {
    turn.store(FULL, Release);
}

/// The kernel has more for the block. Returns whether the program asks for it; if not, the block is
/// empty and the kernel has to fill it.
#[must_use]
pub fn want(turn: &AtomicU32) -> bool {
    turn.compare_exchange(FULL, WANTED, AcqRel, Acquire) != Err(EMPTY)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::HashSet;

    /// What the two sides and the network have done so far. A step of each is one access to what
    /// they share; `explore` takes them in every order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct World {
        turn: u32,
        /// Messages that have not arrived yet.
        to_come: u32,
        /// Those that the connection has.
        waiting: u32,
        /// Results in the ring, and how many messages had no room in the last one.
        results: u32,
        left: u32,
        /// Those that the program has taken.
        taken: u32,
        kernel: Kernel,
        program: Program,
        is_registered: bool,
        is_woken: bool,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Kernel {
        Asleep,
        Looks,
        /// Has taken a message, and with it counted those that are left, and registered.
        Fills {
            left: u32,
        },
        Registers,
        Wants,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Program {
        Waits,
        /// Has taken a result, and reads what is left otherwise or leaves it.
        Reads {
            left: u32,
        },
        Empties {
            left: u32,
        },
        /// In the kernel, which lets its coroutine do nothing meanwhile.
        Resumes,
        /// The same: the block is filled, and the call is in no queue.
        Registers,
        Wants,
    }

    impl World {
        fn with_turn<R>(&mut self, act: impl FnOnce(&AtomicU32) -> R) -> R {
            let turn = AtomicU32::new(self.turn);
            let result = act(&turn);
            self.turn = turn.into_inner();
            result
        }

        fn arrive(mut self) -> Option<Self> {
            self.to_come = self.to_come.checked_sub(1)?;
            self.waiting += 1;
            self.is_woken |= core::mem::take(&mut self.is_registered);
            Some(self)
        }

        fn kernel(mut self) -> Option<Self> {
            if matches!(self.program, Program::Registers | Program::Wants) {
                return None;
            }
            self.kernel = match self.kernel {
                Kernel::Asleep => {
                    core::mem::take(&mut self.is_woken).then_some(())?;
                    Kernel::Looks
                }
                Kernel::Looks => {
                    if self.waiting > 0 && self.with_turn(is_empty) {
                        self.waiting -= 1;
                        self.is_registered = true;
                        Kernel::Fills { left: self.waiting }
                    } else {
                        Kernel::Registers
                    }
                }
                Kernel::Fills { left } => {
                    self.with_turn(fill);
                    self.results += 1;
                    self.left = left;
                    assert_eq!(self.results, 1, "two results under way");
                    Kernel::Asleep
                }
                Kernel::Registers => {
                    self.is_registered = true;
                    if self.waiting > 0 { Kernel::Wants } else { Kernel::Asleep }
                }
                Kernel::Wants => {
                    let is_wanted = self.with_turn(want);
                    self.is_registered &= !is_wanted;
                    self.is_woken |= !is_wanted;
                    Kernel::Asleep
                }
            };
            Some(self)
        }

        /// A read of the same connection that is not the standing one.
        fn read(mut self, messages: u32) -> Self {
            self.waiting -= messages;
            self.taken += messages;
            self
        }

        /// What the program may do next.
        fn program(mut self) -> std::vec::Vec<Self> {
            let then = |world: Self, program| Self { program, ..world };
            match self.program {
                Program::Waits => {
                    let Some(results) = self.results.checked_sub(1) else {
                        return std::vec![];
                    };
                    self.results = results;
                    self.taken += 1;
                    std::vec![then(self, Program::Reads { left: self.left })]
                }
                Program::Reads { left } => std::vec![
                    then(self, Program::Empties { left }),
                    then(self.read(left), Program::Empties { left: 0 }),
                    // A read that takes all that there is by now.
                    then(self.read(self.waiting), Program::Empties { left: 0 }),
                ],
                Program::Empties { left } => {
                    let is_wanted = self.with_turn(empty);
                    let resumes = is_wanted || left != 0;
                    std::vec![then(self, if resumes { Program::Resumes } else { Program::Waits })]
                }
                Program::Resumes if self.kernel != Kernel::Asleep => std::vec![],
                Program::Resumes => {
                    if self.waiting == 0 || !self.with_turn(is_empty) {
                        self.is_woken = true;
                        return std::vec![then(self, Program::Waits)];
                    }
                    assert_eq!(self.results, 0, "a result under way beside one at once");
                    self.waiting -= 1;
                    self.taken += 1;
                    self.left = self.waiting;
                    self.with_turn(fill);
                    let is_asked = self.left != 0 && !self.is_registered && self.with_turn(want);
                    let next = if is_asked || self.is_registered {
                        Program::Reads { left: self.left }
                    } else {
                        Program::Registers
                    };
                    std::vec![then(self, next)]
                }
                Program::Registers => {
                    self.is_registered = true;
                    let reads = Program::Reads { left: self.left };
                    std::vec![then(self, if self.waiting > 0 { Program::Wants } else { reads })]
                }
                Program::Wants => {
                    self.is_registered = false;
                    assert!(self.with_turn(want), "filled, and the program is in the kernel");
                    std::vec![then(self, Program::Reads { left: self.left })]
                }
            }
        }
    }

    fn explore(world: World, messages: u32, seen: &mut HashSet<World>) {
        if !seen.insert(world) {
            return;
        }
        let mut steps = world.program();
        steps.extend(world.arrive());
        steps.extend(world.kernel());
        if steps.is_empty() {
            assert_eq!(world.taken, messages, "stuck: {world:?}");
        }
        for next in steps {
            explore(next, messages, seen);
        }
    }

    #[test]
    fn everything_that_arrives_is_taken_in_every_order_of_steps() {
        const MESSAGES: u32 = 6;
        let world = World {
            turn: EMPTY,
            to_come: MESSAGES,
            waiting: 0,
            results: 0,
            left: 0,
            taken: 0,
            kernel: Kernel::Registers,
            program: Program::Waits,
            is_registered: false,
            is_woken: false,
        };
        explore(world, MESSAGES, &mut HashSet::new());
    }

    #[test]
    fn a_result_says_what_is_in_the_block_and_what_is_left() {
        for bytes in [1, 512, BLOCK_BYTES_MAX - HEADER_BYTES] {
            for behind in [0, 1, 1400, LEFT_MAX, usize::MAX] {
                let result = result(bytes, behind);
                assert_eq!((count(result), left(result)), (bytes, behind.min(LEFT_MAX)));
                assert_eq!(count(result | ENDED), bytes);
                assert_eq!(result & ENDED, 0);
            }
        }
    }

    #[test]
    fn a_turn_with_any_other_value_is_not_filled() {
        for value in [FULL, WANTED, 3, u32::MAX] {
            let turn = AtomicU32::new(value);
            assert!(!is_empty(&turn) && want(&turn), "{value}");
        }
    }
}
