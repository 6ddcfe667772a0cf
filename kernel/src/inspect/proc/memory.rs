//! What a process has in its memory: its arguments, and its regions.

use core::fmt::{self, Write};
use core::ops::Range;

use cops_abi::layout;
use cops_fallible::Text;

use crate::mm::UserRange;
use crate::process::Process;

/// Length of a line about a region, which is the same for all.
const LINE_BYTES: usize = 84;
/// Maximum number of lines of one read.
const LINES_MAX: usize = 8;

/// Copies what is at `offset` in `range` of the process's memory, at most a page. Returns the
/// number of bytes; 0 if the process has unmapped it.
pub fn copy(process: &Process, range: Range<usize>, offset: u64, bytes: &mut [u8]) -> usize {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let Some(start) = range.start.checked_add(offset).filter(|start| *start < range.end) else {
        return 0;
    };
    let rest = (range.end - start).min(layout::PAGE_BYTES - start % layout::PAGE_BYTES);
    let count = rest.min(bytes.len());
    let bytes = &mut bytes[..count];
    match UserRange::new(start, count).map(|range| process.space.copy_in(range, bytes)) {
        Some(Ok(())) => count,
        _ => 0,
    }
}

/// Writes lines about regions, from `offset` on.
pub fn regions(process: &Process, offset: u64, bytes: &mut [u8]) -> usize {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let (first, mut skipped) = (offset / LINE_BYTES, offset % LINE_BYTES);
    let heap = process.personality.as_linux().map_or(0..0, |linux| linux.heap.lock().clone());
    let (mut used, mut line) = (0, Text::new());
    for region in process.space.regions_from::<LINES_MAX>(first) {
        let Some((range, rights, is_kernels)) = region else { break };
        let name = match range.start {
            layout::VDSO => "[vdso]",
            _ if is_kernels => "[cops]",
            _ if range.contains(&(layout::STACK_TOP - 1)) => "[stack]",
            _ if !heap.is_empty() && range.contains(&heap.start) => "[heap]",
            _ => "",
        };
        let right = |has: bool, letter: char| if has { letter } else { '-' };
        line.truncate(0);
        let written: fmt::Result = writeln!(
            line,
            "{:010x}-{:010x} {}{}{}p 00000000 00:00 0 {:29}{:<10}",
            range.start,
            range.end,
            right(rights.read, 'r'),
            right(rights.write, 'w'),
            right(rights.execute, 'x'),
            "",
            name,
        );
        if written.is_err() {
            break;
        }
        let rest = line.as_bytes().get(skipped..).unwrap_or_default();
        skipped = 0;
        let count = rest.len().min(bytes.len() - used);
        bytes[used..used + count].copy_from_slice(&rest[..count]);
        used += count;
        if used == bytes.len() {
            break;
        }
    }
    used
}
