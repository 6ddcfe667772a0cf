//! Port numbers: the bound ports and their listeners.
//!
//! A connection's pair of addresses is not here but in its interface's table. An established
//! connection does not keep its port from being bound again, as with SO_REUSEADDR on Linux, so a
//! server can be restarted at once.

use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};

use cops_fallible::{List, Table};

use crate::backlog::Backlog;
use crate::error::Error;

/// First ephemeral port: IANA's dynamic range.
const FIRST_EPHEMERAL: u16 = 49152;
/// Number of ephemeral ports.
const EPHEMERAL_PORTS: u16 = u16::MAX - FIRST_EPHEMERAL + 1;

/// TCP and UDP have separate port numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    Stream,
    Datagram,
}

struct Claim {
    address: IpAddr,
    listener: Option<Arc<Backlog>>,
}

/// All bound ports.
pub(crate) struct Registry {
    claims: Table<(Space, u16), List<Claim>>,
    next_ephemeral: u16,
}

impl Registry {
    pub(crate) fn new(seed: u64) -> Registry {
        Registry {
            claims: Table::new(),
            next_ephemeral: (seed ^ (seed >> 17) ^ (seed >> 41)) as u16 % EPHEMERAL_PORTS,
        }
    }

    /// Claims `local`; port 0 chooses one. Returns the port.
    ///
    /// # Errors
    /// [`Error::AddressInUse`], [`Error::OutOfMemory`]; for port 0, [`Error::AddressNotAvailable`]
    /// if all are taken.
    pub(crate) fn claim(&mut self, space: Space, local: SocketAddr) -> Result<u16, Error> {
        let port = match local.port() {
            0 => self.free_port(space, local.ip())?,
            port if self.is_free(space, local.ip(), port) => port,
            _ => return Err(Error::AddressInUse),
        };
        let claim = Claim { address: local.ip(), listener: None };
        let claims = self.claims.try_get_or_default((space, port)).map_err(|_| Error::OutOfMemory)?;
        if claims.try_push(claim).is_err() {
            if claims.is_empty() {
                self.claims.remove(&(space, port));
            }
            return Err(Error::OutOfMemory);
        }
        Ok(port)
    }

    /// Releases a claim.
    pub(crate) fn release(&mut self, space: Space, local: SocketAddr) {
        if let Some(claims) = self.claims.get_mut(&(space, local.port())) {
            claims.retain(|claim| claim.address != local.ip());
            if claims.is_empty() {
                self.claims.remove(&(space, local.port()));
            }
        }
    }

    /// Sets or removes the listener of a claimed TCP port.
    pub(crate) fn set_listener(&mut self, local: SocketAddr, listener: Option<Arc<Backlog>>) {
        let claims = self.claims.get_mut(&(Space::Stream, local.port()));
        if let Some(claim) =
            claims.and_then(|claims| claims.iter_mut().find(|claim| claim.address == local.ip()))
        {
            claim.listener = listener;
        }
    }

    /// The listener for `address`. There is at most one, because claims do not overlap.
    pub(crate) fn listener(&self, address: IpAddr, port: u16) -> Option<&Arc<Backlog>> {
        let claims = self.claims.get(&(Space::Stream, port))?;
        claims.iter().find(|claim| covers(claim.address, address))?.listener.as_ref()
    }

    /// Chooses an ephemeral TCP port that is not bound and for which `is_free` returns true, for a
    /// connection without a bound port.
    ///
    /// # Errors
    /// [`Error::AddressNotAvailable`] if there is none.
    pub(crate) fn choose_port(&mut self, is_free: impl Fn(u16) -> bool) -> Result<u16, Error> {
        for _ in 0..EPHEMERAL_PORTS {
            let port = self.next_candidate();
            if !self.claims.contains_key(&(Space::Stream, port)) && is_free(port) {
                return Ok(port);
            }
        }
        Err(Error::AddressNotAvailable)
    }

    /// The next ephemeral port, cyclically.
    fn next_candidate(&mut self) -> u16 {
        let port = FIRST_EPHEMERAL + self.next_ephemeral;
        self.next_ephemeral = (self.next_ephemeral + 1) % EPHEMERAL_PORTS;
        port
    }

    fn free_port(&mut self, space: Space, address: IpAddr) -> Result<u16, Error> {
        for _ in 0..EPHEMERAL_PORTS {
            let port = self.next_candidate();
            if self.is_free(space, address, port) {
                return Ok(port);
            }
        }
        Err(Error::AddressNotAvailable)
    }

    fn is_free(&self, space: Space, address: IpAddr, port: u16) -> bool {
        self.claims.get(&(space, port)).is_none_or(|claims| {
            !claims.iter().any(|claim| covers(claim.address, address) || covers(address, claim.address))
        })
    }
}

/// Whether a socket bound to `bound` receives what is sent to `address`. `::` is for both IP
/// versions, `0.0.0.0` for IPv4.
pub(crate) fn covers(bound: IpAddr, address: IpAddr) -> bool {
    bound == address
        || match bound {
            IpAddr::V4(bound) => bound.is_unspecified() && address.is_ipv4(),
            IpAddr::V6(bound) => bound.is_unspecified(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn overlapping_claims_exclude_each_other() {
        let mut registry = Registry::new(1);
        assert_eq!(registry.claim(Space::Stream, address("10.0.0.1:80")), Ok(80));
        assert_eq!(registry.claim(Space::Stream, address("10.0.0.2:80")), Ok(80));
        assert_eq!(registry.claim(Space::Datagram, address("0.0.0.0:80")), Ok(80));
        for taken in ["10.0.0.1:80", "0.0.0.0:80", "[::]:80"] {
            assert_eq!(registry.claim(Space::Stream, address(taken)), Err(Error::AddressInUse), "{taken}");
        }
        assert_eq!(registry.claim(Space::Stream, address("[::1]:80")), Ok(80));
        registry.release(Space::Stream, address("10.0.0.1:80"));
        assert_eq!(registry.claim(Space::Stream, address("10.0.0.1:80")), Ok(80));
    }

    #[test]
    fn every_dynamic_port_is_given_out_once_and_then_none() {
        let mut registry = Registry::new(0xdead_beef_1234_5678);
        let mut ports: Vec<u16> = (0..EPHEMERAL_PORTS)
            .map(|_| registry.claim(Space::Stream, address("0.0.0.0:0")).unwrap())
            .collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), usize::from(EPHEMERAL_PORTS));
        assert!(ports.iter().all(|port| *port >= FIRST_EPHEMERAL));
        assert_eq!(registry.claim(Space::Stream, address("0.0.0.0:0")), Err(Error::AddressNotAvailable));
    }

    #[test]
    fn a_listener_is_found_by_its_address() {
        let mut registry = Registry::new(1);
        let (exact, other) = (Arc::new(Backlog::new(1)), Arc::new(Backlog::new(1)));
        for (local, backlog) in [(address("10.0.0.1:80"), &exact), (address("10.0.0.2:80"), &other)] {
            registry.claim(Space::Stream, local).unwrap();
            registry.set_listener(local, Some(backlog.clone()));
        }
        let found = registry.listener("10.0.0.1".parse().unwrap(), 80).unwrap();
        assert!(Arc::ptr_eq(found, &exact));
        assert!(registry.listener("10.0.0.3".parse().unwrap(), 80).is_none());
        assert!(registry.listener("10.0.0.1".parse().unwrap(), 81).is_none());
    }
}
