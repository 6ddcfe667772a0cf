//! Runs a measuring program as process 1 of Linux, in the machine in which COPS is measured.

use std::time::Duration;

use super::cpio::Entry;
use super::words::Line;
use crate::commands::Prepared;
use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
use crate::linux_kernel::LinuxKernel;
use crate::process::{capture, last_lines};
use crate::terminal::Step;

/// The last line of a measuring program.
const LAST_LINE: &str = "all rows";

/// The machine.
pub struct Machine<'a> {
    pub harts: u32,
    /// In QEMU's format.
    pub memory: &'a str,
}

/// A folder of an initramfs.
pub fn folder(name: &str) -> Entry<'_> {
    Entry { name, mode: 0o40_755, ..Entry::default() }
}

/// A program of an initramfs, or another file.
pub fn program<'a>(name: &'a str, contents: &'a [u8]) -> Entry<'a> {
    Entry { name, mode: 0o100_755, contents, ..Entry::default() }
}

/// The console of an initramfs, for the output of process 1.
pub fn console() -> [Entry<'static>; 2] {
    let console = Entry { name: "dev/console", mode: 0o20_600, device: (5, 1), ..Entry::default() };
    [folder("dev"), console]
}

/// Boots Linux with this initramfs, of which the program powers the machine off at its end, and
/// parses the program's lines. `more` are further arguments of QEMU.
///
/// # Errors
/// If the program does not come to its last line within `limit`.
pub fn run(
    prepared: &Prepared,
    kernel: &LinuxKernel,
    machine: &Machine<'_>,
    more: &[String],
    initramfs: &[u8],
    limit: Duration,
    step: &mut Step,
) -> Outcome<Vec<Line>> {
    let archive = prepared.scratch_file("initramfs");
    std::fs::write(&archive, initramfs)
        .because(|| format!("cannot write {}", archive.display()))?;
    let mut command = interrupt::tied_to_us(&prepared.qemu.program);
    command.args(["-machine", "virt", "-cpu", "rv64", "-m", machine.memory]);
    command.args(["-smp", &machine.harts.to_string()]);
    command.args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot"]);
    command.args(more);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&archive);
    // After a panic, as when process 1 ends, the machine must not wait for its time limit.
    command.args(["-append", "console=ttyS0 quiet panic=-1"]);
    let captured = capture(&mut command, Some(limit), |line| step.detail(line))?;
    if !captured.stdout.lines().any(|line| line.trim_end() == LAST_LINE) {
        let shown = last_lines(&captured.everything(), 20);
        let ending = captured.ending();
        return Err(Failure::new(format!(
            "{shown}\nthe program did not finish on Linux ({ending})"
        ))
        .advise(format!(
            "on a busy machine, run it again; for another kernel, remove {}",
            kernel.image.display()
        )));
    }
    Ok(captured.stdout.lines().filter_map(Line::parse).collect())
}
