//! Power cuts at random moments: nothing that was synced is lost, and the state is one between two
//! operations.

mod common;

use std::collections::BTreeMap;

use common::device::Device;
use common::image::{self, IMAGES, must_be_clean, repaired};
use common::model::{Model, Node, difference, read_all};
use common::script::Player;
use common::{Random, at, rounds, run};
use cops_ext4::{Ext4, SMALLEST_CACHE};

const SECTOR: usize = 512;

fn open(device: Device) -> Ext4<Device> {
    run(Ext4::open(device, SMALLEST_CACHE, at(1_700_000_000))).unwrap()
}

/// Whether `found` is `expected`, or in each sector what a later state has there: data is written
/// to its place, so changes after the sync may be there in part. Behind its end a file has zeros.
fn is_mixture(found: &[u8], node: usize, later: &[Model]) -> bool {
    let contents: Vec<&[u8]> = later
        .iter()
        .filter_map(|model| match model.nodes.get(&node) {
            Some(Node::File { content, .. }) => Some(content.as_slice()),
            _ => None,
        })
        .collect();
    found.chunks(SECTOR).enumerate().all(|(index, sector)| {
        contents.iter().any(|content| {
            let start = (index * SECTOR).min(content.len());
            let part = &content[start..(start + sector.len()).min(content.len())];
            sector[..part.len()] == *part && sector[part.len()..].iter().all(|byte| *byte == 0)
        })
    })
}

/// The state in `states` that the disk has. Fails if it is none of them.
fn state_of(bytes: &[u8], states: &[Model], context: &str) -> usize {
    let device = Device::new(bytes.to_vec());
    let file_system = open(device.clone());
    let found = read_all(&file_system).unwrap_or_else(|error| panic!("{context}: {error}"));
    let mut why = BTreeMap::new();
    let state = (0..states.len()).rev().find(|state| {
        let mut same = |content: &[u8], node: usize| is_mixture(content, node, &states[*state..]);
        match difference(&found, &states[*state], &mut same) {
            Some(difference) => {
                why.insert(*state, difference);
                false
            }
            None => true,
        }
    });
    run(file_system.close()).unwrap();
    must_be_clean(&device.bytes(), context);
    assert_eq!(device.bytes()[..4], MAGIC, "{context}: the escaped block");
    state.unwrap_or_else(|| panic!("{context}: none of {} states: {why:#?}", states.len()))
}

/// Operations until the power is cut; then what the disk may have is judged by our recovery and by
/// that of e2fsck.
fn cut(image: &[u8], whole: std::ops::Range<usize>, seed: u64, context: &str) {
    let mut random = Random::new(seed);
    let device = Device::new(image.to_vec());
    let file_system = open(device.clone());
    let mut player = Player::new();
    // Something is there already.
    for _ in 0..random.below(150) {
        let step = player.choose(&mut random, file_system.block_size());
        player.play(&file_system, &step, context);
    }
    run(file_system.sync()).unwrap();
    let mut states = vec![player.model.clone()];
    device.0.lock().unwrap().left = 1 + random.below(400);
    let syncs = 5 + random.below(40);
    while device.has_power() {
        match random.below(syncs) {
            0 | 1 => {
                if run(file_system.sync()).is_ok() {
                    states = vec![player.model.clone()];
                }
                continue;
            }
            2 => {
                if run(file_system.checkpoint()).is_ok() {
                    states = vec![player.model.clone()];
                }
                continue;
            }
            _ => {}
        }
        let step = player.choose(&mut random, file_system.block_size());
        let mut model = player.model.clone();
        let expected = Player::expect(&mut model, &step);
        if expected.is_ok() {
            states.push(model.clone());
        }
        match player.apply(&file_system, &step) {
            Ok(inode) => {
                player.model = model;
                if let (Ok(Some(node)), Some(inode)) = (expected, inode) {
                    player.inodes.insert(node, inode);
                }
            }
            Err(_) if !device.has_power() => break,
            Err(error) => assert_eq!(Some(error), expected.err(), "{context}: {step:?}"),
        }
        // The list of states is short, for each is compared.
        if states.len() > 60 && run(file_system.sync()).is_ok() {
            states = vec![player.model.clone()];
        }
    }
    drop(file_system);
    let bytes = device.after_power_cut(&mut random, whole);
    let ours = state_of(&bytes, &states, &format!("{context}, our recovery"));
    let theirs = repaired(&bytes, context);
    assert_eq!(theirs[..4], MAGIC, "{context}: the escaped block");
    must_be_clean(&theirs, &format!("{context}, after e2fsck -fy"));
    let theirs = state_of(&theirs, &states, &format!("{context}, e2fsck's recovery"));
    assert_eq!(ours, theirs, "{context}: both recoveries");
}

/// A number that begins the blocks of a journal. In front of a superblock, where the disk has
/// nothing of the file system, it makes the first block one that the journal has to escape.
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

fn cuts(kind: usize) {
    let (name, size, options) = IMAGES[kind];
    let mut image = image::make(size, options);
    image[..4].copy_from_slice(&MAGIC);
    // With checksums, a superblock has a wrong one if one of its two sectors is old. Linux has the
    // same gap, and needs a disk that writes 1024 bytes as a whole.
    let checksums = !options.contains("^metadata_csum");
    let whole = if checksums { 1024..2048 } else { 0..0 };
    for seed in 0..rounds(50) {
        cut(&image, whole.clone(), seed, &format!("{name}, seed {seed}"));
    }
}

#[test]
fn nothing_is_lost_with_features_of_debian() {
    cuts(0);
}

#[test]
fn nothing_is_lost_with_short_blocks() {
    cuts(1);
}

#[test]
fn nothing_is_lost_without_checksums() {
    cuts(2);
}

#[test]
fn nothing_is_lost_with_short_numbers() {
    cuts(3);
}
