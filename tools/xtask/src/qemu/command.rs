//! The command line of QEMU, as a pure function of the options.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use super::ports::Forward;

/// Harts that the kernel supports (SPEC 1.1).
pub const HARTS: std::ops::RangeInclusive<u32> = 1..=8;

/// The guest's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// QEMU's own NAT, which needs no privilege. Connections come in through the forwarded ports.
    User(Vec<Forward>),
    /// The same without access to anything outside of the machine.
    Isolated,
    /// No network card: programs have the loopback interface only.
    Absent,
    /// A tap device of the host, which the administrator has created.
    Tap(String),
    /// Each frame is a datagram between two ports of the host's loopback.
    Datagrams { machine: u16, peer: u16 },
}

impl FromStr for Network {
    type Err = String;

    /// `user` or `tap=IFNAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "user" => Ok(Self::User(Vec::new())),
            // The name is part of QEMU's comma-separated option; Linux's limit is 15 characters.
            Some(("tap", name))
                if (1..=15).contains(&name.len()) && !name.contains([',', '/', ' ']) =>
            {
                Ok(Self::Tap(name.to_owned()))
            }
            _ => Err(format!(
                "{text:?} is no network; give user or tap=IFNAME (a tap device of this host)"
            )),
        }
    }
}

/// What an idle guest's clock does while instructions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// It jumps to the next deadline. A run without external input is exactly repeatable
    /// ([`Boot::make_repeatable`]).
    Skipped,
    /// It waits for the host: time-outs towards external peers keep their meaning.
    Waited,
    /// The same, and a guest that computes waits, too: its instructions take the time that they are
    /// said to take, if this host is fast enough.
    Aligned,
}

/// The options of a boot.
#[derive(Debug, Clone)]
pub struct Boot {
    pub kernel: PathBuf,
    pub root_image: PathBuf,
    /// QEMU's model of the harts, with changes: `rv64`, `rv64,zbb=false`.
    pub cpu: &'static str,
    pub harts: u32,
    /// In QEMU's format: `512M`, `2G`.
    pub memory: String,
    pub network: Network,
    pub disk: Option<Disk>,
    /// Words for the kernel: `key=value`.
    pub boot_arguments: Vec<String>,
    /// Counts instructions as time, on one hart.
    pub count_instructions: Option<Idle>,
    /// If instructions are counted: each takes this power of two of nanoseconds.
    pub clock_shift: u32,
    /// The emulator translates each instruction by itself, so that what the machine waits for is
    /// its harts and not this host: it answers a twentieth of the requests.
    pub has_slow_harts: bool,
    /// If instructions are counted: seed of the emulator's random numbers, from which the guest
    /// gets its own seed.
    pub seed: u32,
    /// Start stopped, with a gdb server on this port of the loopback.
    pub gdb_port: Option<u16>,
    /// The plugin that QEMU loads: its file, and its arguments.
    pub plugin: Option<(PathBuf, Vec<String>)>,
}

/// The guest's disk.
#[derive(Debug, Clone)]
pub struct Disk {
    /// A file of this host with its contents.
    pub file: PathBuf,
    /// As slow as this; as fast as the host can if `None`.
    pub requests_per_second: Option<u32>,
}

/// The devices of the machine are those of the current standard.
pub const MODERN_DEVICES: [&str; 2] = ["-global", "virtio-mmio.force-legacy=false"];

/// A value of an option: QEMU takes two commas for one within it.
fn escaped(text: &str) -> String {
    text.replace(',', ",,")
}

impl Disk {
    /// QEMU's arguments for this disk, which is `/dev/vda`.
    pub fn arguments(&self) -> [String; 4] {
        let file = escaped(&self.file.to_string_lossy());
        let limit = self.requests_per_second.map(|limit| format!(",throttling.iops-total={limit}"));
        let drive = format!("if=none,id=disk0,format=raw,file={file}{}", limit.unwrap_or_default());
        ["-drive".into(), drive, "-device".into(), "virtio-blk-device,drive=disk0".into()]
    }
}

