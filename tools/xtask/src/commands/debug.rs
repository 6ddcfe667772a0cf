//! `./cops debug`: starts QEMU stopped at its first instruction, and connects gdb with the symbols
//! of everything that is loaded.

use std::path::Path;
use std::process::{Command, Stdio};

use object::Endianness;
use object::elf::{FileHeader64, SectionHeader64};
use object::read::elf::FileHeader;

use super::Prepared;
use crate::build::symbols::address_of;
use crate::cli::Debug;
use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
use crate::packages;
use crate::qemu::console::{PassThrough, follow};
use crate::qemu::machine::Machine;
use crate::qemu::ports::free_port;
use crate::terminal::Progress;
use crate::workspace::{Workspace, write_if_changed, write_whole};

/// The section of the kernel that contains the vDSO's image (kernel/kernel.lds).
const VDSO_SECTION: &[u8] = b".vdso";
/// Offset of the flags in a section header.
const SECTION_FLAGS: usize = 8;
/// The vDSO's address in every process (docs/abi.md; `cops_abi::layout`).
const VDSO_IN_PROCESS: u64 = 0x3f_0025_0000;

pub fn run(workspace: &Workspace, options: &Debug) -> Outcome<u8> {
    packages::ensure(&[packages::GDB], Progress::Lines)?;
    let prepared = Prepared::new(workspace, Progress::Lines)?;
    let mut boot = prepared.boot(&options.machine, &options.argv, &[])?;
    let port = free_port()?;
    boot.gdb_port = Some(port);

    let guest = &prepared.guest;
    let name = options.argv.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let program = guest
        .programs
        .iter()
        .find(|program| program.name == name)
        .map(|program| program.path.as_path());
    let bytes = std::fs::read(&guest.kernel)
        .because(|| format!("cannot read {}", guest.kernel.display()))?;
    let kernel = object::File::parse(&*bytes).because(|| "the kernel is no ELF file".into())?;
    let vdso_in_kernel = address_of(&kernel, "__vdso_start")?;
    let symbols = workspace.image_folder().join("cops-kernel.debug");
    write_if_changed(&symbols, &without_vdso(&bytes)?)?;
    let script = script(&symbols, &guest.vdso.object, vdso_in_kernel, program, port);
    // Another session of the same folder has a machine and a script of its own.
    let scratch = workspace.scratch()?;
    let script_path = scratch.file("debug.gdb");
    write_whole(&script_path, script.as_bytes())?;
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
    // Ctrl-C interrupts the guest, through gdb; it must not end this program.
    interrupt::leave_ctrl_c_to_the_child();
    let mut gdb = gdb.spawn().because(|| "cannot start gdb-multiarch".into())?;
    let guard = interrupt::guard(&gdb);
    // The guest's output appears between gdb's, as with a real serial line.
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| follow_until_off(machine, show_firmware));
        let status = gdb.wait().because(|| "cannot wait for gdb".into());
        drop(guard);
        // gdb has ended, so the machine is ended too, in any state.
        interrupt::end_children();
        let _ = follower.join();
        status
    })
    .map(|status| if status.success() { 0 } else { 1 })
}

/// The kernel's file for gdb, with the section of the vDSO's image marked as not allocated.
/// Otherwise gdb would attribute these addresses to the kernel's file, which has no symbols for
/// them, and would not search the vDSO's.
fn without_vdso(kernel: &[u8]) -> Outcome<Vec<u8>> {
    let unsound = || "the kernel is no sound ELF file".to_owned();
    let header = FileHeader64::<Endianness>::parse(kernel).because(unsound)?;
    let endian = header.endian().because(unsound)?;
    let sections = header.sections(endian, kernel).because(unsound)?;
    let (index, _) = sections
        .section_by_name(endian, VDSO_SECTION)
        .ok_or_else(|| Failure::new("the kernel has no section for the vDSO"))?;
    let first = usize::try_from(header.e_shoff(endian)).because(unsound)?;
    let flags = first + index.0 * size_of::<SectionHeader64<Endianness>>() + SECTION_FLAGS;
    let mut changed = kernel.to_vec();
    changed.get_mut(flags..flags + 8).ok_or_else(|| Failure::new(unsound()))?.fill(0);
    Ok(changed)
}

fn follow_until_off(machine: Machine, show_firmware: bool) {
    // gdb shows how it ended.
    let _ = follow(machine, None, &mut PassThrough { show_firmware, show_stdout: true });
}

/// The commands with which gdb starts.
fn script(
    kernel: &Path,
    vdso: &Path,
    vdso_in_kernel: u64,
    program: Option<&Path>,
    port: u16,
) -> String {
    let mut lines = vec![
        "# Written by ./cops debug.".to_owned(),
        "set confirm off".to_owned(),
        "set pagination off".to_owned(),
        "set architecture riscv:rv64".to_owned(),
        format!("file {}", quoted(kernel)),
        "# The vDSO as the kernel runs it, and as every process does.".to_owned(),
        format!("add-symbol-file {} -o {vdso_in_kernel:#x}", quoted(vdso)),
        format!("add-symbol-file {} -o {VDSO_IN_PROCESS:#x}", quoted(vdso)),
    ];
    lines.extend(program.map(|program| format!("add-symbol-file {}", quoted(program))));
    lines.push(format!("target remote 127.0.0.1:{port}"));
    lines.join("\n") + "\n"
}

/// A path as a word of a gdb command, which otherwise ends at the first space.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', r#"\""#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_names_every_image_at_its_address() {
        let script = script(
            Path::new("/k"),
            Path::new("/a folder/v"),
            0xffff_ffc0_8030_0000,
            Some(Path::new(r#"/a "b"/c\d"#)),
            99,
        );
        for line in [
            r#"file "/k""#,
            r#"add-symbol-file "/a folder/v" -o 0xffffffc080300000"#,
            r#"add-symbol-file "/a folder/v" -o 0x3f00250000"#,
            r#"add-symbol-file "/a \"b\"/c\\d""#,
            "target remote 127.0.0.1:99",
        ] {
            assert!(script.lines().any(|present| present == line), "{line} is not in\n{script}");
        }
    }
}
