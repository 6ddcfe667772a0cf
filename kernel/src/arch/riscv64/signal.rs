//! The frame that a signal leaves on a Linux program's stack, in Linux's layout for this machine:
//! `siginfo`, then `ucontext` with the registers. And the page with the instructions to which a
//! handler returns.

use super::csr;
use super::user::{REGISTER_A0, REGISTER_SP, UserContext};

/// Sizes and offsets in the frame, in bytes.
const INFORMATION: usize = 0;
const CONTEXT: usize = 128;
const CONTEXT_STACK: usize = CONTEXT + 16;
const CONTEXT_MASK: usize = CONTEXT + 40;
const REGISTERS: usize = CONTEXT + 176;
const FLOATING_POINT: usize = REGISTERS + 32 * 8;
/// Room for the largest extension of the floating-point registers that Linux knows.
const FLOATING_POINT_BYTES: usize = 528;
/// Size of the frame.
pub const SIGNAL_FRAME_BYTES: usize = FLOATING_POINT + FLOATING_POINT_BYTES;

const REGISTER_RA: usize = 1;

/// What a frame has besides registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalState {
    /// The blocked signals.
    pub mask: u64,
    /// The alternate stack: its address, its flags, its size.
    pub stack: [u64; 3],
}

/// A handler that is to be called.
#[derive(Clone, Copy, Debug)]
pub struct SignalHandler {
    /// Its address.
    pub address: usize,
    /// The stack pointer below which the frame is to be.
    pub stack_pointer: usize,
    /// Address of [`trampoline`] in the program.
    pub return_address: usize,
}

fn put(frame: &mut [u8], offset: usize, word: u64) {
    frame[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
}

fn get(frame: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&frame[offset..offset + 8]);
    u64::from_le_bytes(word)
}

impl UserContext {
    /// The thread's stack pointer.
    pub fn stack_pointer(&self) -> usize {
        self.registers[REGISTER_SP]
    }

    /// Makes the thread continue in the handler of `signal`, with a frame that it will find at the
    /// returned address; `store` writes the frame there. The floating-point registers have been
    /// [saved](Self::save_floating_point).
    ///
    /// # Errors
    /// That of `store`; nothing has changed then.
    pub fn begin_signal<E>(
        &mut self,
        handler: &SignalHandler,
        (signal, code, fields): (u8, i32, [u64; 2]),
        state: &SignalState,
        store: impl FnOnce(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut frame = [0; SIGNAL_FRAME_BYTES];
        put(&mut frame, INFORMATION, signal.into());
        put(&mut frame, INFORMATION + 8, u64::from(code as u32));
        put(&mut frame, INFORMATION + 16, fields[0]);
        put(&mut frame, INFORMATION + 24, fields[1]);
        for (index, word) in state.stack.into_iter().enumerate() {
            put(&mut frame, CONTEXT_STACK + 8 * index, word);
        }
        put(&mut frame, CONTEXT_MASK, state.mask);
        put(&mut frame, REGISTERS, self.program_counter as u64);
        for (index, &register) in self.registers.iter().enumerate().skip(1) {
            put(&mut frame, REGISTERS + 8 * index, register as u64);
        }
        self.floating_point.store(&mut frame[FLOATING_POINT..]);
        let address = handler.stack_pointer.wrapping_sub(SIGNAL_FRAME_BYTES) & !15;
        store(address, &frame)?;
        self.program_counter = handler.address;
        self.registers[REGISTER_RA] = handler.return_address;
        self.registers[REGISTER_SP] = address;
        self.registers[REGISTER_A0] = signal.into();
        self.registers[REGISTER_A0 + 1] = address + INFORMATION;
        self.registers[REGISTER_A0 + 2] = address + CONTEXT;
        Ok(())
    }

    /// Takes the registers out of a frame, which the program can have changed, and returns the rest
    /// of it. Called on the hart that runs the thread.
    pub fn end_signal(&mut self, frame: &[u8; SIGNAL_FRAME_BYTES]) -> SignalState {
        self.program_counter = get(frame, REGISTERS) as usize;
        for (index, register) in self.registers.iter_mut().enumerate().skip(1) {
            *register = get(frame, REGISTERS + 8 * index) as usize;
        }
        if self.status & csr::STATUS_FLOATING_POINT != csr::FLOATING_POINT_OFF {
            self.floating_point.load(&frame[FLOATING_POINT..]);
            self.set_floating_point_state(csr::FLOATING_POINT_CLEAN);
            self.floating_point.restore();
        }
        let stack = core::array::from_fn(|index| get(frame, CONTEXT_STACK + 8 * index));
        SignalState { mask: get(frame, CONTEXT_MASK), stack }
    }
}

/// A page with the two instructions that return from a handler: `li a7, 139` and `ecall`.
#[repr(C, align(4096))]
struct Trampoline([u8; 4096]);

static TRAMPOLINE: Trampoline = Trampoline({
    let code = [0x08b0_0893_u32, 0x0000_0073];
    let mut page = [0; 4096];
    let mut at = 0;
    while at < 8 {
        page[at] = code[at / 4].to_le_bytes()[at % 4];
        at += 1;
    }
    page
});

/// The page to which handlers of signals return, for mapping it.
pub fn trampoline() -> &'static [u8] {
    &TRAMPOLINE.0
}
