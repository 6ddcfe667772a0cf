//! The functions of everything that was executed.
//!
//! A record has addresses, and the programs use the same ones. A block of a program belongs to the
//! program that has these bytes at this address. Blocks of the same page of memory belong to the
//! same program, which decides where a block alone would fit several.

use std::collections::{BTreeMap, BTreeSet};

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use super::record::Block;
use crate::build::{Guest, symbols};
use crate::error::{Because, Outcome};

/// Where the kernel maps the vDSO in processes (docs/abi.md).
const VDSO_IN_PROCESS: u64 = 0x3f_0025_0000;
/// Bytes of the vDSO, rounded up generously.
const VDSO_BYTES_MAX: u64 = 1 << 20;
const USER_END: u64 = 1 << 38;
/// Code at physical addresses: the reset vector below the programs, OpenSBI, and the beginning of
/// the kernel.
const PROGRAMS: u64 = 0x1_0000;
const FIRMWARE_CODE: u64 = 0x8000_0000;
const KERNEL_LOADED: u64 = 0x8020_0000;
const KERNEL_LOADED_END: u64 = 0x8100_0000;
/// The kernel is linked this far above the physical addresses at which it begins.
const KERNEL_OFFSET: u64 = 0xffff_ffc0_0000_0000;
const PAGE_BITS: u32 = 12;

/// Sides: which part of the system a function belongs to. Those of programs have the program's
/// name.
pub const KERNEL: &str = "kernel";
pub const VDSO: &str = "vdso";
pub const FIRMWARE: &str = "firmware";

/// Functions by address.
#[derive(Debug, Default)]
struct Functions(BTreeMap<u64, String>);

impl Functions {
    fn of(file: &object::File<'_>) -> Self {
        let is_code =
            |kind| matches!(kind, SymbolKind::Text | SymbolKind::Label | SymbolKind::Unknown);
        let mut functions = BTreeMap::new();
        for symbol in file.symbols() {
            let Ok(name) = symbol.name() else { continue };
            let is_local_label = name.is_empty() || name.starts_with(['.', '$']);
            if is_code(symbol.kind()) && symbol.is_definition() && !is_local_label {
                let name = symbols::readable(name).replace(';', ",");
                let place = functions.entry(symbol.address()).or_insert_with(|| name.clone());
                // A function rather than a label at the same address.
                if symbol.kind() == SymbolKind::Text {
                    *place = name;
                }
            }
        }
        Self(functions)
    }

    fn at(&self, address: u64) -> Option<&str> {
        self.0.range(..=address).next_back().map(|(_, name)| name.as_str())
    }
}

#[derive(Debug)]
struct Program {
    name: String,
    functions: Functions,
    /// Its segments: address and bytes.
    segments: Vec<(u64, Vec<u8>)>,
}

impl Program {
    fn has(&self, block: &Block) -> bool {
        self.segments.iter().any(|(start, bytes)| {
            let offset =
                block.address.checked_sub(*start).and_then(|offset| usize::try_from(offset).ok());
            offset.and_then(|offset| bytes.get(offset..)?.get(..block.bytes.len()))
                == Some(&block.bytes)
        })
    }
}

/// The images of a guest.
#[derive(Debug)]
pub struct Images {
    kernel: Functions,
    vdso: Functions,
    vdso_in_kernel: u64,
    programs: Vec<Program>,
    /// Addresses that the profiler needs.
    pub trap_vector: u64,
    /// The function that reads the kernel's counters, before the counter of instructions.
    pub statistics: u64,
}

impl Images {
    /// Reads the images.
    pub fn read(guest: &Guest) -> Outcome<Self> {
        let kernel = crate::build::read(&guest.kernel)?;
        let kernel =
            object::File::parse(&*kernel).because(|| "the kernel is no ELF file".into())?;
        let vdso = crate::build::read(&guest.vdso.object)?;
        let vdso = object::File::parse(&*vdso).because(|| "the vDSO is no ELF file".into())?;
        let mut programs = Vec::new();
        for program in &guest.programs {
            let bytes = crate::build::read(&program.path)?;
            let file = object::File::parse(&*bytes)
                .because(|| format!("{} is no ELF file", program.path.display()))?;
            let segments = file
                .segments()
                .map(|segment| Some((segment.address(), segment.data().ok()?.to_vec())))
                .collect::<Option<_>>()
                .unwrap_or_default();
            let functions = Functions::of(&file);
            programs.push(Program { name: program.name.clone(), functions, segments });
        }
        let functions = Functions::of(&kernel);
        let found = functions.0.iter().find(|(_, name)| name.as_str() == STATISTICS);
        let statistics = found.map(|(&address, _)| address).ok_or_else(|| {
            crate::error::Failure::new(format!("the kernel has no function {STATISTICS}"))
        })?;
        Ok(Self {
            trap_vector: symbols::address_of(&kernel, "__trap_vector")?,
            vdso_in_kernel: symbols::address_of(&kernel, "__vdso_start")?,
            statistics,
            kernel: functions,
            vdso: Functions::of(&vdso),
            programs,
        })
    }

    /// For each block, the number of the program that has it. `None` for blocks outside of
    /// programs, and for those that fit none.
    pub fn programs_of(&self, blocks: &[Block]) -> Vec<Option<usize>> {
        let fitting = |block: &Block| -> BTreeSet<usize> {
            (0..self.programs.len()).filter(|&number| self.programs[number].has(block)).collect()
        };
        let page = |block: &Block| (block.address >> PAGE_BITS, block.memory >> PAGE_BITS);
        let mut pages: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
        for block in blocks.iter().filter(|block| is_of_program(block.address)) {
            let fitting = fitting(block);
            let known = pages.entry(page(block)).or_insert_with(|| fitting.clone());
            // Memory that first had another program is rare. Then a block decides by itself.
            if !known.is_disjoint(&fitting) {
                *known = &*known & &fitting;
            }
        }
        let program_of = |block: &Block| {
            let known = pages.get(&page(block))?;
            let alone = fitting(block);
            known.intersection(&alone).next().or(alone.first()).copied()
        };
        blocks.iter().map(program_of).collect()
    }

    /// The function with the code at this address, as `SIDE:NAME`; `program` decides for addresses
    /// of programs.
    pub fn function(&self, address: u64, program: Option<usize>) -> String {
        let (side, name) = match address {
            ..PROGRAMS | FIRMWARE_CODE..KERNEL_LOADED => (FIRMWARE, Some("OpenSBI")),
            KERNEL_LOADED..KERNEL_LOADED_END => (KERNEL, self.kernel.at(address + KERNEL_OFFSET)),
            VDSO_IN_PROCESS..USER_END => (VDSO, self.vdso.at(address - VDSO_IN_PROCESS)),
            ..USER_END => match program.and_then(|number| self.programs.get(number)) {
                Some(program) => (program.name.as_str(), program.functions.at(address)),
                None => ("program", None),
            },
            _ => match address.checked_sub(self.vdso_in_kernel) {
                Some(offset) if offset < VDSO_BYTES_MAX => (VDSO, self.vdso.at(offset)),
                _ => (KERNEL, self.kernel.at(address)),
            },
        };
        format!("{side}:{}", name.unwrap_or("?"))
    }
}

/// Its body reads the counter of instructions.
const STATISTICS: &str = "cops_kernel::inspect::statistics::statistics";

/// Whether it is an address of a program's own code.
fn is_of_program(address: u64) -> bool {
    (PROGRAMS..VDSO_IN_PROCESS).contains(&address)
        && !(FIRMWARE_CODE..KERNEL_LOADED_END).contains(&address)
}