impl Boot {
    /// Makes the run depend on nothing but the seed: one hart, time is counted instructions, no
    /// network card. Even a network that leads nowhere would answer DHCP from another thread of
    /// the emulator, at a moment that depends on how busy the host is.
    pub fn make_repeatable(&mut self) {
        self.count_instructions = Some(Idle::Skipped);
        self.harts = 1;
        self.network = Network::Absent;
    }

    /// QEMU's arguments.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
        add(&["-machine", "virt", "-cpu", self.cpu]);
        add(&["-smp", &self.harts.to_string(), "-m", &self.memory]);
        // Not -nographic, which puts QEMU's monitor on the serial line, where a Ctrl-A in the data
        // would reach it.
        add(&["-display", "none", "-monitor", "none", "-serial", "stdio"]);
        // A guest that resets itself has crashed: end instead of restarting.
        add(&["-no-reboot"]);
        if let Some(idle) = self.count_instructions {
            let idle = match idle {
                Idle::Skipped => "sleep=off",
                Idle::Waited => "sleep=on",
                Idle::Aligned => "sleep=on,align=on",
            };
            add(&["-icount", &format!("shift={},{idle}", self.clock_shift)]);
        }
        if self.count_instructions.is_some() {
            // The machine's entropy and date must be the same in each run, so that the run is
            // exactly repeatable.
            let seed = self.seed.to_string();
            add(&["-seed", &seed, "-rtc", "base=2026-01-01T00:00:00,clock=vm"]);
        }
        if let Some(port) = self.gdb_port {
            add(&["-S", "-gdb", &format!("tcp:127.0.0.1:{port}")]);
        }
        if let Some((file, options)) = &self.plugin {
            let options = options.iter().map(|option| format!(",{}", escaped(option)));
            let file = escaped(&file.to_string_lossy());
            add(&["-plugin", &format!("file={file}{}", options.collect::<String>())]);
        }
        add(&MODERN_DEVICES);
        if self.count_instructions.is_none() {
            // Not where a run is to repeat: its answer comes from another thread of the emulator.
            add(&["-device", "virtio-rng-device"]);
        }
        if let Some(netdev) = self.netdev() {
            add(&["-netdev", &netdev, "-device", "virtio-net-device,netdev=net0"]);
        }
        if let Some(disk) = &self.disk {
            add(&disk.arguments().each_ref().map(String::as_str));
        }
        add(&["-append", &self.boot_arguments.join(" ")]);
        arguments.extend(["-kernel".into(), self.kernel.clone().into_os_string()]);
        arguments.extend(["-initrd".into(), self.root_image.clone().into_os_string()]);
        arguments
    }

    /// The host's side of the network card, if there is one.
    fn netdev(&self) -> Option<String> {
        Some(match &self.network {
            Network::User(forwards) => {
                forwards.iter().fold("user,id=net0".to_owned(), |netdev, forward| {
                    format!("{netdev},hostfwd=tcp:127.0.0.1:{}-:{}", forward.host, forward.guest)
                })
            }
            Network::Isolated => "user,id=net0,restrict=on".to_owned(),
            Network::Tap(name) => format!("tap,id=net0,ifname={name},script=no,downscript=no"),
            Network::Datagrams { machine, peer } => {
                format!("socket,id=net0,udp=127.0.0.1:{peer},localaddr=127.0.0.1:{machine}")
            }
            Network::Absent => return None,
        })
    }
}

