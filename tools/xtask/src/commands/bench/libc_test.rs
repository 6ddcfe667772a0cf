//! A test suite that others wrote: the functional and regression tests of libc-test, of the musl
//! project, built with Debian's C library. Each program runs on COPS, and on Linux in the same
//! machine.
//!
//! The suite is not a part of this repository; its checkout is looked for in the target folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Map;

use super::Rows;
use super::cpio::archive;
use super::linux;
use super::table::Table;
use super::words::{Line, listen_to_success};
use crate::build::linux::compile;
use crate::busybox;
use crate::cli::Bench;
use crate::commands::Prepared;
use crate::error::{Because, Failure, Outcome};
use crate::linux_kernel::{self, LinuxKernel};
use crate::packages;
use crate::process::{run_step, shown};
use crate::repository::{files_below, has_extension};
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

/// The program that runs the others.
const RUNNER: &str = "suite";
/// Where the programs are, on both systems.
const PLACE: &str = "tests";
/// How long a program may take, in seconds; as in [`RUNNER`], which has no arguments on Linux.
const SECONDS: &str = "30";
/// Time limit of each of the two boots; not a criterion.
const LIMIT: Duration = Duration::from_secs(1800);
const COMPILER: &str = "riscv64-linux-gnu-gcc";

/// The folders of the suite that are run. Its tests of mathematics and of headers are about the C
/// library alone.
const FOLDERS: [&str; 2] = ["functional", "regression"];

/// A program, and how it ended on both systems.
#[derive(Debug, Clone, PartialEq)]
struct Test {
    name: String,
    cops: String,
    linux: Option<String>,
}

const PASSES: &str = "passes";

/// What was measured.
pub struct Measured {
    pub rows: Rows,
    /// The version of the kernel of Linux. `None`: only COPS was measured.
    pub linux: Option<String>,
    /// The report in Markdown, if both were measured.
    pub report: Option<String>,
}

/// Builds, runs and prints.
pub fn measure(workspace: &Workspace, prepared: &Prepared, options: &Bench) -> Outcome<Measured> {
    let sources = checkout(workspace)?;
    packages::ensure(&[packages::LINUX_GCC], Progress::Lines)?;
    let shell = busybox::ensure(workspace, Progress::Lines)?;
    let (folder, omitted) = build(workspace, &sources, &shell)?;
    for name in &omitted {
        println!("not built: {name}");
    }
    let kernel = match linux_kernel::ensure(workspace, Progress::Lines) {
        Ok(kernel) => Some(kernel),
        Err(error) => {
            eprintln!("cops: the kernel of Linux cannot be fetched, only COPS is tested:\n{error}");
            None
        }
    };
    let cops = on_cops(prepared, options, &folder)?;
    let linux = match &kernel {
        Some(kernel) => on_linux(prepared, options, kernel, &folder)?,
        None => Vec::new(),
    };
    let tests = beside(&cops, &linux)?;
    println!("{}\n{}", summary(&tests), table(&tests).plain());
    let report = kernel.as_ref().map(|kernel| report(&kernel.version, &tests, &omitted));
    let rows = tests.iter().map(row).collect();
    Ok(Measured { rows, linux: kernel.map(|kernel| kernel.version), report })
}

/// The folder `src` of the suite.
fn checkout(workspace: &Workspace) -> Outcome<PathBuf> {
    let folder = workspace.target.join("libc-test");
    let sources = folder.join("src");
    if FOLDERS.iter().all(|name| sources.join(name).is_dir()) {
        return Ok(sources);
    }
    Err(Failure::new(format!("there is no checkout of libc-test in {}", folder.display()))
        .advise(format!("git clone git://repo.or.cz/libc-test {}", folder.display())))
}

/// Whether a source is a program by itself: neither loaded by another one nor about that.
fn is_program(name: &str) -> bool {
    !name.ends_with("_dso") && !name.contains("dlopen") && !name.contains("new-dtv")
}

/// The names of the options that the suite asks for, as definitions: each line behind the mark in
/// what the preprocessor makes of `options.h.in`.
fn options_header(preprocessed: &str) -> String {
    const MARK: &str = "optiongroups_unistd_end";
    let behind = preprocessed.split_once(MARK).map_or("", |(_, behind)| behind);
    let lines = behind.lines().map(str::trim);
    let names = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    names.map(|name| format!("#define {name}\n")).collect()
}

