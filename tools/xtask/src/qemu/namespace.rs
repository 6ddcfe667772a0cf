//! A network of this program's own: a network namespace of the host with its loopback and a tap
//! device, for a machine and its client. What happens in it disturbs nothing outside, and is not
//! slowed down by QEMU's user network.
//!
//! A process holds the namespace, which has no name: it ends with the last process in it. So it
//! disappears, whichever way this program ends.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
use crate::packages::{self, Need};
use crate::process::find_program;
use crate::terminal::Progress;

/// The tap device.
pub const TAP: &str = "tap0";
/// The host's address on the tap device, and the guest's.
pub const HOST: &str = "10.77.0.1";
pub const GUEST: &str = "10.77.0.2";
/// The network of both.
pub const PREFIX: u8 = 24;

/// Through which tap devices are made.
const TUN: &str = "/dev/net/tun";
const READY: &str = "ready";

const IP: Need = Need {
    what: "ip, of iproute2",
    packages: &[&["iproute2"]],
    is_present: || find_program("ip").is_some(),
};
const UNSHARE: Need = Need {
    what: "unshare and nsenter, of util-linux",
    packages: &[&["util-linux"]],
    is_present: || ["unshare", "nsenter"].iter().all(|name| find_program(name).is_some()),
};

/// The namespace; dropping it ends it.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
    _guard: interrupt::Guard,
}

impl Namespace {
    /// Installs what is needed for one. To be called early: it is what a host most often does not
    /// allow.
    ///
    /// # Errors
    /// If the host does not allow it: everything that it lacks, as far as that can be known before.
    pub fn check_host() -> Outcome<()> {
        let missing = missing(
            rustix::process::geteuid().is_root(),
            std::fs::File::options().read(true).write(true).open(TUN).map(drop),
        );
        if !missing.is_empty() {
            return Err(Failure::new(format!(
                "a network of one's own cannot be made here: {}",
                missing.join("; ")
            )));
        }
        packages::ensure(&[IP, UNSHARE], Progress::Lines)
    }

    /// # Errors
    /// Those of [`check_host`](Self::check_host), or what `ip` or `unshare` says.
    pub fn make() -> Outcome<Self> {
        Self::check_host()?;
        let script = format!(
            "ip link set lo up && ip tuntap add dev {TAP} mode tap && \
             ip address add {HOST}/{PREFIX} dev {TAP} && ip link set {TAP} up && \
             echo {READY} && exec cat"
        );
        let mut command = interrupt::tied_to_us(Path::new("unshare"));
        // `cat` ends with its standard input, should this program be killed.
        let mut holder = command
            .args(["--net", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .because(|| "cannot start unshare".into())?;
        let guard = interrupt::guard(&holder);
        let mut line = String::new();
        if let Some(output) = holder.stdout.take() {
            // Without a line the process has ended, and its messages say why.
            let _ = BufReader::new(output).read_line(&mut line);
        }
        let mut namespace = Self { holder, _guard: guard };
        if line.trim_end() == READY {
            return Ok(namespace);
        }
        let mut why = String::new();
        if let Some(mut messages) = namespace.holder.stderr.take() {
            let _ = messages.read_to_string(&mut why);
        }
        Err(Failure::new(format!("the network cannot be made: {}", why.trim_end())).advise(
            "this needs the rights of CAP_SYS_ADMIN and CAP_NET_ADMIN; in a container: --privileged",
        ))
    }

    /// Makes room for so many frames in the tap device's queue to the machine. A new one has room
    /// for 1000, or 500 in older kernels, and drops what comes when it is full.
    pub fn set_queue_frames(&self, frames: u32) -> Outcome<()> {
        let mut command = command_in(Some(&self.file()), Path::new("ip"));
        command.args(["link", "set", TAP, "txqueuelen", &frames.to_string()]);
        let status = command.status().because(|| "cannot start ip".into())?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure::new(format!("the queue of {TAP} cannot have {frames} frames: {status}")))
        }
    }

    /// The namespace as a file.
    pub fn file(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// What the host lacks.
fn missing(is_root: bool, tun: std::io::Result<()>) -> Vec<String> {
    let root = (!is_root).then(|| "it needs root (sudo ./cops ..)".to_owned());
    let device = tun.err().map(|error| {
        format!(
            "it needs {TUN} ({error}): modprobe tun, or in a container --device {TUN} --cap-add \
             NET_ADMIN"
        )
    });
    root.into_iter().chain(device).collect()
}

/// A command for `program` in a namespace, which ends together with this program.
pub fn command_in(namespace: Option<&Path>, program: &Path) -> Command {
    let Some(namespace) = namespace else { return interrupt::tied_to_us(program) };
    let mut command = interrupt::tied_to_us(Path::new("nsenter"));
    command.arg(format!("--net={}", namespace.display())).arg("--").arg(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::shown;

    #[test]
    fn everything_that_is_missing_is_named() {
        assert!(missing(true, Ok(())).is_empty());
        let all = missing(false, Err(std::io::ErrorKind::NotFound.into())).join("; ");
        assert!(all.contains("root") && all.contains("/dev/net/tun (entity not found)"), "{all}");
    }

    /// Where this is allowed.
    #[test]
    fn a_namespace_has_its_tap_device_until_it_is_dropped() {
        let Ok(namespace) = Namespace::make() else { return };
        let file = namespace.file();
        let mut command = command_in(Some(&file), Path::new("ip"));
        let output = command.args(["address", "show", "dev", TAP]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(&format!("{HOST}/{PREFIX}")), "{text}");
        drop(namespace);
        assert!(!file.exists());
    }

    #[test]
    fn commands_enter_the_namespace() {
        let inside = shown(&command_in(Some(Path::new("/proc/1/ns/net")), Path::new("qemu")));
        assert!(inside.ends_with("nsenter --net=/proc/1/ns/net -- qemu"), "{inside}");
        assert!(shown(&command_in(None, Path::new("qemu"))).ends_with("qemu"));
    }
}
