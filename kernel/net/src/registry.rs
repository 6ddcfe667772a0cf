//! Port numbers: the bound ports and their listeners.
//!
//! A connection's pair of addresses is not here but in its interface's table. An established
//! connection does not keep its port from being bound again, as with SO_REUSEADDR on Linux, so a
//! server can be restarted at once.

use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};

use cops_fallible::{List, Table};

use crate::backlog::Backlog;
use crate::configuration::RandomSeeds;
use crate::error::Error;

/// First ephemeral port: IANA's dynamic range.
const FIRST_EPHEMERAL: u16 = 49152;
/// Number of ephemeral ports.
const EPHEMERAL_PORTS: u16 = u16::MAX - FIRST_EPHEMERAL + 1;

/// Ports that one portion of a search tries.
const PORTS_PER_PORTION: u16 = 32;
/// Maximum number of sockets that are bound to one port with different addresses, of which there
/// are millions: each datagram and each SYN looks at all of them.
const CLAIMS_PER_PORT: usize = 32;

/// A search for a free port. It looks at all of them, in portions.
#[derive(Debug, Default)]
pub struct PortSearch {
    /// The next candidate.
    next: Option<u16>,
    tried: u16,
}

impl PortSearch {
    /// A search that has not begun.
    pub const fn new() -> Self {
        Self { next: None, tried: 0 }
    }
}

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
    pub(crate) fn new(seeds: &RandomSeeds) -> Registry {
        let seed = seeds.ports;
        Registry {
            claims: Table::new(seeds.tables),
            next_ephemeral: (seed ^ (seed >> 17) ^ (seed >> 41)) as u16 % EPHEMERAL_PORTS,
        }
    }

    /// Claims `local`; port 0 chooses one. Returns the port, or `None` if the search is not over:
    /// call again with the same `search`.
    ///
    /// # Errors
    /// [`Error::AddressInUse`], [`Error::OutOfMemory`]; for port 0, [`Error::AddressNotAvailable`]
    /// if all are taken.
    pub(crate) fn claim(
        &mut self,
        space: Space,
        local: SocketAddr,
        search: &mut PortSearch,
    ) -> Result<Option<u16>, Error> {
        let port = match local.port() {
            0 => {
                let is_free = |registry: &Registry, port| registry.is_free(space, local.ip(), port);
                match self.look_on(search, is_free)? {
                    Some(port) => port,
                    None => return Ok(None),
                }
            }
            port if self.is_free(space, local.ip(), port) => port,
            _ => return Err(Error::AddressInUse),
        };
        let claim = Claim { address: local.ip(), listener: None };
        let claims =
            self.claims.try_get_or_default((space, port)).map_err(|_| Error::OutOfMemory)?;
        if claims.try_push(claim).is_err() {
            if claims.is_empty() {
                self.claims.remove(&(space, port));
            }
            return Err(Error::OutOfMemory);
        }
        Ok(Some(port))
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
    /// connection without a bound port. `None`: call again with the same `search`.
    ///
    /// # Errors
    /// [`Error::AddressNotAvailable`] if there is none.
    pub(crate) fn choose_port(
        &mut self,
        search: &mut PortSearch,
        is_free: impl Fn(u16) -> bool,
    ) -> Result<Option<u16>, Error> {
        self.look_on(search, |registry, port| {
            !registry.claims.contains_key(&(Space::Stream, port)) && is_free(port)
        })
    }

    /// Does a portion of a search through the ephemeral ports. A search begins behind the port that
    /// was chosen last.
    ///
    /// # Errors
    /// [`Error::AddressNotAvailable`]: the search has tried all ports.
    fn look_on(
        &mut self,
        search: &mut PortSearch,
        is_free: impl Fn(&Registry, u16) -> bool,
    ) -> Result<Option<u16>, Error> {
        if search.tried >= EPHEMERAL_PORTS {
            return Err(Error::AddressNotAvailable);
        }
        for _ in 0..PORTS_PER_PORTION {
            let candidate = search.next.unwrap_or(self.next_ephemeral);
            let following = (candidate + 1) % EPHEMERAL_PORTS;
            search.next = Some(following);
            search.tried += 1;
            if is_free(self, FIRST_EPHEMERAL + candidate) {
                self.next_ephemeral = following;
                return Ok(Some(FIRST_EPHEMERAL + candidate));
            }
        }
        Ok(None)
    }

    fn is_free(&self, space: Space, address: IpAddr, port: u16) -> bool {
        self.claims.get(&(space, port)).is_none_or(|claims| {
            claims.len() < CLAIMS_PER_PORT
                && !claims
                    .iter()
                    .any(|claim| covers(claim.address, address) || covers(address, claim.address))
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
    use alloc::format;
    use alloc::vec::Vec;

    fn registry(seed: u64) -> Registry {
        Registry::new(&RandomSeeds { ports: seed, ..RandomSeeds::default() })
    }

    impl Registry {
        /// A claim, with as many portions as it takes; and how many that were.
        fn claim_now(&mut self, space: Space, local: SocketAddr) -> (Result<u16, Error>, usize) {
            let mut search = PortSearch::default();
            let mut portions = 0;
            loop {
                portions += 1;
                match self.claim(space, local, &mut search) {
                    Ok(Some(port)) => return (Ok(port), portions),
                    Ok(None) => {}
                    Err(error) => return (Err(error), portions),
                }
            }
        }
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn overlapping_claims_exclude_each_other() {
        let mut registry = registry(1);
        assert_eq!(registry.claim_now(Space::Stream, address("10.0.0.1:80")).0, Ok(80));
        assert_eq!(registry.claim_now(Space::Stream, address("10.0.0.2:80")).0, Ok(80));
        assert_eq!(registry.claim_now(Space::Datagram, address("0.0.0.0:80")).0, Ok(80));
        for taken in ["10.0.0.1:80", "0.0.0.0:80", "[::]:80"] {
            assert_eq!(
                registry.claim_now(Space::Stream, address(taken)).0,
                Err(Error::AddressInUse),
                "{taken}"
            );
        }
        assert_eq!(registry.claim_now(Space::Stream, address("[::1]:80")).0, Ok(80));
        registry.release(Space::Stream, address("10.0.0.1:80"));
        assert_eq!(registry.claim_now(Space::Stream, address("10.0.0.1:80")).0, Ok(80));
    }

    #[test]
    fn a_port_has_few_sockets() {
        let mut registry = registry(1);
        let local = |last: usize| address(&format!("127.0.0.{last}:80"));
        for last in 1..=CLAIMS_PER_PORT {
            assert_eq!(registry.claim_now(Space::Stream, local(last)).0, Ok(80));
        }
        let next = local(CLAIMS_PER_PORT + 1);
        assert_eq!(registry.claim_now(Space::Stream, next).0, Err(Error::AddressInUse));
        assert_eq!(registry.claim_now(Space::Datagram, next).0, Ok(80));
        registry.release(Space::Stream, local(1));
        assert_eq!(registry.claim_now(Space::Stream, next).0, Ok(80));
    }

    #[test]
    fn every_dynamic_port_is_given_out_once_and_then_none() {
        let mut registry = registry(0xdead_beef_1234_5678);
        let mut ports: Vec<u16> = (0..EPHEMERAL_PORTS)
            .map(|_| registry.claim_now(Space::Stream, address("0.0.0.0:0")).0.unwrap())
            .collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), usize::from(EPHEMERAL_PORTS));
        assert!(ports.iter().all(|port| *port >= FIRST_EPHEMERAL));
        // It has looked at all of them, in portions.
        let portions = usize::from(EPHEMERAL_PORTS / PORTS_PER_PORTION) + 1;
        let (answer, taken) = registry.claim_now(Space::Stream, address("0.0.0.0:0"));
        assert_eq!((answer, taken), (Err(Error::AddressNotAvailable), portions));
        // Also the one that is free last is found, by a search that others' claims interrupt.
        let (mut search, last) = (PortSearch::default(), ports[7]);
        let local = address("0.0.0.0:0");
        assert_eq!(registry.claim(Space::Stream, local, &mut search), Ok(None));
        registry.release(Space::Stream, SocketAddr::new(local.ip(), last));
        let found = (0..portions)
            .find_map(|_| registry.claim(Space::Stream, local, &mut search).transpose());
        assert_eq!(found, Some(Ok(last)));
    }

    #[test]
    fn a_listener_is_found_by_its_address() {
        let mut registry = registry(1);
        let (exact, other) = (Arc::new(Backlog::new(1, None)), Arc::new(Backlog::new(1, None)));
        for (local, backlog) in [(address("10.0.0.1:80"), &exact), (address("10.0.0.2:80"), &other)]
        {
            registry.claim_now(Space::Stream, local).0.unwrap();
            registry.set_listener(local, Some(backlog.clone()));
        }
        let found = registry.listener("10.0.0.1".parse().unwrap(), 80).unwrap();
        assert!(Arc::ptr_eq(found, &exact));
        assert!(registry.listener("10.0.0.3".parse().unwrap(), 80).is_none());
        assert!(registry.listener("10.0.0.1".parse().unwrap(), 81).is_none());
    }
}
