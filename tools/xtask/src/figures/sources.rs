//! The data files under docs/results, and the command that makes each. A file that is not listed
//! here is an error, so the list suffices to regenerate all of them.

use serde_json::Value;

use super::Data;
use crate::qemu::version::parse_version;
use crate::workspace::{Workspace, git};

/// The command that makes a data file.
#[derive(Debug, Clone, Copy)]
pub enum Make {
    /// `./cops` with these arguments.
    Cops(&'static [&'static str]),
    /// `cargo` with these arguments.
    Cargo(&'static [&'static str]),
}

impl Make {
    /// The command line as a user would type it.
    pub fn shown(self) -> String {
        match self {
            Self::Cops(words) => format!("./cops {}", words.join(" ")),
            Self::Cargo(words) => format!("cargo {}", words.join(" ")),
        }
    }
}

/// A data file.
#[derive(Debug)]
pub struct Source {
    /// The path below docs/results, without `.json`.
    pub name: &'static str,
    pub make: Make,
    /// Files and folders on which the figures depend. The data are stale once a later commit has
    /// changed these.
    pub measures: &'static [&'static str],
}

impl Source {
    /// Whether it has times of Linux beside those of COPS (see [`is_fit_for_linux`]). `libc-test`
    /// has results, which do not depend on the emulator's speed.
    pub fn has_times_of_linux(&self) -> bool {
        let Make::Cops(words) = self.make else { return false };
        let has = |word: &&str| words.contains(word);
        ["files", "peers", "pipe", "ring"].iter().any(has) && !has(&"--icount")
    }
}

/// Whether times of Linux may be measured with this version of QEMU: one before 10 slows Linux down
/// and COPS not (decision 58).
pub fn is_fit_for_linux(qemu: &str) -> bool {
    parse_version(qemu).is_some_and(|(major, _)| major >= 10)
}

const SYSTEM: &[&str] = &["kernel", "crates", "user", "tools/loadgen"];
const PROGRAMS: &[&str] = &["kernel", "crates", "user"];
const EXECUTOR: &[&str] = &["crates/executor"];

