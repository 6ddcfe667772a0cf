//! The file system of the disk in QEMU: `/bin/ext4` serves it, `/bin/durable` replaces files in it.
//! Some runs end, and in others the power is cut: QEMU is killed. Afterwards `e2fsck` judges the
//! disk, and `debugfs`, an independent reader, finds everything that was durable.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Case, Context, step};
use crate::cli::Machine as MachineOptions;
use crate::error::{Because, Failure, Outcome};
use crate::packages;
use crate::qemu::command::Disk;
use crate::qemu::demux::{Channel, Event};
use crate::qemu::machine::{Machine, Next};
use crate::terminal::Progress;

/// The filter with which only these tests run.
pub const FILTER: &str = "power cuts";
/// Size of the disk.
const BYTES: u64 = 32 << 20;
/// Files that `/bin/durable` replaces in turn.
const FILES: u32 = 40;
/// The longest silence of a guest that works.
const SILENCE: Duration = Duration::from_secs(120);
/// Numbers of synced files at which the power is cut, one run after the other with the same disk.
const CUTS: [u32; 4] = [3, 60, 25, 140];
/// Sets the number of cuts for a long run.
const CUTS_VARIABLE: &str = "COPS_POWER_CUTS";

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let chosen: Vec<u32> =
        [1, 4].into_iter().filter(|harts| context.is_chosen(&name(*harts))).collect();
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    packages::ensure(&[packages::E2FSPROGS], Progress::Lines)?;
    let mut cases = Vec::new();
    for harts in chosen {
        let mut step = step(name(harts));
        let file = new_disk(context, &format!("ext4-{harts}"))?;
        let mut wrong = Vec::new();
        let asked = std::env::var(CUTS_VARIABLE).ok().and_then(|count| count.parse().ok());
        for round in 0..asked.unwrap_or(CUTS.len()) {
            let at = CUTS[round % CUTS.len()] + (round / CUTS.len()) as u32 * 7;
            step.detail(&format!("power cut {round} at file {at}"));
            let last = run_guest(context, harts, &file, Some(at))?;
            wrong.extend(faults(&file, last, "after a power cut", true)?);
        }
        step.detail("a run that ends");
        let last = run_guest(context, harts, &file, None)?;
        wrong.extend(faults(&file, last, "after the end", false)?);
        cases.push(Case::judged(name(harts), &wrong));
        let _ = std::fs::remove_file(&file);
    }
    Ok(cases)
}

/// An empty file system.
fn new_disk(context: &Context<'_>, name: &str) -> Outcome<PathBuf> {
    let file = context.prepared()?.scratch_file(name);
    std::fs::File::create(&file)
        .and_then(|created| created.set_len(BYTES))
        .because(|| format!("cannot make {}", file.display()))?;
    tool("mkfs.ext4", &["-q", "-F", "-b", "4096"], &file)?;
    Ok(file)
}

/// Boots a machine in which `/bin/ext4` serves the disk and runs a program.
fn boot(context: &Context<'_>, harts: u32, disk: &Path, program: &[&str]) -> Outcome<Machine> {
    let prepared = context.prepared()?;
    let options = MachineOptions::new(harts, "512M");
    let argv: Vec<String> =
        ["/bin/ext4"].iter().chain(program).map(|word| (*word).to_owned()).collect();
    let mut boot = prepared.boot(&options, &argv, &[])?;
    boot.disk = Some(Disk { file: disk.to_owned(), requests_per_second: None });
    Machine::start(&prepared.qemu, &boot)
}

fn name(harts: u32) -> String {
    format!("{harts} harts/power cuts")
}

