//! Reads and writes of files on an ext4 disk, by the number of coroutines or threads that make
//! them: the native `measure files` and the Linux program `user/linux/files.c` on COPS, and the
//! same Linux program on Linux. The contestants take turns in boots of their own, each with a fresh
//! copy of the same disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Rows;
use super::cpio::archive;
use super::linux;
use super::table::Table;
use super::words::{Line, listen_to_success};
use crate::build::linux::compile;
use crate::cli::Bench;
use crate::commands::Prepared;
use crate::error::{Because, Failure, Outcome};
use crate::linux_kernel::{self, LinuxKernel};
use crate::packages;
use crate::process::run_step;
use crate::qemu::command::{Disk, MODERN_DEVICES, Network};
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

/// The Linux program.
const PROGRAM: &str = "files";
/// Where the file system of the disk is, on both systems.
const PLACE: &str = "/disk";
/// Size of each file, a power of two.
const MEBIBYTES: u64 = 16;
/// How often a row transfers its file, unless it is cold.
const ROUNDS: u64 = 2;
/// The names of the files, and the numbers in their first words.
const FILES: [(&str, u64); 7] =
    [("0", 0), ("1", 1), ("2", 2), ("3", 3), ("4", 4), ("5", 5), ("data", 15)];
/// Size of the disk, which has room for all files and the structures of ext4.
const DISK_BYTES: u64 = 192 << 20;
/// Boots of each contestant.
const BOOTS: usize = 5;
/// Time limit of a boot; not a criterion.
const LIMIT: Duration = Duration::from_secs(900);

const PAGE: u64 = 4096;

/// A system with a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contestant {
    Coroutines,
    Threads,
    Linux,
}

impl Contestant {
    const ALL: [Self; 3] = [Self::Coroutines, Self::Threads, Self::Linux];

    /// Its name in the data.
    fn name(self) -> &'static str {
        match self {
            Self::Coroutines => "cops_coroutines",
            Self::Threads => "cops_threads",
            Self::Linux => "linux_threads",
        }
    }

    /// Its name for readers.
    fn title(self) -> &'static str {
        match self {
            Self::Coroutines => "COPS, coroutines",
            Self::Threads => "COPS, threads",
            Self::Linux => "Linux, threads",
        }
    }
}

/// What a row measures.
#[derive(Debug, Clone, PartialEq, Eq)]
struct What {
    operation: String,
    order: String,
    cache: String,
    bytes: u64,
    tasks: u64,
    requests: u64,
}

/// A row: the times of each contestant in nanoseconds, one for each boot.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    what: What,
    times: [Vec<u64>; 3],
}

impl Row {
    /// The median time in nanoseconds; `None` if it was not measured.
    fn nanoseconds(&self, contestant: Contestant) -> Option<f64> {
        let mut times = self.times[contestant as usize].clone();
        times.sort_unstable();
        let middle = times.len() / 2;
        let upper = *times.get(middle)? as f64;
        let lower = if times.len().is_multiple_of(2) { times[middle - 1] as f64 } else { upper };
        Some((lower + upper) / 2.0)
    }

    /// The throughput at the median.
    fn mebibytes_per_second(&self, contestant: Contestant) -> Option<f64> {
        let mebibytes = (self.what.requests * self.what.bytes) as f64 / f64::from(1 << 20);
        self.nanoseconds(contestant).map(|time| mebibytes / (time / 1e9))
    }

    /// The median time in relation to that of Linux.
    fn ratio(&self, contestant: Contestant) -> Option<f64> {
        Some(self.nanoseconds(contestant)? / self.nanoseconds(Contestant::Linux)?)
    }
}

/// What was measured.
pub struct Measured {
    pub rows: Rows,
    /// The version of the kernel of Linux. `None`: only COPS was measured.
    pub linux: Option<String>,
    /// The report in Markdown, if all were measured.
    pub report: Option<String>,
}

