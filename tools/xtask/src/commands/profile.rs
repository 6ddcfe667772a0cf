//! `./cops profile`: an exact profile of a counted run, by function and call path, flat and as a
//! flame graph; and the comparison of two.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use super::Prepared;
use crate::build::host;
use crate::cli::{Machine as MachineOptions, Model, PROFILE_OPTIONS, Profile as Options};
use crate::error::{Because, Failure, Outcome};
use crate::profile::images::Images;
use crate::profile::paths::Profile;
use crate::profile::record::Record;
use crate::profile::{flames, kinds, stages, tables};
use crate::qemu::command::{Boot, Idle};
use crate::qemu::console::{PassThrough, follow};
use crate::qemu::machine::Machine;
use crate::qemu::server::Server;
use crate::qemu::version::Qemu;
use crate::service::{self, Client, Load, Pace};
use crate::terminal::Progress;
use crate::workspace::{Scratch, Workspace};

/// Versions of QEMU's plugin interface that the plugin uses: from and below.
const QEMU_VERSIONS: [(u32, u32); 2] = [(7, 2), (9, 0)];
/// Requests of each connection before those that are counted: their first run makes what later ones
/// find.
const WARM_UP_REQUESTS: u32 = 20;
/// Time limit of the load.
const LIMIT_SECONDS: u32 = 600;
/// How far the kernel's count of instructions may be from the profile's: this part of the profile,
const TOLERATED_PART: i64 = 5000;
/// and this part of what leads into sleep in both loads together. The kernel reads its counter in
/// the middle of a function, and the profile has the whole of it: some 40 instructions of each
/// sleep, of at least 350, are on the other side. With one connection there is a sleep for each
/// request, so that this counts.
const TOLERATED_PART_OF_SLEEP: i64 = 8;

pub fn run(workspace: &Workspace, options: &Options) -> Outcome<u8> {
    if let Some([before, after]) = options.compare.as_deref() {
        print!("{}", tables::compare(&read(before)?, &read(after)?, options.rows));
        return Ok(0);
    }
    let is_service = names_service(&options.argv)?;
    refuse_unused(options, is_service)?;
    let progress = if is_service { Progress::Lines } else { Progress::Transient };
    let prepared = Prepared::new(workspace, progress)?;
    let profiler = Profiler::new(workspace, &prepared, progress)?;
    let mut wrong = false;
    let (profile, title, check, status) = if is_service {
        let served =
            profiler.serve(workspace, &options.mem, options.connections, options.requests)?;
        let check = served.check();
        wrong = !served.is_exact();
        let title = format!(
            "one request of {} connections in a closed loop, 1 x 1 matrices",
            options.connections
        );
        (served.profile, title, check, 0)
    } else {
        let (profile, status) = profiler.execute(options)?;
        (profile, options.argv.join(" "), "firmware, boot and power-off included".into(), status)
    };
    let origin = format!(
        "counted by a plugin of QEMU {}, each instruction, on one hart; {check}; commit {}",
        prepared.qemu.version,
        workspace.commit()
    );
    let by_stage = if is_service { stages::table(&profile) } else { String::new() };
    let by_kind = kinds::table(&profile, options.rows);
    let flat = tables::flat(&profile, options.rows);
    let text = format!("{title}\n{origin}\n\n{by_stage}{by_kind}{flat}");
    let folder = options.out.clone().unwrap_or_else(|| workspace.results_folder().join("profile"));
    if let (true, Some(file)) = (is_service, &options.json) {
        write_stages(workspace, &prepared, options, &profile, file)?;
    }
    write(&folder, "profile.txt", &text)?;
    write(&folder, "profile.folded", &profile.to_text())?;
    write(&folder, "profile.svg", &flames::draw(&profile, &title, &origin))?;
    // Standard output is the program's, if one was run.
    if is_service {
        print!("{text}");
    } else {
        eprint!("{text}");
    }
    eprintln!("tables, flame graph and paths: {}", folder.display());
    if wrong {
        return Err(Failure::new(format!("the profile is wrong: {check}")));
    }
    Ok(status)
}

