//! The way out: telling the other side how the run ended, and cutting the power.

use super::console::Emergency;
use super::device_tree;
use crate::arch;
use crate::mm::layout;

/// What the test device of virtual machines understands.
const TEST_PASS: u32 = 0x5555;
const TEST_FAIL: u32 = 0x3333;

/// Ends the run with `status`: says so on a multiplexed console after all output, then
/// powers the machine off. Where there is a test device the emulator's own exit status is
/// `status` too. For any hart, once.
pub fn power_off(status: u8) -> ! {
    arch::interrupts_off();
    Emergency::take_over().exit(status);
    if let Some(test) = device_tree::try_facts().and_then(|facts| facts.test_device.as_ref()) {
        let word = if status == 0 { TEST_PASS } else { u32::from(status) << 16 | TEST_FAIL };
        // SAFETY: the device's one register, mapped.
        unsafe { layout::direct(test.start).cast::<u32>().write_volatile(word) };
    }
    arch::power_off_machine();
    arch::stop_hart()
}
