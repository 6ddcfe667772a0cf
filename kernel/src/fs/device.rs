//! Devices that the kernel simulates: what `/dev/null` and its neighbours do.

use cops_abi::Errno;
use cops_abi::errno::CallResult;

use super::node::Device;
use crate::drivers::random;
use crate::mm::PinnedBuffer;

/// Maximum number of random bytes of one read, as of `getrandom`.
const PIECE_BYTES: usize = random::BYTES_MAX;

/// Reads from `device`.
pub fn read(device: Device, buffer: &PinnedBuffer) -> CallResult {
    match device {
        Device::Null => Ok(0),
        Device::Zero | Device::Full => {
            let zeros = [0; PIECE_BYTES];
            for at in (0..buffer.len()).step_by(PIECE_BYTES) {
                buffer.write_at(at, &zeros[..PIECE_BYTES.min(buffer.len() - at)]);
            }
            Ok(buffer.len())
        }
        Device::Random => {
            let mut bytes = [0; PIECE_BYTES];
            let bytes = &mut bytes[..buffer.len().min(PIECE_BYTES)];
            random::fill(bytes);
            buffer.write_at(0, bytes);
            Ok(bytes.len())
        }
        // They are opened as what they name.
        Device::Console | Device::Disk | Device::FileServer => Err(Errno::EIO),
    }
}

/// Writes to `device`.
pub fn write(device: Device, buffer: &PinnedBuffer) -> CallResult {
    match device {
        Device::Null | Device::Zero | Device::Random => Ok(buffer.len()),
        Device::Full => Err(Errno::ENOSPC),
        Device::Console | Device::Disk | Device::FileServer => Err(Errno::EIO),
    }
}
