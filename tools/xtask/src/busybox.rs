//! Debian's busybox for riscv64: fetched once.

use std::path::PathBuf;

use crate::debian::{Archive, gist};
use crate::error::{Because, Failure, Outcome};
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

const PACKAGE: &str = "busybox-static";
/// Where packages have the program; the first is that of Debian 13.
const PATHS: [&str; 2] = ["usr/bin/busybox", "bin/busybox"];

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("busybox")
}

/// The program, if it has been fetched.
pub fn found(workspace: &Workspace) -> Option<PathBuf> {
    let program = folder(workspace).join("busybox");
    program.is_file().then_some(program)
}

/// The program, which is fetched if it is not there.
///
/// # Errors
/// If this is not Debian, or the mirror cannot be reached or does not have it.
pub fn ensure(workspace: &Workspace, progress: Progress) -> Outcome<PathBuf> {
    if let Some(program) = found(workspace) {
        return Ok(program);
    }
    let folder = folder(workspace);
    let mut step = Step::begin(progress, format!("fetching {PACKAGE} of Debian"));
    let archive = Archive::open(&folder, &mut step)?;
    let unpacked = archive.unpack(PACKAGE, &mut step)?;
    let candidates = PATHS.map(|path| unpacked.join(path));
    let found = candidates.iter().find(|path| path.is_file()).ok_or_else(|| {
        let release = archive.release();
        Failure::new(format!("{PACKAGE} of Debian {release} does not contain {}", PATHS[0]))
    })?;
    let program = folder.join("busybox");
    // Renamed last: the program is there if everything succeeded.
    std::fs::rename(found, &program).because(|| format!("cannot move {}", found.display()))?;
    archive.close();
    step.done();
    Ok(program)
}

/// The program for `./cops shell`, fetched at the first time. If that fails, the shell has only
/// COPS's own tools, and it is not tried again: a machine without a network must not wait each
/// time.
pub fn for_shell(workspace: &Workspace) -> Option<PathBuf> {
    let mark = workspace.target.join("busybox-not-fetched");
    if mark.exists() && found(workspace).is_none() {
        return None;
    }
    match ensure(workspace, Progress::Transient) {
        Ok(program) => Some(program),
        Err(error) => {
            eprintln!("cops: the shell has no busybox: {}", gist(&error));
            eprintln!("cops: to try again, remove {}", mark.display());
            let _ = std::fs::write(&mark, error.to_string());
            None
        }
    }
}

/// The names of the applets in the program: a list of strings in it that begins with `[` and `[[`.
pub fn applets(program: &[u8]) -> Vec<String> {
    const BEGIN: &[u8] = b"[\0[[\0";
    let Some(at) = program.windows(BEGIN.len()).position(|window| window == BEGIN) else {
        return Vec::new();
    };
    let is_name = |name: &&[u8]| {
        let letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"[-_.".contains(byte);
        !name.is_empty() && name.iter().all(letter)
    };
    let names = program[at..].split(|&byte| byte == 0).take_while(is_name);
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applets_are_read_up_to_the_end_of_the_list() {
        let program = b"text [\0[[\0arch\0lzma_2.x\0ps\0\0other\0";
        assert_eq!(applets(program), ["[", "[[", "arch", "lzma_2.x", "ps"]);
        assert!(applets(b"nothing").is_empty());
    }
}
