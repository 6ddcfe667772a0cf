//! Finds QEMU and checks its version.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::namespace::command_in;
use crate::error::{Because, Failure, Outcome};

/// The oldest QEMU that is supported (Debian 12), SPEC 1.1.
const OLDEST: (u32, u32) = (7, 2);

/// A QEMU that is recent enough.
#[derive(Debug, Clone)]
pub struct Qemu {
    pub program: PathBuf,
    /// Its own version string, for the record of every result: `7.2.22 (Debian
    /// 1:7.2+dfsg-7+deb12u18)`.
    pub version: String,
    /// The network namespace in which its machines are.
    pub namespace: Option<PathBuf>,
}

impl Qemu {
    /// The binary of `COPS_QEMU`, or `qemu-system-riscv64` on `PATH`.
    pub fn find() -> Outcome<Self> {
        let program = match std::env::var_os("COPS_QEMU") {
            Some(named) => PathBuf::from(named),
            None => PathBuf::from("qemu-system-riscv64"),
        };
        let version = version_of(&program)?;
        match parse_version(&version) {
            Some(found) if found >= OLDEST => Ok(Self { program, version, namespace: None }),
            _ => Err(Failure::new(format!("{} is QEMU {version:?}", program.display()))
                .advise(format!("QEMU {}.{} or newer is needed", OLDEST.0, OLDEST.1))),
        }
    }
}

impl Qemu {
    /// A command that runs it.
    pub fn command(&self) -> Command {
        command_in(self.namespace.as_deref(), &self.program)
    }

    /// The arguments with which it translates each instruction by itself.
    pub fn one_instruction_at_a_time(&self) -> &'static [&'static str] {
        match self.numbers() {
            // `-singlestep` is deprecated since then.
            Some(found) if found >= (8, 1) => &["-accel", "tcg,one-insn-per-tb=on"],
            _ => &["-singlestep"],
        }
    }

    /// Major and minor number.
    pub fn numbers(&self) -> Option<(u32, u32)> {
        parse_version(&self.version)
    }
}

fn version_of(program: &Path) -> Outcome<String> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .because(|| format!("cannot start {} (COPS_QEMU names another QEMU)", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default();
    Ok(line.trim_start_matches("QEMU emulator version ").to_owned())
}

/// Major and minor number at the start of `version`.
/// Major and minor number of a version string.
pub fn parse_version(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_for_slow_harts_depends_on_the_version() {
        let of = |version: &str| {
            let (program, version) = (PathBuf::new(), version.to_owned());
            Qemu { program, version, namespace: None }.one_instruction_at_a_time()
        };
        assert_eq!([of("7.2.22"), of("8.0.5")], [["-singlestep"]; 2]);
        let new = ["-accel", "tcg,one-insn-per-tb=on"];
        assert_eq!([of("8.1.0"), of("10.0.2 (Debian)")], [new; 2]);
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(parse_version("7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)"), Some((7, 2)));
        assert!(parse_version("10.0.2").unwrap() > OLDEST);
        assert!(parse_version("6.2.0").unwrap() < OLDEST);
        assert_eq!(parse_version("none"), None);
    }
}