/// Boots, and returns the number of the last file that is durable as the guest said. With `cut` the
/// machine is killed some time after it said so of file number `cut`.
fn run_guest(
    context: &Context<'_>,
    harts: u32,
    disk: &Path,
    cut: Option<u32>,
) -> Outcome<Option<u32>> {
    let program = ["/bin/durable", "/disk", "100"];
    let words = if cut.is_some() { &program[..2] } else { &program[..] };
    let mut machine = boot(context, harts, disk, words)?;
    let mut said = Vec::new();
    let mut kill_at: Option<Instant> = None;
    loop {
        let deadline = kill_at.unwrap_or_else(|| Instant::now() + SILENCE);
        match machine.next(Some(deadline)) {
            Next::Event(Event::Bytes(Channel::Stdout, bytes)) => said.extend_from_slice(&bytes),
            Next::Event(Event::Bytes(..)) => {}
            Next::Event(Event::Ended(0)) if cut.is_none() => return Ok(last_synced(&said)),
            Next::TimedOut if kill_at.is_some() => {
                // On a loaded host, the guest may have worked on until it is killed.
                machine.cut_power();
                while let Next::Event(event) = machine.next(Some(Instant::now() + SILENCE)) {
                    if let Event::Bytes(Channel::Stdout, bytes) = event {
                        said.extend_from_slice(&bytes);
                    }
                }
                return Ok(last_synced(&said));
            }
            other => {
                let said = String::from_utf8_lossy(&said);
                return Err(Failure::new(format!(
                    "the guest did not write files: {other:?}\n{said}"
                )));
            }
        }
        if kill_at.is_none() && cut.is_some() && last_synced(&said) >= cut {
            // Not always at the same point of its work.
            let more = Duration::from_micros(u64::from(cut.unwrap_or(0)) * 1777 % 20_000);
            kill_at = Some(Instant::now() + more);
        }
    }
}

/// The number in the last complete line.
fn last_synced(said: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(said);
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    complete.lines().rev().find_map(|line| line.strip_prefix("synced ")?.trim().parse().ok())
}

/// What is wrong with the disk. `last` is the number of the last durable file.
fn faults(disk: &Path, last: Option<u32>, when: &str, is_cut: bool) -> Outcome<Vec<String>> {
    let mut wrong = Vec::new();
    let (code, said) = output("e2fsck", &[if is_cut { "-fy" } else { "-fn" }], disk)?;
    let repaired = said.lines().any(|line| line.contains("? yes") || line.contains("? no"));
    if repaired || !matches!((code, is_cut), (Some(0), _) | (Some(1), true)) {
        wrong.push(format!("{when}, e2fsck exits with {code:?}: {said}"));
    }
    let Some(last) = last else { return Ok(wrong) };
    for file in 0..FILES.min(last + 1) {
        let least = last - (last - file) % FILES;
        let (_, found) = output("debugfs", &["-R", &format!("cat /file{file}")], disk)?;
        // The guest may have replaced one more, and not said so yet.
        let possible = [least, least + FILES];
        let allowed = if least + FILES <= last + 1 { &possible[..] } else { &possible[..1] };
        if !allowed.iter().any(|number| found == content(*number)) {
            let first = found.lines().next().unwrap_or("nothing");
            wrong.push(format!(
                "{when}, file{file} has {} bytes that begin with {first} instead of {allowed:?}",
                found.len()
            ));
        }
    }
    Ok(wrong)
}

/// What `/bin/durable` writes to file `number`.
fn content(number: u32) -> String {
    let line = format!("{number}\n");
    let least = 100 + 37 * number as usize % 20_000;
    line.repeat(least.div_ceil(line.len()))
}

/// A program of e2fsprogs, which is not in the path of every user.
fn command(name: &str) -> Command {
    let full = PathBuf::from("/usr/sbin").join(name);
    Command::new(if full.exists() { full } else { name.into() })
}

fn output(name: &str, arguments: &[&str], disk: &Path) -> Outcome<(Option<i32>, String)> {
    let output = command(name).args(arguments).arg(disk).output();
    let output = output.because(|| format!("cannot run {name}"))?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn tool(name: &str, arguments: &[&str], disk: &Path) -> Outcome<()> {
    match output(name, arguments, disk)? {
        (Some(0), _) => Ok(()),
        (code, said) => Err(Failure::new(format!("{name} exits with {code:?}: {said}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_last_complete_line_counts() {
        assert_eq!(last_synced(b"synced 1\nsynced 2\nsynced 3"), Some(2));
        assert_eq!(last_synced(b"synced 1\nother\n"), Some(1));
        assert_eq!(last_synced(b"synced 1"), None);
    }

    #[test]
    fn contents_are_those_of_the_program() {
        assert_eq!(content(0), "0\n".repeat(50));
        assert_eq!(content(12).len(), 546);
        let counts: BTreeMap<u32, usize> = (0..3).map(|n| (n, content(n).len())).collect();
        assert_eq!(counts, BTreeMap::from([(0, 100), (1, 138), (2, 174)]));
    }
}