/// Validates a memory size before it is passed to QEMU.
pub fn parse_memory(text: &str) -> Result<String, String> {
    let digits = text.trim_end_matches(['M', 'G']);
    let is_size =
        text.len() - digits.len() == 1 && digits.parse::<u32>().is_ok_and(|number| number > 0);
    if is_size {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is no memory size; give a number with M or G, as in 512M"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot() -> Boot {
        Boot {
            kernel: "/k".into(),
            root_image: "/r".into(),
            cpu: "rv64",
            harts: 4,
            memory: "512M".into(),
            network: Network::User(vec![
                Forward { host: 18, guest: 9000 },
                Forward { host: 19, guest: 7 },
            ]),
            disk: None,
            boot_arguments: vec!["console=mux".into(), "loglevel=warn".into()],
            count_instructions: None,
            clock_shift: 0,
            has_slow_harts: false,
            seed: 5,
            gdb_port: None,
            plugin: None,
        }
    }

    fn line(boot: &Boot) -> String {
        boot.arguments()
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn the_whole_command_line() {
        assert_eq!(
            line(&boot()),
            "-machine virt -cpu rv64 -smp 4 -m 512M -display none -monitor none -serial stdio -no-reboot \
             -global virtio-mmio.force-legacy=false -device virtio-rng-device \
             -netdev user,id=net0,hostfwd=tcp:127.0.0.1:18-:9000,hostfwd=tcp:127.0.0.1:19-:7 \
             -device virtio-net-device,netdev=net0 -append console=mux loglevel=warn -kernel /k -initrd /r"
        );
    }

    #[test]
    fn options_show_up_where_they_are_wanted() {
        let mut boot = boot();
        boot.count_instructions = Some(Idle::Skipped);
        boot.gdb_port = Some(1234);
        boot.disk = Some(Disk { file: "/a,b/disk".into(), requests_per_second: Some(2000) });
        boot.plugin = Some(("/a,b/p.so".into(), vec!["out=/c,d".into(), "mark=1".into()]));
        boot.network = Network::Tap("tap0".into());
        let line = line(&boot);
        for part in [
            "-drive if=none,id=disk0,format=raw,file=/a,,b/disk,throttling.iops-total=2000 -device virtio-blk-device,drive=disk0",
            "-icount shift=0,sleep=off -seed 5 -rtc base=2026-01-01T00:00:00,clock=vm",
            "-S -gdb tcp:127.0.0.1:1234",
            "-plugin file=/a,,b/p.so,out=/c,,d,mark=1 -global",
            "-netdev tap,id=net0,ifname=tap0,script=no",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }

    #[test]
    fn a_slow_clock_is_the_emulators() {
        let slow = Boot { count_instructions: Some(Idle::Waited), clock_shift: 3, ..boot() };
        assert!(line(&slow).contains("-icount shift=3,sleep=on"));
    }

    #[test]
    fn an_isolated_machine_reaches_nothing() {
        let line = line(&Boot { network: Network::Isolated, ..boot() });
        assert!(line.contains("-netdev user,id=net0,restrict=on -device"), "{line}");
    }

    #[test]
    fn a_repeatable_run_has_nothing_that_another_thread_of_the_emulator_answers() {
        let mut boot = boot();
        boot.make_repeatable();
        let line = line(&boot);
        assert!(line.contains("-smp 1 ") && line.contains("-icount shift=0,sleep=off -seed 5"));
        for device in ["-device", "-netdev"] {
            assert!(!line.contains(device), "{device} is in {line}");
        }
    }

    #[test]
    fn networks_and_memory_sizes_are_checked() {
        assert_eq!("user".parse(), Ok(Network::User(vec![])));
        assert_eq!("tap=tap0".parse(), Ok(Network::Tap("tap0".into())));
        for wrong in ["", "tap", "tap=", "tap=a,b", "tap=0123456789abcdef", "user=1", "bridge"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong:?}");
        }
        assert_eq!(parse_memory("2G"), Ok("2G".into()));
        for wrong in ["", "M", "512", "0M", "-1M", "5MM", "1GM", "4K", "512M,maxmem=1G"] {
            assert!(parse_memory(wrong).is_err(), "{wrong:?}");
        }
    }
}
