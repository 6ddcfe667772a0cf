//! Call paths, reconstructed from calls and returns.
//!
//! A path is a node of a tree: the path of the caller, and the address to which the call returns.
//! The kernel has one path at a time, because a machine that counts instructions has one hart. A
//! trap into the kernel out of a program continues the path on which the kernel entered the
//! program; a trap within the kernel adds a frame without return address. Each virtual CPU has a
//! path of its own; when the kernel enters a program, that path continues which was left at this
//! place.

use std::collections::HashMap;

use crate::code::End;

/// Number of a node. Its path is that of its parent and one more frame.
pub type Node = u32;

/// In the place of a return address, the frame of a trap has the address of the interrupted
/// instruction with this bit, which no address has.
const TRAP: u64 = 1;
/// The deepest path that is followed; deeper frames are counted for this one.
const DEPTH_MAX: u32 = 400;
/// Paths that were left in programs; the oldest are forgotten, and begin anew.
const LEFT_MAX: usize = 4096;

/// The parts of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Firmware,
    Kernel,
    /// A program, or the vDSO in it.
    Program,
}

impl Part {
    /// The part that has the code at this address. The firmware and the beginning of the kernel use
    /// physical addresses.
    pub fn of(address: u64) -> Self {
        const USER_END: u64 = 1 << 38;
        match address {
            ..0x1_0000 | 0x8000_0000..0x8020_0000 => Part::Firmware,
            0x8020_0000..0x8100_0000 | USER_END.. => Part::Kernel,
            _ => Part::Program,
        }
    }
}

/// One frame of a path.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub parent: Node,
    pub return_address: u64,
    depth: u32,
}

/// A place in a program's code: its address, and the address of the memory that has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    pub address: u64,
    pub memory: u64,
}

/// The executed part of a block.
#[derive(Clone, Copy, Debug)]
pub struct Executed {
    pub part: Part,
    /// What its last instruction did; `Plain` if something stopped it before.
    pub end: End,
    /// The last instruction that began, and the one behind it.
    pub last: Place,
    pub behind: Place,
}

/// All paths, and those that are current.
#[derive(Debug)]
pub struct Stacks {
    frames: Vec<Frame>,
    by_frame: HashMap<(Node, u64), Node>,
    /// The address at which the kernel's traps begin.
    trap_vector: u64,
    firmware: Node,
    kernel: Node,
    program: Node,
    /// What was executed before the firmware took the hart.
    before_firmware: Option<Executed>,
    /// By address: the memory, the path, and the number of the time when it was left.
    left: HashMap<u64, Vec<(u64, Node, u64)>>,
    left_count: u64,
}

/// The roots, by part.
const FIRMWARE: Node = 0;
const KERNEL: Node = 1;
const PROGRAM: Node = 2;

impl Stacks {
    pub fn new(trap_vector: u64) -> Self {
        let root = |node| Frame { parent: node, return_address: 0, depth: 0 };
        Self {
            frames: vec![root(FIRMWARE), root(KERNEL), root(PROGRAM)],
            by_frame: HashMap::new(),
            trap_vector,
            firmware: FIRMWARE,
            kernel: KERNEL,
            program: PROGRAM,
            before_firmware: None,
            left: HashMap::new(),
            left_count: 0,
        }
    }

    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// After `before`, the code at `next` is executed, in `part`. Returns its path.
    pub fn follow(&mut self, before: Option<Executed>, next: Place, part: Part) -> Node {
        // The firmware's own interrupts may come anywhere, and it returns there.
        if part == Part::Firmware {
            if let Some(before) = before.filter(|before| before.part != Part::Firmware) {
                self.before_firmware = Some(before);
                let node = if before.part == Part::Kernel { self.kernel } else { self.program };
                let interrupted = self.interrupted(node, before);
                self.firmware = self.child(interrupted, before.last.address | TRAP);
            }
            return self.firmware;
        }
        let before = match before {
            Some(before) if before.part == Part::Firmware => self.before_firmware.take(),
            before => before,
        };
        if let Some(before) = before {
            match (before.part, part) {
                (Part::Program, Part::Program) => {
                    self.program = self.within(self.program, before, next);
                }
                (Part::Program, _) => self.leave(before),
                (_, Part::Program) => self.program = self.enter(next),
                _ => self.in_kernel(before, next),
            }
        }
        if part == Part::Kernel { self.kernel } else { self.program }
    }

    fn in_kernel(&mut self, before: Executed, next: Place) {
        let mut interrupted_at = before.last.address;
        if before.end == End::TrapReturn {
            match self.last_frame(self.kernel, |address| address & TRAP != 0) {
                Some(trap) => {
                    self.kernel = trap.parent;
                    interrupted_at = trap.return_address;
                }
                // To a program that is interrupted before its first instruction.
                None => return,
            }
        }
        if next.address == self.trap_vector {
            let interrupted = self.interrupted(self.kernel, before);
            self.kernel = self.child(interrupted, interrupted_at | TRAP);
        } else {
            self.kernel = self.within(self.kernel, before, next);
        }
    }

