//! Ports of the host's loopback that are forwarded to the guest.

use std::net::{Ipv4Addr, TcpListener};
use std::str::FromStr;

use crate::error::{Because, Outcome};

/// A TCP port of the host's loopback that QEMU's user network forwards to a port of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    pub host: u16,
    pub guest: u16,
}

impl FromStr for Forward {
    type Err = String;

    /// `HOST:GUEST`, or one number for both.
    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| {
            text.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(|| {
                format!("{text:?} is no port number (1 to 65535); give HOST:GUEST, as in 9000:9000")
            })
        };
        let (host, guest) = text.split_once(':').unwrap_or((text, text));
        Ok(Self { host: port(host)?, guest: port(guest)? })
    }
}

/// A port of the loopback that is free at this moment. If another process takes it before QEMU
/// does, QEMU reports that and ends, and the caller tries another port.
pub fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .because(|| "no free TCP port on the loopback".into())?;
    Ok(listener.local_addr().because(|| "cannot tell the port".into())?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_pairs_of_ports() {
        assert_eq!("8080:80".parse(), Ok(Forward { host: 8080, guest: 80 }));
        assert_eq!("9000".parse(), Ok(Forward { host: 9000, guest: 9000 }));
        for wrong in ["", ":", "1:", ":1", "0:1", "65536:1", "1:2:3", "a:b", "-1:1"] {
            assert!(wrong.parse::<Forward>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_free_port_can_be_taken() {
        let port = free_port().unwrap();
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }
}
