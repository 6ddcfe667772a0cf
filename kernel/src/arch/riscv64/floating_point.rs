//! The floating-point registers of a thread.
//!
//! The kernel does not use them and runs with the unit off, so an accidental use is an exception. A
//! thread that never uses them has no cost: its unit is off until its first floating-point
//! instruction, on which `user` enables the unit with zeroed registers.

use super::csr;
use core::arch::asm;

/// All 32 registers and the control register.
#[repr(C)]
#[derive(Clone)]
pub(super) struct FloatingPoint {
    registers: [u64; 32],
    control: usize,
}

impl FloatingPoint {
    pub(super) const fn new() -> Self {
        Self { registers: [0; 32], control: 0 }
    }

    /// Size of the registers in memory, with the control register after them.
    const BYTES: usize = 32 * 8 + 4;

    /// Writes the registers and the control register, as Linux lays them out.
    pub(super) fn store(&self, into: &mut [u8]) {
        for (place, register) in into.chunks_exact_mut(8).zip(self.registers) {
            place.copy_from_slice(&register.to_le_bytes());
        }
        into[Self::BYTES - 4..Self::BYTES].copy_from_slice(&(self.control as u32).to_le_bytes());
    }

    /// Reads what [`Self::store`] writes. Only the rounding mode and the flags of the control
    /// register are taken.
    pub(super) fn load(&mut self, from: &[u8]) {
        for (register, place) in self.registers.iter_mut().zip(from.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(place);
            *register = u64::from_le_bytes(word);
        }
        self.control = usize::from(from[Self::BYTES - 4]);
    }

    /// Copies the hart's registers here.
    pub(super) fn save(&mut self) {
        // SAFETY: the stores write only into `self`, and reading the registers has no effect on
        // Rust code, which does not use them in the kernel.
        unsafe {
            csr::set!("sstatus", csr::STATUS_FLOATING_POINT);
            asm!(
                "fsd f0, 0({a})", "fsd f1, 8({a})", "fsd f2, 16({a})", "fsd f3, 24({a})",
                "fsd f4, 32({a})", "fsd f5, 40({a})", "fsd f6, 48({a})", "fsd f7, 56({a})",
                "fsd f8, 64({a})", "fsd f9, 72({a})", "fsd f10, 80({a})", "fsd f11, 88({a})",
                "fsd f12, 96({a})", "fsd f13, 104({a})", "fsd f14, 112({a})", "fsd f15, 120({a})",
                "fsd f16, 128({a})", "fsd f17, 136({a})", "fsd f18, 144({a})", "fsd f19, 152({a})",
                "fsd f20, 160({a})", "fsd f21, 168({a})", "fsd f22, 176({a})", "fsd f23, 184({a})",
                "fsd f24, 192({a})", "fsd f25, 200({a})", "fsd f26, 208({a})", "fsd f27, 216({a})",
                "fsd f28, 224({a})", "fsd f29, 232({a})", "fsd f30, 240({a})", "fsd f31, 248({a})",
                a = in(reg) self.registers.as_mut_ptr(),
                options(nostack),
            );
        }
        self.control = csr::read!("fcsr");
        // SAFETY: switching the unit off affects no Rust code, because the kernel does not use it.
        unsafe { csr::clear!("sstatus", csr::STATUS_FLOATING_POINT) };
    }

    /// Loads the saved values into the hart's registers.
    pub(super) fn restore(&self) {
        // SAFETY: the loads read only from `self`. The overwritten registers hold nothing of the
        // kernel's, because no Rust code in the kernel uses them.
        unsafe {
            csr::set!("sstatus", csr::STATUS_FLOATING_POINT);
            asm!(
                "fld f0, 0({a})", "fld f1, 8({a})", "fld f2, 16({a})", "fld f3, 24({a})",
                "fld f4, 32({a})", "fld f5, 40({a})", "fld f6, 48({a})", "fld f7, 56({a})",
                "fld f8, 64({a})", "fld f9, 72({a})", "fld f10, 80({a})", "fld f11, 88({a})",
                "fld f12, 96({a})", "fld f13, 104({a})", "fld f14, 112({a})", "fld f15, 120({a})",
                "fld f16, 128({a})", "fld f17, 136({a})", "fld f18, 144({a})", "fld f19, 152({a})",
                "fld f20, 160({a})", "fld f21, 168({a})", "fld f22, 176({a})", "fld f23, 184({a})",
                "fld f24, 192({a})", "fld f25, 200({a})", "fld f26, 208({a})", "fld f27, 216({a})",
                "fld f28, 224({a})", "fld f29, 232({a})", "fld f30, 240({a})", "fld f31, 248({a})",
                "csrw fcsr, {control}",
                a = in(reg) self.registers.as_ptr(),
                control = in(reg) self.control,
                options(nostack),
            );
            csr::clear!("sstatus", csr::STATUS_FLOATING_POINT);
        }
    }
}
