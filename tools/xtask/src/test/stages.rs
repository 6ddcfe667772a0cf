//! The stages of `./cops test`: the table of them, and the choice by options.

use super::{Case, Context};
use super::{
    clippy, debug, disk, docs, exec, executor, firmware, format, fuzz, guest, host, hostile,
    layers, linux, miri, msrv, peers, portions, profile, shell, starve, system, top, tutorial,
    unsafe_count, vdso,
};
use crate::cli::Test;
use crate::error::{Failure, Outcome};

/// A stage: cases that are run together.
pub struct Stage {
    pub name: &'static str,
    pub about: &'static str,
    /// Omitted with --quick.
    is_long: bool,
    /// Can run single tests with --filter.
    can_choose: bool,
    pub run: fn(&Context<'_>) -> Outcome<Vec<Case>>,
}

/// All stages, in order: those that fail fast first, then the longest. A long one that began last
/// would keep one lane while the other has nothing left.
const STAGES: [Stage; 26] = [
    Stage {
        name: "fmt",
        about: "cargo fmt --check",
        is_long: false,
        can_choose: false,
        run: format::run,
    },
    Stage {
        name: "layers",
        about: "dependencies point one way, between packages and inside the kernel",
        is_long: false,
        can_choose: false,
        run: layers::run,
    },
    Stage {
        name: "unsafe",
        about: "unsafe blocks per folder are those in docs/unsafe-count.txt",
        is_long: false,
        can_choose: false,
        run: unsafe_count::run,
    },
    Stage {
        name: "clippy",
        about: "no lint of clippy or rustc, host and guest",
        is_long: false,
        can_choose: false,
        run: clippy::run,
    },
    Stage {
        name: "docs",
        about: "words, links, figures and what the book names; cargo doc without a warning",
        is_long: true,
        can_choose: true,
        run: docs::run,
    },
    Stage {
        name: "host",
        about: "unit, property and documentation tests of everything that runs on the host",
        is_long: false,
        can_choose: true,
        run: host::run,
    },
    Stage {
        name: "loom",
        about: "the executor's core and the kernel's notifications under the model checker: a scene for every pair of transitions",
        is_long: true,
        can_choose: true,
        run: executor::loom,
    },
    Stage {
        name: "stress",
        about: "the executor on 2, 3 and 4 threads, everything mixed (--stress-seconds says how long)",
        is_long: true,
        can_choose: false,
        run: executor::stress,
    },
    Stage {
        name: "peers",
        about: "the executor beside others: each operation answers; the instructions of ours have limits",
        is_long: true,
        can_choose: true,
        run: peers::run,
    },
    Stage {
        name: "firmware",
        about: "the executor without an allocator, on RV32IMAC and RV64GC without an operating system",
        is_long: true,
        can_choose: true,
        run: firmware::run,
    },
    Stage {
        name: "vdso",
        about: "the vDSO image is relocation-free, read-only and exports what it should",
        is_long: false,
        can_choose: false,
        run: vdso::run,
    },
    Stage {
        name: "linux",
        about: "static C programs for Linux, unmodified: output and exit codes, with 1 hart and with 4",
        is_long: false,
        can_choose: true,
        run: linux::run,
    },
    Stage {
        name: "guest",
        about: "/bin/usertests in QEMU, with 1 hart and with 4",
        is_long: false,
        can_choose: true,
        run: guest::run,
    },
    Stage {
        name: "disk",
        about: "the disk and its file system in QEMU, with 1 hart and with 4; power cuts; the file on this host afterwards",
        is_long: false,
        can_choose: true,
        run: disk::run,
    },
    Stage {
        name: "starve",
        about: "each allocation of the kernel fails once, while every kind of system call is made",
        is_long: true,
        can_choose: true,
        run: starve::run,
    },
    Stage {
        name: "portions",
        about: "no portion of the kernel's work is longer than 50,000 instructions, counted while usertests runs",
        is_long: true,
        can_choose: true,
        run: portions::run,
    },
    Stage {
        name: "hostile",
        about: "an honest program beside some hostile ones: its latency and its share of the CPU, counted; one beside a flood of frames",
        is_long: true,
        can_choose: true,
        run: hostile::run,
    },
    Stage {
        name: "fuzz",
        about: "/bin/fuzz in QEMU, with 1 hart and with 4: 100,000 native and 50,000 Linux system calls each with arguments that are nearly right",
        is_long: true,
        can_choose: true,
        run: fuzz::run,
    },
    Stage {
        name: "exec",
        about: "./cops exec: output, exit codes, faults, time-outs; how ./cops trace ends",
        is_long: false,
        can_choose: true,
        run: exec::run,
    },
    Stage {
        name: "tutorial",
        about: "programs for rCore-Tutorial-v3: each of its system calls, with 1 hart and with 4",
        is_long: false,
        can_choose: true,
        run: tutorial::run,
    },
    Stage {
        name: "shell",
        about: "./cops shell: keys, Ctrl-C, background, beside programs that mean harm",
        is_long: false,
        can_choose: true,
        run: shell::run,
    },
    Stage {
        name: "debug",
        about: "./cops debug: breakpoints and backtraces in kernel, vDSO and program; Ctrl-C",
        is_long: false,
        can_choose: true,
        run: debug::run,
    },
    Stage {
        name: "top",
        about: "./cops top on running servers",
        is_long: false,
        can_choose: false,
        run: top::run,
    },
    Stage {
        name: "profile",
        about: "./cops profile: every instruction is counted once, for its function; what a system call may cost",
        is_long: false,
        can_choose: false,
        run: profile::run,
    },
    Stage {
        name: "boots",
        about: "boots in a row on 4 harts, each ending cleanly (--boots says how many)",
        is_long: true,
        can_choose: false,
        run: exec::boots,
    },
    Stage {
        name: "system",
        about: "the real client against the real server: 64 and 256 connections, hostile clients",
        is_long: true,
        can_choose: true,
        run: system::run,
    },
];

/// Stages that run only with --only, because they need compilers that are rarely installed.
const EXTRA_STAGES: [Stage; 2] = [
    Stage {
        name: "msrv",
        about: "the executor as a package, and with the oldest compiler that it promises",
        is_long: true,
        can_choose: false,
        run: msrv::run,
    },
    Stage {
        name: "miri",
        about: "the executor's tests under Miri",
        is_long: true,
        can_choose: true,
        run: miri::run,
    },
];

pub fn all() -> impl Iterator<Item = &'static Stage> {
    STAGES.iter().chain(&EXTRA_STAGES)
}

