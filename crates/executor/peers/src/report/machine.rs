//! What the figures depend on: commit, processor, compiler, versions of the peers.

use std::env;
use std::process::Command;
use std::thread;

/// The lock file knows what was built.
const LOCK: &str = include_str!("../../Cargo.lock");
const PEERS: [&str; 4] = ["async-executor", "embassy-executor", "futures-executor", "tokio"];

/// All of it. Nothing here names a path.
#[derive(Debug)]
pub struct Machine {
    /// What was run. Paths in it are those that were given.
    pub command: String,
    /// Of the checkout, with `-dirty` if it was changed.
    pub commit: String,
    /// As the kernel calls it.
    pub cpu: String,
    /// Processors that threads may run on.
    pub processors: usize,
    /// Its version.
    pub rustc: String,
    /// Cargo's profile.
    pub profile: String,
    /// Names and versions.
    pub peers: Vec<String>,
}

impl Machine {
    /// Looks.
    pub fn look() -> Machine {
        let unknown = || "unknown".to_owned();
        let folder = env!("CARGO_MANIFEST_DIR");
        let describe =
            ["-C", folder, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let executable = env::current_exe().ok();
        let profile = executable.as_deref().and_then(|path| path.parent()?.file_name()?.to_str());
        Machine {
            command: command(),
            commit: said(Command::new("git").args(describe)).unwrap_or_else(unknown),
            cpu: cpu().unwrap_or_else(unknown),
            processors: thread::available_parallelism().map_or(1, usize::from),
            rustc: said(Command::new(rustc).arg("--version")).unwrap_or_else(unknown),
            profile: profile.unwrap_or("unknown").to_owned(),
            peers: PEERS
                .iter()
                .filter_map(|name| Some(format!("{name} {}", version(LOCK, name)?)))
                .collect(),
        }
    }
}

/// The command that runs this program with these arguments.
fn command() -> String {
    let mut words = env::args();
    let program = words.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    let arguments: Vec<String> = words.collect();
    let features = if name == "two-classes" { " --features service" } else { "" };
    let command = format!(
        "cargo run --release --manifest-path crates/executor/peers/Cargo.toml{features} --bin {name} -- {}",
        arguments.join(" ")
    );
    command.trim_end_matches([' ', '-']).to_owned()
}

fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn cpu() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The version of a package in a lock file.
fn version<'lock>(lock: &'lock str, name: &str) -> Option<&'lock str> {
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{name}\"")).skip(1);
    lines.next()?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_version() {
        for name in PEERS {
            assert!(version(LOCK, name).is_some(), "{name}");
        }
        assert_eq!(version(LOCK, "no-such-crate"), None);
    }
}
