//! What kinds of instructions were executed: how many accesses to memory, branches, and above all
//! atomic instructions and fences, which cost more than others on a machine with several harts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::paths::Profile;
use super::record::Block;
use super::stages;
use super::tables::{self, Totals};

/// A kind of instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Load,
    Store,
    Branch,
    /// Jumps, calls and returns.
    Jump,
    /// On integers, without those below.
    Arithmetic,
    /// Also division.
    Multiplication,
    FloatingPoint,
    /// Read-modify-write instructions, `lr` and `sc`.
    Atomic,
    Fence,
    /// Accesses to control and status registers, traps and returns from them, `wfi`.
    System,
}

/// Instructions by kind.
pub type Kinds = [i64; Kind::ALL.len()];

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::Load,
        Kind::Store,
        Kind::Branch,
        Kind::Jump,
        Kind::Arithmetic,
        Kind::Multiplication,
        Kind::FloatingPoint,
        Kind::Atomic,
        Kind::Fence,
        Kind::System,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Load => "load",
            Kind::Store => "store",
            Kind::Branch => "branch",
            Kind::Jump => "jump",
            Kind::Arithmetic => "arithmetic",
            Kind::Multiplication => "multiply",
            Kind::FloatingPoint => "float",
            Kind::Atomic => "atomic",
            Kind::Fence => "fence",
            Kind::System => "system",
        }
    }

    /// The kind of an instruction of four bytes.
    fn of_word(word: u32) -> Self {
        match word & 0x7f {
            0x03 | 0x07 => Kind::Load,
            0x23 | 0x27 => Kind::Store,
            0x63 => Kind::Branch,
            0x67 | 0x6f => Kind::Jump,
            0x0f => Kind::Fence,
            0x2f => Kind::Atomic,
            0x43 | 0x47 | 0x4b | 0x4f | 0x53 => Kind::FloatingPoint,
            0x73 => Kind::System,
            0x33 | 0x3b if word >> 25 == 1 => Kind::Multiplication,
            _ => Kind::Arithmetic,
        }
    }

    /// The kind of an instruction of two bytes.
    fn of_half(half: u16) -> Self {
        let is_register_form = half >> 2 & 31 == 0 && half >> 7 & 31 != 0;
        match (half & 3, half >> 13) {
            (0 | 2, 1..=3) => Kind::Load,
            (0 | 2, 5..=7) => Kind::Store,
            (1, 5) => Kind::Jump,
            (1, 6 | 7) => Kind::Branch,
            (2, 4) if is_register_form => Kind::Jump,
            // c.ebreak
            (2, 4) if half == 0x9002 => Kind::System,
            _ => Kind::Arithmetic,
        }
    }
}

/// The kinds of the first `instructions` instructions of a block.
pub(super) fn of(block: &Block, instructions: u64) -> Kinds {
    let mut kinds = Kinds::default();
    let mut bytes = block.bytes.as_slice();
    for _ in 0..instructions {
        let kind = match *bytes {
            [a, b, c, d, ..] if a & 3 == 3 => {
                bytes = &bytes[4..];
                Kind::of_word(u32::from_le_bytes([a, b, c, d]))
            }
            [a, b, ..] => {
                bytes = &bytes[2..];
                Kind::of_half(u16::from_le_bytes([a, b]))
            }
            _ => break,
        };
        kinds[kind as usize] += 1;
    }
    kinds
}

/// The table of kinds: of each stage if requests were counted, otherwise of each side; and the
/// functions that execute most atomic instructions and fences.
pub fn table(profile: &Profile, rows: usize) -> String {
    let unit = profile.unit();
    let digits = usize::from(profile.requests.is_some());
    let (mut groups, mut functions) = (BTreeMap::<&str, Kinds>::new(), Totals::new());
    let mut all = Kinds::default();
    for (path, kinds) in &profile.kinds {
        let Some(frame) = path.last() else { continue };
        let side = frame.split_once(':').map_or("?", |(side, _)| side);
        let group = if profile.requests.is_some() { stages::name(path) } else { side };
        add(groups.entry(group).or_default(), kinds);
        add(&mut all, kinds);
        *functions.entry(frame.replacen(':', "  ", 1)).or_default() += atomics_and_fences(kinds);
    }
    functions.retain(|_, count| *count > 0);
    let mut text = format!("{:>12}", tables::heading(profile));
    for kind in Kind::ALL {
        let _ = write!(text, " {:>11}", kind.name());
    }
    text.push('\n');
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(name, kinds)| (-kinds.iter().sum::<i64>(), *name));
    for (name, kinds) in groups.into_iter().chain([("all", all)]) {
        let _ = write!(text, "{name:>12}");
        for count in kinds {
            let _ = write!(text, " {:>11.digits$}", count as f64 / unit);
        }
        text.push('\n');
    }
    text.push('\n');
    text + &tables::ranked(profile, &functions, rows, "atomic instructions and fences by function")
}