/// Measures and prints.
pub fn measure(workspace: &Workspace, prepared: &Prepared, options: &Bench) -> Outcome<Measured> {
    packages::ensure(&[packages::LINUX_GCC, packages::E2FSPROGS], Progress::Lines)?;
    let kernel = match linux_kernel::ensure(workspace, Progress::Lines) {
        Ok(kernel) => Some(kernel),
        Err(error) => {
            eprintln!(
                "cops: the kernel of Linux cannot be fetched, only COPS is measured:\n{error}"
            );
            None
        }
    };
    let setup = Setup {
        prepared,
        options,
        program: build(workspace)?,
        disk: make_disk(prepared)?,
        kernel: kernel.as_ref(),
    };
    let boots = if options.quick { 1 } else { BOOTS };
    let mut measured = Vec::new();
    for boot in 0..boots {
        for turn in 0..Contestant::ALL.len() {
            // Another one is the first each time.
            let contestant = Contestant::ALL[(boot + turn) % Contestant::ALL.len()];
            if contestant != Contestant::Linux || kernel.is_some() {
                let name = format!("{}, boot {} of {boots}", contestant.title(), boot + 1);
                measured.push((contestant, setup.run(contestant, &name)?));
            }
        }
    }
    let rows = gather(&measured)?;
    println!("MiB/s\n{}", table(&rows).plain());
    let machine = &options.machine;
    let report = kernel.as_ref().map(|kernel| report(&kernel.version, machine.smp, boots, &rows));
    let rows = rows.iter().map(data).collect();
    Ok(Measured { rows, linux: kernel.map(|kernel| kernel.version), report })
}

/// Builds the program into a folder that contains nothing else.
fn build(workspace: &Workspace) -> Outcome<PathBuf> {
    let folder = workspace.target.join("linux-files");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).because(|| format!("cannot make {}", folder.display()))?;
    let mut step = Step::begin(Progress::Lines, "a program for Linux");
    compile(workspace, PROGRAM, &folder, &mut step)?;
    step.done();
    Ok(folder)
}

/// Makes a disk with the files that the programs read.
fn make_disk(prepared: &Prepared) -> Outcome<PathBuf> {
    let (folder, disk) = (prepared.scratch_file("files"), prepared.scratch_file("files.disk"));
    let cannot = || format!("cannot make {}", folder.display());
    std::fs::create_dir_all(&folder).because(cannot)?;
    for (name, number) in FILES {
        std::fs::write(folder.join(name), contents(number)).because(cannot)?;
    }
    let file =
        std::fs::File::create(&disk).because(|| format!("cannot make {}", disk.display()))?;
    file.set_len(DISK_BYTES).because(|| format!("cannot make {}", disk.display()))?;
    let mut step = Step::begin(Progress::Lines, "mkfs.ext4");
    let place = Path::new("/usr/sbin/mkfs.ext4");
    let mut command = Command::new(if place.exists() { place } else { Path::new("mkfs.ext4") });
    command.env("LC_ALL", "C").args(["-q", "-F", "-b", "4096", "-O", "^orphan_file"]);
    // Otherwise Linux would write them while it is measured.
    command.args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
    run_step(command.arg("-d").arg(&folder).arg(&disk), &mut step)?;
    step.done();
    let _ = std::fs::remove_dir_all(&folder);
    Ok(disk)
}

/// The contents of a file: in the first and the last word of each page is its position, plus the
/// number of the file.
fn contents(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; (MEBIBYTES << 20) as usize];
    for (page, start) in bytes.chunks_exact_mut(PAGE as usize).zip((0..).step_by(PAGE as usize)) {
        let first = (number << 32) + start;
        page[..8].copy_from_slice(&first.to_le_bytes());
        page[PAGE as usize - 8..].copy_from_slice(&(first + PAGE - 8).to_le_bytes());
    }
    bytes
}

/// What all boots have in common.
struct Setup<'a> {
    prepared: &'a Prepared,
    options: &'a Bench,
    /// The folder with the Linux program.
    program: PathBuf,
    /// The disk that is copied for each boot.
    disk: PathBuf,
    kernel: Option<&'a LinuxKernel>,
}

