//! Debian's busybox in `./cops exec`: a pipeline, more than fifty applets with the output that they
//! have under Linux, and what they learn of COPS through `/proc`. Part of stage `linux`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::exec::{cops_exec_within, status};
use super::{Case, Context};
use crate::build::{Program, read};
use crate::busybox;
use crate::debian::gist;
use crate::error::{Because, Outcome};
use crate::packages;
use crate::process::{Captured, capture};
use crate::terminal::Progress;

/// Time limit of one run, which takes some seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(600);

/// What `system.sh` prints.
const SYSTEM: &str = "\
ps: 1000
ps: PID COMMAND
pidof: found
top: S 1000
free: in order
uptime: in order
mount: / tmpfs (ro)
mount: /tmp tmpfs (rw)
mount: /dev tmpfs (ro)
mount: /dev/shm tmpfs (rw)
mount: /proc proc (ro)
df: /
df: /tmp
df: /dev
df: /dev/shm
comm: sleep
sleep 1000 
/busybox
/tmp
no authority
stat: 1 (sleep) S 1 52
State:\tS (sleeping)
Threads:\t1
SigBlk:\t0000000000000000
SigIgn:\t0000000000000006
killed 143
gone
processes: 1
Linux
cops
uptime cannot be written
nothing can be made
nproc: 1
from the client
from the server
";

/// A run of busybox.
struct Test {
    name: &'static str,
    arguments: &'static [&'static str],
    harts: &'static [&'static str],
    prints: Prints,
}

/// What a run prints to standard output.
enum Prints {
    This(&'static str),
    /// What `applets.sh` prints under Linux.
    AsUnderLinux,
}

const TESTS: [Test; 4] = [
    Test {
        name: "busybox: a pipeline of applets",
        arguments: &["sh", "-c", "echo a | wc -c"],
        harts: &["1", "4"],
        prints: Prints::This("2\n"),
    },
    Test {
        name: "busybox: applets print what they print under Linux",
        arguments: &["sh", "/applets.sh", "/tmp"],
        harts: &["1"],
        prints: Prints::AsUnderLinux,
    },
    Test {
        name: "busybox: the same script on standard input",
        arguments: &["sh", "-c", "sh -s /tmp < /applets.sh"],
        harts: &["4"],
        prints: Prints::AsUnderLinux,
    },
    Test {
        name: "busybox: ps, top, free, mount, df and nc",
        arguments: &["sh", "/system.sh"],
        harts: &["1", "4"],
        prints: Prints::This(SYSTEM),
    },
];

/// The name of the check that `./cops shell` has busybox's applets.
const HIDDEN: &str = "busybox: of its applets, only ps and top are programs of COPS";

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let chosen: Vec<&Test> = TESTS.iter().filter(|test| context.is_chosen(test.name)).collect();
    let checks_hidden = context.is_chosen(HIDDEN);
    if chosen.is_empty() && !checks_hidden {
        return Ok(Vec::new());
    }
    let program = match busybox::ensure(context.workspace, Progress::Lines) {
        Ok(program) => program,
        Err(error) => {
            context.note(format!("busybox is skipped: {}", gist(&error)));
            return Ok(Vec::new());
        }
    };
    let prepared = context.prepared()?;
    let scripts = context.workspace.root.join("user/busybox");
    let folder = gather(context, &program, &scripts)?;
    let under_linux = if chosen.iter().any(|test| matches!(test.prints, Prints::AsUnderLinux)) {
        under_linux(context, &folder, &scripts)?
    } else {
        String::new()
    };
    let folder = folder.to_string_lossy();
    let mut cases = Vec::new();
    if checks_hidden {
        let bytes = read(&program)?;
        let hidden = hidden_applets(&busybox::applets(&bytes), &prepared.guest.programs);
        let wrong = (hidden != ["ps", "top"]).then(|| format!("they are {hidden:?}"));
        cases.push(Case::judged(HIDDEN, wrong.as_slice()));
    }
    for test in chosen {
        let expected = match test.prints {
            Prints::This(text) => text,
            Prints::AsUnderLinux => &under_linux,
        };
        for harts in test.harts {
            let name = format!("{}, {harts} hart(s)", test.name);
            let mut words = vec!["--smp", harts, "--add", &*folder, "/busybox"];
            words.extend(test.arguments);
            let result = cops_exec_within(&name, &words, LIMIT)?;
            cases.push(Case::judged(name, &judge(&result, expected)));
        }
    }
    Ok(cases)
}