/// The stages that the options choose.
pub fn chosen(options: &Test) -> Outcome<Vec<&'static Stage>> {
    if let Some(unknown) =
        options.only.iter().find(|name| all().all(|stage| stage.name != name.as_str()))
    {
        let names = all().map(|stage| stage.name).collect::<Vec<_>>().join(" ");
        return Err(Failure::new(format!("there is no stage {unknown:?}"))
            .advise(format!("there are: {names}")));
    }
    if !options.only.is_empty() {
        return Ok(all()
            .filter(|stage| options.only.iter().any(|name| name == stage.name))
            .collect());
    }
    Ok(STAGES
        .iter()
        .filter(|stage| stage.can_choose || options.filter().is_none())
        .filter(|stage| !(options.quick && stage.is_long))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn names(words: &[&str]) -> Outcome<Vec<&'static str>> {
        let Command::Test(options) =
            Cli::try_parse_from([&["cops", "test"], words].concat()).unwrap().command
        else {
            panic!("not test")
        };
        Ok(chosen(&options)?.iter().map(|stage| stage.name).collect())
    }

    #[test]
    fn the_book_has_every_stage() {
        let book = include_str!("../../../../docs/book/testing.md");
        let rows: Vec<&str> = book.lines().filter(|line| line.starts_with("| `")).collect();
        for name in all().map(|stage| format!("`{}`", stage.name)) {
            assert!(rows.iter().any(|row| row.contains(&name)), "no row for {name}");
        }
    }

    #[test]
    fn stages_are_chosen_by_name_length_and_filter() {
        assert_eq!(names(&[]).unwrap().len(), STAGES.len());
        assert_eq!(names(&["--only", "unsafe", "--only", "fmt"]).unwrap(), ["fmt", "unsafe"]);
        assert_eq!(names(&["--only", "miri"]).unwrap(), ["miri"]);
        assert!(!names(&["--quick"]).unwrap().contains(&"system"));
        assert_eq!(
            names(&["--filter", "x"]).unwrap(),
            [
                "docs", "host", "loom", "peers", "firmware", "linux", "guest", "disk", "starve",
                "portions", "hostile", "fuzz", "exec", "tutorial", "shell", "debug", "system"
            ]
        );
        assert_eq!(names(&["x"]).unwrap(), names(&["--filter", "x"]).unwrap());
        assert!(names(&["--only", "nothing"]).unwrap_err().to_string().contains("\"nothing\""));
    }
}