    /// The path after `before`, where a trap takes the hart before what follows.
    fn interrupted(&mut self, node: Node, before: Executed) -> Node {
        let frame = self.frames[node as usize];
        match before.end {
            End::Call => self.child(node, before.behind.address),
            End::Return if frame.return_address & TRAP == 0 => frame.parent,
            _ => node,
        }
    }

    fn within(&mut self, node: Node, before: Executed, next: Place) -> Node {
        match before.end {
            End::Call => self.child(node, before.behind.address),
            End::Return => {
                let caller = self.last_frame(node, |address| address == next.address);
                caller.map_or(node, |frame| frame.parent)
            }
            _ => node,
        }
    }

    fn child(&mut self, parent: Node, return_address: u64) -> Node {
        let depth = self.frames[parent as usize].depth + 1;
        if depth > DEPTH_MAX {
            return parent;
        }
        let frames = &mut self.frames;
        *self.by_frame.entry((parent, return_address)).or_insert_with(|| {
            frames.push(Frame { parent, return_address, depth });
            (frames.len() - 1) as Node
        })
    }

    /// The last frame of the path with such a return address.
    fn last_frame(&self, mut node: Node, is_it: impl Fn(u64) -> bool) -> Option<Frame> {
        loop {
            let frame = self.frames[node as usize];
            if frame.depth == 0 {
                return None;
            }
            if is_it(frame.return_address) {
                return Some(frame);
            }
            node = frame.parent;
        }
    }

    /// The kernel takes the hart from the program after `before`: remembers where it may continue.
    fn leave(&mut self, before: Executed) {
        self.program = self.interrupted(self.program, before);
        self.left_count += 1;
        if self.left_count.is_multiple_of(LEFT_MAX as u64) {
            let old = self.left_count - LEFT_MAX as u64;
            self.left.retain(|_, paths| {
                paths.retain(|&(_, _, number)| number > old);
                !paths.is_empty()
            });
        }
        let mut places = vec![before.last, before.behind];
        if let End::Branch { target } = before.end {
            places.push(Place { address: target, memory: before.last.memory_of(target) });
        }
        for place in places {
            let path = (place.memory, self.program, self.left_count);
            let paths = self.left.entry(place.address).or_default();
            paths.retain(|&(memory, node, _)| (memory, node) != (path.0, path.1));
            paths.push(path);
        }
    }

    /// The kernel enters a program at `place`: the path that was left there last.
    fn enter(&mut self, place: Place) -> Node {
        let Some(paths) = self.left.get_mut(&place.address) else { return PROGRAM };
        let found = paths.iter().rposition(|&(memory, ..)| memory == 0 || memory == place.memory);
        found.map_or(PROGRAM, |index| paths.remove(index).1)
    }
}

