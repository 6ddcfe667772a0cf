//! `./cops debug`: QEMU stopped at its first instruction, gdb connected to it, symbols of everything loaded.

use std::path::Path;
use std::process::{Command, Stdio};

use super::Prepared;
use crate::build::symbols::address_of;
use crate::cli::Debug;
use crate::error::{Because, Outcome};
use crate::interrupt;
use crate::packages;
use crate::qemu::console::{PassThrough, follow};
use crate::qemu::machine::Machine;
use crate::qemu::ports::free_port;
use crate::terminal::Progress;
use crate::workspace::{Workspace, write_if_changed};

/// Where every process finds the vDSO (docs/abi.md; `cops_abi::layout`).
const VDSO_IN_PROCESS: u64 = 0x3f_0020_0000;

pub fn run(workspace: &Workspace, options: &Debug) -> Outcome<u8> {
    packages::ensure(&[packages::GDB], Progress::Lines)?;
    let prepared = Prepared::new(workspace, Progress::Lines)?;
    let mut boot = prepared.boot(&options.machine, &options.argv, &[])?;
    let port = free_port()?;
    boot.gdb_port = Some(port);

    let guest = &prepared.guest;
    let name = options.argv.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let program =
        guest.programs.iter().find(|program| program.name == name).map(|program| program.path.as_path());
    let kernel =
        std::fs::read(&guest.kernel).because(|| format!("cannot read {}", guest.kernel.display()))?;
    let kernel = object::File::parse(&*kernel).because(|| "the kernel is no ELF file".into())?;
    let vdso_in_kernel = address_of(&kernel, "__vdso_start")?;
    let script = script(&guest.kernel, &guest.vdso.object, vdso_in_kernel, program, port);
    let script_path = workspace.image_folder().join("debug.gdb");
    write_if_changed(&script_path, script.as_bytes())?;
    eprintln!("gdb script: {}", script_path.display());

    let machine = Machine::start(&prepared.qemu, &boot)?;
    let show_firmware = options.machine.verbose;
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-q", "-x"]).arg(&script_path);
    for command in &options.commands {
        gdb.args(["-ex", command]);
    }
    if !options.commands.is_empty() {
        gdb.arg("-batch").stdin(Stdio::null());
    }
    // Ctrl-C interrupts the guest, through gdb; it must not end us.
    interrupt::defer();
    let mut gdb = gdb.spawn().because(|| "cannot start gdb-multiarch".into())?;
    let guard = interrupt::guard(&gdb);
    // The guest's output comes between gdb's, as it would with a real serial line.
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| follow_until_off(machine, show_firmware));
        let status = gdb.wait().because(|| "cannot wait for gdb".into());
        drop(guard);
        // gdb has gone: so does the machine, in whatever state it is.
        interrupt::end_children();
        let _ = follower.join();
        status
    })
    .map(|status| if status.success() { 0 } else { 1 })
}

fn follow_until_off(machine: Machine, show_firmware: bool) {
    // How it ended is seen in gdb.
    let _ = follow(machine, None, &mut PassThrough { show_firmware, show_stdout: true });
}

/// The commands gdb starts with.
fn script(kernel: &Path, vdso: &Path, vdso_in_kernel: u64, program: Option<&Path>, port: u16) -> String {
    let mut lines = vec![
        "# Written by ./cops debug.".to_owned(),
        "set confirm off".to_owned(),
        "set pagination off".to_owned(),
        "set architecture riscv:rv64".to_owned(),
        format!("file {}", kernel.display()),
        "# The vDSO as the kernel runs it, and as every process does.".to_owned(),
        format!("add-symbol-file {} -o {vdso_in_kernel:#x}", vdso.display()),
        format!("add-symbol-file {} -o {VDSO_IN_PROCESS:#x}", vdso.display()),
    ];
    lines.extend(program.map(|program| format!("add-symbol-file {}", program.display())));
    lines.push(format!("target remote 127.0.0.1:{port}"));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_names_every_image_at_its_address() {
        let script =
            script(Path::new("/k"), Path::new("/v"), 0xffff_ffc0_8030_0000, Some(Path::new("/p")), 99);
        for line in [
            "file /k",
            "add-symbol-file /v -o 0xffffffc080300000",
            "add-symbol-file /v -o 0x3f00200000",
            "add-symbol-file /p",
            "target remote 127.0.0.1:99",
        ] {
            assert!(script.lines().any(|present| present == line), "{line} is not in\n{script}");
        }
    }
}
