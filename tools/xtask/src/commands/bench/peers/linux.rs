//! Linux with the matrix service: Debian's kernel, and an initramfs with busybox and the servers of
//! `user/linux/peers`.

use std::path::{Path, PathBuf};

use super::super::cpio::archive;
use super::super::linux::{console, folder, program};
use crate::build::linux::package;
use crate::busybox;
use crate::cli::{Machine, Peer};
use crate::commands::Prepared;
use crate::error::{Because, Outcome};
use crate::linux_kernel::{self, LinuxKernel};
use crate::packages;
use crate::qemu::command::Boot;
use crate::qemu::namespace::{GUEST, PREFIX};
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

/// Process 1. The kernel passes the words of its command line that it does not know in the
/// environment.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
for module in /modules/*; do insmod "$module"; done
ip link set lo up
ip address add "$address" dev eth0
ip link set eth0 up
# As many connections and threads as are asked for.
echo 8192 > /proc/sys/net/core/somaxconn
echo 8192 > /proc/sys/net/ipv4/tcp_max_syn_backlog
echo 16384 > /proc/sys/net/core/netdev_max_backlog
echo 262144 > /proc/sys/kernel/threads-max
echo 4194304 > /proc/sys/kernel/pid_max
echo 1048576 > /proc/sys/vm/max_map_count
ulimit -n 65536
# After its start, Linux is busy for a while.
sleep 2
exec /bin/matrix "$model" --workers "$workers"
"#;

/// What is booted.
pub struct Linux {
    kernel: LinuxKernel,
    initramfs: PathBuf,
}

impl Linux {
    /// Fetches kernel and busybox, and builds the servers.
    pub fn prepare(workspace: &Workspace, prepared: &Prepared) -> Outcome<Self> {
        packages::ensure(&[packages::LINUX_GCC], Progress::Lines)?;
        let kernel = linux_kernel::ensure(workspace, Progress::Lines)?;
        let busybox = busybox::ensure(workspace, Progress::Lines)?;
        let built = workspace.target.join("linux-peers");
        std::fs::create_dir_all(&built).because(|| format!("cannot make {}", built.display()))?;
        let mut step = Step::begin(Progress::Lines, "servers for Linux");
        package(workspace, "peers", &["matrix"], &built, &mut step)?;
        step.done();

        let read =
            |file: &Path| std::fs::read(file).because(|| format!("cannot read {}", file.display()));
        let (busybox, matrix) = (read(&busybox)?, read(&built.join("matrix"))?);
        let modules = kernel.network_modules.iter().map(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            Ok((format!("modules/{name}"), read(file)?))
        });
        let modules = modules.collect::<Outcome<Vec<_>>>()?;
        let mut entries = console().to_vec();
        entries.extend(["bin", "proc", "sys", "modules"].map(folder));
        entries.extend([
            program("bin/busybox", &busybox),
            program("bin/matrix", &matrix),
            program("init", INIT.as_bytes()),
        ]);
        entries.extend(modules.iter().map(|(name, contents)| program(name, contents)));
        let initramfs = prepared.scratch_file("initramfs");
        std::fs::write(&initramfs, archive(&entries))
            .because(|| format!("cannot write {}", initramfs.display()))?;
        Ok(Self { kernel, initramfs })
    }

    /// As `uname -r` has it.
    pub fn version(&self) -> &str {
        &self.kernel.version
    }

    /// The boot of a server. `like`: the boot of COPS, of which the machine is.
    pub fn boot(&self, like: &Boot, peer: Peer, machine: &Machine) -> Boot {
        let words = [
            "console=ttyS0".to_owned(),
            "quiet".to_owned(),
            // If process 1 ends, the machine must end too.
            "panic=-1".to_owned(),
            "rdinit=/init".to_owned(),
            format!("model={}", peer.name()),
            format!("workers={}", machine.smp),
            format!("address={GUEST}/{PREFIX}"),
        ];
        Boot {
            kernel: self.kernel.image.clone(),
            root_image: self.initramfs.clone(),
            boot_arguments: words.to_vec(),
            ..like.clone()
        }
    }
}
