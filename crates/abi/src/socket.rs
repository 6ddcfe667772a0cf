//! Socket addresses as system calls pass them (Linux's `sockaddr_in` and `sockaddr_in6`).

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::Errno;

/// Address family of IPv4.
pub const AF_INET: u16 = 2;
/// Address family of IPv6.
pub const AF_INET6: u16 = 10;
/// A byte stream: TCP.
pub const SOCK_STREAM: usize = 1;
/// Datagrams: UDP.
pub const SOCK_DGRAM: usize = 2;
/// No address family: `connect` to such an address ends what `connect` has set.
pub const AF_UNSPEC: u16 = 0;
/// Bytes of the longest address.
pub const ADDRESS_BYTES_MAX: usize = 28;

const V4_BYTES: usize = 16;
const V6_BYTES: usize = 28;

/// Writes `address` into `bytes`. Returns its size in bytes (16 or 28).
#[must_use]
pub fn encode(address: SocketAddr, bytes: &mut [u8; ADDRESS_BYTES_MAX]) -> usize {
    *bytes = [0; ADDRESS_BYTES_MAX];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes[0..2].copy_from_slice(&AF_INET.to_le_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            V4_BYTES
        }
        SocketAddr::V6(v6) => {
            bytes[0..2].copy_from_slice(&AF_INET6.to_le_bytes());
            bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_le_bytes());
            V6_BYTES
        }
    }
}

/// Parses an address that a process passed.
///
/// # Errors
/// `EINVAL` if it is too short for its family; `EAFNOSUPPORT` for any other family.
pub fn decode(bytes: &[u8]) -> Result<SocketAddr, Errno> {
    let field = |start: usize, length: usize| bytes.get(start..start + length).ok_or(Errno::EINVAL);
    let family = u16::from_le_bytes(array(field(0, 2)?));
    let port = || Ok::<u16, Errno>(u16::from_be_bytes(array(field(2, 2)?)));
    match family {
        AF_INET => {
            field(0, V4_BYTES)?;
            let octets: [u8; 4] = array(field(4, 4)?);
            Ok(SocketAddrV4::new(Ipv4Addr::from(octets), port()?).into())
        }
        AF_INET6 => {
            let octets: [u8; 16] = array(field(8, 16)?);
            let flow = u32::from_be_bytes(array(field(4, 4)?));
            let scope = u32::from_le_bytes(array(field(24, 4)?));
            Ok(SocketAddrV6::new(Ipv6Addr::from(octets), port()?, flow, scope).into())
        }
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// Copies a slice into an array. Its length was just checked.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(bytes) {
        *to = *from;
    }
    array
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn layout_is_linux() {
        let mut bytes = [0; ADDRESS_BYTES_MAX];
        let length = encode("10.0.2.15:9000".parse().unwrap(), &mut bytes);
        assert_eq!(&bytes[..length], &[2, 0, 0x23, 0x28, 10, 0, 2, 15, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn addresses_survive(v4: u32, v6: u128, port: u16, flow: u32, scope: u32) {
            let mut bytes = [0; ADDRESS_BYTES_MAX];
            let four = SocketAddr::from(SocketAddrV4::new(v4.into(), port));
            let length = encode(four, &mut bytes);
            prop_assert_eq!(decode(&bytes[..length]), Ok(four));
            let six = SocketAddr::from(SocketAddrV6::new(v6.into(), port, flow, scope));
            let length = encode(six, &mut bytes);
            prop_assert_eq!(decode(&bytes[..length]), Ok(six));
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn truncated_is_refused(port: u16, keep in 0usize..16) {
            let mut bytes = [0; ADDRESS_BYTES_MAX];
            let _ = encode(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into(), &mut bytes);
            prop_assert_eq!(decode(&bytes[..keep]), Err(Errno::EINVAL));
        }
    }
}