impl Setup<'_> {
    /// A boot of the contestant; returns its lines.
    fn run(&self, contestant: Contestant, name: &str) -> Outcome<Vec<Line>> {
        let mut step = Step::begin(Progress::Lines, name);
        let file = self.prepared.scratch_file("files.copy");
        std::fs::copy(&self.disk, &file).because(|| format!("cannot make {}", file.display()))?;
        let disk = Disk { file, requests_per_second: None };
        let arguments = [PLACE.to_owned(), MEBIBYTES.to_string(), ROUNDS.to_string()];
        let lines = match (contestant, self.kernel) {
            (Contestant::Coroutines, _) => {
                self.on_cops(&["/bin/ext4", "/bin/measure", "files"], &arguments, disk)?
            }
            (Contestant::Threads, _) => self.on_cops(&["/bin/ext4", "/files"], &arguments, disk)?,
            (Contestant::Linux, Some(kernel)) => {
                self.on_linux(kernel, &arguments, &disk, &mut step)?
            }
            (Contestant::Linux, None) => Vec::new(),
        };
        step.done();
        Ok(lines)
    }

    fn on_cops(&self, words: &[&str], arguments: &[String], disk: Disk) -> Outcome<Vec<Line>> {
        let argv: Vec<String> =
            words.iter().map(ToString::to_string).chain(arguments.iter().cloned()).collect();
        let added = [self.program.clone()];
        let mut boot = self.prepared.boot(&self.options.machine, &argv, &added)?;
        boot.network = Network::Absent;
        boot.disk = Some(disk);
        listen_to_success(&self.prepared.qemu, &boot, LIMIT)
    }

    fn on_linux(
        &self,
        kernel: &LinuxKernel,
        arguments: &[String],
        disk: &Disk,
        step: &mut Step,
    ) -> Outcome<Vec<Line>> {
        let read =
            |file: &Path| std::fs::read(file).because(|| format!("cannot read {}", file.display()));
        let init = read(&self.program.join(PROGRAM))?;
        let modules = kernel.modules.iter().map(|file| read(file)).collect::<Outcome<Vec<_>>>()?;
        let names: Vec<String> = kernel
            .modules
            .iter()
            .filter_map(|file| file.file_name())
            .map(|name| format!("modules/{}", name.to_string_lossy()))
            .collect();
        let arguments = arguments.join("\n");
        let mut entries = linux::console().to_vec();
        entries.extend([linux::folder("disk"), linux::folder("modules")]);
        entries.extend([linux::program("init", &init)]);
        entries.push(linux::program("arguments", arguments.as_bytes()));
        entries.extend(names.iter().zip(&modules).map(|(name, bytes)| linux::program(name, bytes)));
        let machine =
            linux::Machine { harts: self.options.machine.smp, memory: &self.options.machine.mem };
        let more: Vec<String> =
            MODERN_DEVICES.iter().map(ToString::to_string).chain(disk.arguments()).collect();
        let root = archive(&entries);
        linux::run(self.prepared, kernel, &machine, &more, &root, LIMIT, step)
    }
}

/// The row of a line, and its time.
fn parse(line: &Line) -> Outcome<(What, u64)> {
    let what = What {
        operation: line.text("operation").to_owned(),
        order: line.text("order").to_owned(),
        cache: line.text("cache").to_owned(),
        bytes: line.number("bytes")?,
        tasks: line.number("tasks")?,
        requests: line.number("requests")?,
    };
    Ok((what, line.number("nanoseconds")?.max(1)))
}

/// The rows of all boots, which must be the same in each.
fn gather(boots: &[(Contestant, Vec<Line>)]) -> Outcome<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, (contestant, lines)) in boots.iter().enumerate() {
        let lines = lines.iter().filter(|line| line.tag == "files");
        let found = lines.map(parse).collect::<Outcome<Vec<_>>>()?;
        if index == 0 {
            let new =
                |(what, _): &(What, u64)| Row { what: what.clone(), times: Default::default() };
            rows = found.iter().map(new).collect();
        }
        if rows.is_empty()
            || !rows.iter().map(|row| &row.what).eq(found.iter().map(|(what, _)| what))
        {
            return Err(Failure::new("the rows of two boots are not the same"));
        }
        for (row, (_, time)) in rows.iter_mut().zip(found) {
            row.times[*contestant as usize].push(time);
        }
    }
    Ok(rows)
}

/// The table of the rows, without units.
fn table(rows: &[Row]) -> Table {
    let titles = Contestant::ALL.map(Contestant::title);
    let heading = ["operation", "order", "cache", "tasks"];
    let ratios = ["ratio, coroutines", "ratio, threads"];
    let heading = [&heading[..], &titles, &ratios].concat();
    let mut table = Table::new(3, &heading);
    let shown = |number: Option<f64>, decimals: usize| {
        number.map_or_else(|| "-".to_owned(), |number| format!("{number:.decimals$}"))
    };
    for row in rows {
        let what = &row.what;
        let texts = [&what.operation, &what.order, &what.cache].map(Clone::clone);
        let speeds = Contestant::ALL.map(|one| shown(row.mebibytes_per_second(one), 1));
        let ratios = [Contestant::Coroutines, Contestant::Threads];
        let ratios = ratios.map(|one| shown(row.ratio(one), 2));
        table.add(texts.into_iter().chain([what.tasks.to_string()]).chain(speeds).chain(ratios));
    }
    table
}

