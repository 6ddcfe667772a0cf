//! Frames of an attacker: random ones, and valid ones with a few bytes changed.
//!
//! Tests are built with overflow checks and debug assertions, including smoltcp, so an overflow
//! that would be a wrong number in the kernel is a panic here.

mod common;

use common::*;
use cops_net::{Connection, Listener, Shutdown};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

/// A world with every kind of socket open at `b`, and all frames of a long exchange.
struct Scene {
    world: World,
    recorded: Vec<Vec<u8>>,
    client: Connection,
    server: Connection,
    listener: Listener,
}

fn scene() -> Scene {
    let mut world = World::new();
    let recording = Arc::new(Mutex::new(Vec::new()));
    let tape = recording.clone();
    world.a.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
        tape.lock().unwrap().push(frame.to_vec());
        true
    }));
    let listener = world.b.stack.listen(address("[::]:7"), 8).unwrap();
    let (client, server) = world.pair_at(&listener, address("10.0.0.2:7"));
    let (client6, server6) = world.pair_at(&listener, address("[fd00::2]:7"));
    let mut transfer = Transfer::new(10_000);
    assert!(world.run_until(60 * SECOND, |_| transfer.pump(&client, &server)));
    for _ in 0..6 {
        client.try_send(b"request").unwrap();
        assert!(world.run_until(SECOND, |_| server.try_receive(&mut [0; 9]) == Ok(7)));
        server.try_send(b"answer").unwrap();
        assert!(world.run_until(SECOND, |_| client.try_receive(&mut [0; 9]) == Ok(6)));
    }
    let on_the_fast_path = world.b.stack.statistics();
    assert!(on_the_fast_path.fast_path_entered > on_the_fast_path.fast_path_left);
    client6.try_send(b"over version six").unwrap();
    let datagrams = world.b.stack.bind_udp(address("[::]:53")).unwrap();
    let sender = world.a.stack.bind_udp(address("[::]:0")).unwrap();
    for remote in ["10.0.0.2:53", "10.0.0.2:54", "[fd00::2]:53", "[fd00::2]:54"] {
        sender.try_send_to(b"datagram", address(remote)).unwrap();
    }
    world.run_for(SECOND);
    client6.shutdown(Shutdown::Write).unwrap();
    world.run_for(SECOND);
    drop((client6, server6, sender, datagrams));
    world.run_for(SECOND);
    let mut recorded = std::mem::take(&mut *recording.lock().unwrap());
    // An echo request of each IP version, which the stacks answer but never send.
    recorded.push(echo_request());
    Scene { world, recorded, client, server, listener }
}

