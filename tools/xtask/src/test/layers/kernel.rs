//! The order of the kernel's folders: what lies higher may name what lies lower.
//!
//! A *room* is a folder or a file directly in `kernel/src`. [`ROOMS`] lists all of them, lowest
//! first. An *arrow* leads from a file to another room that the file names by a `crate::` path; it
//! must lead downward. [`EXCEPTIONS`] lists the arrows that lead upward all the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::rust_source::{code_only, rust_files};
use crate::error::{Because, Outcome};

/// The rooms, lowest first.
const ROOMS: [&str; 20] = [
    "counters", "machine", "arch", "mm", "drivers", "log", "portions", "vdso", "trace", "panic",
    "sched", "net", "disk", "fs", "process", "call", "inspect", "syscall", "boot", "main",
];

/// The room of items that are in no other: the root of the crate.
const ROOT: &str = "main";

/// An arrow upward that is allowed.
struct Exception {
    room: &'static str,
    /// What its files may name, and everything below that.
    path: &'static str,
    reason: &'static str,
}

const EXCEPTIONS: [Exception; 3] = [
    Exception {
        room: "arch",
        path: "portions",
        reason: "the instrument measures where arch enters and leaves the kernel",
    },
    Exception {
        room: "arch",
        path: "enter_boot_hart",
        reason: "a hart continues in main.rs after its entry",
    },
    Exception {
        room: "arch",
        path: "enter_secondary",
        reason: "a hart continues in main.rs after its entry",
    },
];

/// Folders in which names of the machine may occur.
const MACHINE_ROOM: &str = "arch";

/// Words of RISC-V: registers and instructions. In addition, no word contains `riscv`.
const MACHINE_WORDS: [&str; 37] = [
    "asm",
    "global_asm",
    "naked_asm",
    "csr",
    "csrr",
    "csrw",
    "csrs",
    "csrc",
    "csrrw",
    "csrrs",
    "csrrc",
    "sstatus",
    "sie",
    "sip",
    "stvec",
    "sscratch",
    "sepc",
    "scause",
    "stval",
    "satp",
    "scounteren",
    "stimecmp",
    "senvcfg",
    "mstatus",
    "mhartid",
    "fcsr",
    "instret",
    "rdtime",
    "wfi",
    "ecall",
    "sret",
    "sfence",
    "sv39",
    "sv48",
    "sbi",
    "plic",
    "clint",
];

/// What a file names of another room.
struct Arrow {
    line: usize,
    /// The path without `crate::`.
    path: String,
}

/// A source file: its path below `kernel/src`, and its code without comments and literals.
struct Source {
    name: PathBuf,
    code: String,
}

/// The result for all files.
pub struct Judgement {
    /// The faults.
    pub wrong: Vec<String>,
    /// The number of arrows upward, allowed or not. Several paths from one file to one room are one
    /// arrow.
    pub upward: usize,
    /// Number of lines with code.
    pub lines: usize,
}