impl Place {
    /// The memory of another address, if that is on the same page; 0 if it is unknown.
    pub fn memory_of(self, address: u64) -> u64 {
        if self.memory != 0 && address >> 12 == self.address >> 12 {
            self.memory.wrapping_add(address.wrapping_sub(self.address))
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTOR: u64 = 0xffff_ffc0_8020_0000;
    const A: u64 = VECTOR + 0x1000;
    const B: u64 = VECTOR + 0x2000;
    const USER: u64 = 0x20000;

    fn place(address: u64) -> Place {
        Place { address, memory: 0 }
    }

    fn executed(part: Part, end: End, last: u64) -> Option<Executed> {
        Some(Executed { part, end, last: place(last), behind: place(last + 4) })
    }

    #[test]
    fn calls_and_returns_are_followed() {
        let mut stacks = Stacks::new(VECTOR);
        let kernel = |end, last| executed(Part::Kernel, end, last);
        let root = stacks.follow(None, place(A), Part::Kernel);
        let callee = stacks.follow(kernel(End::Call, A + 8), place(B), Part::Kernel);
        assert_ne!(callee, root);
        assert_eq!(stacks.frames()[callee as usize].return_address, A + 12);
        let tail = stacks.follow(kernel(End::Indirect, B), place(B + 64), Part::Kernel);
        assert_eq!(tail, callee, "a jump stays on the path");
        assert_eq!(stacks.follow(kernel(End::Return, B + 64), place(A + 12), Part::Kernel), root);
        assert_eq!(stacks.follow(kernel(End::Call, A + 8), place(B), Part::Kernel), callee);
        // To an address to which no call returns: a jump through a link register.
        assert_eq!(stacks.follow(kernel(End::Return, B), place(B + 8), Part::Kernel), callee);
    }

    #[test]
    fn a_trap_in_the_kernel_is_a_frame_until_it_returns() {
        let mut stacks = Stacks::new(VECTOR);
        let kernel = |end, last| executed(Part::Kernel, end, last);
        let root = stacks.follow(None, place(A), Part::Kernel);
        let trap = stacks.follow(kernel(End::Plain, A), place(VECTOR), Part::Kernel);
        assert_eq!(stacks.frames()[trap as usize].return_address, A | TRAP);
        let handler = stacks.follow(kernel(End::Call, VECTOR + 4), place(B), Part::Kernel);
        assert_eq!(stacks.follow(kernel(End::Return, B), place(VECTOR + 8), Part::Kernel), trap);
        assert_ne!(handler, trap);
        assert_eq!(
            stacks.follow(kernel(End::TrapReturn, VECTOR + 8), place(A + 4), Part::Kernel),
            root
        );
    }

    #[test]
    fn traps_follow_each_other_and_come_between_a_call_and_its_function() {
        let mut stacks = Stacks::new(VECTOR);
        let kernel = |end, last| executed(Part::Kernel, end, last);
        let firmware = || executed(Part::Firmware, End::TrapReturn, 0x8000_0000);
        let root = stacks.follow(None, place(A), Part::Kernel);
        // After the call, before its function.
        let trap = stacks.follow(kernel(End::Call, A), place(VECTOR), Part::Kernel);
        let again = stacks.follow(kernel(End::TrapReturn, VECTOR + 8), place(VECTOR), Part::Kernel);
        assert_eq!(again, trap, "the second trap at the same place");
        let function = stacks.follow(kernel(End::TrapReturn, VECTOR + 8), place(B), Part::Kernel);
        assert_eq!(stacks.frames()[function as usize].return_address, A + 4);
        // The firmware's interrupt behind the return, and one of the kernel before it continues.
        let monitor = place(0x8000_0000);
        let in_firmware = stacks.follow(kernel(End::Return, B), monitor, Part::Firmware);
        let frame = stacks.frames()[in_firmware as usize];
        assert_eq!((frame.parent, frame.return_address), (root, B | TRAP));
        assert_eq!(stacks.follow(firmware(), monitor, Part::Firmware), in_firmware);
        let trap = stacks.follow(firmware(), place(VECTOR), Part::Kernel);
        assert_eq!(stacks.frames()[trap as usize].parent, root);
        let after = stacks.follow(kernel(End::TrapReturn, VECTOR + 8), place(A + 4), Part::Kernel);
        assert_eq!(after, root);
    }

    #[test]
    fn a_program_that_is_interrupted_at_once_leaves_no_frame() {
        let mut stacks = Stacks::new(VECTOR);
        let kernel = |end, last| executed(Part::Kernel, end, last);
        stacks.follow(None, place(A), Part::Kernel);
        let inner = stacks.follow(kernel(End::Call, A), place(B), Part::Kernel);
        let vector = stacks.follow(kernel(End::TrapReturn, B), place(VECTOR), Part::Kernel);
        assert_eq!(vector, inner);
    }

    #[test]
    fn a_program_continues_where_it_was_left() {
        let mut stacks = Stacks::new(VECTOR);
        let user = |end, last| executed(Part::Program, end, last);
        let enter = executed(Part::Kernel, End::TrapReturn, A);
        stacks.follow(enter, place(USER), Part::Program);
        let inner = stacks.follow(user(End::Call, USER + 4), place(USER + 64), Part::Program);
        // A system call, and one of another virtual CPU in between.
        let kernel =
            stacks.follow(user(End::EnvironmentCall, USER + 64), place(VECTOR), Part::Kernel);
        let other = stacks.follow(enter, place(USER + 900), Part::Program);
        assert_ne!(other, inner);
        let again =
            stacks.follow(user(End::EnvironmentCall, USER + 900), place(VECTOR), Part::Kernel);
        assert_eq!(again, kernel, "a trap continues the kernel's path");
        assert_eq!(stacks.follow(enter, place(USER + 68), Part::Program), inner);
        // An interrupt behind a branch, and its target.
        stacks.follow(
            user(End::Branch { target: USER + 8 }, USER + 72),
            place(VECTOR),
            Part::Kernel,
        );
        assert_eq!(stacks.follow(enter, place(USER + 8), Part::Program), inner);
        // The same address in other memory is another program.
        let at = |memory| Place { address: USER, memory };
        let left =
            Executed { part: Part::Program, end: End::Plain, last: at(0x7000), behind: at(0x7004) };
        stacks.follow(Some(left), place(VECTOR), Part::Kernel);
        assert_eq!(stacks.follow(enter, at(0x9000), Part::Program), PROGRAM);
        assert_eq!(stacks.follow(enter, at(0x7000), Part::Program), inner);
    }

    #[test]
    fn paths_and_memory_of_them_are_bounded() {
        let mut stacks = Stacks::new(VECTOR);
        let mut node = 0;
        for _ in 0..2 * DEPTH_MAX {
            node = stacks.follow(executed(Part::Kernel, End::Call, A), place(A), Part::Kernel);
        }
        assert_eq!(stacks.frames()[node as usize].depth, DEPTH_MAX);
        for address in 0..10 * LEFT_MAX as u64 {
            let left = executed(Part::Program, End::Plain, USER + 8 * address);
            stacks.follow(left, place(VECTOR), Part::Kernel);
        }
        assert!(stacks.left.len() <= 4 * LEFT_MAX, "{}", stacks.left.len());
    }
}
