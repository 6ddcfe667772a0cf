//! Builds everything that QEMU boots: the vDSO, then the kernel that embeds it, then the programs,
//! then the root image.

pub mod host;
mod image;
pub mod linux;
mod programs;
mod strip;
pub mod symbols;
pub mod vdso;
mod vdso_check;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::error::{Because, Failure, Outcome};
use crate::process::run_step;
use crate::terminal::{Progress, Step};
use crate::toolchain::GuestToolchain;
use crate::workspace::{GUEST_TRIPLE, Workspace, write_if_changed};

pub use image::RootImage;
pub use programs::Program;
pub use vdso::Vdso;

/// The group with additional lints.
pub const KERNEL_GROUP: &str = "kernel";

/// The packages that are built for the guest, in groups that are built together: the features of a
/// package are the union of what its group requests, and the vDSO must not get the kernel's
/// executor features.
pub const GUEST_GROUPS: [(&str, &[&str]); 3] = [
    ("vDSO", &["cops-vdso", "cops-vdso-fifo"]),
    (KERNEL_GROUP, &["cops-kernel", "cops-net", "cops-fallible", "cops-lock", "cops-algorithms"]),
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
        vdso::build_first_come(workspace, toolchain, progress)?;
        let kernel = build_kernel(workspace, toolchain, &vdso.image, progress)?;
        let programs = programs::build(workspace, toolchain, progress)?;
        let guest = Self { kernel, vdso, programs, toolchain: toolchain.description.clone() };
        write_if_changed(&record(workspace), guest.to_record().to_string().as_bytes())?;
        Ok(guest)
    }

    /// What the last [`build`](Self::build) has built, without a look at whether it is out of date.
    pub fn as_built(workspace: &Workspace) -> Outcome<Self> {
        let file = record(workspace);
        let invalid = || format!("{} is no record of a build", file.display());
        let text = read(&file)?;
        let record: Value = serde_json::from_slice(&text).because(invalid)?;
        Self::from_record(&record).ok_or_else(|| Failure::new(invalid()))
    }

    fn to_record(&self) -> Value {
        let programs =
            self.programs.iter().map(|program| (program.name.clone(), json!(program.path)));
        json!({
            "kernel": self.kernel,
            "vdso": { "image": self.vdso.image, "object": self.vdso.object },
            "programs": programs.collect::<Map<_, _>>(),
            "toolchain": self.toolchain,
        })
    }

    fn from_record(record: &Value) -> Option<Self> {
        let path = |value: &Value| Some(PathBuf::from(value.as_str()?));
        let program = |(name, file): (&String, &Value)| {
            Some(Program { name: name.clone(), path: path(file)? })
        };
        Some(Self {
            kernel: path(&record["kernel"])?,
            vdso: Vdso {
                image: path(&record["vdso"]["image"])?,
                object: path(&record["vdso"]["object"])?,
            },
            programs: record["programs"].as_object()?.iter().map(program).collect::<Option<_>>()?,
            toolchain: record["toolchain"].as_str()?.to_owned(),
        })
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

/// The file that says what was built.
fn record(workspace: &Workspace) -> PathBuf {
    workspace.image_folder().join("guest.json")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_what_was_built() {
        let guest = Guest {
            kernel: "/k".into(),
            vdso: Vdso { image: "/v".into(), object: "/v.so".into() },
            programs: vec![Program { name: "hello".into(), path: "/p/hello".into() }],
            toolchain: "rustc".into(),
        };
        let record = guest.to_record();
        assert_eq!(Guest::from_record(&record).unwrap().to_record(), record);
        assert!(Guest::from_record(&json!({ "kernel": "/k" })).is_none());
    }
}