/// Judges the kernel with its sources in this folder.
pub fn judge(folder: &Path) -> Outcome<Judgement> {
    let mut sources = Vec::new();
    for file in rust_files(folder)? {
        let text =
            std::fs::read_to_string(&file).because(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(folder).unwrap_or(&file).to_owned();
        sources.push(Source { name, code: code_only(&text) });
    }
    Ok(judge_sources(&sources, &ROOMS, &EXCEPTIONS))
}

fn judge_sources(sources: &[Source], rooms: &[&str], exceptions: &[Exception]) -> Judgement {
    let height = |room: &str| rooms.iter().position(|other| *other == room);
    let mut wrong = Vec::new();
    let mut upward = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut used = BTreeSet::new();
    for source in sources {
        let (room, file) = (source.room(), source.name.display());
        seen.insert(room.clone());
        if height(&room).is_none() {
            wrong.push(format!("{file}: {room} has no place in ROOMS in {}", file!()));
            continue;
        }
        for Arrow { line, path } in source.arrows() {
            let first = path.split("::").next().unwrap_or_default();
            let target = if height(first).is_some() { first } else { ROOT };
            if height(target) <= height(&room) {
                continue;
            }
            upward.insert((source.name.clone(), target.to_owned()));
            match exceptions.iter().position(|exception| exception.allows(&room, &path)) {
                Some(exception) => drop(used.insert(exception)),
                None => {
                    wrong.push(format!("{file}:{line} names crate::{path}, which is above {room}"))
                }
            }
        }
        if room != MACHINE_ROOM {
            let words = machine_words(&source.code).into_iter();
            wrong.extend(
                words.map(|(line, word)| format!("{file}:{line}: only arch may contain {word}")),
            );
        }
    }
    let missing = rooms.iter().filter(|room| !seen.contains(**room));
    wrong.extend(missing.map(|room| format!("{room} is in ROOMS and does not exist")));
    let unused = exceptions.iter().enumerate().filter(|(index, _)| !used.contains(index));
    wrong.extend(unused.map(|(_, Exception { room, path, reason })| {
        format!("{room} names {path} no more: take the exception away ({reason})")
    }));
    let lines = sources
        .iter()
        .flat_map(|source| source.code.lines())
        .filter(|line| !line.trim().is_empty());
    Judgement { wrong, upward: upward.len(), lines: lines.count() }
}

impl Exception {
    fn allows(&self, room: &str, path: &str) -> bool {
        let below = |rest: &str| rest.is_empty() || rest.starts_with("::");
        self.room == room && path.strip_prefix(self.path).is_some_and(below)
    }
}

impl Source {
    fn room(&self) -> String {
        let first = self.name.iter().next().unwrap_or_default().to_string_lossy();
        first.strip_suffix(".rs").unwrap_or(&first).to_owned()
    }

    /// `super::` as often as it takes to name the root of the crate.
    fn root_by_super(&self) -> String {
        let folders = self.name.components().count() - 1;
        "super::".repeat(if self.name.ends_with("mod.rs") { folders } else { folders + 1 })
    }

    /// The paths from the root of the crate.
    fn arrows(&self) -> Vec<Arrow> {
        let mut found = Vec::new();
        for marker in ["crate::", &self.root_by_super()] {
            for (start, _) in self.code.match_indices(marker) {
                // `$crate::` in a macro is named by the code that uses the macro.
                if self.code[..start].ends_with('$') {
                    continue;
                }
                let line = self.code[..start].matches('\n').count() + 1;
                let mut paths = Vec::new();
                expand("", &self.code[start + marker.len()..], &mut paths);
                found.extend(paths.into_iter().map(|path| Arrow { line, path }));
            }
        }
        found
    }
}

/// Words of the machine in this code, each with its line.
fn machine_words(code: &str) -> Vec<(usize, String)> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let of_machine = |word: &&str| {
        let word = word.to_lowercase();
        MACHINE_WORDS.contains(&&*word) || word.contains("riscv")
    };
    let words = |(line, text): (usize, &str)| -> Vec<(usize, String)> {
        let words = text.split(|character| !is_word(character));
        words.filter(of_machine).map(|word| (line + 1, word.to_owned())).collect()
    };
    code.lines().enumerate().flat_map(words).collect()
}

