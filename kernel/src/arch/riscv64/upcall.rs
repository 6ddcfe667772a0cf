//! User-level interrupts without hardware support. A record in memory stands for the registers of
//! RISC-V's N extension; these functions do what the hardware and the first instruction of every
//! handler would do (decision 11).
//!
//! With the extension, the two functions would write `uepc`, `ucause`, `utvec` and `ustatus`, and
//! set the bit in `uip`. The values in the record, which the process can write, only go to
//! registers of the same process.

use super::csr;
use super::user::{REGISTER_A7, REGISTER_SP, UserContext};
use cops_abi::interrupt::{CpuRecord, cause};
use core::sync::atomic::Ordering::Relaxed;

impl UserContext {
    /// Makes the thread continue at `handler`, on the stack given in the record. Stores in the
    /// record what is needed to return.
    pub fn begin_user_interrupt(&mut self, record: &CpuRecord, handler: usize, why: u64) {
        let uses_floats = self.status & csr::STATUS_FLOATING_POINT != csr::FLOATING_POINT_OFF;
        let floats = if uses_floats { cause::FLOATING_POINT } else { 0 };
        record.cause.store(why | floats, Relaxed);
        record.program_counter.store(self.program_counter as u64, Relaxed);
        self.exchange_stacks(record);
        self.program_counter = handler;
    }

    /// Makes the thread resume where it was interrupted.
    pub fn end_user_interrupt(&mut self, record: &CpuRecord) {
        self.program_counter = record.program_counter.load(Relaxed) as usize;
        self.exchange_stacks(record);
        self.registers[REGISTER_A7] = record.number_register.load(Relaxed) as usize;
    }

    fn exchange_stacks(&mut self, record: &CpuRecord) {
        let other = record.scratch.load(Relaxed) as usize;
        record.scratch.store(self.registers[REGISTER_SP] as u64, Relaxed);
        self.registers[REGISTER_SP] = other;
    }
}
