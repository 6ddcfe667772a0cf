//! What the machine's memory and the kernel's counters stand at.

pub use cops_abi::statistics::Statistics;

/// The kernel's counters now.
///
/// # Errors
/// None that a kernel of this version has.
pub fn statistics() -> crate::io::Result<Statistics> {
    Ok(crate::system::statistics()?)
}

/// Fills `bytes` with random numbers: good for hash seeds, not for keys.
///
/// # Errors
/// None that a kernel of this version has.
pub fn random(mut bytes: &mut [u8]) -> crate::io::Result<()> {
    while !bytes.is_empty() {
        let count = crate::system::random(bytes)?;
        bytes = bytes.get_mut(count.max(1)..).unwrap_or_default();
    }
    Ok(())
}