/// Adds the paths that the path or use tree at the start of `text` names, each with `prefix` before
/// it; gives what comes after it.
fn expand<'a>(prefix: &str, text: &'a str, paths: &mut Vec<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = expand(prefix, rest, paths).trim_start();
            match rest.strip_prefix(',') {
                Some(after) => rest = after,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let length = text
        .find(|character: char| !character.is_alphanumeric() && character != '_')
        .unwrap_or(text.len());
    let (segment, mut rest) = text.split_at(length);
    if segment.is_empty() {
        // Everything in the prefix, or the end of a list.
        return match rest.strip_prefix('*') {
            Some(after) => {
                paths.push(prefix.to_owned());
                after
            }
            None => rest,
        };
    }
    let path = match (prefix, segment) {
        ("", _) => segment.to_owned(),
        (_, "self") => prefix.to_owned(),
        _ => format!("{prefix}::{segment}"),
    };
    match rest.strip_prefix("::") {
        Some(after) => expand(&path, after, paths),
        None => {
            paths.push(path);
            if let Some(renamed) = rest.trim_start().strip_prefix("as ") {
                rest = renamed.trim_start_matches(|character: char| {
                    character.is_alphanumeric() || character == '_'
                });
            }
            rest
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMS: [&str; 4] = ["log", "arch", "task", "main"];

    #[track_caller]
    fn judges(files: &[(&str, &str)], exceptions: &[Exception], upward: usize, expected: &[&str]) {
        // Every room exists.
        let empty = ROOMS.map(|room| (format!("{room}/empty.rs"), ""));
        let empty = empty.iter().map(|(name, code)| (&**name, *code));
        let sources: Vec<Source> = files
            .iter()
            .copied()
            .chain(empty)
            .map(|(name, text)| Source { name: name.into(), code: code_only(text) })
            .collect();
        let judgement = judge_sources(&sources, &ROOMS, exceptions);
        assert_eq!(judgement.wrong, expected);
        assert_eq!(judgement.upward, upward);
    }

    #[test]
    fn use_trees_are_expanded() {
        let mut paths = Vec::new();
        let rest = expand("", "mm::{self, layout::{A, B as C}, frames::*}; next", &mut paths);
        assert_eq!(paths, ["mm", "mm::layout::A", "mm::layout::B", "mm::frames"]);
        assert_eq!(rest, "; next");
    }

    #[test]
    fn a_path_upward_is_found_in_code_only() {
        let code = "\
use crate::{log, arch::task};
// crate::task is above
let x = crate::task::now() + $crate::task::z + \"crate::task\";
crate::task::other(crate::tasks::y());
";
        let wrong = [
            "arch/x.rs:3 names crate::task::now, which is above arch",
            "arch/x.rs:4 names crate::task::other, which is above arch",
            "arch/x.rs:4 names crate::tasks::y, which is above arch",
        ];
        judges(&[("arch/x.rs", code), ("task/x.rs", "use crate::arch;")], &[], 2, &wrong);
    }

    #[test]
    fn a_path_upward_by_super_is_found() {
        let files = [
            ("arch/mod.rs", "use super::task;"),
            ("arch/x.rs", "use super::task;"),
            ("arch/x/y.rs", "super::super::super::task::z()"),
            ("log.rs", "super::arch::x()"),
        ];
        let wrong = [
            "arch/mod.rs:1 names crate::task, which is above arch",
            "arch/x/y.rs:1 names crate::task::z, which is above arch",
            "log.rs:1 names crate::arch::x, which is above log",
        ];
        judges(&files, &[], 3, &wrong);
    }

    #[test]
    fn a_room_without_a_place_is_found() {
        let wrong = format!("stranger.rs: stranger has no place in ROOMS in {}", file!());
        judges(&[("stranger.rs", "")], &[], 0, &[&wrong]);
        let judgement = judge_sources(&[], &["gone"], &[]);
        assert_eq!(judgement.wrong, ["gone is in ROOMS and does not exist"]);
    }

    #[test]
    fn an_exception_covers_its_path_and_must_be_used() {
        let exception = Exception { room: "arch", path: "task::interrupt", reason: "because" };
        let code = "crate::task::interrupt::on_timer(); crate::task::interrupts();";
        let wrong = ["arch/x.rs:1 names crate::task::interrupts, which is above arch"];
        let of_another = ("log/x.rs", "crate::task::interrupt::on_timer();");
        let also = "log/x.rs:1 names crate::task::interrupt::on_timer, which is above log";
        judges(&[("arch/x.rs", code), of_another], &[exception], 2, &[wrong[0], also]);
        let unused = Exception { room: "log", path: "task::interrupt", reason: "because" };
        let wrong = ["log names task::interrupt no more: take the exception away (because)"];
        judges(&[("task/x.rs", "crate::task::interrupt::x()")], &[unused], 0, &wrong);
    }

    #[test]
    fn words_of_the_machine_are_found_outside_arch_only() {
        let code =
            "asm!(\"wfi\"); // satp\nlet sstatus = riscv::register::SATP; let classie = EM_RISCV;";
        let wrong = [
            "task/x.rs:1: only arch may contain asm",
            "task/x.rs:2: only arch may contain sstatus",
            "task/x.rs:2: only arch may contain riscv",
            "task/x.rs:2: only arch may contain SATP",
            "task/x.rs:2: only arch may contain EM_RISCV",
        ];
        judges(&[("task/x.rs", code), ("arch/x.rs", code)], &[], 0, &wrong);
    }

    #[test]
    fn lines_of_code_are_counted_without_comments() {
        let code = code_only("//! about\n\nfn f() {\n    // why\n    g() /* a\n b */\n}\n");
        assert_eq!(judge_sources(&[Source { name: "arch.rs".into(), code }], &[], &[]).lines, 3);
    }
}
