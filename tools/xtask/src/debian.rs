//! Packages of Debian for riscv64: fetched with apt, from the mirror that this system uses.
//!
//! A private apt directory in the target folder has one source, a release of Debian for riscv64, so
//! nothing on the system changes. apt checks signature and hash, and has the system's proxies and
//! keys. A mirror that is being updated has lists that do not match their signature, sometimes for
//! days, and seldom for two releases at once: so the next release is tried.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Because, Failure, Outcome};
use crate::process::{capture, run_step};
use crate::terminal::Step;

/// The releases of Debian for riscv64 in the order in which they are tried, the oldest first.
const RELEASES: [&str; 2] = ["trixie", "forky"];
/// The keys of Debian's archive.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The archive's current lists in a folder, which also gets what is fetched.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    apt: Apt,
    release: &'static str,
}

impl Archive {
    /// Fetches the lists of the first release of which they are whole. Removes the contents of
    /// `folder`, which are those of an interrupted attempt.
    ///
    /// # Errors
    /// If this is not Debian, or the mirror cannot be reached: what is wrong with the first
    /// release.
    pub fn open(folder: &Path, step: &mut Step) -> Outcome<Self> {
        let mirror = mirror()?;
        let mut first_failure = None;
        for release in RELEASES {
            match Self::open_release(folder, &mirror, release, step) {
                Ok(archive) => return Ok(archive),
                Err(failure) => {
                    first_failure.get_or_insert(failure);
                }
            }
        }
        Err(first_failure.unwrap_or_else(|| Failure::new("there is no release to try")))
    }

    fn open_release(
        folder: &Path,
        mirror: &str,
        release: &'static str,
        step: &mut Step,
    ) -> Outcome<Self> {
        let _ = std::fs::remove_dir_all(folder);
        for part in ["apt/lists/partial", "apt/cache/archives/partial", "package"] {
            std::fs::create_dir_all(folder.join(part))
                .because(|| format!("cannot make {}", folder.display()))?;
        }
        let apt = Apt::new(&folder.join("apt"), mirror, release)?;
        run_step(&mut apt.get(&["update", "-q"]), step)?;
        Ok(Self { folder: folder.to_owned(), apt, release })
    }

    /// The first package with this prefix on which `package` depends, if there is one.
    pub fn dependency(
        &self,
        package: &str,
        prefix: &str,
        step: &mut Step,
    ) -> Outcome<Option<String>> {
        let listed = run_step(&mut self.apt.cache(&["depends", package]), step)?;
        Ok(dependency_of(&listed.stdout, prefix))
    }

    /// The release of which the packages are.
    pub fn release(&self) -> &str {
        self.release
    }

    /// Fetches and unpacks a package. Returns the folder with the files of all that were unpacked.
    pub fn unpack(&self, package: &str, step: &mut Step) -> Outcome<PathBuf> {
        let mut download = self.apt.get(&["download", "-q", package]);
        run_step(download.current_dir(&self.folder), step)?;
        let fetched = downloaded(&self.folder)?;
        let root = self.folder.join("package");
        let mut unpack = Command::new("dpkg-deb");
        run_step(unpack.arg("-x").arg(&fetched).arg(&root), step)?;
        let _ = std::fs::remove_file(fetched);
        Ok(root)
    }

    /// Removes the lists and the unpacked files.
    pub fn close(self) {
        for part in ["apt", "package"] {
            let _ = std::fs::remove_dir_all(self.folder.join(part));
        }
    }
}

/// The line of an error that says most: apt's first error behind its progress, or the first one.
pub fn gist(error: &Failure) -> String {
    gist_of(&error.to_string()).to_owned()
}

fn gist_of(text: &str) -> &str {
    let error = text.lines().find(|line| line.starts_with("E: "));
    error.or(text.lines().next()).unwrap_or_default()
}

/// A private apt directory.
#[derive(Debug)]
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn new(folder: &Path, mirror: &str, release: &str) -> Outcome<Self> {
        let sources = folder.join("sources.list");
        let shown = folder.display();
        let key =
            if Path::new(KEYS).exists() { format!(" signed-by={KEYS}") } else { String::new() };
        let source = format!("deb [arch=riscv64{key}] {mirror} {release} main\n");
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

    /// `apt-get` with these arguments.
    fn get(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("apt-get");
        // What the system does after an update concerns its own lists.
        command.args([
            "-o",
            "APT::Update::Post-Invoke=",
            "-o",
            "APT::Update::Post-Invoke-Success=",
        ]);
        self.complete(command, arguments)
    }

    /// `apt-cache` with these arguments.
    fn cache(&self, arguments: &[&str]) -> Command {
        self.complete(Command::new("apt-cache"), arguments)
    }

    fn complete(&self, mut command: Command, arguments: &[&str]) -> Command {
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

/// The first dependency with this prefix in the output of `apt-cache depends`.
fn dependency_of(listed: &str, prefix: &str) -> Option<String> {
    let mut names = listed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.find(|name| name.starts_with(prefix)).map(ToOwned::to_owned)
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
    fn the_gist_is_the_first_error_of_apt() {
        assert_eq!(gist_of("Get:1 x\nE: y\nE: z"), "E: y");
        assert_eq!(gist_of("cannot start apt-get\nmore"), "cannot start apt-get");
        assert_eq!(gist_of(""), "");
    }

    #[test]
    fn fields_are_found_with_and_without_quotes() {
        let text = "PRETTY_NAME=\"Debian\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        assert_eq!(field(text, "ID"), Some("debian"));
        assert_eq!(field(text, "PRETTY_NAME"), Some("Debian"));
        assert_eq!(field(text, "HOME"), None);
    }

    #[test]
    fn a_dependency_is_found_by_its_prefix() {
        let listed = "linux-image-riscv64\n  Depends: other\n  Depends: linux-image-6.1-riscv64\n\
            \x20 Suggests: linux-image-5.0\n";
        assert_eq!(
            dependency_of(listed, "linux-image-").as_deref(),
            Some("linux-image-6.1-riscv64")
        );
        assert_eq!(dependency_of(listed, "linux-image-5"), None);
    }
}
