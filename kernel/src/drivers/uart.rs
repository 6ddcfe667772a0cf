//! The serial port, a 16550.

use super::device_tree::UartFacts;
use crate::mm::layout;

const DATA: usize = 0;
const INTERRUPT_ENABLE: usize = 1;
const FIFO_CONTROL: usize = 2;
const LINE_CONTROL: usize = 3;
const MODEM_CONTROL: usize = 4;
const LINE_STATUS: usize = 5;

const RECEIVED: u8 = 1 << 0;
const TRANSMITTER_EMPTY: u8 = 1 << 1;
const STATUS_DATA_READY: u8 = 1 << 0;
const STATUS_TRANSMITTER_EMPTY: u8 = 1 << 5;

/// Bytes the transmitter takes at once when it is empty.
const FIFO_BYTES: usize = 16;

/// A port's registers. A copy reaches the same port; who uses it when is the console's business.
#[derive(Clone, Copy)]
pub struct Uart {
    base: usize,
    register_shift: u32,
    wide: bool,
}

impl Uart {
    /// The port the tree describes. Its registers must be mapped before they are used.
    pub fn new(facts: &UartFacts) -> Self {
        Self {
            base: layout::direct(facts.registers.start) as usize,
            register_shift: facts.register_shift,
            wide: facts.wide_registers,
        }
    }

    /// Switches the queues on, at a trigger level of one byte, and interrupts off. The speed
    /// stays what the firmware made it.
    pub fn initialise(&self) {
        self.write(INTERRUPT_ENABLE, 0);
        self.write(LINE_CONTROL, 0b11); // 8 bits, no parity, one stop bit
        self.write(FIFO_CONTROL, 0b111); // on, both cleared
        self.write(MODEM_CONTROL, 0b1011); // ready, and interrupts reach the controller
    }

    /// Sends from `next` until it has no more (true) or the port wants to rest (false).
    pub fn send(&self, mut next: impl FnMut() -> Option<u8>) -> bool {
        while self.read(LINE_STATUS) & STATUS_TRANSMITTER_EMPTY != 0 {
            for _ in 0..FIFO_BYTES {
                match next() {
                    Some(byte) => self.write(DATA, byte),
                    None => return true,
                }
            }
        }
        false
    }

    /// A byte that has come in.
    pub fn receive(&self) -> Option<u8> {
        (self.read(LINE_STATUS) & STATUS_DATA_READY != 0).then(|| self.read(DATA))
    }

    /// Chooses what interrupts: bytes that have come in, room to send.
    pub fn interrupt_on(&self, received: bool, transmitter_empty: bool) {
        let mut bits = 0;
        if received {
            bits |= RECEIVED;
        }
        if transmitter_empty {
            bits |= TRANSMITTER_EMPTY;
        }
        self.write(INTERRUPT_ENABLE, bits);
    }

    fn register(&self, number: usize) -> *mut u8 {
        (self.base + (number << self.register_shift)) as *mut u8
    }

    fn read(&self, number: usize) -> u8 {
        let register = self.register(number);
        // SAFETY: a register of the port, mapped, of the width the tree says.
        unsafe {
            if self.wide { register.cast::<u32>().read_volatile() as u8 } else { register.read_volatile() }
        }
    }

    fn write(&self, number: usize, value: u8) {
        let register = self.register(number);
        // SAFETY: as in `read`.
        unsafe {
            if self.wide {
                register.cast::<u32>().write_volatile(u32::from(value));
            } else {
                register.write_volatile(value);
            }
        }
    }
}
