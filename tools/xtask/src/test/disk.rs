//! The tests of the disk in `/bin/usertests`, with 1 hart and with 4, on a disk of known contents;
//! and on this host, whether the file has afterwards what they have written. Then those of files,
//! on a disk with ext4.
//!
//! Time is never counted instructions here: such a machine would skip the time for which it waits
//! for its disk, and every time limit would pass at once.

use std::path::Path;
use std::process::Command;

use super::exec::{cops_exec, status};
use super::guest::{SILENCE, judge};
use super::{Case, Context, power_cut, step};
use crate::cli::Machine as MachineOptions;
use crate::commands::disk_of_positions;
use crate::error::{Because, Outcome};
use crate::packages;
use crate::process::{capture, run_step};
use crate::qemu::command::Disk;
use crate::qemu::console::{Transcript, follow_while_it_writes};
use crate::qemu::machine::Machine;
use crate::terminal::Progress;

/// The constants of `user/apps/src/bin/usertests/disk.rs`.
const BYTES: u64 = 16 << 20;
const WRITTEN_FROM: u64 = BYTES / 2;
const WRITTEN: u64 = 0x5741_5200_0000_0000;

/// Slower than a guest makes requests, so that they have to wait for each other.
const REQUESTS_PER_SECOND: u32 = 2000;

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    if context.filter() == power_cut::FILTER {
        return power_cut::run(context);
    }
    let prepared = context.prepared()?;
    let mut cases = Vec::new();
    for harts in [1, 4] {
        let mut step = step(format!("usertests disk, {harts} harts"));
        let file = prepared.scratch_file(&format!("disk-{harts}"));
        disk_of_positions(&file, BYTES)?;
        let options = MachineOptions::new(harts, "512M");
        let argv = ["/bin/usertests".to_owned(), "disk::".to_owned()];
        let mut boot = prepared.boot(&options, &argv, &[])?;
        boot.disk =
            Some(Disk { file: file.clone(), requests_per_second: Some(REQUESTS_PER_SECOND) });
        let machine = Machine::start(&prepared.qemu, &boot)?;
        step.detail("running");
        let mut transcript = Transcript::default();
        let ending = follow_while_it_writes(machine, SILENCE, &mut transcript);
        cases.extend(judge(harts, &ending, &transcript));
        let found = std::fs::read(&file).because(|| format!("cannot read {}", file.display()))?;
        cases.push(Case::judged(format!("{harts} harts/contents"), &faults(&found)));
        // The folder is removed at the end; 16 MiB need not stay until then.
        let _ = std::fs::remove_file(&file);
    }
    cases.extend(ext4(context)?);
    cases.extend(power_cut::run(context)?);
    cases.retain(|case| context.is_chosen(&case.name));
    Ok(cases)
}

/// The tests of files in a file system of `mkfs.ext4`, which `/bin/ext4` serves; `e2fsck` finds
/// nothing wrong afterwards. The second boot has the disk that the first one has left.
fn ext4(context: &Context<'_>) -> Outcome<Vec<Case>> {
    const IMAGE_BYTES: u64 = 64 << 20;
    packages::ensure(&[packages::E2FSPROGS], Progress::Lines)?;
    let image = context.prepared()?.scratch_file("ext4");
    let file =
        std::fs::File::create(&image).because(|| format!("cannot make {}", image.display()))?;
    file.set_len(IMAGE_BYTES).because(|| format!("cannot make {}", image.display()))?;
    let path = image.to_string_lossy().into_owned();
    let mut step = step("mkfs.ext4");
    run_step(
        tool("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-O", "^orphan_file", &path]),
        &mut step,
    )?;
    step.done();
    let mut cases = Vec::new();
    // The second program makes files of which the first one uses the names. The third one leaves a
    // process that uses a file without end.
    let programs = [
        ("ext4", &["/bin/usertests", "--served", "all"][..], 0),
        ("ext4, rows of files", &["/bin/measure", "files", "/disk", "1", "1", "make"], 0),
        ("ext4, a process that is left", &["/bin/durable", "/disk", "leave"], 3),
    ];
    let runs = programs.iter().flat_map(|run| ["4", "1"].map(|harts| (run, harts)));
    for ((name, program, code), harts) in runs {
        let name = format!("{name}, {harts} hart(s)");
        if !context.is_chosen(&name) {
            continue;
        }
        let words = ["--smp", harts, "--disk", &path, "/bin/ext4"];
        let result = cops_exec(&name, &[&words[..], program].concat())?;
        let mut wrong = status(&result, *code);
        if !wrong.is_empty() {
            wrong.push(result.everything());
        }
        let checked = format!("e2fsck after {name}");
        cases.push(Case::judged(name, &wrong));
        // Closed, so without a replay.
        let check = capture(tool("e2fsck").args(["-fn", &path]), None, |_| ())?;
        let wrong = if check.succeeded() { Vec::new() } else { vec![check.everything()] };
        cases.push(Case::judged(checked, &wrong));
    }
    let _ = std::fs::remove_file(&image);
    Ok(cases)
}

/// A program of e2fsprogs, which is not in the path of every user.
fn tool(name: &str) -> Command {
    let place = Path::new("/usr/sbin").join(name);
    let mut command = if place.exists() { Command::new(place) } else { Command::new(name) };
    command.env("LC_ALL", "C");
    command
}

/// What is wrong with the contents: the first half must be as it was, the second half written.
fn faults(contents: &[u8]) -> Vec<String> {
    if contents.len() as u64 != BYTES {
        return vec![format!("{} bytes instead of {BYTES}", contents.len())];
    }
    let (words, _) = contents.as_chunks::<8>();
    let expected =
        (0..BYTES).step_by(8).map(|at| if at < WRITTEN_FROM { at } else { at + WRITTEN });
    let wrong = words.iter().map(|word| u64::from_le_bytes(*word)).zip(expected).enumerate();
    wrong
        .filter(|(_, (found, expected))| found != expected)
        .take(3)
        .map(|(index, (found, expected))| {
            format!("at {:#x}: {found:#x} instead of {expected:#x}", 8 * index)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_word_is_found() {
        let word = |at: u64| if at < WRITTEN_FROM { at } else { at + WRITTEN };
        let mut contents: Vec<u8> =
            (0..BYTES).step_by(8).flat_map(|at| word(at).to_le_bytes()).collect();
        assert_eq!(faults(&contents), Vec::<String>::new());
        contents[WRITTEN_FROM as usize + 9] ^= 1;
        assert_eq!(
            faults(&contents),
            [format!(
                "at {:#x}: {:#x} instead of {:#x}",
                WRITTEN_FROM + 8,
                (WRITTEN_FROM + 8 + WRITTEN) ^ 0x100,
                WRITTEN_FROM + 8 + WRITTEN
            )]
        );
        contents.pop();
        assert_eq!(faults(&contents).len(), 1);
    }
}