fn echo_request() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 36, 0, 0, 0x40, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([8, 0, 0, 0, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
    repair_checksums(&mut frame);
    frame
}

/// The Internet checksum over `parts`.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Corrects the checksums of a damaged frame as far as it can be parsed, so that the damage is not
/// simply detected by a checksum.
fn repair_checksums(frame: &mut [u8]) {
    let version = frame.get(14).map(|byte| byte >> 4);
    let (protocol, start, addresses) = match version {
        Some(4) if frame.len() >= 34 => {
            let header = usize::from(frame[14] & 15) * 4;
            if header < 20 || frame.len() < 14 + header {
                return;
            }
            frame[24..26].fill(0);
            let sum = checksum(&[&frame[14..14 + header]]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            (frame[23], 14 + header, 26..34)
        }
        Some(6) if frame.len() >= 54 => (frame[20], 54, 22..54),
        _ => return,
    };
    let end = match version {
        Some(4) => 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]])),
        _ => 54 + usize::from(u16::from_be_bytes([frame[18], frame[19]])),
    };
    let Some(body) = frame.get(start..end) else { return };
    let offset = match protocol {
        6 => 16,
        17 => 6,
        1 | 58 => 2,
        _ => return,
    };
    if body.len() < offset + 2 {
        return;
    }
    let length = body.len() as u32;
    let mut pseudo = frame[addresses].to_vec();
    pseudo.extend(length.to_be_bytes());
    pseudo.extend([0, 0, 0, protocol]);
    if protocol == 1 {
        pseudo.clear();
    }
    frame[start + offset..start + offset + 2].fill(0);
    let sum = checksum(&[&pseudo, &frame[start..end]]);
    frame[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Afterwards, the listener still serves, and no memory or timer is left.
fn still_in_order(mut scene: Scene) {
    let Scene { world, .. } = &mut scene;
    world.run_for(2 * SECOND);
    while scene.listener.try_accept().is_ok() {}
    drop((scene.client, scene.server));
    let world = &mut scene.world;
    world.run_for(400 * SECOND);
    while scene.listener.try_accept().is_ok() {}
    world.run_for(400 * SECOND);
    assert_eq!(world.b.stack.statistics().connections_now, 0);
    let (client, server) = world.pair(&scene.listener);
    client.try_send(b"alive").unwrap();
    assert!(world.run_until(5 * SECOND, |_| server.unread_bytes() == 5));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..200)) {
        let scene = scene();
        for mut frame in frames {
            scene.world.b.stack.receive(&frame);
            // The same after a valid Ethernet header.
            for kind in [[8, 0], [8, 6], [0x86, 0xdd]] {
                let mut framed = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
                framed.extend(kind);
                if let Some(first) = frame.first_mut() {
                    *first = if kind[0] == 8 { 0x45 } else { 0x60 };
                }
                framed.extend(&frame);
                scene.world.b.stack.receive(&framed);
                repair_checksums(&mut framed);
                scene.world.b.stack.receive(&framed);
            }
        }
        still_in_order(scene);
    }

    #[test]
    fn real_frames_with_changes(
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), any::<prop::sample::Index>(), 0..4_u8),
            50..400,
        ),
    ) {
        let scene = scene();
        for (which, bytes, cut, style) in changes {
            let mut frame = which.get(&scene.recorded).clone();
            let header = frame.len().min(74);
            for (at, value) in bytes {
                // Mostly in headers, because the payload has no effect.
                let index = at.index(header);
                frame[index] = if style == 0 { frame[index] ^ (1 << (value & 7)) } else { value };
            }
            if style == 3 {
                frame.truncate(cut.index(frame.len() + 1));
            }
            scene.world.b.stack.receive(&frame);
            // Changes that leave the addresses intact reach further.
            if frame.len() > 14 {
                frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
            }
            repair_checksums(&mut frame);
            scene.world.b.stack.receive(&frame);
        }
        still_in_order(scene);
    }

    /// Arbitrary flags, numbers and options in segments for the live connection, in every state
    /// that the connection can have.
    #[test]
    fn arbitrary_segments_for_a_live_connection(
        segments in prop::collection::vec(
            (any::<u8>(), -5000..5000_i32, -5000..5000_i32, any::<u16>(), 0..100_usize, 0..40_u8),
            1..200,
        ),
    ) {
        receive_segments(segments);
    }
}

/// Flags, distance of both numbers from the right ones, window, bytes, and what the programs do
/// next.
type Change = (u8, i32, i32, u16, usize, u8);

/// The last segment of the live connection that `a` has sent: an acknowledgement.
fn last_segment(scene: &Scene) -> Vec<u8> {
    let port = scene.client.local_address().port();
    let last = scene.recorded.iter().rev().find(|frame| {
        frame[12..14] == [8, 0] && frame.get(23) == Some(&6) && frame[34..36] == port.to_be_bytes()
    });
    last.unwrap().clone()
}

/// The segment with other numbers, and with `length` bytes.
fn changed(segment: &[u8], sequence: i32, acknowledgement: i32, length: usize) -> Vec<u8> {
    let number = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().unwrap());
    let mut frame = segment[..54].to_vec();
    frame.extend(vec![0x55; length]);
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[38..42].copy_from_slice(&number(38).wrapping_add_signed(sequence).to_be_bytes());
    frame[42..46].copy_from_slice(&number(42).wrapping_add_signed(acknowledgement).to_be_bytes());
    frame[46] = 0x50;
    repair_checksums(&mut frame);
    frame
}

/// A peer asks for a closed window in three ways. Each gets the answer that it is closed, and the
/// connection stays on the fast path. A duplicate acknowledgement is no question: two ends that
/// answered each other's would never stop.
#[test]
fn questions_for_a_closed_window_are_answered_on_the_fast_path() {
    let mut scene = scene();
    let Scene { world, client, server, .. } = &mut scene;
    let last = Arc::new(Mutex::new(Vec::new()));
    let tape = last.clone();
    world.a.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
        *tape.lock().unwrap() = frame.to_vec();
        true
    }));
    assert!(fill(world, client, server, SECOND));
    world.run_for(SECOND / 10);
    let last = last.lock().unwrap().clone();
    let end = (last.len() - 54) as i32;
    let receive = |behind: i32, length| {
        let before = world.b.stack.statistics();
        world.b.stack.receive(&changed(&last, end - behind, 0, length));
        let after = world.b.stack.statistics();
        let answers = after.frames_transmitted - before.frames_transmitted;
        (answers, after.fast_path_left - before.fast_path_left)
    };
    for (behind, length) in [(1, 0), (1, 1), (0, 1)] {
        assert_eq!(receive(behind, length), (1, 0), "{length} bytes, {behind} behind");
        assert_eq!(server.unread_bytes(), 4096);
    }
    assert_eq!(receive(0, 0), (0, 0), "an acknowledgement of nothing");
    assert_eq!(receive(2, 1), (1, 0), "what was received long ago");
    still_in_order(scene);
}

