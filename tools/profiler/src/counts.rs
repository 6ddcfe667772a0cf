//! The record: how often each block of code was executed on each call path.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::code::{self, End};
use crate::stacks::{Executed, Node, Part, Place, Stacks};

/// Number of a block.
pub type BlockId = u32;

/// Code that is executed from its beginning to its end, unless something stops it within.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Code {
    pub place: Place,
    bytes: Vec<u8>,
    /// The offset of each instruction.
    offsets: Vec<u32>,
}

struct Block {
    code: Code,
    part: Part,
    end: End,
    /// The path, the number of instructions and the index of the counter that was used last.
    last: Option<(Node, u32, usize)>,
}

/// Which executions a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    node: Node,
    block: BlockId,
    /// Instructions that were executed of the block: all, unless something stopped it.
    instructions: u32,
}

/// The record of a run.
pub struct Counts {
    stacks: Stacks,
    blocks: Vec<Block>,
    by_code: HashMap<Code, BlockId>,
    by_key: HashMap<Key, usize>,
    keys: Vec<Key>,
    times: Vec<u64>,
    /// The block that is being executed, and its path.
    current: Option<(BlockId, Node)>,
    /// The address of a function: each call of it is a moment.
    mark: u64,
    /// The values of `times` at these moments.
    moments: Vec<Vec<u64>>,
}

impl Counts {
    /// For a kernel with these addresses.
    pub fn new(trap_vector: u64, mark: u64) -> Self {
        Self {
            stacks: Stacks::new(trap_vector),
            blocks: Vec::new(),
            by_code: HashMap::new(),
            by_key: HashMap::new(),
            keys: Vec::new(),
            times: Vec::new(),
            current: None,
            mark,
            moments: Vec::new(),
        }
    }

    /// The number of the block with this code. QEMU translates the same code again and again.
    pub fn block(&mut self, code: Code) -> BlockId {
        if let Some(&known) = self.by_code.get(&code) {
            return known;
        }
        let id = self.blocks.len() as BlockId;
        let end = code.end();
        let part = Part::of(code.place.address);
        self.by_code.insert(code.clone(), id);
        self.blocks.push(Block { code, part, end, last: None });
        id
    }

    /// `next` begins, after `begun` instructions of the current block have begun.
    pub fn begin(&mut self, next: BlockId, begun: u64) {
        let Some(block) = self.blocks.get(next as usize) else { return };
        let (place, part) = (block.code.place, block.part);
        let before = self.end_current(begun);
        if place.address == self.mark {
            self.moments.push(self.times.clone());
        }
        let node = self.stacks.follow(before, place, part);
        self.current = Some((next, node));
    }

    fn end_current(&mut self, begun: u64) -> Option<Executed> {
        let (id, node) = self.current.take()?;
        let block = &mut self.blocks[id as usize];
        let count = block.code.offsets.len() as u32;
        let begun = u32::try_from(begun).unwrap_or(count).min(count);
        let last = block.code.at(begun.checked_sub(1)?);
        let is_whole = begun == count;
        let index = match block.last {
            Some((last_node, last_count, index)) if (last_node, last_count) == (node, begun) => {
                index
            }
            _ => {
                let key = Key { node, block: id, instructions: begun };
                let (keys, times) = (&mut self.keys, &mut self.times);
                *self.by_key.entry(key).or_insert_with(|| {
                    keys.push(key);
                    times.push(0);
                    times.len() - 1
                })
            }
        };
        block.last = Some((node, begun, index));
        self.times[index] += 1;
        Some(Executed {
            part: block.part,
            end: if is_whole { block.end } else { End::Plain },
            last,
            behind: block.code.at(begun),
        })
    }

    /// The end of the run, after `begun` instructions of the current block: writes the record.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(&mut self, begun: u64, out: &mut dyn Write) -> io::Result<()> {
        self.end_current(begun);
        writeln!(out, "cops-profile 1")?;
        for block in &self.blocks {
            let Place { address, memory } = block.code.place;
            write!(out, "block {address:x} {memory:x} ")?;
            for byte in &block.code.bytes {
                write!(out, "{byte:02x}")?;
            }
            writeln!(out)?;
        }
        for frame in self.stacks.frames() {
            writeln!(out, "node {} {:x}", frame.parent, frame.return_address)?;
        }
        for (index, key) in self.keys.iter().enumerate() {
            write!(out, "count {} {} {}", key.node, key.block, key.instructions)?;
            for moment in &self.moments {
                write!(out, " {}", moment.get(index).unwrap_or(&0))?;
            }
            writeln!(out, " {}", self.times[index])?;
        }
        writeln!(out, "end")
    }
}

impl Code {
    /// Appends an instruction.
    pub fn push(&mut self, bytes: &[u8]) {
        self.offsets.push(self.bytes.len() as u32);
        self.bytes.extend_from_slice(bytes);
    }

    /// The place of instruction `number`, or the one behind the last.
    fn at(&self, number: u32) -> Place {
        let offset = self.offsets.get(number as usize).copied().unwrap_or(self.bytes.len() as u32);
        let address = self.place.address.wrapping_add(offset.into());
        Place { address, memory: self.place.memory_of(address) }
    }

    fn end(&self) -> End {
        self.offsets.last().map_or(End::Plain, |&offset| {
            let address = self.place.address.wrapping_add(offset.into());
            code::end(&self.bytes[offset as usize..], address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u64 = 0xffff_ffc0_8020_1000;
    const NOP: [u8; 4] = [0x13, 0, 0, 0];
    const RET: [u8; 2] = [0x82, 0x80];

    fn code(address: u64, instructions: &[&[u8]]) -> Code {
        let mut code = Code { place: Place { address, memory: 0 }, ..Code::default() };
        instructions.iter().for_each(|bytes| code.push(bytes));
        code
    }

    fn record(counts: &mut Counts, begun: u64) -> Vec<String> {
        let mut out = Vec::new();
        counts.finish(begun, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().filter(|line| line.starts_with("count")).map(str::to_owned).collect()
    }

    #[test]
    fn executions_are_counted_by_block_and_length() {
        let mut counts = Counts::new(1, 2);
        let (a, b) = (code(0x20000, &[&NOP, &NOP, &RET]), code(0x30000, &[&NOP]));
        let (a, b) = (counts.block(a.clone()), counts.block(b));
        assert_eq!(counts.block(code(0x20000, &[&NOP, &NOP, &RET])), a, "the same code");
        counts.begin(a, 0);
        counts.begin(b, 3);
        counts.begin(a, 1);
        // Stopped in its middle.
        counts.begin(b, 2);
        assert_eq!(record(&mut counts, 1), ["count 2 0 3 1", "count 2 1 1 2", "count 2 0 2 1"]);
    }

    #[test]
    fn counts_are_kept_at_each_call_of_the_mark() {
        let mut counts = Counts::new(1, MARK);
        let (a, mark) = (counts.block(code(0x20000, &[&NOP])), counts.block(code(MARK, &[&RET])));
        counts.begin(a, 0);
        counts.begin(mark, 1);
        counts.begin(a, 1);
        counts.begin(mark, 1);
        assert_eq!(record(&mut counts, 1), ["count 2 0 1 1 2 2", "count 1 1 1 0 1 2"]);
    }
}