/// Writes the stages of a request as data.
fn write_stages(
    workspace: &Workspace,
    prepared: &Prepared,
    options: &Options,
    profile: &Profile,
    file: &Path,
) -> Outcome<()> {
    let of_machine = machine(options.mem.clone(), false);
    let mut config = service::provenance(workspace, prepared, &of_machine);
    config.insert("connections".into(), options.connections.into());
    config.insert("requests".into(), options.requests.into());
    let entries = [
        ("bench", Value::from("stages")),
        ("config", config.into()),
        ("rows", stages::rows(profile).into()),
    ];
    let document = entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    service::write_document(&document, file)
}

/// Reads a profile from its file, or from the folder with it.
fn read(path: &Path) -> Outcome<Profile> {
    let file = if path.is_dir() { path.join("profile.folded") } else { path.to_owned() };
    let text =
        std::fs::read_to_string(&file).because(|| format!("cannot read {}", file.display()))?;
    Profile::parse(&text)
}

fn write(folder: &Path, name: &str, text: &str) -> Outcome<()> {
    let file = folder.join(name);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&file, text))
        .because(|| format!("cannot write {}", file.display()))
}

/// A guest, and a QEMU that counts.
pub struct Profiler<'a> {
    prepared: &'a Prepared,
    plugin: PathBuf,
    images: Images,
    scratch: Scratch,
}

/// The profile of a served load.
pub struct Served {
    /// Of all requests: what the second load had more than the first.
    pub profile: Profile,
    /// What led into sleep in both loads together. In the profile it can be negative: the first
    /// load sleeps often if the client is slow to open its connections.
    pub slept: i64,
    /// The kernel's own count of instructions for the same time.
    pub counted: i64,
}

impl Served {
    /// How much more the profile has than the kernel counted, without what the kernel does not
    /// count.
    fn excess(&self) -> i64 {
        self.profile.total() - self.profile.going_to_sleep() - self.counted
    }

    /// Whether the profile has what the kernel counted.
    pub fn is_exact(&self) -> bool {
        let tolerated =
            self.profile.total() / TOLERATED_PART + self.slept / TOLERATED_PART_OF_SLEEP;
        self.excess().abs() <= tolerated
    }

    /// Says so.
    pub fn check(&self) -> String {
        format!(
            "{} instructions without {:+} on the way into sleep; they differ from the kernel's count by {:+.2} per \
             mille",
            self.profile.total() - self.profile.going_to_sleep(),
            self.profile.going_to_sleep(),
            1000.0 * self.excess() as f64 / self.profile.total().max(1) as f64
        )
    }
}

impl<'a> Profiler<'a> {
    /// Builds the plugin, and reads the guest's images.
    pub fn new(workspace: &Workspace, prepared: &'a Prepared, progress: Progress) -> Outcome<Self> {
        check_version(&prepared.qemu)?;
        let images = Images::read(&prepared.guest)?;
        let plugin = host::profiler(workspace, progress)?;
        Ok(Self { prepared, plugin, images, scratch: workspace.scratch()? })
    }

    /// Makes a boot count.
    fn instrument(&self, boot: &mut Boot) {
        let arguments = vec![
            format!("out={}", self.record_file().display()),
            format!("vector={:x}", self.images.trap_vector),
            format!("mark={:x}", self.images.statistics),
        ];
        boot.plugin = Some((self.plugin.clone(), arguments));
    }

    fn record_file(&self) -> PathBuf {
        self.scratch.file("record.txt")
    }

    fn record(&self) -> Outcome<Record> {
        let file = self.record_file();
        let text = std::fs::read_to_string(&file)
            .because(|| "QEMU has written no record: it could not load the plugin".into())?;
        // Not needed any more, and the next run must not find it.
        std::fs::remove_file(&file).because(|| format!("cannot remove {}", file.display()))?;
        Record::parse(&text)
    }

