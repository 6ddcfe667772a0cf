//! `./cops clean`: removes what was built. The measurements in `results` remain.

use crate::error::{Because, Outcome};
use crate::workspace::Workspace;

pub fn run(workspace: &Workspace) -> Outcome<u8> {
    let results = workspace.results_folder();
    let Ok(entries) = std::fs::read_dir(&workspace.target) else {
        println!("nothing to remove: there is no {}", workspace.target.display());
        return Ok(0);
    };
    for entry in entries {
        let path = entry.because(|| format!("cannot list {}", workspace.target.display()))?.path();
        if path == results {
            println!("kept {} (measurements)", results.display());
            continue;
        }
        let removed = if path.is_dir() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        removed.because(|| format!("cannot remove {}", path.display()))?;
    }
    println!("removed everything else in {}", workspace.target.display());
    Ok(0)
}
