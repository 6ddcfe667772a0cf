//! What an option's value may be.

/// The most connections of one load generator, which has a port of this host for each. The load
/// generator has the same limit.
pub const CONNECTIONS_MAX: u32 = 60_000;

pub fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e6 => Ok(seconds),
        _ => Err(format!("{text:?} is no time; give seconds greater than 0, as in 10 or 0.5")),
    }
}

/// `ADDR/PREFIX` or `ADDR/PREFIX,GATEWAY`, in the form of the kernel's boot argument `ip=`.
pub fn parse_address(text: &str) -> Result<String, String> {
    let (address, gateway) = match text.split_once(',') {
        Some((address, gateway)) => (address, Some(gateway)),
        None => (text, None),
    };
    let is_network = address.split_once('/').is_some_and(|(address, prefix)| {
        address.parse::<std::net::Ipv4Addr>().is_ok()
            && prefix.parse::<u8>().is_ok_and(|prefix| prefix <= 32)
    });
    if is_network && gateway.is_none_or(|gateway| gateway.parse::<std::net::Ipv4Addr>().is_ok()) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is no address; give ADDR/PREFIX,GATEWAY, as in 10.0.3.2/24,10.0.3.1"))
    }
}
