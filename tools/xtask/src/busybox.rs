//! Debian's busybox for riscv64: fetched once, with apt, from the mirror that this system uses.
//!
//! A private apt directory in the target folder has one source, Debian 13 for riscv64, so nothing
//! on the system changes. apt checks signature and hash, and has the system's proxies and keys.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Because, Failure, Outcome};
use crate::process::{capture, run_step};
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

/// The first release of Debian for riscv64.
const RELEASE: &str = "trixie";
const PACKAGE: &str = "busybox-static";
/// The keys of Debian's archive.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
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
    let cannot = || format!("cannot make {}", folder.display());
    // What an interrupted attempt has left.
    let _ = std::fs::remove_dir_all(&folder);
    for part in ["apt/lists/partial", "apt/cache/archives/partial", "package"] {
        std::fs::create_dir_all(folder.join(part)).because(cannot)?;
    }
    let mut step = Step::begin(progress, format!("fetching {PACKAGE} of Debian {RELEASE}"));
    let apt = Apt::new(&folder.join("apt"))?;
    run_step(&mut apt.command(&["update", "-q"]), &mut step)?;
    let mut download = apt.command(&["download", "-q", PACKAGE]);
    run_step(download.current_dir(&folder), &mut step)?;
    let package = downloaded(&folder)?;
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").arg(&package).arg(folder.join("package"));
    run_step(&mut unpack, &mut step)?;
    let candidates = PATHS.map(|path| folder.join("package").join(path));
    let unpacked = candidates.iter().find(|path| path.is_file()).ok_or_else(|| {
        Failure::new(format!("{} does not contain {}", package.display(), PATHS[0]))
    })?;
    let program = folder.join("busybox");
    // Renamed last: the program is there if everything succeeded.
    std::fs::rename(unpacked, &program)
        .because(|| format!("cannot move {}", unpacked.display()))?;
    for part in ["apt", "package"] {
        let _ = std::fs::remove_dir_all(folder.join(part));
    }
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
            eprintln!("cops: the shell has no busybox: {}", first_line(&error));
            eprintln!("cops: to try again, remove {}", mark.display());
            let _ = std::fs::write(&mark, error.to_string());
            None
        }
    }
}

/// The first line of an error.
pub fn first_line(error: &Failure) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// A private apt directory.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn new(folder: &Path) -> Outcome<Self> {
        let sources = folder.join("sources.list");
        let shown = folder.display();
        let key =
            if Path::new(KEYS).exists() { format!(" signed-by={KEYS}") } else { String::new() };
        let source = format!("deb [arch=riscv64{key}] {} {RELEASE} main\n", mirror()?);
        std::fs::write(&sources, source)
            .because(|| format!("cannot write {}", sources.display()))?;
        let options = [
            format!("Dir::State={shown}"),
            format!("Dir::State::lists={shown}/lists"),
            "Dir::State::status=/dev/null".into(),
            format!("Dir::Cache={shown}/cache"),
            format!("Dir::Etc::sourcelist={}", sources.display()),
            "Dir::Etc::sourceparts=/dev/null".into(),
            "APT::Architecture=riscv64".into(),
            "APT::Architectures=riscv64".into(),
            // As root, apt would fetch as a user without access to this folder.
            "APT::Sandbox::User=root".into(),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            // On a machine without a network this must be quick.
            "Acquire::Retries=0".into(),
            "Acquire::http::Timeout=10".into(),
            "Acquire::https::Timeout=10".into(),
            // A mirror that cannot be reached is an error, not a warning.
            "APT::Update::Error-Mode=any".into(),
        ];
        Ok(Self { options: options.into() })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("apt-get");
        // What the system does after an update concerns its own lists.
        command.args([
            "-o",
            "APT::Update::Post-Invoke=",
            "-o",
            "APT::Update::Post-Invoke-Success=",
        ]);
        for option in &self.options {
            command.args(["-o", option]);
        }
        command.args(arguments);
        command
    }
}

/// The mirror of Debian's main archive in the configuration of apt.
fn mirror() -> Outcome<String> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = field(&release, "VERSION_CODENAME");
    let (true, Some(codename)) = (field(&release, "ID") == Some("debian"), codename) else {
        return Err(Failure::new("this is not Debian, of which the mirrors have the package"));
    };
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)"]);
    command.arg("Created-By: Packages");
    let targets = capture(&mut command, None, |_| {})?;
    mirror_of(&targets.stdout, codename)
        .ok_or_else(|| Failure::new(format!("apt is configured without a mirror of {codename}")))
}

/// The address in the first line for `main` of release `codename`.
fn mirror_of(targets: &str, codename: &str) -> Option<String> {
    let words = targets.lines().filter_map(|line| line.split_once(' '));
    let mut of_release = words.filter(|(release, _)| *release == codename || *release == "stable");
    let address = of_release.find_map(|(_, rest)| rest.strip_prefix("main "))?;
    Some(address.to_owned())
}

/// The value of `name` in the text of `/etc/os-release`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let values = text.lines().filter_map(|line| line.split_once('='));
    values.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"'))
}

/// The package that apt has put into `folder`.
fn downloaded(folder: &Path) -> Outcome<PathBuf> {
    let cannot = || format!("cannot read {}", folder.display());
    for entry in std::fs::read_dir(folder).because(cannot)? {
        let path = entry.because(cannot)?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            return Ok(path);
        }
    }
    Err(Failure::new(format!("apt-get has put no package into {}", folder.display())))
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
    fn the_mirror_is_that_of_the_main_archive() {
        let targets = "bookworm-security main http://a/security/\nbookworm contrib http://b/\n\
            bookworm main http://c/debian/\nbookworm main http://d/\n";
        assert_eq!(mirror_of(targets, "bookworm").as_deref(), Some("http://c/debian/"));
        assert_eq!(mirror_of(targets, "sid"), None);
        assert_eq!(mirror_of("stable main x\n", "bookworm").as_deref(), Some("x"));
    }

    #[test]
    fn fields_are_found_with_and_without_quotes() {
        let text = "PRETTY_NAME=\"Debian\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        assert_eq!(field(text, "ID"), Some("debian"));
        assert_eq!(field(text, "PRETTY_NAME"), Some("Debian"));
        assert_eq!(field(text, "HOME"), None);
    }

    #[test]
    fn applets_are_read_up_to_the_end_of_the_list() {
        let program = b"text [\0[[\0arch\0lzma_2.x\0ps\0\0other\0";
        assert_eq!(applets(program), ["[", "[[", "arch", "lzma_2.x", "ps"]);
        assert!(applets(b"nothing").is_empty());
    }
}
