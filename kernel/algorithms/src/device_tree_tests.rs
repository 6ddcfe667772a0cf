extern crate std;

use super::*;
use std::vec::Vec;

/// Builds a device tree.
#[derive(Default)]
struct Builder {
    structure: Vec<u8>,
    strings: Vec<u8>,
}

const BEGIN: u32 = 1;
const END: u32 = 2;
const PROPERTY: u32 = 3;
const END_OF_TREE: u32 = 9;

impl Builder {
    fn word(&mut self, word: u32) -> &mut Self {
        self.structure.extend(word.to_be_bytes());
        self
    }

    fn padded(&mut self, bytes: &[u8]) -> &mut Self {
        self.structure.extend(bytes);
        self.structure.resize(self.structure.len().next_multiple_of(4), 0);
        self
    }

    fn begin(&mut self, name: &str) -> &mut Self {
        self.word(BEGIN).padded(&[name.as_bytes(), &[0]].concat())
    }

    fn end(&mut self) -> &mut Self {
        self.word(END)
    }

    fn property(&mut self, name: &str, value: &[u8]) -> &mut Self {
        let offset = self.strings.len() as u32;
        self.strings.extend(name.bytes().chain([0]));
        self.word(PROPERTY).word(value.len() as u32).word(offset).padded(value)
    }

    fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.property(name, &[value.as_bytes(), &[0]].concat())
    }

    fn words(&mut self, name: &str, words: &[u32]) -> &mut Self {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        self.property(name, &bytes)
    }

    /// A node with two cells for each address and size.
    fn device(&mut self, name: &str, compatible: &str, start: u32, bytes: u32) -> &mut Self {
        self.begin(name).text("compatible", compatible).words("reg", &[0, start, 0, bytes])
    }

    fn build(&mut self, reserved: Range<u64>) -> Fdt<'static> {
        self.word(END_OF_TREE);
        let (header, reservations) = (40, 32);
        let structure = header + reservations;
        let strings = structure + self.structure.len();
        let words = [
            0xd00d_feed,
            strings + self.strings.len(),
            structure,
            strings,
            header,
            17,
            16,
            0,
            self.strings.len(),
            self.structure.len(),
        ];
        let mut bytes: Vec<u8> =
            words.iter().flat_map(|&word| (word as u32).to_be_bytes()).collect();
        for word in [reserved.start, reserved.end - reserved.start, 0, 0] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(&self.structure);
        bytes.extend(&self.strings);
        Fdt::new(bytes.leak()).expect("a device tree")
    }
}

const TREE: usize = 0x9fe0_0000;
const LIMIT: usize = 0x1_0000_0000;

/// A machine like QEMU's. In addition, each hart has one of these properties.
fn machine(harts: &[(&str, &str)]) -> Builder {
    let mut tree = Builder::default();
    tree.begin("").words("#address-cells", &[2]).words("#size-cells", &[2]);
    tree.begin("chosen").text("bootargs", "junk=on").text("stdout-path", "/soc/serial@2:115200");
    tree.words("linux,initrd-start", &[0x8800_0000]).words("linux,initrd-end", &[0x8810_0000]);
    tree.property("rng-seed", &[1, 2, 3]).end();
    tree.device("memory@80000000", "", 0x8000_0000, 0xf000_0000)
        .text("device_type", "memory")
        .end();
    tree.begin("reserved-memory").words("#address-cells", &[2]).words("#size-cells", &[2]);
    tree.begin("mmode@80000000").words("reg", &[0, 0x8000_0000, 0, 0x4_0000]).end().end();
    tree.begin("cpus").words("#address-cells", &[1]).words("#size-cells", &[0]);
    tree.words("timebase-frequency", &[10_000_000]);
    for (number, &(name, value)) in (0u32..).zip(harts) {
        let name_of_node = std::format!("cpu@{number}");
        tree.begin(&name_of_node).text("device_type", "cpu").words("reg", &[number]);
        tree.text(name, value);
        tree.begin("interrupt-controller").property("interrupt-controller", &[]);
        tree.words("phandle", &[10 + number]).end().end();
    }
    tree.end();
    tree.begin("soc").words("#address-cells", &[2]).words("#size-cells", &[2]);
    let contexts: Vec<u32> =
        (0..harts.len() as u32).flat_map(|hart| [10 + hart, 11, 10 + hart, 9]).collect();
    tree.device("plic@c000000", "riscv,plic0", 0x0c00_0000, 0x60_0000);
    tree.words("interrupts-extended", &contexts).words("phandle", &[1]);
    tree.words("#interrupt-cells", &[1]).end();
    tree.device("serial@1", "ns16550a", 0x1000_0000, 0x100).end();
    tree.device("serial@2", "ns16550", 0x1100_0000, 0x100).words("reg-shift", &[2]);
    tree.words("reg-io-width", &[4])
        .words("interrupt-parent", &[1])
        .words("interrupts", &[10])
        .end();
    tree.device("virtio_mmio@1", "virtio,mmio", 0x1000_1000, 0x1000);
    tree.words("interrupt-parent", &[1]).words("interrupts", &[1]).end();
    tree.device("rtc@101000", "google,goldfish-rtc", 0x10_1000, 0x1000).end();
    tree.end().end();
    tree
}