/// Builds the programs into a folder that contains what is to be in the root of both systems.
/// Returns it, and the names of those that Debian's library cannot link.
fn build(workspace: &Workspace, sources: &Path, shell: &Path) -> Outcome<(PathBuf, Vec<String>)> {
    let root = workspace.target.join("libc-test-programs");
    let objects = workspace.target.join("libc-test-objects");
    for folder in [&root, &objects] {
        let _ = std::fs::remove_dir_all(folder);
    }
    for folder in [&root.join(PLACE), &root.join("bin"), &objects] {
        std::fs::create_dir_all(folder).because(|| format!("cannot make {}", folder.display()))?;
    }
    let sh = root.join("bin/sh");
    std::fs::copy(shell, &sh).because(|| format!("cannot write {}", sh.display()))?;
    let mut step = Step::begin(Progress::Lines, "programs of libc-test");
    compile(workspace, RUNNER, &root, &mut step)?;

    let common = sources.join("common");
    let mut preprocessor = Command::new(COMPILER);
    preprocessor.args(["-E", "-x", "c"]).arg(common.join("options.h.in"));
    let header = options_header(&run_step(&mut preprocessor, &mut step)?.stdout);
    std::fs::write(objects.join("options.h"), header)
        .because(|| format!("cannot write {}", objects.join("options.h").display()))?;
    let mut helpers = Vec::new();
    for source in c_files(&common)? {
        if name_of(&source) != "runtest" {
            let object = objects.join(name_of(&source)).with_extension("o");
            let mut command = gcc(&objects, &common);
            run_step(command.arg("-c").arg(&source).arg("-o").arg(&object), &mut step)?;
            helpers.push(object);
        }
    }
    let mut omitted = Vec::new();
    for folder in FOLDERS {
        for source in c_files(&sources.join(folder))? {
            let name = format!("{folder}-{}", name_of(&source));
            if !is_program(&name) {
                continue;
            }
            step.detail(&name);
            let mut command = gcc(&objects, &common);
            command.args(["-static", "-pthread", "-s"]).arg(&source);
            let with_it = source.with_file_name(format!("{}_dso.c", name_of(&source)));
            command.args(with_it.is_file().then_some(with_it)).args(&helpers);
            command.arg("-lm").arg("-o").arg(root.join(PLACE).join(&name));
            let output = command.output().because(|| format!("cannot run {}", shown(&command)))?;
            if !output.status.success() {
                omitted.push(name);
            }
        }
    }
    step.done();
    Ok((root, omitted))
}

fn gcc(objects: &Path, common: &Path) -> Command {
    let mut command = Command::new(COMPILER);
    command.args(["-O1", "-w", "-I"]).arg(objects).arg("-I").arg(common);
    command
}

fn c_files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    files_below(folder, |path| has_extension(path, "c"))
}

