//! The kernel's counters, and random numbers.

pub use cops_abi::statistics::Statistics;

/// The current values of the kernel's counters.
///
/// # Errors
/// A kernel of this version returns none.
pub fn statistics() -> crate::io::Result<Statistics> {
    Ok(crate::system::statistics()?)
}

/// Fills `bytes` with random numbers from the kernel's generator. They are suitable for keys only
/// if the boot loader provided a seed; `docs/abi.md` describes their quality.
///
/// # Errors
/// A kernel of this version returns none.
pub fn random(mut bytes: &mut [u8]) -> crate::io::Result<()> {
    while !bytes.is_empty() {
        let count = crate::system::random(bytes)?;
        bytes = bytes.get_mut(count.max(1)..).unwrap_or_default();
    }
    Ok(())
}
