//! Builds everything that QEMU boots: the vDSO, then the kernel that embeds it, then the programs,
//! then the root image.

pub mod host;
mod image;
mod programs;
mod strip;
pub mod symbols;
pub mod vdso;
mod vdso_check;

use std::path::{Path, PathBuf};

use crate::error::{Because, Outcome};
use crate::process::run_step;
use crate::terminal::{Progress, Step};
use crate::toolchain::GuestToolchain;
use crate::workspace::{GUEST_TRIPLE, Workspace};

pub use image::RootImage;
pub use programs::Program;
pub use vdso::Vdso;

/// The group with additional lints.
pub const KERNEL_GROUP: &str = "kernel";

/// The packages that are built for the guest, in groups that are built together: the features of a
/// package are the union of what its group requests, and the vDSO must not get the kernel's
/// executor features.
pub const GUEST_GROUPS: [(&str, &[&str]); 3] = [
    ("vDSO", &["cops-vdso"]),
    (KERNEL_GROUP, &["cops-kernel", "cops-net", "cops-fallible", "cops-algorithms"]),
    ("user library and programs", &["cops", "cops-apps"]),
];

/// Everything that is built for the guest.
#[derive(Debug)]
pub struct Guest {
    pub kernel: PathBuf,
    pub vdso: Vdso,
    pub programs: Vec<Program>,
    /// The toolchain that built it, for the record.
    pub toolchain: String,
}

impl Guest {
    /// Builds everything that is out of date.
    pub fn build(
        workspace: &Workspace,
        toolchain: &GuestToolchain,
        progress: Progress,
    ) -> Outcome<Self> {
        let vdso = vdso::build(workspace, toolchain, progress)?;
        let kernel = build_kernel(workspace, toolchain, &vdso.image, progress)?;
        let programs = programs::build(workspace, toolchain, progress)?;
        Ok(Self { kernel, vdso, programs, toolchain: toolchain.description.clone() })
    }

    /// A root image with the programs and the kernel's symbols that starts `argv` as process 1.
    /// Files of the `added` folders replace files with the same path.
    /// With `busybox`, that program and links for its applets are in it too.
    pub fn root_image(
        &self,
        argv: &[String],
        added: &[PathBuf],
        busybox: Option<&Path>,
    ) -> Outcome<RootImage> {
        let mut image = RootImage::default();
        for program in &self.programs {
            image.add(
                &format!("bin/{}", program.name),
                strip::stripped(&read(&program.path)?)?,
                0o755,
            )?;
        }
        image.add(
            "boot/kernel.sym",
            symbols::table(&read(&self.kernel)?, &read(&self.vdso.object)?)?,
            0o644,
        )?;
        if let Some(busybox) = busybox {
            image.add_busybox(busybox)?;
        }
        for folder in added {
            image.add_folder(folder)?;
        }
        image.set_init(argv)?;
        Ok(image)
    }
}

fn build_kernel(
    workspace: &Workspace,
    toolchain: &GuestToolchain,
    vdso: &Path,
    progress: Progress,
) -> Outcome<PathBuf> {
    let mut step = Step::begin(progress, "kernel");
    let target = workspace.guest_target();
    let mut cargo = toolchain.cargo("build", workspace, target.clone(), &[]);
    cargo.args(["-p", "cops-kernel", "--bin", "cops-kernel"]).env("COPS_VDSO", vdso);
    run_step(&mut cargo, &mut step)?;
    step.done();
    Ok(target.join(GUEST_TRIPLE).join("guest/cops-kernel"))
}

/// The bytes of a file that was built.
pub fn read(path: &Path) -> Outcome<Vec<u8>> {
    std::fs::read(path).because(|| format!("cannot read {}", path.display()))
}