fn report(version: &str, harts: u32, boots: usize, rows: &[Row]) -> String {
    let machine = if harts == 1 { "one hart".to_owned() } else { format!("{harts} harts") };
    format!(
        "# Reading and writing files\n\n\
         MiB per second, in requests of 64 KiB in sequential order and of 4 KiB in random order, of \
         files of {MEBIBYTES} MiB on an ext4 disk. `tasks` coroutines or threads make them, each \
         one after the other. The coroutines are those of a native program (`/bin/measure files`); \
         the threads are those of the static program `user/linux/files.c`, which runs unmodified \
         on COPS and on Debian's Linux {version} for riscv64. All three run in the same QEMU with \
         {machine}, the same memory, and a disk of the same contents and settings: \
         `virtio-blk`, and QEMU's default `cache=writeback`, so that what the machine reads from \
         its disk is in memory of the host. A `cold` file has not been read since the boot, and \
         each block of it is read once. A `warm` file has been read before, and is read or \
         written {ROUNDS} times. A write ends with an `fsync`, which is in its time. Contents are \
         checked. Time is wall time; each number is the median of {boots} boots, between which \
         the systems take turns. `ratio` is the time of COPS divided by that of Linux: less than \
         1 if COPS is faster.\n\n{}",
        table(rows).markdown()
    )
}

/// The row as data, with each boot's time.
fn data(row: &Row) -> Map<String, Value> {
    let What { operation, order, cache, bytes, tasks, requests } = &row.what;
    let mut map = Map::new();
    for (name, value) in [("operation", operation), ("order", order), ("cache", cache)] {
        map.insert(name.into(), value.clone().into());
    }
    for (name, value) in [("bytes", bytes), ("tasks", tasks), ("requests", requests)] {
        map.insert(name.into(), (*value).into());
    }
    for contestant in Contestant::ALL {
        if let Some(speed) = row.mebibytes_per_second(contestant) {
            let times = &row.times[contestant as usize];
            let mut of = json!({ "nanoseconds": times, "mebibytes_per_second": speed });
            if let (true, Some(ratio)) = (contestant != Contestant::Linux, row.ratio(contestant)) {
                of["ratio"] = ratio.into();
            }
            map.insert(contestant.name().into(), of);
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(nanoseconds: u64) -> Vec<Line> {
        let text = format!(
            "files: operation=read order=random cache=warm bytes=4096 tasks=16 requests=2560 \
             nanoseconds={nanoseconds}\r\nall rows\r\n"
        );
        text.lines().filter_map(Line::parse).collect()
    }

    #[test]
    fn rows_have_medians_and_ratios() {
        use Contestant::*;
        let times =
            [(Linux, 300), (Coroutines, 700), (Linux, 100), (Threads, 50), (Coroutines, 500)];
        let boots = times.map(|(one, milliseconds)| (one, lines(milliseconds * 1_000_000)));
        let rows = gather(&boots).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].nanoseconds(Linux), Some(200e6));
        assert_eq!(rows[0].mebibytes_per_second(Linux), Some(50.0));
        assert_eq!((rows[0].ratio(Coroutines), rows[0].ratio(Threads)), (Some(3.0), Some(0.25)));
        let row = data(&rows[0]);
        assert_eq!(row["cops_coroutines"]["nanoseconds"], json!([700_000_000, 500_000_000]));
        assert_eq!(row["cops_coroutines"]["ratio"], 3.0);
        let text = report("6.1", 1, 2, &rows);
        assert!(
            text.contains("| read | random | warm | 16 | 16.7 | 200.0 | 50.0 | 3.00 | 0.25 |"),
            "{text}"
        );
    }

    #[test]
    fn without_linux_there_are_no_ratios() {
        let rows = gather(&[(Contestant::Threads, lines(1_000_000_000))]).unwrap();
        assert_eq!(rows[0].ratio(Contestant::Threads), None);
        assert!(table(&rows).plain().contains("10.0"));
        assert!(!data(&rows[0]).contains_key("linux_threads"));
    }

    #[test]
    fn rows_that_do_not_match_are_an_error() {
        let good = (Contestant::Linux, lines(1));
        let mut two = lines(1);
        two.extend(lines(1));
        for other in [Vec::new(), two] {
            assert!(gather(&[good.clone(), (Contestant::Threads, other)]).is_err());
        }
        assert!(gather(&[(Contestant::Linux, Vec::new())]).is_err());
    }

    #[test]
    fn a_file_has_its_positions() {
        let bytes = contents(15);
        assert_eq!(bytes.len() as u64, MEBIBYTES << 20);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(
            (word(0), word(4096), word(8184)),
            (15 << 32, (15 << 32) + 4096, (15 << 32) + 8184)
        );
    }
}
