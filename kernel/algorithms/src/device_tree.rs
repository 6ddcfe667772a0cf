//! What the kernel needs to know of the machine, read from the device tree.
//!
//! This is the only module that knows the tree's names. Other modules make no assumptions about the
//! values it provides.

use core::ops::Range;

use flat_device_tree::Fdt;
use flat_device_tree::node::FdtNode;

use crate::fixed_list::FixedList;

/// A hart of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HartFacts {
    /// Its number in the firmware.
    pub id: usize,
    /// The context of its supervisor mode in the interrupt controller.
    pub interrupt_context: Option<usize>,
}

/// A 16550 serial port.
#[derive(Clone, Debug)]
pub struct UartFacts {
    /// Its registers.
    pub registers: Range<usize>,
    /// Registers are `1 << register_shift` bytes apart.
    pub register_shift: u32,
    /// Registers must be accessed as 32 bits.
    pub wide_registers: bool,
    /// Its line at the interrupt controller.
    pub interrupt: Option<usize>,
}

/// A slot that may contain a virtio device.
#[derive(Clone, Debug)]
pub struct VirtioFacts {
    /// Its registers.
    pub registers: Range<usize>,
    /// Its line at the interrupt controller.
    pub interrupt: Option<usize>,
}

/// What the device tree says. All ranges are of physical addresses.
pub struct Facts<const HARTS_MAX: usize> {
    /// The usable harts, as many as fit.
    pub harts: FixedList<HartFacts, HARTS_MAX>,
    /// Frequency of the clock.
    pub timebase_hertz: u64,
    /// Whether all harts have a timer for supervisor mode (Sstc).
    pub supervisor_timer: bool,
    /// All memory that the kernel can address.
    pub memory: FixedList<Range<usize>, 8>,
    /// Memory that must not be used: the firmware, the tree, the root image. The kernel's own image
    /// is not included.
    pub reserved: FixedList<Range<usize>, 16>,
    /// The interrupt controller.
    pub interrupt_controller: Option<Range<usize>>,
    /// The serial port of the console.
    pub uart: Option<UartFacts>,
    /// The slots for virtio devices.
    pub virtio: FixedList<VirtioFacts, 32>,
    /// The device that ends the emulator with an exit status.
    pub test_device: Option<Range<usize>>,
    /// A Goldfish RTC.
    pub rtc: Option<Range<usize>>,
    /// Random bytes, new at every boot; empty if the boot loader provides none.
    pub random_seed: &'static [u8],
    /// The image that contains the programs.
    pub root_image: Option<Range<usize>>,
    /// The kernel's command line.
    pub boot_arguments: &'static str,
}

/// Names of the interrupt controller that the kernel knows.
const INTERRUPT_CONTROLLERS: [&str; 2] = ["sifive,plic-1.0.0", "riscv,plic0"];

impl<const HARTS_MAX: usize> Facts<HARTS_MAX> {
    /// What `tree` says, which is at physical address `tree_start`. The kernel can address memory
    /// below `memory_limit`.
    ///
    /// # Panics
    /// If the tree names no hart, memory or clock: the kernel cannot run without them.
    #[must_use]
    pub fn read(tree: &Fdt<'static>, tree_start: usize, memory_limit: usize) -> Self {
        let chosen = tree.find_node("/chosen");
        let text = |name| chosen.and_then(|node| node.property(name)?.as_str());
        let initrd = |name| chosen.and_then(|node| number(&node, name));
        let root_image = match (initrd("linux,initrd-start"), initrd("linux,initrd-end")) {
            (Some(start), Some(end)) if start < end => Some(start..end),
            _ => None,
        };

        let mut memory = FixedList::new(0..0);
        for node in tree.all_nodes().filter(|node| text_is(node, "device_type", "memory")) {
            for range in registers(node) {
                let end = range.end.min(memory_limit);
                if range.start < end {
                    memory.push(range.start..end);
                }
            }
        }
        assert!(!memory.is_empty(), "the device tree names no memory");

        let mut reserved = FixedList::new(0..0);
        let mut reserve = |range: Range<usize>| {
            assert!(reserved.push(range), "too many reserved ranges in the device tree");
        };
        reserve(tree_start..tree_start + tree.total_size());
        root_image.iter().cloned().for_each(&mut reserve);
        if let Some(node) = tree.find_node("/reserved-memory") {
            node.children().flat_map(registers).for_each(&mut reserve);
        }
        for entry in tree.memory_reservations() {
            let start = entry.address() as usize;
            reserve(start..start + entry.size());
        }

        let (harts, timebase_hertz, supervisor_timer) = read_harts(tree);
        let device = |names| tree.find_compatible(names).and_then(|node| registers(node).next());
        let mut virtio = FixedList::new(VirtioFacts { registers: 0..0, interrupt: None });
        for node in tree.all_nodes().filter(|node| is_compatible(node, "virtio,mmio")) {
            for registers in registers(node) {
                virtio.push(VirtioFacts { registers, interrupt: node.interrupts().next() });
            }
        }

        Self {
            harts,
            timebase_hertz,
            supervisor_timer,
            memory,
            reserved,
            interrupt_controller: device(&INTERRUPT_CONTROLLERS),
            uart: find_uart(tree, text("stdout-path")),
            virtio,
            test_device: device(&["sifive,test0"]),
            rtc: device(&["google,goldfish-rtc"]),
            random_seed: chosen
                .and_then(|node| node.property("rng-seed"))
                .map_or(&[], |property| property.value),
            root_image,
            boot_arguments: text("bootargs").unwrap_or(""),
        }
    }