/// The same while data is in flight, of which a duplicate acknowledgement may be a sign of loss.
#[test]
fn a_duplicate_acknowledgement_is_no_question_for_a_closed_window() {
    let mut scene = scene();
    let Scene { world, client, server, .. } = &mut scene;
    assert!(fill(world, client, server, SECOND));
    world.run_for(SECOND / 10);
    let last = last_segment(&scene);
    let Scene { world, server, .. } = &mut scene;
    let left = world.b.stack.statistics().fast_path_left;
    server.try_send(b"in flight").unwrap();
    world.b.stack.receive(&changed(&last, 4096, 0, 0));
    assert_eq!(world.b.stack.statistics().fast_path_left, left + 1);
    still_in_order(scene);
}

/// Each of these is not the expected segment of a connection on the fast path.
#[test]
fn a_strange_segment_ends_the_fast_path() {
    for (sequence, acknowledgement, length) in
        [(1, 0, 0), (-1, 0, 0), (1, 0, 1), (-1, 0, 2), (0, 1, 0), (0, 1, 1), (0, 0, 5000)]
    {
        let scene = scene();
        let left = scene.world.b.stack.statistics().fast_path_left;
        let segment = changed(&last_segment(&scene), sequence, acknowledgement, length);
        scene.world.b.stack.receive(&segment);
        let now = scene.world.b.stack.statistics().fast_path_left;
        assert_eq!(now, left + 1, "{sequence} {acknowledgement} {length}");
        still_in_order(scene);
    }
    // A duplicate acknowledgement, which is a sign of loss only while data is in flight.
    let scene = scene();
    let left = scene.world.b.stack.statistics().fast_path_left;
    let duplicate = changed(&last_segment(&scene), 0, 0, 0);
    scene.world.b.stack.receive(&duplicate);
    assert_eq!(scene.world.b.stack.statistics().fast_path_left, left);
    scene.server.try_send(b"in flight").unwrap();
    scene.world.b.stack.receive(&duplicate);
    assert_eq!(scene.world.b.stack.statistics().fast_path_left, left + 1);
    still_in_order(scene);
}

/// Data that was received before is acknowledged once more. Its other numbers do not count, nor
/// does its window. What is older than a receive buffer, or has new bytes too, ends the fast path.
#[test]
fn repeated_data_is_acknowledged_on_the_fast_path() {
    let receive = |scene: &mut Scene, (behind, acknowledgement, length): (i32, i32, usize)| {
        let mut segment = changed(&last_segment(scene), -behind, acknowledgement, length);
        segment[48..50].copy_from_slice(&[0, 0]);
        repair_checksums(&mut segment);
        let before = scene.world.b.stack.statistics();
        scene.world.b.stack.receive(&segment);
        let after = scene.world.b.stack.statistics();
        let answers = after.frames_transmitted - before.frames_transmitted;
        (answers, after.fast_path_left - before.fast_path_left)
    };
    for segment in [(1, 0, 1), (1, 5, 1), (1, -5, 1), (900, 0, 900), (4096, 0, 1)] {
        let mut scene = scene();
        let queued = scene.server.unread_bytes();
        for _ in 0..3 {
            assert_eq!(receive(&mut scene, segment), (1, 0), "{segment:?}");
        }
        assert_eq!(scene.server.unread_bytes(), queued);
        // The window is as it was: an answer leaves at once.
        let before = scene.world.b.stack.statistics();
        scene.server.try_send(b"answer").unwrap();
        let after = scene.world.b.stack.statistics();
        assert_eq!(after.frames_transmitted, before.frames_transmitted + 1);
        assert_eq!(after.fast_path_left, before.fast_path_left);
        still_in_order(scene);
    }
    for segment in [(1, 0, 2), (4097, 0, 1)] {
        let mut scene = scene();
        assert_eq!(receive(&mut scene, segment).1, 1, "{segment:?}");
        still_in_order(scene);
    }
}

/// An old duplicate must not end TIME-WAIT (RFC 1337). The exact reset does, as on Linux: with it,
/// a client that begins anew answers the acknowledgement of its SYN.
#[test]
fn only_the_exact_reset_ends_time_wait() {
    let mut world = World::new();
    let last = Arc::new(Mutex::new(Vec::new()));
    let tape = last.clone();
    world.a.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
        *tape.lock().unwrap() = frame.to_vec();
        true
    }));
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    drop(server);
    world.run_for(SECOND / 10);
    drop(client);
    world.run_for(SECOND / 10);
    let fin = last.lock().unwrap().clone();
    assert_eq!(fin[47], FIN | ACK);
    for flags in [RST, RST | ACK] {
        for distance in [0, 2, -1000, 1000] {
            let mut reset = changed(&fin, distance, 0, 0);
            reset[47] = flags;
            repair_checksums(&mut reset);
            world.b.stack.receive(&reset);
            assert_eq!(world.b.stack.statistics().time_wait_now, 1, "{distance}");
        }
    }
    let mut reset = changed(&fin, 1, 0, 0);
    reset[47] = RST;
    repair_checksums(&mut reset);
    world.b.stack.receive(&reset);
    assert_eq!(world.b.stack.statistics().time_wait_now, 0);
    assert_eq!(world.b.stack.timers_armed(), 0);
}

