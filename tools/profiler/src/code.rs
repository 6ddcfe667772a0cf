//! What a block of RISC-V code ends with, and where execution can continue.

/// What the last instruction of a block does to the call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Calls a function: jumps, and puts the return address into a link register.
    Call,
    /// Jumps to the address in a link register.
    Return,
    /// Jumps to another address in a register.
    Indirect,
    /// Jumps or branches to `target`, or continues behind the instruction.
    Branch { target: u64 },
    /// Calls a more privileged mode.
    EnvironmentCall,
    /// Returns from a trap.
    TrapReturn,
    /// Continues behind the instruction.
    Plain,
}

/// The effect of the instruction with these bytes at `address`.
pub fn end(bytes: &[u8], address: u64) -> End {
    match *bytes {
        [low, high] => compressed(u16::from_le_bytes([low, high]), address),
        [a, b, c, d] => full(u32::from_le_bytes([a, b, c, d]), address),
        _ => End::Plain,
    }
}

/// Whether the calling convention uses the register for return addresses: `ra`, or `t0` by helper
/// routines.
fn is_link(register: u32) -> bool {
    register == 1 || register == 5
}

fn full(word: u32, address: u64) -> End {
    const JAL: u32 = 0x6f;
    const JALR: u32 = 0x67;
    const BRANCH: u32 = 0x63;
    let (destination, source) = (word >> 7 & 31, word >> 15 & 31);
    match word & 0x7f {
        JAL if is_link(destination) => End::Call,
        JAL => {
            let offset = (word as i32 >> 31) << 20
                | (word & 0xff000) as i32
                | (word >> 9 & 0x800) as i32
                | (word >> 20 & 0x7fe) as i32;
            End::Branch { target: address.wrapping_add_signed(offset.into()) }
        }
        JALR if is_link(destination) => End::Call,
        JALR if is_link(source) => End::Return,
        JALR => End::Indirect,
        BRANCH => {
            let offset = (word as i32 >> 31) << 12
                | (word << 4 & 0x800) as i32
                | (word >> 20 & 0x7e0) as i32
                | (word >> 7 & 0x1e) as i32;
            End::Branch { target: address.wrapping_add_signed(offset.into()) }
        }
        _ => match word {
            0x0000_0073 => End::EnvironmentCall,
            // sret, mret.
            0x1020_0073 | 0x3020_0073 => End::TrapReturn,
            _ => End::Plain,
        },
    }
}

/// For each bit of an offset in a short instruction: its place in the instruction, and in the
/// offset. The last one is the sign.
type Bits = [(u16, u16)];
const JUMP: &Bits =
    &[(3, 1), (4, 2), (5, 3), (11, 4), (2, 5), (7, 6), (6, 7), (9, 8), (10, 9), (8, 10), (12, 11)];
const SHORT_BRANCH: &Bits = &[(3, 1), (4, 2), (10, 3), (11, 4), (2, 5), (5, 6), (6, 7), (12, 8)];

fn compressed(word: u16, address: u64) -> End {
    let branch = |bits: &Bits| {
        let offset = bits.iter().map(|&(from, to)| i64::from(word >> from & 1) << to).sum();
        let sign_bit = bits.last().map_or(0, |&(_, sign_bit)| sign_bit);
        End::Branch { target: address.wrapping_add_signed(sign_extended(offset, sign_bit)) }
    };
    match (word & 3, word >> 13) {
        // c.j
        (1, 5) => branch(JUMP),
        // c.beqz, c.bnez
        (1, 6 | 7) => branch(SHORT_BRANCH),
        // c.jr, c.jalr; without the second source register, which c.mv and c.add have.
        (2, 4) if word >> 2 & 31 == 0 && word >> 7 & 31 != 0 => {
            match (word >> 12 & 1, is_link((word >> 7 & 31).into())) {
                (1, _) => End::Call,
                (_, true) => End::Return,
                (_, false) => End::Indirect,
            }
        }
        _ => End::Plain,
    }
}

fn sign_extended(value: i64, sign_bit: u16) -> i64 {
    let unused = 63 - sign_bit;
    value << unused >> unused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(word: u32) -> End {
        end(&word.to_le_bytes(), 0x1000)
    }

    fn of_short(word: u16) -> End {
        end(&word.to_le_bytes(), 0x1000)
    }

    /// Encodings as an assembler makes them.
    #[test]
    fn instructions_are_recognised() {
        assert_eq!(of(0x0100_00ef), End::Call, "jal ra, +16");
        assert_eq!(of(0x0100_006f), End::Branch { target: 0x1010 }, "j +16");
        assert_eq!(of(0xff1f_f06f), End::Branch { target: 0xff0 }, "j -16");
        assert_eq!(of(0x0000_80e7), End::Call, "jalr ra, 0(ra)");
        assert_eq!(of(0x0000_8067), End::Return, "ret");
        assert_eq!(of(0x0003_0067), End::Indirect, "jr t1");
        assert_eq!(of(0xfe05_0ee3), End::Branch { target: 0xffc }, "beqz a0, -4");
        assert_eq!(of(0x00b5_1463), End::Branch { target: 0x1008 }, "bne a0, a1, +8");
        assert_eq!(of(0x0000_0073), End::EnvironmentCall);
        assert_eq!(of(0x1020_0073), End::TrapReturn, "sret");
        assert_eq!(of(0x1050_0073), End::Plain, "wfi");
        assert_eq!(of(0x0000_0013), End::Plain, "nop");
    }

    #[test]
    fn short_instructions_are_recognised() {
        assert_eq!(of_short(0x8082), End::Return, "ret");
        assert_eq!(of_short(0x8782), End::Indirect, "jr a5");
        assert_eq!(of_short(0x9782), End::Call, "jalr a5");
        assert_eq!(of_short(0xa801), End::Branch { target: 0x1010 }, "j +16");
        assert_eq!(of_short(0xbfc5), End::Branch { target: 0xff0 }, "j -16");
        assert_eq!(of_short(0xc501), End::Branch { target: 0x1008 }, "beqz a0, +8");
        assert_eq!(of_short(0xfd75), End::Branch { target: 0xffc }, "bnez a0, -4");
        assert_eq!(of_short(0x9002), End::Plain, "ebreak");
        assert_eq!(of_short(0x87aa), End::Plain, "mv a5, a0");
        assert_eq!(of_short(0x0001), End::Plain, "nop");
    }
}
