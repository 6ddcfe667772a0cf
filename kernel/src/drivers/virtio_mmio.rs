//! Finding virtio devices in the device tree.

use core::ptr::NonNull;
use virtio_drivers::transport::DeviceType;
use virtio_drivers::transport::mmio::MmioTransport;

use crate::machine::device_tree;
use crate::machine::layout;

/// Offset of the register that tells the type of the device, 0 if there is none.
const TYPE_REGISTER: usize = 8;

/// Offsets of the registers that a driver uses while it works.
const NOTIFY_REGISTER: usize = 0x50;
const INTERRUPT_STATUS_REGISTER: usize = 0x60;
const ACKNOWLEDGE_REGISTER: usize = 0x64;

/// The registers that a driver uses while it works, at any time and on any hart. The
/// transport of the virtio crate needs a lock for that, and reads the reason of an interrupt first:
/// in QEMU each access takes the emulator's global lock.
#[derive(Clone, Copy)]
pub struct Doorbell {
    registers: usize,
}

impl Doorbell {
    /// Notifies the device: there are new buffers in queue `index`.
    pub fn notify(self, index: u16) {
        self.write(NOTIFY_REGISTER, u32::from(index));
    }

    /// Withdraws the device's interrupt request, whatever its reason.
    pub fn acknowledge_interrupt(self) {
        const BUFFERS_USED: u32 = 1;
        const CONFIGURATION_CHANGED: u32 = 2;
        self.write(ACKNOWLEDGE_REGISTER, BUFFERS_USED | CONFIGURATION_CHANGED);
    }

    /// Accesses before this one are not exchanged with later ones, also where an emulator does not
    /// keep their order: it takes a lock for a register.
    pub fn order_accesses(self) {
        let register = self.registers.wrapping_add(INTERRUPT_STATUS_REGISTER) as *const u32;
        // SAFETY: as in `write`; a read of this register changes nothing.
        let _ = unsafe { register.read_volatile() };
    }

    fn write(self, offset: usize, value: u32) {
        let register = self.registers.wrapping_add(offset) as *mut u32;
        // SAFETY: only `devices` makes a doorbell, for a virtio region of the device tree, which
        // stays mapped. `offset` is that of a register of 32 bits, and neither register changes
        // anything in memory by itself.
        unsafe { register.write_volatile(value) };
    }
}

/// A device that has been found.
pub struct Device {
    pub transport: MmioTransport<'static>,
    pub doorbell: Doorbell,
    /// Physical address of its registers, for messages.
    pub address: usize,
    /// The number of its interrupt line, if the device tree names one.
    pub interrupt: Option<usize>,
}

/// The devices of type `kind`, in the order of the device tree. To be called once for each type:
/// dropping a transport resets its device. So there is no transport for the devices of other types
/// here, not even for a moment: they may be in use.
pub fn devices(kind: DeviceType) -> impl Iterator<Item = Device> {
    device_tree::facts().virtio.iter().filter_map(move |place| {
        let address = place.registers.start;
        let registers = layout::direct(address);
        // SAFETY: the device tree describes a virtio region here, which the direct map covers. The
        // register is a word that can be read at any time without an effect.
        let found = unsafe { registers.add(TYPE_REGISTER).cast::<u32>().read_volatile() };
        if found != kind as u32 {
            return None;
        }
        // SAFETY: the device tree describes a virtio region here, which stays mapped. Each type of
        // device has one driver, which calls this function once.
        let transport =
            unsafe { MmioTransport::new(NonNull::new(registers)?.cast(), place.registers.len()) };
        let transport = transport
            .inspect_err(|error| log::error!("virtio device at {address:#x}: {error}"))
            .ok()?;
        let doorbell = Doorbell { registers: registers as usize };
        Some(Device { transport, doorbell, address, interrupt: place.interrupt })
    })
}
