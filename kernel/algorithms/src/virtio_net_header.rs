//! The header before each frame of a virtio network card (virtio 1.2, section 5.1.6).
//!
//! It says what the card has left to the driver, or the driver to the card: to complete a checksum,
//! and to divide a long segment of TCP. All fields are little-endian; a legacy device has the byte
//! order of the machine, which is the same here.

/// Length of the header if each frame has one buffer.
pub const BYTES_LEGACY: usize = 10;
/// Length of a modern device's header, and if a frame may have several buffers.
pub const BYTES: usize = 12;

/// Flag: the checksum covers the bytes from a place on, and in its field is the sum of what else it
/// covers.
const NEEDS_CHECKSUM: u8 = 1;
/// Flag: the card has verified the checksums.
const IS_VERIFIED: u8 = 2;
/// The kind of frame that is divided: TCP over IPv4.
const DIVIDE_TCP4: u8 = 1;

/// Headers of IPv4 and Ethernet without options, and of TCP.
const TCP_START: u16 = 34;
const TCP_HEADER_BYTES: u16 = 20;
/// Where the checksum is in the header of TCP.
const TCP_CHECKSUM: u16 = 16;

/// What the header of a received frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The checksum of TCP need not be verified: the card has done it, or the frame comes from a
    /// sender that has not computed it, because it is on the same host.
    pub is_verified: bool,
    /// A checksum that is not that of TCP, and that the driver completes: the place from which on
    /// it covers the frame, and that of its field in what it covers.
    pub partial: Option<(usize, usize)>,
    /// Number of buffers that the frame fills.
    pub buffers: u16,
}

impl Received {
    /// Reads a header of [`BYTES`] or [`BYTES_LEGACY`]; what is missing is zero.
    #[inline]
    #[must_use]
    pub fn parse(header: &[u8]) -> Self {
        let flags = header.first().copied().unwrap_or(0);
        let number = |at: usize| match header.get(at..at + 2) {
            Some(&[low, high]) => u16::from_le_bytes([low, high]),
            _ => 0,
        };
        let is_partial = flags & NEEDS_CHECKSUM != 0;
        let is_of_tcp = number(8) == TCP_CHECKSUM;
        let place = || (usize::from(number(6)), usize::from(number(8)));
        Self {
            is_verified: flags & IS_VERIFIED != 0 || is_partial && is_of_tcp,
            partial: (is_partial && !is_of_tcp).then(place),
            buffers: number(10).max(1),
        }
    }
}

/// The header of a frame with a long segment of TCP over IPv4, both without options, which the card
/// divides into segments with at most `segment_bytes` bytes of its data, and of which it completes
/// the checksums. The count of buffers, if the header has one, is zero.
#[must_use]
pub fn divided(segment_bytes: u16) -> [u8; BYTES_LEGACY] {
    let mut header = [0; BYTES_LEGACY];
    header[0] = NEEDS_CHECKSUM;
    header[1] = DIVIDE_TCP4;
    header[2..4].copy_from_slice(&(TCP_START + TCP_HEADER_BYTES).to_le_bytes());
    header[4..6].copy_from_slice(&segment_bytes.to_le_bytes());
    header[6..8].copy_from_slice(&TCP_START.to_le_bytes());
    header[8..10].copy_from_slice(&TCP_CHECKSUM.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of [`BYTES`].
    fn header(flags: u8, start: u8, field: u8, buffers: u8) -> [u8; BYTES] {
        [flags, 0, 0, 0, 0, 0, start, 0, field, 0, buffers, 0]
    }

    #[test]
    fn a_header_of_zeros_promises_nothing() {
        let nothing = Received { is_verified: false, partial: None, buffers: 1 };
        assert_eq!(Received::parse(&[0; BYTES]), nothing);
        assert_eq!(Received::parse(&[0; BYTES_LEGACY]), nothing);
        assert_eq!(Received::parse(&[]), nothing);
        // Places without the flag.
        assert_eq!(Received::parse(&header(0, 34, 16, 1)), nothing);
        assert_eq!(Received::parse(&header(0, 34, 6, 1)), nothing);
    }

    #[test]
    fn tcp_without_a_checksum_is_as_good_as_verified() {
        let verified = Received { is_verified: true, partial: None, buffers: 1 };
        assert_eq!(Received::parse(&header(1, 34, 16, 1)), verified);
        assert_eq!(Received::parse(&header(1, 54, 16, 1)), verified);
        assert_eq!(Received::parse(&header(2, 0, 0, 1)), verified);
    }

    #[test]
    fn another_checksum_is_to_be_completed() {
        let udp = Received { is_verified: false, partial: Some((34, 6)), buffers: 1 };
        assert_eq!(Received::parse(&header(1, 34, 6, 1)), udp);
    }

    #[test]
    fn a_frame_has_as_many_buffers_as_it_says_and_at_least_one() {
        for (said, meant) in [(0, 1), (1, 1), (2, 2), (33, 33)] {
            assert_eq!(Received::parse(&header(1, 34, 16, said)).buffers, meant);
        }
        // A legacy header without a count: the frame follows.
        assert_eq!(Received::parse(&header(1, 34, 16, 7)[..BYTES_LEGACY]).buffers, 1);
    }

    /// As Linux writes it for a segment of this kind.
    #[test]
    fn a_divided_segment_names_its_headers_and_the_size_of_a_segment() {
        assert_eq!(divided(1460), [1, 1, 54, 0, 0xb4, 5, 34, 0, 16, 0]);
    }
}
