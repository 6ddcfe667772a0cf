//! Debian's Rust. It has no library for the guest, so the library is built from source together
//! with the crates. Stable rustc allows that only with `RUSTC_BOOTSTRAP`. The code of this
//! repository uses no unstable feature.

use std::path::PathBuf;

use super::{GuestToolchain, rustup::version_line};
use crate::error::{Failure, Outcome};
use crate::packages::DEBIAN_CLIPPY;
use crate::process::find_program;

/// The minor version of `rust-version` in Cargo.toml.
const OLDEST_MINOR: u32 = 95;

/// The toolchain of the installed packages, which can build for any target.
pub fn find(triple: &'static str) -> Outcome<GuestToolchain> {
    let rustc = PathBuf::from("/usr/bin/rustc");
    let version = version_line(&rustc).ok_or_else(|| {
        Failure::new("/usr/bin/rustc does not start")
            .advise("apt-get install --reinstall rustc-web")
    })?;
    if minor_of(&version).is_none_or(|minor| minor < OLDEST_MINOR) {
        return Err(Failure::new(format!("/usr/bin/rustc is {version}; 1.{OLDEST_MINOR} or newer is needed")).advise(
            "on Debian 12 it is in the security archive (suite bookworm-security): add that to the apt sources, then \
             apt-get update and apt-get install rustc-web cargo-web rust-web-src",
        ));
    }
    let lld = find_program("ld.lld")
        .ok_or_else(|| Failure::new("ld.lld is not there").advise("apt-get install lld"))?;
    Ok(GuestToolchain {
        description: format!("{version} (Debian's, library built from source)"),
        triple,
        cargo: "/usr/bin/cargo".into(),
        cargo_clippy: "/usr/bin/cargo-clippy".into(),
        environment: vec![
            ("RUSTC_BOOTSTRAP", "1".into()),
            ("RUSTC", rustc.into_os_string()),
            ("RUSTDOC", "/usr/bin/rustdoc".into()),
        ],
        build_std: true,
        // rustc looks for rust-lld, which Debian does not package for this purpose.
        linker: Some("ld.lld"),
        lld: (lld, &[]),
        clippy_needs: &[DEBIAN_CLIPPY],
    })
}

/// The 96 of `rustc 1.96.0 (...)`.
fn minor_of(version: &str) -> Option<u32> {
    version.strip_prefix("rustc 1.")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(
            minor_of("rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)"),
            Some(96)
        );
        assert!(minor_of("rustc 1.100.0").unwrap() > OLDEST_MINOR);
        assert_eq!(minor_of("rustc nightly"), None);
    }
}