    /// The profile of a program from reset to power-off, and its exit code.
    fn execute(&self, options: &Options) -> Outcome<(Profile, u8)> {
        let machine = machine(options.mem.clone(), options.verbose);
        let mut boot = self.prepared.boot(&machine, &options.argv, &options.add)?;
        boot.make_repeatable();
        if let Some(file) = &options.disk {
            boot.disk = Some(super::disk_image(file)?);
            // The disk is outside of the machine.
            boot.count_instructions = Some(Idle::Waited);
        }
        self.instrument(&mut boot);
        let machine = Machine::start(&self.prepared.qemu, &boot)?;
        let mut sink = PassThrough { show_firmware: options.verbose, show_stdout: true };
        let ending = follow(machine, None, &mut sink);
        super::exec::report(&ending, None);
        let at_end = |times: &[u64]| times.last().map_or(0, |times| times.cast_signed());
        let profile = Profile::of(&self.record()?, &self.images, at_end);
        Ok((profile, ending.exit_status()))
    }

    /// The profile of this many requests on each of this many connections.
    ///
    /// The load runs twice, first with few requests and then with that many more, and the profile
    /// is the difference: opening and closing connections is not in it. The counts are those at
    /// the moments when the kernel reads its counters.
    pub fn serve(
        &self,
        workspace: &Workspace,
        mem: &str,
        connections: u32,
        requests: u32,
    ) -> Outcome<Served> {
        let client = Client::build(workspace, Progress::Transient)?;
        let argv = service::server_arguments(Model::Kcuc, 1);
        let mut boot = self.prepared.boot(&machine(mem.to_owned(), false), &argv, &[])?;
        // The peer is outside of the machine.
        boot.count_instructions = Some(Idle::Waited);
        self.instrument(&mut boot);
        let sink = PassThrough { show_firmware: false, show_stdout: false };
        let (mut server, port) =
            Server::start_on_free_port(&self.prepared.qemu, &boot, service::PORT, sink)?;
        let mut counted = vec![server.statistics()?];
        for requests in [WARM_UP_REQUESTS, WARM_UP_REQUESTS + requests] {
            let load = Load {
                connections,
                matrix: 1,
                pace: Pace::Counted { requests },
                seconds: LIMIT_SECONDS,
                warm_up_seconds: 0,
                settle_seconds: 0,
                drain_seconds: service::DRAIN_SECONDS,
            };
            let mut command = client.load(port, &load, &self.scratch.file("load.json"));
            if !service::drive(&mut server, command.stdout(Stdio::null()))? {
                return Err(Failure::new("the client saw errors in the counted run"));
            }
            counted.push(server.statistics()?);
        }
        server.shut_down();
        let record = self.record()?;
        // The server itself has read the counters before. After the last moment comes the end.
        let Some(first) = record.moments().checked_sub(counted.len()) else {
            return Err(Failure::new("the kernel has printed its counters without reading them"));
        };
        let second_less_first = |times: &[u64]| match times[first..] {
            [start, few, many, _] => (many - few).cast_signed() - (few - start).cast_signed(),
            _ => 0,
        };
        let both = |times: &[u64]| match times[first..] {
            [start, _, many, _] => (many - start).cast_signed(),
            _ => 0,
        };
        let slept = Profile::of(&record, &self.images, both).going_to_sleep();
        let mut profile = Profile::of(&record, &self.images, second_less_first);
        profile.requests = Some(u64::from(connections) * u64::from(requests));
        let growth = |at: usize| counted[at + 1].growth(&counted[at], "instructions");
        Ok(Served { profile, slept, counted: growth(1) - growth(0) })
    }
}

/// Whether these words mean the matrix server instead of a program. What follows a program's name
/// is the program's, but `run` takes no arguments.
fn names_service(argv: &[String]) -> Outcome<bool> {
    match argv {
        [name] if name == "run" => Ok(true),
        [name, rest @ ..] if name == "run" => {
            let rest = rest.join(" ");
            Err(Failure::new(format!("`run` takes no arguments, but there are: {rest}"))
                .advise(format!("options come before it: ./cops profile {rest} run")))
        }
        _ => Ok(false),
    }
}

/// Fails if an option was given that has an effect only on the other kind of argument: a profile
/// would otherwise be taken for one that was made as asked.
fn refuse_unused(options: &Options, is_service: bool) -> Outcome<()> {
    let [for_service, for_program] = PROFILE_OPTIONS;
    let unused = if is_service { for_program } else { for_service };
    let Some(option) = options.given.iter().find(|option| unused.contains(option)) else {
        return Ok(());
    };
    let argument = if is_service { "run" } else { "a program" };
    Err(Failure::new(format!("--{option} has no effect on ./cops profile with {argument}"))
        .advise("./cops profile --help says which options are for `run` and which for a program"))
}