/// Passes changed segments of the live connection to the stack.
fn receive_segments(segments: Vec<Change>) {
    let mut scene = scene();
    let last = last_segment(&scene);
    for (flags, sequence, acknowledgement, window, length, action) in segments {
        let mut frame = changed(&last, sequence, acknowledgement, length);
        // Resets and SYNs would end the connection early, so they are rare.
        frame[47] = if action == 0 { flags } else { flags & !(RST | SYN) | ACK };
        frame[48..50].copy_from_slice(&window.to_be_bytes());
        repair_checksums(&mut frame);
        scene.world.b.stack.receive(&frame);
        let _ = match action {
            1 => scene.server.shutdown(Shutdown::Write).map(|()| 0),
            2 => scene.client.shutdown(Shutdown::Write).map(|()| 0),
            3..=5 => {
                scene.world.run_for(u64::from(window) * 100);
                Ok(0)
            }
            6..=15 => scene.server.try_send(&[1; 700]),
            16..=20 => scene.server.try_receive(&mut [0; 500]),
            21..=25 => scene.client.try_send(&[2; 700]),
            _ => Ok(0),
        };
    }
    still_in_order(scene);
}

/// A case that once failed: a segment without flags and bytes that repeats the last numbers.
#[test]
fn a_segment_without_flags() {
    receive_segments(vec![(0, 0, 0, 0, 0, 0)]);
}

#[test]
fn the_repaired_checksums_are_right() {
    let mut scene = scene();
    for frame in scene.recorded.clone() {
        let mut repaired = frame.clone();
        repair_checksums(&mut repaired);
        assert_eq!(repaired, frame);
    }
    // The echo request is answered.
    let before = scene.world.b.stack.statistics().frames_transmitted;
    scene.world.b.stack.receive(&echo_request());
    scene.world.run_for(SECOND);
    assert_eq!(scene.world.b.stack.statistics().frames_transmitted, before + 1);
}

#[test]
fn martians_fragments_and_strangers_are_dropped_and_counted() {
    let scene = scene();
    let stack = &scene.world.b.stack;
    let syn = scene
        .recorded
        .iter()
        .find(|frame| tcp_flags_and_length(frame).is_some_and(|(flags, _)| flags == SYN));
    let syn = syn.unwrap();
    let statistics = || stack.statistics();
    let offer = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = syn.clone();
        change(&mut frame);
        repair_checksums(&mut frame);
        stack.receive(&frame);
    };
    offer(&|frame| frame[26..30].copy_from_slice(&[10, 0, 0, 2]));
    assert_eq!(statistics().dropped_martian, 1, "from ourselves");
    offer(&|frame| frame[26..30].copy_from_slice(&[127, 0, 0, 1]));
    offer(&|frame| frame[30..34].copy_from_slice(&[127, 0, 0, 1]));
    offer(&|frame| frame[26..30].copy_from_slice(&[0, 0, 0, 0]));
    offer(&|frame| frame[26..30].copy_from_slice(&[224, 0, 0, 1]));
    offer(&|frame| frame[30..34].copy_from_slice(&[255, 255, 255, 255]));
    assert_eq!(statistics().dropped_martian, 6);
    offer(&|frame| frame[20] = 0x20);
    offer(&|frame| frame[21] = 1);
    assert_eq!(statistics().dropped_fragment, 2);
    let strangers = statistics().dropped_not_for_us;
    offer(&|frame| frame[5] = 9);
    offer(&|frame| frame[33] = 9);
    assert_eq!(statistics().dropped_not_for_us, strangers + 2);
    offer(&|frame| frame[12] = 9);
    assert_eq!(statistics().dropped_unsupported, 1);
    offer(&|frame| frame.truncate(40));
    offer(&|frame| frame.truncate(10));
    assert_eq!(statistics().dropped_malformed, 2);
    let mut damaged = syn.clone();
    damaged[35] ^= 1; // A new pair of addresses, and the old checksum.
    stack.receive(&damaged);
    assert_eq!(statistics().dropped_checksum, 1);
    assert_eq!(statistics().connections_opened, 2, "none of them opened anything");
}
