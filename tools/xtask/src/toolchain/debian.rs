//! Debian's Rust. It has no library for the guest, so the library is built from source with the crates; stable rustc
//! refuses that unless told otherwise, which is what `RUSTC_BOOTSTRAP` is for. Our own code uses no unstable feature.

use std::path::PathBuf;

use super::{GuestToolchain, rustup::version_line};
use crate::error::{Failure, Outcome};
use crate::packages::DEBIAN_CLIPPY;
use crate::process::find_program;

/// The toolchain of the installed packages.
pub fn find() -> Outcome<GuestToolchain> {
    let rustc = PathBuf::from("/usr/bin/rustc");
    let version = version_line(&rustc).ok_or_else(|| {
        Failure::new("/usr/bin/rustc does not start").advise("apt-get install --reinstall rustc-web")
    })?;
    let lld = find_program("ld.lld")
        .ok_or_else(|| Failure::new("ld.lld is not there").advise("apt-get install lld"))?;
    Ok(GuestToolchain {
        description: format!("{version} (Debian's, library built from source)"),
        cargo: "/usr/bin/cargo".into(),
        cargo_clippy: "/usr/bin/cargo-clippy".into(),
        environment: vec![
            ("RUSTC_BOOTSTRAP", "1".into()),
            ("RUSTC", rustc.into_os_string()),
            ("RUSTDOC", "/usr/bin/rustdoc".into()),
        ],
        build_std: true,
        // rustc looks for rust-lld, which Debian does not package for this use.
        linker: Some("ld.lld"),
        lld: (lld, &[]),
        clippy_needs: &[DEBIAN_CLIPPY],
    })
}
