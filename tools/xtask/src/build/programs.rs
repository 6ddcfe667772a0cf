//! The programs of `user/apps`: every file of `src/bin` becomes `/bin/NAME`.

use std::path::{Path, PathBuf};

use crate::error::{Because, Failure, Outcome};
use crate::process::run_step;
use crate::terminal::{Progress, Step};
use crate::toolchain::GuestToolchain;
use crate::workspace::{GUEST_TRIPLE, Workspace};

/// A program for the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub name: String,
    /// Its ELF file.
    pub path: PathBuf,
}

pub fn build(
    workspace: &Workspace,
    toolchain: &GuestToolchain,
    progress: Progress,
) -> Outcome<Vec<Program>> {
    let names = names(&workspace.root.join("user/apps/src/bin"))?;
    let mut step = Step::begin(progress, format!("{} programs", names.len()));
    let target = workspace.guest_target();
    let mut cargo = toolchain.cargo("build", workspace, target.clone(), &[]);
    cargo.args(["-p", "cops-apps", "--bins"]);
    run_step(&mut cargo, &mut step)?;
    step.done();
    let folder = target.join(GUEST_TRIPLE).join("guest");
    Ok(names.into_iter().map(|name| Program { path: folder.join(&name), name }).collect())
}

/// The sorted names of the programs: `src/bin/NAME.rs` or `src/bin/NAME/main.rs`, as cargo finds
/// them.
fn names(folder: &Path) -> Outcome<Vec<String>> {
    let entries = std::fs::read_dir(folder)
        .because(|| format!("cannot list the programs in {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.because(|| format!("cannot list {}", folder.display()))?.path();
        let is_program = path.extension().is_some_and(|extension| extension == "rs")
            || path.join("main.rs").exists();
        if let (true, Some(name)) = (is_program, path.file_stem()) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    if names.is_empty() {
        return Err(Failure::new(format!("no programs in {}", folder.display())));
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_cargo_finds_them() {
        let folder = std::env::temp_dir().join(format!("xtask-programs-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("server")).unwrap();
        std::fs::create_dir_all(folder.join("shared")).unwrap();
        for file in ["server/main.rs", "server/part.rs", "hello.rs", "notes.md", "shared/lib.rs"] {
            std::fs::write(folder.join(file), "").unwrap();
        }
        assert_eq!(names(&folder).unwrap(), ["hello", "server"]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(names(&folder).is_err());
    }
}
