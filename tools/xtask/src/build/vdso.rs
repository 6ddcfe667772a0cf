//! Builds the vDSO image: cargo builds a static library, LLVM's linker makes a shared object from
//! it, which is then checked.
//!
//! It is linked here, because rustc only makes executables for this target.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::vdso_check;
use crate::error::{Because, Failure, Outcome};
use crate::process::run_step;
use crate::terminal::{Progress, Step};
use crate::toolchain::GuestToolchain;
use crate::workspace::{GUEST_TRIPLE, Workspace, write_if_changed};

/// The image in two forms.
#[derive(Debug, Clone)]
pub struct Vdso {
    /// The bytes of the single segment, which the kernel embeds.
    pub image: PathBuf,
    /// The whole object, with the symbols for backtraces and the debugger.
    pub object: PathBuf,
}

/// The package of the scheduler that the kernel embeds.
const EMBEDDED: &str = "cops-vdso";
/// That of the scheduler without priorities (decision 57).
const FIRST_COME: &str = "cops-vdso-fifo";

/// Builds and checks the image.
pub fn build(
    workspace: &Workspace,
    toolchain: &GuestToolchain,
    progress: Progress,
) -> Outcome<Vdso> {
    build_package(workspace, toolchain, EMBEDDED, progress)
}

/// Builds and checks the image that serves first come, first served.
pub fn build_first_come(
    workspace: &Workspace,
    toolchain: &GuestToolchain,
    progress: Progress,
) -> Outcome<Vdso> {
    build_package(workspace, toolchain, FIRST_COME, progress)
}

/// Where the object of the first come, first served image is.
pub fn first_come(workspace: &Workspace) -> PathBuf {
    workspace.image_folder().join(FIRST_COME).with_extension("so")
}

/// The faults of another image of the same exports; see [`vdso_check`].
pub fn faults(workspace: &Workspace, object: &[u8]) -> Outcome<Vec<String>> {
    let exports = exports(&workspace.root.join("crates/vdso/exports.txt"))?;
    let mut faults = vdso_check::violations(object, &exports)?;
    faults.extend(vdso_check::wrong_name(object, NAME)?);
    Ok(faults)
}

pub use super::vdso_check::loaded_part;

/// The name of every image.
const NAME: &str = "cops-vdso.so";

fn build_package(
    workspace: &Workspace,
    toolchain: &GuestToolchain,
    package: &str,
    progress: Progress,
) -> Outcome<Vdso> {
    let mut step = Step::begin(progress, if package == EMBEDDED { "vDSO" } else { package });
    let sources = workspace.root.join("crates/vdso");
    // A folder of its own: all crates in it are compiled position-independent, and the executor
    // without the features that its other users enable.
    let target = workspace.target.join("guest-vdso");
    let mut cargo =
        toolchain.cargo("build", workspace, target.clone(), &["-Crelocation-model=pic".to_owned()]);
    run_step(cargo.args(["-p", package, "--lib"]), &mut step)?;
    let library = format!("guest/lib{}.a", package.replace('-', "_"));
    let library = target.join(GUEST_TRIPLE).join(library);

    let scratch = workspace.scratch()?;
    let linked = scratch.file(package);
    let exports = exports(&sources.join("exports.txt"))?;
    run_step(
        &mut link(toolchain, &sources.join("vdso.lds"), &library, &exports, &linked),
        &mut step,
    )?;
    let object = std::fs::read(&linked).because(|| format!("cannot read {}", linked.display()))?;
    let violations =
        vdso_check::violations(&object, &exports).because(|| "the vDSO image is invalid".into())?;
    if !violations.is_empty() {
        return Err(Failure::new(format!("the vDSO image is invalid:\n  {}", violations.join("\n  "))).advise(
            "it must have no state and no relocations, and its exports are listed in crates/vdso/exports.txt \
             (docs/decisions, vDSO split)",
        ));
    }
    let built = Vdso {
        image: workspace.image_folder().join(package).with_extension("img"),
        object: workspace.image_folder().join(package).with_extension("so"),
    };
    write_if_changed(&built.image, vdso_check::loaded_part(&object)?)?;
    write_if_changed(&built.object, &object)?;
    step.done();
    Ok(built)
}

/// The linker's command line. `-z text` and the assertions in the linker script make linking fail
/// on relocations and on writable data.
///
/// The listed exports pull the crate's object out of the archive. It is a single object
/// (`codegen-units = 1`), so an export that is not listed is included and detected.
/// `--whole-archive` would have the same effect, but rustup's archive also contains C objects of
/// compiler-rt for another floating-point ABI, which the linker rejects.
fn link(
    toolchain: &GuestToolchain,
    script: &Path,
    library: &Path,
    exports: &BTreeSet<String>,
    output: &Path,
) -> Command {
    let (program, first) = &toolchain.lld;
    let mut command = Command::new(program);
    command.args(*first).args([
        "-m",
        "elf64lriscv",
        "-shared",
        "-soname",
        NAME,
        "--gc-sections",
        "--no-undefined",
    ]);
    // The loader in the executor reads DT_HASH. A build id would make builds differ needlessly.
    command.args([
        "--hash-style=sysv",
        "--build-id=none",
        "-z",
        "norelro",
        "-z",
        "text",
        "-z",
        "rodynamic",
    ]);
    command.args(exports.iter().map(|name| format!("--undefined={name}")));
    command.arg("-T").arg(script).arg(library).arg("-o").arg(output);
    command
}

/// The names in exports.txt, one per line; empty lines and lines that begin with # are ignored.
fn exports(path: &Path) -> Outcome<BTreeSet<String>> {
    let text =
        std::fs::read_to_string(path).because(|| format!("cannot read {}", path.display()))?;
    Ok(parse_exports(&text))
}

fn parse_exports(text: &str) -> BTreeSet<String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_lines_without_comments() {
        let names = parse_exports("# the image\ncops_run\n\n  cops_wake \n");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["cops_run", "cops_wake"]);
    }
}
