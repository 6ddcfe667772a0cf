//! `./cops test --mutations [TEXT]`: applies one change after the other, each of which a test must
//! detect, to a copy of the checkout, and reports the result. Each takes a build and a boot, so CI
//! only checks that each change still applies.

pub mod list;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::{Because, Failure, Outcome};
use crate::process::{Captured, capture, last_lines};
use crate::terminal::{Progress, Step};
use crate::workspace::{Workspace, git};
use list::{Mutation, Run};

/// The list.
pub const LIST: &str = include_str!("list.txt");
/// Time limit of one build and run. If a mutation hangs the system, the tests' own limits apply
/// earlier.
const LIMIT: Duration = Duration::from_secs(1500);
/// Number of lines shown of an unexpected failure.
const SHOWN_LINES: usize = 15;

/// The result for one mutation.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The test failed, as expected.
    Caught,
    /// Nothing failed.
    Survived,
    /// Another test failed, or the test could not be run.
    Unclear(String),
}

/// Runs the mutations with `filter` in their names; returns 0 if all were caught.
pub fn run(workspace: &Workspace, filter: &str) -> Outcome<u8> {
    let all = list::parse(LIST)?;
    let chosen: Vec<&Mutation> = all.iter().filter(|one| one.name.contains(filter)).collect();
    if chosen.is_empty() {
        return Err(Failure::new(format!("no mutation has {filter:?} in its name")));
    }
    let copy = Copy::new(&workspace.root)?;
    let (mut caught, mut others) = (0, Vec::new());
    for one in &chosen {
        let verdict = copy.judge(one)?;
        println!("{:<60} {verdict:?}", one.name);
        match verdict {
            Verdict::Caught => caught += 1,
            other => others.push(format!("{}: {other:?}", one.name)),
        }
    }
    println!("\n{caught} of {} mutations caught", chosen.len());
    for other in &others {
        println!("not caught: {other}");
    }
    Ok(u8::from(!others.is_empty()))
}

/// A copy of the last commit, with a target folder that is kept between runs.
struct Copy {
    root: PathBuf,
    target: PathBuf,
}

impl Copy {
    fn new(root: &Path) -> Outcome<Self> {
        let folder = root.join("target/mutations");
        let copy = Self { root: folder.join("tree"), target: folder.join("target") };
        if copy.root.exists() {
            copy.git(&["checkout", "--quiet", "--force", "--detach", &head_of(root)?])?;
        } else {
            std::fs::create_dir_all(&folder)
                .because(|| format!("cannot make {}", folder.display()))?;
            let tree = copy.root.display().to_string();
            git(root, &["worktree", "prune"])?;
            git(root, &["worktree", "add", "--quiet", "--detach", &tree, "HEAD"])?;
        }
        Ok(copy)
    }

    fn git(&self, arguments: &[&str]) -> Outcome<()> {
        git(&self.root, arguments).map(drop)
    }

    /// Applies the change, runs the test that must fail, and undoes the change.
    fn judge(&self, one: &Mutation) -> Outcome<Verdict> {
        let file = self.root.join(&one.file);
        let cannot = || format!("cannot change {}", file.display());
        let text = std::fs::read_to_string(&file).because(cannot)?;
        let changed = match one.apply(&text) {
            Ok(changed) => changed,
            Err(why) => return Ok(Verdict::Unclear(why)),
        };
        std::fs::write(&file, changed).because(cannot)?;
        let result = self.run(one);
        std::fs::write(&file, text).because(cannot)?;
        Ok(verdict(one, &result?))
    }

    fn run(&self, one: &Mutation) -> Outcome<Captured> {
        let mut command = match &one.run {
            Run::Stage(stage, filter) => {
                let mut command = Command::new(self.root.join("cops"));
                command.args(["test", "--only", stage, filter]);
                command
            }
            Run::Cargo(arguments) => {
                let mut command = Command::new("cargo");
                command.arg("test").args(arguments);
                command
            }
        };
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        let mut step = Step::begin(Progress::Transient, &one.name);
        capture(&mut command, Some(LIMIT), |line| step.detail(line))
    }
}

fn verdict(one: &Mutation, result: &Captured) -> Verdict {
    let said = result.everything();
    match result.status.and_then(|status| status.code()) {
        Some(0) => Verdict::Survived,
        _ if said.contains(&one.expect) => Verdict::Caught,
        _ => Verdict::Unclear(last_lines(&said, SHOWN_LINES)),
    }
}

fn head_of(root: &Path) -> Outcome<String> {
    git(root, &["rev-parse", "HEAD"])
}
