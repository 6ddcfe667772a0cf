//! Boots a machine with one hart and runs a program, while more frames arrive than the machine can
//! receive (decision 73). A kernel that receives all it can would never start the program: receive
//! livelock. The machine is a slow one, so that every host can send more than it receives.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::{Case, Context, step};
use crate::cli::Machine as MachineOptions;
use crate::commands::Prepared;
use crate::error::{Because, Outcome};
use crate::qemu::command::{Idle, Network};
use crate::qemu::console::{Ending, Transcript, follow};
use crate::qemu::machine::Machine;

/// A boot with a program takes some seconds on such a machine.
const LIMIT: Duration = Duration::from_secs(120);
/// An instruction takes 2^7 ns: 8 million a second.
const CLOCK_SHIFT: u32 = 7;
/// The MAC address that QEMU gives to its first network card, and the one of the peer.
const MACHINE: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const PEER: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
const MACHINE_IP: [u8; 4] = [10, 77, 0, 2];
const PEER_IP: [u8; 4] = [10, 77, 0, 1];
/// Bytes of an echo request. The answer repeats them, so each costs some time.
const DATA_BYTES: usize = 1400;
/// So often the peer says what its address is: the answers need it.
const FRAMES_PER_REQUEST: u64 = 500;

/// Adds the case, named `name`.
pub fn case(context: &Context<'_>, name: &str) -> Outcome<Case> {
    let mut step = step(name);
    step.detail("running");
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).because(|| "no UDP socket".into())?;
    let of_machine = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).because(|| "no port".into())?;
    let [machine_port, peer_port] = [&of_machine, &peer].map(|socket| {
        socket.local_addr().map(|address| address.port()).because(|| "a socket without port".into())
    });
    let (machine_port, peer_port) = (machine_port?, peer_port?);
    let network = Network::Datagrams { machine: machine_port, peer: peer_port };
    drop(of_machine);
    let ends = AtomicBool::new(false);
    let (ending, transcript, sent) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&peer, machine_port, &ends));
        let result = context.prepared().and_then(|prepared| run_hello(prepared, network));
        ends.store(true, Relaxed);
        let sent = flood.join().unwrap_or(0);
        result.map(|(ending, transcript)| (ending, transcript, sent))
    })?;
    step.detail(&format!("{sent} frames"));
    let mut wrong = Vec::new();
    if !matches!(ending, Ending::Status(0)) {
        wrong.push(format!(
            "{ending:?} beside {sent} frames\n{}\n{}",
            String::from_utf8_lossy(&transcript.kernel),
            String::from_utf8_lossy(&transcript.stdout)
        ));
    }
    Ok(Case::judged(name, &wrong))
}

fn run_hello(prepared: &Prepared, network: Network) -> Outcome<(Ending, Transcript)> {
    let mut boot =
        prepared.boot(&MachineOptions::new(1, "128M"), &["/bin/hello".to_owned()], &[])?;
    boot.count_instructions = Some(Idle::Aligned);
    boot.clock_shift = CLOCK_SHIFT;
    boot.network = network;
    let [a, b, c, d] = MACHINE_IP;
    boot.boot_arguments.push(format!("ip={a}.{b}.{c}.{d}/24"));
    let machine = Machine::start(&prepared.qemu, &boot)?;
    let mut transcript = Transcript::default();
    let ending = follow(machine, Some(Instant::now() + LIMIT), &mut transcript);
    Ok((ending, transcript))
}

/// Sends frames until `ends`, and not longer than twice the limit. Returns their number.
fn flood(peer: &UdpSocket, machine_port: u16, ends: &AtomicBool) -> u64 {
    let to = (Ipv4Addr::LOCALHOST, machine_port);
    let (echo, address) = (echo_request(), arp_request());
    let mut sent = 0;
    let began = Instant::now();
    while !ends.load(Relaxed) && began.elapsed() < 2 * LIMIT {
        let frame = if sent % FRAMES_PER_REQUEST == 0 { &address } else { &echo };
        // Refused before QEMU has the port, and when the host's buffer is full.
        sent += u64::from(peer.send_to(frame, to).is_ok());
    }
    sent
}

fn ethernet(protocol: u16) -> Vec<u8> {
    [&MACHINE[..], &PEER, &protocol.to_be_bytes()].concat()
}

/// Asks for the machine's address, and says what the peer's is.
fn arp_request() -> Vec<u8> {
    let ethernet_ipv4_request = [0, 1, 8, 0, 6, 4, 0, 1];
    let mut frame = ethernet(0x0806);
    for part in [&ethernet_ipv4_request[..], &PEER, &PEER_IP, &[0; 6], &MACHINE_IP] {
        frame.extend_from_slice(part);
    }
    frame
}

/// An ICMP echo request: a ping.
fn echo_request() -> Vec<u8> {
    let mut message = vec![8, 0, 0, 0, 0, 1, 0, 1];
    message.resize(8 + DATA_BYTES, 7);
    seal(&mut message, 2);
    let length = (20 + message.len()) as u16;
    let mut header = vec![0x45, 0];
    header.extend_from_slice(&length.to_be_bytes());
    header.extend_from_slice(&[0, 0, 0x40, 0, 64, 1, 0, 0]);
    header.extend_from_slice(&PEER_IP);
    header.extend_from_slice(&MACHINE_IP);
    seal(&mut header, 10);
    [ethernet(0x0800), header, message].concat()
}

/// Writes the checksum at `offset`, where there are zeros (RFC 1071).
fn seal(bytes: &mut [u8], offset: usize) {
    let sum = !checksum(bytes);
    bytes[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frames_are_well_formed() {
        assert_eq!(arp_request().len(), 14 + 28);
        let echo = echo_request();
        assert_eq!(echo.len(), 14 + 20 + 8 + DATA_BYTES);
        assert_eq!([checksum(&echo[14..34]), checksum(&echo[34..])], [0xffff; 2]);
    }
}
