//! The kernel's half of every address space, built once at boot.
//!
//! All 256 entries of the upper half of the root exist from the start and never change. So the root
//! of a process is made by copying them, and never needs an update.

use super::frames::{self, Frame};
use super::kernel_table::KernelTable;
use super::{OutOfMemory, layout};
use crate::arch::{self, Asid, Entry, Rights, RootRegister};
use crate::machine::device_tree::Facts;
use crate::machine::image;
use core::ops::Range;
use spin::Once;

/// The kernel's root table; complete.
static TABLE: Once<KernelTable> = Once::new();

fn table() -> &'static KernelTable {
    TABLE.get().expect("`kernel_space::initialise` comes before all uses of its table")
}

/// The root that maps only the kernel.
pub fn root() -> RootRegister {
    RootRegister::new(table().physical(), Asid(0))
}

/// The entries of the upper half of every root.
pub(super) fn upper_half() -> impl Iterator<Item = Entry> {
    table().upper_half()
}

/// Maps RAM, the image, the devices and the stacks of `harts` harts, and activates these mappings
/// on this hart.
///
/// # Errors
/// If there is no memory for tables and stacks.
pub fn initialise(machine: &Facts, harts: usize) -> Result<(), OutOfMemory> {
    let mut table = KernelTable::new()?;
    let image = image::physical();
    for range in machine.memory.iter() {
        // Without the image: its pages get the rights of their sections, below.
        let (before, after) =
            (range.start..image.start.min(range.end), image.end.max(range.start)..range.end);
        for part in [before, after] {
            if !part.is_empty() {
                map_direct(&mut table, part, Rights::READ_WRITE, MEGA)?;
            }
        }
    }
    for (section, rights) in [
        (image::text(), Rights::READ_EXECUTE),
        (image::read_only(), Rights::READ),
        (image::vdso(), Rights::READ_EXECUTE),
        (image::writable(), Rights::READ_WRITE),
    ] {
        let physical = layout::physical_of(section.start)..layout::physical_of(section.end);
        map_direct(&mut table, physical, rights, PAGE)?;
    }
    let mut result = Ok(());
    machine.for_each_device(|device| result = result.and_then(|()| map_device(&mut table, device)));
    result?;
    for hart in 0..harts {
        for address in layout::kernel_stack(hart).step_by(layout::PAGE_BYTES) {
            let frame = Frame::allocate_zeroed()?.into_physical();
            table.map(address, PAGE, frame, Rights::READ_WRITE)?;
        }
    }
    // An entry for every gigabyte, because the roots of processes copy these entries.
    table.complete()?;
    TABLE.call_once(|| table);
    // SAFETY: the new table maps everything that the old one mapped and the kernel uses, with at
    // least the rights that it needs. `TABLE` keeps it for ever.
    unsafe { arch::activate_root(root(), || false) };
    Ok(())
}

/// Levels of pages: 4 KiB, 2 MiB, 1 GiB.
const PAGE: usize = 0;
const MEGA: usize = 1;
const GIGA: usize = 2;

/// Maps a physical range in the direct map, with pages of at most level `largest`.
fn map_direct(
    table: &mut KernelTable,
    range: Range<usize>,
    rights: Rights,
    largest: usize,
) -> Result<(), OutOfMemory> {
    let mut at = range.start;
    while at < range.end {
        let fits = |level: &usize| {
            let bytes = arch::page_size_of_level(*level);
            at.is_multiple_of(bytes) && range.end - at >= bytes
        };
        let level = (PAGE..=largest).rev().find(fits).unwrap_or(PAGE);
        table.map(layout::direct(at) as usize, level, at, rights)?;
        at += arch::page_size_of_level(level);
    }
    Ok(())
}

/// Maps a device's registers. If the gigabyte around them contains only devices, all of it is
/// mapped, otherwise single pages. Several ranges may be in the same page.
fn map_device(table: &mut KernelTable, range: &Range<usize>) -> Result<(), OutOfMemory> {
    let (start, end) =
        (layout::page_down(range.start), range.end.next_multiple_of(frames::FRAME_BYTES));
    for physical in (start..end).step_by(frames::FRAME_BYTES) {
        let address = layout::direct(physical) as usize;
        let gigabyte = table.get(address, GIGA);
        if gigabyte == Entry::EMPTY {
            let start = physical & !(arch::page_size_of_level(GIGA) - 1);
            table.map(address, GIGA, start, Rights::READ_WRITE)?;
        } else if !gigabyte.is_leaf() && table.get(address, PAGE) == Entry::EMPTY {
            table.map(address, PAGE, physical, Rights::READ_WRITE)?;
        }
    }
    Ok(())
}
