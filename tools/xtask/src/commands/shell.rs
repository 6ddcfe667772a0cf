//! `./cops shell`: the guest's shell on this terminal, and forwarding of input in general.

use std::io::Read;

use super::Prepared;
use crate::busybox;
use crate::cli::Shell;
use crate::error::Outcome;
use crate::interrupt;
use crate::qemu::console::{PassThrough, follow};
use crate::qemu::demux::DLE;
use crate::qemu::machine::Machine;
use crate::terminal::Progress;
use crate::workspace::Workspace;

/// Ctrl-A begins a command to this program, as in QEMU and screen.
const ESCAPE: u8 = 0x01;

pub fn run(workspace: &Workspace, options: &Shell) -> Outcome<u8> {
    let mut prepared = Prepared::new(workspace, Progress::Transient)?;
    prepared.busybox = busybox::for_shell(workspace);
    let argv = argv(options.disk.is_some());
    let mut boot = prepared.boot(&options.machine, &argv, &options.add)?;
    boot.disk = options.disk.as_deref().map(super::disk_image).transpose()?;
    let mut machine = Machine::start(&prepared.qemu, &boot)?;
    interrupt::make_terminal_raw()?;
    pass_input(&mut machine);
    let ending = follow(
        machine,
        None,
        &mut PassThrough { show_firmware: options.machine.verbose, show_stdout: true },
    );
    interrupt::restore_terminal();
    super::exec::report(&ending, None);
    Ok(ending.exit_status())
}

/// The first program with its arguments: with a disk, one that serves its file system and starts
/// the shell.
fn argv(has_disk: bool) -> Vec<String> {
    let shell = "/bin/shell".to_owned();
    if has_disk { vec!["/bin/ext4".to_owned(), shell] } else { vec![shell] }
}

/// Forwards standard input to the guest, on a thread of its own, until either ends.
pub fn pass_input(machine: &mut Machine) {
    let Some(mut guest) = machine.take_input() else { return };
    std::thread::spawn(move || {
        let mut escape = Escape::default();
        let mut buffer = [0; 4096];
        let mut stdin = std::io::stdin().lock();
        let is_terminal = std::io::IsTerminal::is_terminal(&stdin);
        while let Ok(length @ 1..) = stdin.read(&mut buffer) {
            let (bytes, leave) = if is_terminal {
                escape.filter(&buffer[..length])
            } else {
                (buffer[..length].to_vec(), false)
            };
            if leave {
                interrupt::leave(0);
            }
            // The guest has ended, which is detected elsewhere.
            if guest.send(&encode(&bytes)).is_err() {
                return;
            }
        }
        let _ = guest.send(&[DLE, b'd']);
    });
}

/// Encodes input: a DLE is doubled.
fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        if byte == DLE {
            encoded.push(DLE);
        }
        encoded.push(byte);
    }
    encoded
}

/// Finds Ctrl-A commands in the input: `x` exits, Ctrl-A sends one Ctrl-A.
#[derive(Debug, Default)]
struct Escape {
    pending: bool,
}

impl Escape {
    /// What to send, and whether to exit.
    fn filter(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut sent = Vec::with_capacity(typed.len());
        for &byte in typed {
            match (std::mem::take(&mut self.pending), byte) {
                (false, ESCAPE) => self.pending = true,
                (false, _) | (true, ESCAPE) => sent.push(byte),
                (true, b'x' | b'X') => return (sent, true),
                (true, _) => sent.extend([ESCAPE, byte]),
            }
        }
        (sent, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_found_across_reads() {
        let mut escape = Escape::default();
        assert_eq!(escape.filter(b"ls\r"), (b"ls\r".to_vec(), false));
        assert_eq!(escape.filter(b"a\x01"), (b"a".to_vec(), false));
        assert_eq!(escape.filter(b"\x01b\x01q"), (b"\x01b\x01q".to_vec(), false));
        assert_eq!(escape.filter(b"c\x01xd"), (b"c".to_vec(), true));
    }

    #[test]
    fn literal_escapes_of_the_line_are_doubled() {
        assert_eq!(encode(b"a\x10b"), b"a\x10\x10b");
    }
}