    /// The interrupt controller's context for the hart with this id.
    pub fn interrupt_context(&self, hart_id: usize) -> Option<usize> {
        self.harts.iter().find(|hart| hart.id == hart_id)?.interrupt_context
    }

    /// Calls `visit` with the registers of each device that the kernel must map.
    pub fn for_each_device(&self, mut visit: impl FnMut(&Range<usize>)) {
        self.interrupt_controller.iter().for_each(&mut visit);
        self.uart.iter().map(|uart| &uart.registers).for_each(&mut visit);
        self.virtio.iter().map(|device| &device.registers).for_each(&mut visit);
        self.test_device.iter().for_each(&mut visit);
        self.rtc.iter().for_each(&mut visit);
    }
}

/// The usable harts, the clock's frequency, and whether all harts have a supervisor timer.
fn read_harts<const HARTS_MAX: usize>(
    tree: &Fdt<'static>,
) -> (FixedList<HartFacts, HARTS_MAX>, u64, bool) {
    let mut harts = FixedList::new(HartFacts { id: 0, interrupt_context: None });
    let mut supervisor_timer = true;
    let mut timebase = None;
    if let Some(cpus) = tree.find_node("/cpus") {
        timebase = number(&cpus, "timebase-frequency");
        for node in cpus.children().filter(|node| text_is(node, "device_type", "cpu")) {
            timebase = timebase.or_else(|| number(&node, "timebase-frequency"));
            let usable = node.property("status").is_none() || text_is(&node, "status", "okay");
            let Some(id) = registers(node).next().map(|range| range.start) else { continue };
            if !usable {
                continue;
            }
            let phandle = node
                .children()
                .find(|child| child.property("interrupt-controller").is_some())
                .and_then(|child| number(&child, "phandle"));
            let interrupt_context = phandle.and_then(|phandle| find_context(tree, phandle));
            if harts.push(HartFacts { id, interrupt_context }) {
                supervisor_timer &= has_extension(&node, "sstc");
            }
        }
    }
    assert!(!harts.is_empty(), "the device tree names no hart");
    let timebase = timebase.expect("the device tree tells how fast the clock runs");
    (harts, timebase as u64, supervisor_timer)
}

/// The index of a hart's supervisor context. The controller's contexts are numbered by their
/// position in a list of pairs: the hart's own interrupt controller, and one of its interrupts.
/// Interrupt 9 is "external, supervisor mode".
fn find_context(tree: &Fdt<'static>, hart_controller: usize) -> Option<usize> {
    const SUPERVISOR_EXTERNAL: u32 = 9;
    let controller = tree.find_compatible(&INTERRUPT_CONTROLLERS)?;
    let list = controller.property("interrupts-extended")?.value;
    list.chunks_exact(8).position(|pair| {
        let (phandle, cause) = (big_endian(&pair[..4]), big_endian(&pair[4..]));
        phandle as usize == hart_controller && cause == SUPERVISOR_EXTERNAL
    })
}

/// Whether the hart has an extension. Newer trees have a list of names; older ones have a single
/// string in which multi-letter names follow underscores.
fn has_extension(hart: &FdtNode<'_, 'static>, name: &str) -> bool {
    if let Some(list) = hart.property("riscv,isa-extensions") {
        return list.iter_str().any(|extension| extension == name);
    }
    let isa = hart.property("riscv,isa").and_then(|property| property.as_str()).unwrap_or("");
    isa.split('_').skip(1).any(|extension| extension == name)
}

/// The port that `/chosen` names, if it is a 16550; otherwise the first 16550.
fn find_uart(tree: &Fdt<'static>, path: Option<&str>) -> Option<UartFacts> {
    let is_uart = |node: &FdtNode<'_, 'static>| {
        is_compatible(node, "ns16550a") || is_compatible(node, "ns16550")
    };
    let named = path.and_then(|path| tree.find_node(path.split(':').next()?)).filter(is_uart);
    let node = named.or_else(|| tree.all_nodes().find(is_uart))?;
    Some(UartFacts {
        registers: registers(node).next()?,
        register_shift: number(&node, "reg-shift").unwrap_or(0) as u32,
        wide_registers: number(&node, "reg-io-width") == Some(4),
        interrupt: node.interrupts().next(),
    })
}

/// The ranges of a node's `reg`.
fn registers(node: FdtNode<'_, 'static>) -> impl Iterator<Item = Range<usize>> {
    node.reg().map(|region| {
        let start = region.starting_address as usize;
        start..start.saturating_add(region.size.unwrap_or(0))
    })
}

fn number(node: &FdtNode<'_, 'static>, name: &str) -> Option<usize> {
    node.property(name)?.as_usize()
}

fn text_is(node: &FdtNode<'_, 'static>, name: &str, value: &str) -> bool {
    node.property(name).and_then(|property| property.as_str()) == Some(value)
}

fn is_compatible(node: &FdtNode<'_, 'static>, name: &str) -> bool {
    node.compatible().is_some_and(|list| list.all().any(|other| other == name))
}

fn big_endian(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

#[cfg(test)]
#[path = "device_tree_tests.rs"]
mod tests;
