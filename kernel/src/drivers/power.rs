//! Power off: reports the exit status of the run and powers the machine off.

use super::emergency::Emergency;
use crate::arch;
use crate::machine::device_tree;
use crate::machine::layout;

/// Commands of the virtual machine's test device.
const TEST_PASS: u32 = 0x5555;
const TEST_FAIL: u32 = 0x3333;

/// Ends the run with `status`. On a multiplexed console, sends the status after all output. Then
/// powers the machine off; if there is a test device, the emulator exits with `status` too. Any
/// hart may call it, once.
pub fn power_off(status: u8) -> ! {
    arch::interrupts_off();
    Emergency::take_over().exit(status);
    if let Some(test) = device_tree::try_facts().and_then(|facts| facts.test_device.as_ref()) {
        let word = if status == 0 { TEST_PASS } else { u32::from(status) << 16 | TEST_FAIL };
        // SAFETY: the device tree describes the device's one register, which the kernel maps at
        // boot.
        unsafe { layout::direct(test.start).cast::<u32>().write_volatile(word) };
    }
    arch::power_off_machine();
    arch::stop_hart()
}
