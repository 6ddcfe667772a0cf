//! The binaries that children are: this one, and two that cargo has to build otherwise.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::Failure;
use crate::contender::Binary;

/// Where they are, or why not.
pub struct Binaries {
    main: PathBuf,
    live_bytes: Result<PathBuf, Failure>,
    embassy_priority: Result<PathBuf, Failure>,
}

impl Binaries {
    /// Builds those that are needed, in the folder and the profile of this one.
    pub fn build(needed: impl Iterator<Item = Binary>) -> Binaries {
        let not_built = || Err(Failure("was not built".to_owned()));
        let main = env::current_exe().expect("a running program has a path");
        let mut binaries =
            Binaries { live_bytes: not_built(), embassy_priority: not_built(), main };
        let needed: Vec<Binary> = needed.collect();
        if needed.contains(&Binary::LiveBytes) {
            binaries.live_bytes = build(&binaries.main, "live-bytes", &[]);
        }
        if needed.contains(&Binary::EmbassyPriority) {
            let features = ["--features", "embassy-priority"];
            binaries.embassy_priority = build(&binaries.main, "embassy-priority", &features);
        }
        binaries
    }

    /// The path of one.
    pub fn path(&self, binary: Binary) -> Result<&Path, Failure> {
        match binary {
            Binary::Main => Ok(&self.main),
            Binary::LiveBytes => self.live_bytes.as_deref().map_err(Clone::clone),
            Binary::EmbassyPriority => self.embassy_priority.as_deref().map_err(Clone::clone),
        }
    }
}

fn build(main: &Path, name: &str, features: &[&str]) -> Result<PathBuf, Failure> {
    eprintln!("building {name}");
    let folder = main.parent().ok_or_else(|| Failure("a program is in a folder".to_owned()))?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--locked", "--profile", profile, "--bin", name])
        .args(features);
    cargo.args([
        "--manifest-path",
        concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        "--target-dir",
    ]);
    cargo.arg(folder.parent().unwrap_or(folder));
    let output = cargo.output()?;
    if output.status.success() {
        Ok(folder.join(name))
    } else {
        Err(Failure(format!("{name} is not built:\n{}", String::from_utf8_lossy(&output.stderr))))
    }
}