/// All data files, in the order in which `./cops report measure` makes them.
pub const SOURCES: [Source; 48] = [
    Source {
        name: "run/run-64",
        make: Make::Cops(&["run", "--json", "docs/results/run/run-64.json"]),
        measures: SYSTEM,
    },
    Source {
        name: "run/run-256",
        make: Make::Cops(&[
            "run",
            "--connections",
            "256",
            "--json",
            "docs/results/run/run-256.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "closed-wall-1",
        make: Make::Cops(&[
            "bench",
            "closed",
            "--smp",
            "1",
            "--json",
            "docs/results/closed-wall-1.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "closed-wall-2",
        make: Make::Cops(&[
            "bench",
            "closed",
            "--smp",
            "2",
            "--json",
            "docs/results/closed-wall-2.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "closed-wall",
        make: Make::Cops(&[
            "bench",
            "closed",
            "--smp",
            "4",
            "--json",
            "docs/results/closed-wall.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "closed-icount",
        make: Make::Cops(&[
            "bench",
            "closed",
            "--icount",
            "--json",
            "docs/results/closed-icount.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "closed-icount-4",
        make: Make::Cops(&[
            "bench",
            "closed",
            "--icount",
            "--smp",
            "4",
            "--json",
            "docs/results/closed-icount-4.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "closed-models-icount",
        make: Make::Cops(&[
            "bench",
            "closed",
            "--icount",
            "--connections",
            "256",
            "--model",
            "kcuc,kcut,kcut-retry,ktut,ktut-retry,ktuc",
            "--json",
            "docs/results/closed-models-icount.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "stages",
        make: Make::Cops(&["profile", "--json", "docs/results/stages.json", "run"]),
        measures: SYSTEM,
    },
    Source {
        name: "idle-memory",
        make: Make::Cops(&["bench", "idle-memory", "--json", "docs/results/idle-memory.json"]),
        measures: SYSTEM,
    },
    Source {
        name: "idle-connections",
        make: Make::Cops(&[
            "bench",
            "idle-memory",
            "--tap",
            "--connections",
            "20000",
            "--mem",
            "256M",
            "--json",
            "docs/results/idle-connections.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "disk",
        make: Make::Cops(&["bench", "disk", "--smp", "1", "--json", "docs/results/disk.json"]),
        measures: SYSTEM,
    },
    // By the wall clock with one hart, so that emulator and client have a core of the host each.
    Source {
        name: "models",
        make: Make::Cops(&[
            "bench",
            "models",
            "--smp",
            "1",
            "--model",
            "kcuc,kcut,ktut,ktut-retry,ktuc",
            "--loop",
            "open",
            "--matrix",
            "15",
            "--seconds",
            "1",
            "--json",
            "docs/results/models.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "models-poll",
        make: Make::Cops(&[
            "bench",
            "models",
            "--smp",
            "1",
            "--idle",
            "poll",
            "--loop",
            "open",
            "--matrix",
            "15",
            "--connections",
            "1,2,4,8,16,32,64",
            "--seconds",
            "1",
            "--json",
            "docs/results/models-poll.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "models-awake",
        make: Make::Cops(&[
            "bench",
            "models",
            "--smp",
            "1",
            "--host-awake",
            "--model",
            "kcuc,kcut,ktut,ktut-retry,ktuc",
            "--loop",
            "open",
            "--matrix",
            "15",
            "--seconds",
            "1",
            "--json",
            "docs/results/models-awake.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "models-closed",
        make: Make::Cops(&[
            "bench",
            "models",
            "--smp",
            "1",
            "--loop",
            "closed",
            "--matrix",
            "1",
            "--connections",
            "64,256,1024",
            "--seconds",
            "1",
            "--json",
            "docs/results/models-closed.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "models-papers",
        make: Make::Cops(&[
            "bench",
            "models",
            "--smp",
            "1",
            "--model",
            "kcuc,ktut,ktut-retry,ktuc",
            "--loop",
            "pause",
            "--rounds",
            "3",
            "--seconds",
            "1",
            "--json",
            "docs/results/models-papers.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "models-figure-5",
        make: Make::Cops(&[
            "bench",
            "models",
            "--smp",
            "4",
            "--loop",
            "pause",
            "--matrix",
            "15",
            "--rounds",
            "1",
            "--json",
            "docs/results/models-figure-5.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "models-papers-poll",
        make: Make::Cops(&[
            "bench",
            "models",
            "--smp",
            "1",
            "--idle",
            "poll",
            "--model",
            "kcuc,ktut,ktut-retry,ktuc",
            "--loop",
            "pause",
            "--matrix",
            "1,15",
            "--rounds",
            "3",
            "--seconds",
            "1",
            "--json",
            "docs/results/models-papers-poll.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "models-papers-awake",
        make: Make::Cops(&[
            "bench",
            "models",
            "--smp",
            "1",
            "--host-awake",
            "--model",
            "kcuc,ktut,ktut-retry,ktuc",
            "--loop",
            "pause",
            "--matrix",
            "1,15",
            "--rounds",
            "3",
            "--seconds",
            "1",
            "--json",
            "docs/results/models-papers-awake.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "priority-classes",
        make: Make::Cops(&[
            "bench",
            "priority",
            "--smp",
            "1",
            "--seconds",
            "2",
            "--json",
            "docs/results/priority-classes.json",
        ]),
        measures: SYSTEM,
    },
    // Without load the most urgent class of eight has some 15 answers a second. The user network
    // sends a request after a pause as a segment and, when that is acknowledged, the rest.
    Source {
        name: "priority-classes-slow",
        make: Make::Cops(&[
            "bench",
            "priority",
            "--smp",
            "1",
            "--slow-harts",
            "--tap",
            "--seconds",
            "3",
            "--json",
            "docs/results/priority-classes-slow.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "models-icount",
        make: Make::Cops(&[
            "bench",
            "models",
            "--icount",
            "--matrix",
            "1,15",
            "--json",
            "docs/results/models-icount.json",
        ]),
        measures: PROGRAMS,
    },
    Source {
        name: "priority-classes-icount",
        make: Make::Cops(&[
            "bench",
            "priority",
            "--icount",
            "--json",
            "docs/results/priority-classes-icount.json",
        ]),
        measures: PROGRAMS,
    },
    Source {
        name: "priority-classes-fifo-icount",
        make: Make::Cops(&[
            "bench",
            "priority",
            "--icount",
            "--quick",
            "--scheduler",
            "target/guest-image/cops-vdso-fifo.so",
            "--json",
            "docs/results/priority-classes-fifo-icount.json",
        ]),
        measures: PROGRAMS,
    },
    Source {
        name: "wakeups",
        make: Make::Cops(&["bench", "wakeups", "--json", "docs/results/wakeups.json"]),
        measures: PROGRAMS,
    },
    Source {
        name: "hostile",
        make: Make::Cops(&["bench", "hostile", "--json", "docs/results/hostile.json"]),
        measures: PROGRAMS,
    },
    Source {
        name: "costs",
        make: Make::Cops(&["bench", "costs", "--json", "docs/results/costs.json"]),
        measures: PROGRAMS,
    },
    Source {
        name: "files",
        make: Make::Cops(&["bench", "files", "--smp", "1", "--json", "docs/results/files.json"]),
        measures: PROGRAMS,
    },
    Source {
        name: "libc-test",
        make: Make::Cops(&[
            "bench",
            "libc-test",
            "--smp",
            "1",
            "--json",
            "docs/results/libc-test.json",
        ]),
        measures: PROGRAMS,
    },
    Source {
        name: "portions",
        make: Make::Cops(&["bench", "portions", "--json", "docs/results/portions.json"]),
        measures: PROGRAMS,
    },
    Source {
        name: "fuzz",
        make: Make::Cops(&["fuzz", "--calls", "10000000", "--json", "docs/results/fuzz.json"]),
        measures: PROGRAMS,
    },
    Source {
        name: "ring",
        make: Make::Cops(&["bench", "ring", "--icount", "--json", "docs/results/ring.json"]),
        measures: PROGRAMS,
    },
    Source {
        name: "pipe",
        make: Make::Cops(&["bench", "pipe", "--icount", "--json", "docs/results/pipe.json"]),
        measures: PROGRAMS,
    },
    Source {
        name: "ring-wall",
        make: Make::Cops(&[
            "bench",
            "ring",
            "--quick",
            "--rounds",
            "9",
            "--json",
            "docs/results/ring-wall.json",
        ]),
        measures: PROGRAMS,
    },
    Source {
        name: "pipe-wall",
        make: Make::Cops(&[
            "bench",
            "pipe",
            "--quick",
            "--rounds",
            "9",
            "--json",
            "docs/results/pipe-wall.json",
        ]),
        measures: PROGRAMS,
    },
    Source {
        name: "switch",
        make: Make::Cops(&["bench", "switch", "--json", "docs/results/switch.json"]),
        measures: PROGRAMS,
    },
    Source {
        name: "memory",
        make: Make::Cops(&["bench", "memory", "--smp", "1", "--json", "docs/results/memory.json"]),
        measures: SYSTEM,
    },
    Source {
        name: "scale",
        make: Make::Cops(&[
            "bench",
            "scale",
            "--icount",
            "--tap",
            "--json",
            "docs/results/scale.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "peers",
        make: Make::Cops(&[
            "bench",
            "peers",
            "--smp",
            "1",
            "--seconds",
            "2",
            "--json",
            "docs/results/peers.json",
            "--resume",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "peers-15",
        make: Make::Cops(&[
            "bench",
            "peers",
            "--smp",
            "1",
            "--matrix",
            "15",
            "--connections",
            "256",
            "--peer",
            "epoll,io-uring,tokio",
            "--seconds",
            "2",
            "--json",
            "docs/results/peers-15.json",
            "--resume",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "peers-4",
        make: Make::Cops(&[
            "bench",
            "peers",
            "--smp",
            "4",
            "--peer",
            "io-uring",
            "--connections",
            "64,256,1024",
            "--seconds",
            "1",
            "--json",
            "docs/results/peers-4.json",
        ]),
        measures: SYSTEM,
    },
    // Five rounds take eight minutes. In an overload the measured time must be long beside the
    // second of warm-up.
    Source {
        name: "peers-open",
        make: Make::Cops(&[
            "bench",
            "peers",
            "--smp",
            "1",
            "--loop",
            "open",
            "--connections",
            "1,64,256,512,1024",
            "--peer",
            "epoll,io-uring",
            "--seconds",
            "3",
            "--json",
            "docs/results/peers-open.json",
            "--resume",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "peers-open-4",
        make: Make::Cops(&[
            "bench",
            "peers",
            "--smp",
            "4",
            "--loop",
            "open",
            "--connections",
            "1,64,256,512,1024",
            "--peer",
            "epoll,io-uring",
            "--rounds",
            "3",
            "--seconds",
            "3",
            "--json",
            "docs/results/peers-open-4.json",
            "--resume",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "overload",
        make: Make::Cops(&[
            "bench",
            "overload",
            "--smp",
            "1",
            "--json",
            "docs/results/overload.json",
        ]),
        measures: SYSTEM,
    },
    Source {
        name: "overload-icount",
        make: Make::Cops(&[
            "bench",
            "overload",
            "--icount",
            "--json",
            "docs/results/overload-icount.json",
        ]),
        measures: SYSTEM,
    },
    Source { name: "executor", make: Make::Cops(&["bench", "executor"]), measures: EXECUTOR },
    Source {
        name: "two-classes",
        make: Make::Cargo(&[
            "run",
            "--release",
            "--locked",
            "--manifest-path",
            "crates/executor/peers/Cargo.toml",
            "--features",
            "service",
            "--bin",
            "two-classes",
            "--",
            "--output",
            "docs/results",
        ]),
        measures: EXECUTOR,
    },
];

/// The source of a data file.
pub fn find(name: &str) -> Option<&'static Source> {
    SOURCES.iter().find(|source| source.name == name)
}

/// Whether data are from the code as it is committed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Age {
    Current,
    /// Number of commits since then that changed what is measured.
    Stale(usize),
    /// The commit is not in this repository.
    Unknown,
    /// The file does not exist.
    Missing,
}

/// The commit at which the data were made, without the mark of a changed checkout.
pub fn commit(value: &Value) -> Option<&str> {
    value.get("config")?.get("commit")?.as_str().map(|commit| commit.trim_end_matches("-dirty"))
}

/// The age of a source's data.
pub fn age(workspace: &Workspace, data: &Data, source: &Source) -> Age {
    let Some(value) = data.get(source.name) else { return Age::Missing };
    let Some(commit) = commit(value) else { return Age::Unknown };
    let since = format!("{commit}..HEAD");
    let arguments = [&["rev-list", "--count", &since, "--"], source.measures].concat();
    match git(&workspace.root, &arguments).ok().and_then(|counted| counted.parse().ok()) {
        Some(0) => Age::Current,
        Some(commits) => Age::Stale(commits),
        None => Age::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether measuring it needs root, for a network namespace with a tap device.
    fn needs_root(source: &Source) -> bool {
        let Make::Cops(words) = source.make else { return false };
        let has = |word: &str| words.contains(&word);
        has("--tap") || has("peers") || has("overload") && !has("--icount")
    }

    /// The chapter about the experiments: the files that its table names, and the words of each
    /// command of `report measure` in its last section, with whether it has root.
    fn chapter() -> (Vec<String>, Vec<(bool, Vec<String>)>) {
        let text = include_str!("../../../../docs/book/experiments.md");
        let (before, repeat) = text.split_once("\n## Repeat it\n").unwrap();
        let (table, _) = before.split_once("\n## ").unwrap();
        let rows = table.lines().filter(|line| line.starts_with('|'));
        let files = rows.flat_map(|row| row.split([' ', ',']));
        let files = files.filter_map(|word| word.strip_suffix(".json")).map(str::to_owned);
        let block = repeat.split("```").nth(1).unwrap().replace("\\\n", " ");
        let commands = block.lines().filter_map(|line| {
            let (before, names) = line.split_once("./cops report measure ")?;
            let names = names.split_whitespace().map(str::to_owned).collect();
            Some((before.contains("sudo "), names))
        });
        (files.collect(), commands.collect())
    }

    #[test]
    fn the_chapter_repeats_each_of_its_files_once_and_with_root_only_what_needs_it() {
        let (files, commands) = chapter();
        assert!(files.len() > 20, "{files:?}");
        let mut measured = Vec::new();
        for (has_root, names) in &commands {
            for name in names {
                let source = find(name).unwrap_or_else(|| panic!("there are no data {name}"));
                assert_eq!(needs_root(source), *has_root, "{name}");
                measured.push(name);
            }
        }
        for file in &files {
            let times = measured.iter().filter(|name| **name == file).count();
            assert_eq!(times, 1, "{file} in {commands:?}");
        }
    }

    #[test]
    fn times_of_linux_are_those_of_a_recent_emulator() {
        for (version, is_fit) in
            [("7.2.22 (Debian 1:7.2+dfsg-7)", false), ("9.2.0", false), ("10.0.2", true)]
        {
            assert_eq!(is_fit_for_linux(version), is_fit, "{version}");
        }
        let timed = SOURCES.iter().filter(|source| source.has_times_of_linux());
        let expected = [
            "files",
            "ring-wall",
            "pipe-wall",
            "peers",
            "peers-15",
            "peers-4",
            "peers-open",
            "peers-open-4",
        ];
        assert_eq!(timed.map(|source| source.name).collect::<Vec<_>>(), expected);
    }
}