fn facts(harts: &[(&str, &str)]) -> Facts<2> {
    Facts::read(&machine(harts).build(0x7000..0x8000), TREE, LIMIT)
}

#[test]
fn a_machine_like_qemus_is_described() {
    let list = "rv64\0sstc\0zba";
    let facts = facts(&[("riscv,isa-extensions", list), ("riscv,isa-extensions", list)]);
    assert_eq!(facts.timebase_hertz, 10_000_000);
    assert!(facts.supervisor_timer);
    // Cut at what the kernel can address.
    assert_eq!(facts.memory.len(), 1);
    assert_eq!(facts.memory[0], 0x8000_0000..LIMIT);
    let reserved = &facts.reserved;
    assert_eq!(reserved[0].start, TREE);
    assert_eq!(reserved[1..], [0x8800_0000..0x8810_0000, 0x8000_0000..0x8004_0000, 0x7000..0x8000]);
    assert_eq!(facts.root_image, Some(0x8800_0000..0x8810_0000));
    assert_eq!((facts.boot_arguments, facts.random_seed), ("junk=on", &[1u8, 2, 3][..]));
    assert_eq!(facts.interrupt_controller, Some(0x0c00_0000..0x0c60_0000));
    assert_eq!(facts.rtc, Some(0x10_1000..0x10_2000));
    assert_eq!(facts.test_device, None);
    // The port that /chosen names, not the first one.
    let uart = facts.uart.as_ref().expect("a port");
    assert_eq!(uart.registers, 0x1100_0000..0x1100_0100);
    assert_eq!((uart.register_shift, uart.wide_registers, uart.interrupt), (2, true, Some(10)));
    assert_eq!(facts.virtio.len(), 1);
    assert_eq!(facts.virtio[0].interrupt, Some(1));
    let mut devices = Vec::new();
    facts.for_each_device(|range| devices.push(range.start));
    assert_eq!(devices, [0x0c00_0000, 0x1100_0000, 0x1000_1000, 0x10_1000]);
}

#[test]
fn contexts_are_found_by_their_place_in_the_list() {
    let facts = facts(&[("riscv,isa", "rv64imac_sstc"), ("riscv,isa", "rv64imac_sstc")]);
    // Each hart has a context of machine mode before that of supervisor mode.
    assert_eq!(facts.interrupt_context(0), Some(1));
    assert_eq!(facts.interrupt_context(1), Some(3));
    assert_eq!(facts.interrupt_context(2), None);
}

#[test]
fn the_supervisor_timer_is_one_of_all_harts() {
    for (one, other, expected) in [
        (("riscv,isa", "rv64imac_sstc_zba"), ("riscv,isa", "rv64imac_zba_sstc"), true),
        (("riscv,isa", "rv64imac_sstc"), ("riscv,isa", "rv64imac"), false),
        (("riscv,isa", "rv64imac_sstcx"), ("riscv,isa-extensions", "sstc"), false),
        // The list counts where both exist; here only one does.
        (("riscv,isa-extensions", "m\0sstc"), ("riscv,isa", "rv64i_sstc"), true),
    ] {
        assert_eq!(facts(&[one, other]).supervisor_timer, expected, "{one:?} {other:?}");
    }
}

#[test]
fn further_harts_and_disabled_ones_are_left_out() {
    let facts = facts(&[("status", "disabled"), ("status", "okay"), ("", ""), ("", "")]);
    let ids: Vec<usize> = facts.harts.iter().map(|hart| hart.id).collect();
    assert_eq!(ids, [1, 2]);
}

#[test]
#[should_panic(expected = "names no hart")]
fn a_tree_without_harts_is_refused() {
    let _ = facts(&[]);
}

#[test]
fn a_tree_without_devices_is_described() {
    let mut tree = Builder::default();
    tree.begin("").words("#address-cells", &[2]).words("#size-cells", &[2]);
    tree.device("memory@80000000", "", 0x8000_0000, 0x1000).text("device_type", "memory").end();
    tree.begin("cpus").words("#address-cells", &[1]).words("#size-cells", &[0]);
    tree.begin("cpu@7").text("device_type", "cpu").words("reg", &[7]);
    tree.words("timebase-frequency", &[5]).end().end().end();
    let facts = Facts::<2>::read(&tree.build(0..0), TREE, LIMIT);
    assert_eq!(facts.interrupt_context(7), None);
    assert!(facts.uart.is_none() && facts.virtio.is_empty() && facts.root_image.is_none());
    assert_eq!((facts.timebase_hertz, facts.boot_arguments), (5, ""));
}