/// The applets for which the image of `./cops shell` has no link, because a program of COPS has the
/// name.
fn hidden_applets<'a>(applets: &[String], programs: &'a [Program]) -> Vec<&'a str> {
    let names = programs.iter().map(|program| program.name.as_str());
    names.filter(|&name| applets.iter().any(|applet| applet == name)).collect()
}

fn judge(result: &Captured, expected: &str) -> Vec<String> {
    let mut wrong = status(result, 0);
    if result.stdout != expected {
        let mut lines = result.stdout.lines().zip(expected.lines());
        wrong.push(match lines.find(|(one, other)| one != other) {
            Some((one, other)) => format!("a line is {one:?}, not {other:?}"),
            None => "standard output is not as expected".to_owned(),
        });
    }
    if result.stderr.contains("does not exist here") {
        wrong.push("a call that busybox makes does not exist".to_owned());
    }
    if !wrong.is_empty() {
        wrong.push(result.everything());
    }
    wrong
}

/// The folder with the program and the scripts, and nothing else.
fn gather(context: &Context<'_>, program: &Path, scripts: &Path) -> Outcome<PathBuf> {
    let folder = context.workspace.target.join("busybox-test/image");
    std::fs::create_dir_all(&folder).because(|| format!("cannot make {}", folder.display()))?;
    let files = [
        (program.to_owned(), "busybox"),
        (scripts.join("applets.sh"), "applets.sh"),
        (scripts.join("system.sh"), "system.sh"),
    ];
    for (from, name) in files {
        let to = folder.join(name);
        std::fs::copy(&from, &to).because(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(folder)
}

/// What `applets.sh` prints under user-mode QEMU; if that cannot be had, what it once printed.
fn under_linux(context: &Context<'_>, folder: &Path, scripts: &Path) -> Outcome<String> {
    let kept = scripts.join("applets.txt");
    if let Err(error) = packages::ensure(&[packages::QEMU_USER], Progress::Lines) {
        context.note(format!("busybox is compared with {}: {error}", kept.display()));
        return std::fs::read_to_string(&kept)
            .because(|| format!("cannot read {}", kept.display()));
    }
    let qemu = packages::qemu_user().unwrap_or_default();
    let busybox = folder.join("busybox");
    // The host does not execute programs for RISC-V. So the shell finds a script for each applet.
    let applets = context.workspace.target.join("busybox-test/applets");
    let files = context.workspace.target.join("busybox-test/files");
    let _ = std::fs::remove_dir_all(&files);
    for made in [&applets, &files] {
        std::fs::create_dir_all(made).because(|| format!("cannot make {}", made.display()))?;
    }
    let bytes = std::fs::read(&busybox).because(|| format!("cannot read {}", busybox.display()))?;
    for applet in busybox::applets(&bytes) {
        let script = applets.join(&applet);
        let cannot = || format!("cannot make {}", script.display());
        let (qemu, busybox) = (qemu.display(), busybox.display());
        let text = format!("#!/bin/sh\nexec '{qemu}' '{busybox}' '{applet}' \"$@\"\n");
        std::fs::write(&script, text).because(cannot)?;
        let permissions = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&script, permissions).because(cannot)?;
    }
    let mut command = Command::new(&qemu);
    // By a relative path, so that `/proc/self/exe` leads nowhere after the script's `cd`. The host
    // cannot execute it, and the C library would give it to `/bin/sh` as a script.
    command.arg("./busybox").arg("sh").arg(folder.join("applets.sh")).arg(&files);
    command.current_dir(folder).env_clear().env("PATH", &applets);
    let result = capture(&mut command, Some(LIMIT), |_| {})?;
    Ok(result.stdout)
}