fn name_of(source: &Path) -> String {
    source.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn on_cops(prepared: &Prepared, options: &Bench, folder: &Path) -> Outcome<Vec<Line>> {
    let step = Step::begin(Progress::Lines, "libc-test on COPS");
    let argv = [format!("/{RUNNER}"), format!("/{PLACE}"), SECONDS.to_owned()];
    let boot = prepared.boot(&options.machine, &argv, &[folder.to_owned()])?;
    let lines = listen_to_success(&prepared.qemu, &boot, LIMIT)?;
    step.done();
    Ok(lines)
}

fn on_linux(
    prepared: &Prepared,
    options: &Bench,
    kernel: &LinuxKernel,
    folder: &Path,
) -> Outcome<Vec<Line>> {
    let mut step = Step::begin(Progress::Lines, format!("libc-test on Linux {}", kernel.version));
    let mut contents = Vec::new();
    for file in files_below(folder, |_| true)? {
        let name = file.strip_prefix(folder).unwrap_or(&file).to_string_lossy().into_owned();
        let bytes = std::fs::read(&file).because(|| format!("cannot read {}", file.display()))?;
        contents.push((if name == RUNNER { "init".to_owned() } else { name }, bytes));
    }
    let mut entries = linux::console().to_vec();
    entries.extend([PLACE, "bin", "tmp", "proc"].map(linux::folder));
    entries.extend(contents.iter().map(|(name, bytes)| linux::program(name, bytes)));
    let machine = linux::Machine { harts: options.machine.smp, memory: &options.machine.mem };
    let root = archive(&entries);
    let lines = linux::run(prepared, kernel, &machine, &[], &root, LIMIT, &mut step)?;
    step.done();
    Ok(lines)
}

/// The results of both; `linux` is empty if it was not measured.
fn beside(cops: &[Line], linux: &[Line]) -> Outcome<Vec<Test>> {
    let results = |lines: &[Line]| -> Vec<(String, String)> {
        let ours = lines.iter().filter(|line| line.tag == RUNNER);
        ours.map(|line| (line.text("name").to_owned(), line.text("result").to_owned())).collect()
    };
    let (cops, linux) = (results(cops), results(linux));
    if cops.is_empty() || !linux.is_empty() && linux.len() != cops.len() {
        return Err(Failure::new(format!(
            "{} programs ran on COPS, and {} on Linux",
            cops.len(),
            linux.len()
        )));
    }
    let on_linux = |name: &str| linux.iter().find(|(known, _)| known == name);
    let beside = cops.into_iter().map(|(name, cops)| {
        let linux = on_linux(&name).map(|(_, result)| result.clone());
        Test { name, cops, linux }
    });
    Ok(beside.collect())
}

fn summary(tests: &[Test]) -> String {
    let passing = tests.iter().filter(|test| test.cops == PASSES).count();
    let mut text = format!("{} programs: {passing} pass on COPS", tests.len());
    if tests.iter().any(|test| test.linux.is_some()) {
        let is_passing = |test: &&Test| test.linux.as_deref() == Some(PASSES);
        text += &format!(", {} on Linux", tests.iter().filter(is_passing).count());
    }
    text
}

/// The programs that do not pass on both.
fn table(tests: &[Test]) -> Table {
    let mut table = Table::new(3, &["program", "COPS", "Linux"]);
    for test in tests {
        let linux = test.linux.clone().unwrap_or_else(|| "-".to_owned());
        if test.cops != PASSES || linux != PASSES {
            table.add([test.name.clone(), test.cops.clone(), linux]);
        }
    }
    table
}

fn report(version: &str, tests: &[Test], omitted: &[String]) -> String {
    let omitted = match omitted {
        [] => String::new(),
        names => format!(" Not built, for want of a function: {}.", names.join(", ")),
    };
    format!(
        "# A test suite that others wrote\n\n\
         {}.\n\n\
         The functional and regression tests of libc-test, of the musl project, as static programs \
         with Debian's C library, which musl's authors did not write them for. The same files run \
         on COPS and on Debian's Linux {version} for riscv64, in the same machine. Tests of shared \
         libraries are left out.{omitted} A program passes if it ends with code 0 within {SECONDS} \
         seconds. The table has the others.\n\n{}",
        summary(tests),
        table(tests).markdown()
    )
}

fn row(test: &Test) -> Map<String, serde_json::Value> {
    let mut row = Map::new();
    row.insert("name".into(), test.name.clone().into());
    row.insert("cops".into(), test.cops.clone().into());
    if let Some(linux) = &test.linux {
        row.insert("linux".into(), linux.clone().into());
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Line> {
        text.lines().filter_map(Line::parse).collect()
    }

    #[test]
    fn results_are_shown_beside_each_other() {
        let cops = lines("suite: name=a result=passes\nsuite: name=b result=code-1\nall rows");
        let linux = lines("suite: name=b result=passes\nother: x=y\nsuite: name=a result=passes");
        let tests = beside(&cops, &linux).unwrap();
        assert_eq!(summary(&tests), "2 programs: 1 pass on COPS, 2 on Linux");
        let report = report("6.1", &tests, &["c".to_owned()]);
        assert!(report.contains("| b | code-1 | passes |") && !report.contains("| a |"));
        assert!(report.contains("for want of a function: c."));
        assert_eq!(row(&tests[1])["cops"], "code-1");
        assert_eq!(summary(&beside(&cops, &[]).unwrap()), "2 programs: 1 pass on COPS");
    }

    #[test]
    fn a_program_that_did_not_run_everywhere_is_an_error() {
        let cops = lines("suite: name=a result=passes\nsuite: name=b result=late");
        assert!(beside(&cops, &lines("suite: name=a result=passes")).is_err());
        assert!(beside(&[], &[]).is_err());
    }

    #[test]
    fn the_names_of_options_become_definitions() {
        let text =
            "# 1 \"x\"\nint f(void);\noptiongroups_unistd_end\n#pragma x\n\n POSIX_A\nXSI 1\n";
        assert_eq!(options_header(text), "#define POSIX_A\n#define XSI 1\n");
        assert_eq!(options_header("nothing"), "");
    }

    #[test]
    fn parts_of_other_programs_are_no_programs() {
        assert!(is_program("functional-tls_align") && is_program("regression-fflush-exit"));
        for name in ["functional-tls_align_dso", "functional-dlopen", "regression-tls_get_new-dtv"]
        {
            assert!(!is_program(name));
        }
    }
}