/// Those that cost more with several harts.
pub(super) fn atomics_and_fences(kinds: &Kinds) -> i64 {
    kinds[Kind::Atomic as usize] + kinds[Kind::Fence as usize]
}

/// Adds the instructions of `more`.
pub(super) fn add(sum: &mut Kinds, more: &Kinds) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodings as an assembler makes them.
    #[test]
    fn instructions_are_of_their_kind() {
        for (word, kind, what) in [
            (0x0005_3503, Kind::Load, "ld a0, 0(a0)"),
            (0x0005_3507, Kind::Load, "fld fa0, 0(a0)"),
            (0x00a5_3023, Kind::Store, "sd a0, 0(a0)"),
            (0x00b5_1463, Kind::Branch, "bne a0, a1, +8"),
            (0x0100_00ef, Kind::Jump, "jal ra, +16"),
            (0x0000_8067, Kind::Jump, "ret"),
            (0x00b5_0533, Kind::Arithmetic, "add a0, a0, a1"),
            (0x0000_1537, Kind::Arithmetic, "lui a0, 1"),
            (0x02b5_0533, Kind::Multiplication, "mul a0, a0, a1"),
            (0x02b5_553b, Kind::Multiplication, "divuw a0, a0, a1"),
            (0x02b5_7553, Kind::FloatingPoint, "fadd.d fa0, fa0, fa1"),
            (0x00b5_302f, Kind::Atomic, "amoadd.d zero, a1, (a0)"),
            (0x1005_352f, Kind::Atomic, "lr.d a0, (a0)"),
            (0x0ff0_000f, Kind::Fence, "fence"),
            (0x1000_2573, Kind::System, "csrr a0, sstatus"),
            (0x1050_0073, Kind::System, "wfi"),
        ] {
            assert_eq!(Kind::of_word(word), kind, "{what}");
        }
        for (half, kind, what) in [
            (0x6108, Kind::Load, "ld a0, 0(a0)"),
            (0x6502, Kind::Load, "ld a0, 0(sp)"),
            (0xe108, Kind::Store, "sd a0, 0(a0)"),
            (0xe02a, Kind::Store, "sd a0, 0(sp)"),
            (0xc501, Kind::Branch, "beqz a0, +8"),
            (0xa801, Kind::Jump, "j +16"),
            (0x8082, Kind::Jump, "ret"),
            (0x9782, Kind::Jump, "jalr a5"),
            (0x87aa, Kind::Arithmetic, "mv a5, a0"),
            (0x0001, Kind::Arithmetic, "nop"),
            (0x0808, Kind::Arithmetic, "addi a0, sp, 16"),
            (0x9002, Kind::System, "ebreak"),
        ] {
            assert_eq!(Kind::of_half(half), kind, "{what}");
        }
    }

    #[test]
    fn only_what_was_executed_of_a_block_counts() {
        // sd a0, 0(sp); amoadd.d zero, a1, (a0); ret
        let bytes = vec![0x2a, 0xe0, 0x2f, 0x30, 0xb5, 0x00, 0x82, 0x80];
        let block = Block { address: 0x2000a, memory: 0, bytes };
        let counted = |instructions| {
            let kinds = of(&block, instructions);
            [Kind::Store, Kind::Atomic, Kind::Jump].map(|kind| kinds[kind as usize])
        };
        assert_eq!([0, 1, 2, 3].map(counted), [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]]);
    }

    #[test]
    fn kinds_are_by_stage_and_the_functions_with_most_atomics_come_first() {
        let path = |words: &str| words.split(';').map(str::to_owned).collect::<Vec<_>>();
        let kinds = |atomic, fence| {
            let mut kinds = Kinds::default();
            kinds[Kind::Atomic as usize] = atomic;
            kinds[Kind::Fence as usize] = fence;
            kinds
        };
        let mut profile = Profile { requests: Some(10), ..Profile::default() };
        profile.kinds.insert(path("kernel:run;kernel:smoltcp::x"), kinds(20, 5));
        profile.kinds.insert(path("kernel:smoltcp::y"), kinds(50, 25));
        let text = table(&profile, 1);
        let rows: Vec<_> = text.lines().map(str::trim).collect();
        assert!(rows[1].starts_with("TCP ") && rows[1].ends_with("7.0         3.0         0.0"));
        assert_eq!(rows[5], "7.5   75.00  kernel  smoltcp::y");
        profile.requests = None;
        assert!(table(&profile, 1).contains("\n      kernel "));
    }
}
