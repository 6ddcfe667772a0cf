//! The serial port, a 16550.

use crate::machine::device_tree::UartFacts;
use crate::machine::layout;

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

/// Bytes that the transmitter takes at once when it is empty.
const FIFO_BYTES: usize = 16;

/// A port's registers. A copy refers to the same port; the console's lock serialises access.
#[derive(Clone, Copy)]
pub struct Uart {
    base: usize,
    register_shift: u32,
    wide: bool,
}

impl Uart {
    /// The port that the device tree describes. Its registers must be mapped before they are used.
    pub fn new(facts: &UartFacts) -> Self {
        Self {
            base: layout::direct(facts.registers.start) as usize,
            register_shift: facts.register_shift,
            wide: facts.wide_registers,
        }
    }

    /// Enables the FIFOs with a trigger level of one byte, and disables interrupts. The firmware
    /// has set the speed.
    pub fn initialise(&self) {
        self.write(INTERRUPT_ENABLE, 0);
        self.write(LINE_CONTROL, 0b11); // 8 bits, no parity, one stop bit
        self.write(FIFO_CONTROL, 0b111); // on, both cleared
        self.write(MODEM_CONTROL, 0b1011); // ready, and interrupts reach the controller
    }

    /// Sends bytes from `next` until there are no more (returns true) or the port is full (false).
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

    /// Reads a received byte, if there is one.
    pub fn receive(&self) -> Option<u8> {
        (self.read(LINE_STATUS) & STATUS_DATA_READY != 0).then(|| self.read(DATA))
    }

    /// Selects the interrupt sources: received bytes, and room to send.
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
        // SAFETY: `number` is that of a 16550 register, at the distance and of the width that the
        // device tree gives; the port's registers are mapped before the port is used (see `new`).
        unsafe {
            if self.wide {
                register.cast::<u32>().read_volatile() as u8
            } else {
                register.read_volatile()
            }
        }
    }

    fn write(&self, number: usize, value: u8) {
        let register = self.register(number);
        // SAFETY: `number` is that of a 16550 register, at the distance and of the width that the
        // device tree gives; the port's registers are mapped before the port is used (see `new`).
        unsafe {
            if self.wide {
                register.cast::<u32>().write_volatile(u32::from(value));
            } else {
                register.write_volatile(value);
            }
        }
    }
}