fn machine(mem: String, verbose: bool) -> MachineOptions {
    MachineOptions { verbose, ..MachineOptions::new(1, &mem) }
}

/// Whether this version of QEMU has the plugin interface that the profiler is written for.
pub fn check_version(qemu: &Qemu) -> Outcome<()> {
    let [oldest, too_new] = QEMU_VERSIONS;
    match qemu.numbers() {
        Some(numbers) if (oldest..too_new).contains(&numbers) => Ok(()),
        _ => Err(Failure::new(format!("QEMU {} has another plugin interface", qemu.version))
            .advise("QEMU 7.2 to 8.2 is needed; COPS_QEMU names another one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A profile of 980,000 instructions and of `sleep` that lead into sleep, of which both loads
    /// together had 20,000.
    fn served(sleep: i64, counted: i64) -> Served {
        let run_hart = "kernel:cops_kernel::sched::executor::run_hart";
        let text = format!("# requests 1\n{run_hart};kernel:x {sleep}\nkernel:y 980000\n");
        Served { profile: Profile::parse(&text).unwrap(), slept: 20_000, counted }
    }

    #[test]
    fn a_profile_is_exact_up_to_the_edges_of_sleeps() {
        for counted in [980_000, 980_000 - 2700, 980_000 + 2700] {
            assert!(served(20_000, counted).is_exact(), "{counted}");
        }
        for counted in [980_000 - 2701, 980_000 + 2701, 0] {
            assert!(!served(20_000, counted).is_exact(), "{counted}");
        }
    }

    /// The first load slept more often than the second.
    #[test]
    fn a_negative_share_of_sleep_tolerates_no_less() {
        for counted in [980_000 - 2600, 980_000 + 2600] {
            assert!(served(-15_000, counted).is_exact(), "{counted}");
        }
        assert!(!served(-15_000, 980_000 - 2800).is_exact());
    }

    #[test]
    fn an_option_without_effect_is_refused() {
        use crate::cli::{Cli, Command};
        let judged = |words: &str| {
            let words = ["cops", "profile"].into_iter().chain(words.split(' '));
            let Command::Profile(options) = Cli::parse_words(words).unwrap().command else {
                panic!("not profile")
            };
            let is_service = names_service(&options.argv).unwrap();
            refuse_unused(&options, is_service).map_err(|failure| failure.to_string())
        };
        for (words, option) in [
            ("--add d run", "--add"),
            ("--disk d.img run", "--disk"),
            ("--verbose run", "--verbose"),
            ("-v run", "--verbose"),
            ("--json s.json /bin/measure costs", "--json"),
            // Also if it is what is used where nothing is given.
            ("--connections 64 /bin/hello", "--connections"),
            ("--requests 100 /bin/hello", "--requests"),
        ] {
            let failure = judged(words).expect_err(words);
            assert!(failure.contains(&format!("{option} has no effect")), "{words}: {failure}");
        }
        for words in [
            "run",
            "--mem 64M --json s.json --connections 8 --requests 9 --rows 5 --out o run",
            "--mem 64M --add d --add e --disk d.img -v --rows 5 --out o /bin/hello --json -v",
        ] {
            assert_eq!(judged(words), Ok(()), "{words}");
        }
        // With --compare, clap refuses them.
        for option in ["--mem 64M", "--verbose", "--json s", "--add d", "--requests 9"] {
            let words = format!("cops profile --compare a b {option}");
            assert!(Cli::parse_words(words.split(' ')).is_err(), "{words}");
        }
    }

    #[test]
    fn options_after_run_are_refused() {
        let names = |words: &[&str]| {
            names_service(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert!(matches!(names(&["run"]), Ok(true)));
        assert!(matches!(names(&["/bin/echo-server", "run"]), Ok(false)));
        let error = names(&["run", "--out", "x"]).unwrap_err().to_string();
        assert!(error.contains("--out x"), "{error}");
    }
}
