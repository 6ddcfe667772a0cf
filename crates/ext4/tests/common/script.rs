//! Random operations, applied to a file system and to the model.

use std::collections::BTreeMap;

use cops_ext4::{Error, Ext4, Kind, New, ROOT};

use super::device::Device;
use super::model::{Model, Node, TOP};
use super::{Random, at, run};

/// One operation; nodes are numbers of the model.
#[derive(Clone, Debug)]
pub enum Step {
    Create(usize, Vec<u8>),
    MakeDirectory(usize, Vec<u8>),
    MakeLink(usize, Vec<u8>, Vec<u8>),
    Link(usize, usize, Vec<u8>),
    Remove(usize, Vec<u8>, bool),
    Rename((usize, Vec<u8>), (usize, Vec<u8>), bool),
    Write(usize, usize, Vec<u8>),
    Truncate(usize, usize),
}

pub struct Player {
    pub model: Model,
    pub inodes: BTreeMap<usize, u32>,
    pub clock: i64,
}

fn name(random: &mut Random) -> Vec<u8> {
    let mut name = format!("n{}", random.below(24)).into_bytes();
    if random.below(3) == 0 {
        let length = 40 + random.below(200) as usize;
        name.resize(length.next_multiple_of(50), b'x');
    }
    name
}

impl Player {
    pub fn new() -> Player {
        let inodes = BTreeMap::from([(TOP, ROOT)]);
        Player { model: Model::new(), inodes, clock: 1_700_000_000 }
    }

    fn nodes(&self, wanted: impl Fn(&Node) -> bool) -> Vec<usize> {
        // Not `lost+found`.
        let nodes = self.model.nodes.iter().filter(|(number, _)| **number != 1);
        nodes.filter(|(_, node)| wanted(node)).map(|(number, _)| *number).collect()
    }

    /// A random operation. `block_size` is that of the file system.
    pub fn choose(&self, random: &mut Random, block_size: usize) -> Step {
        let directories = self.nodes(|node| matches!(node, Node::Directory { .. }));
        let files = self.nodes(|node| matches!(node, Node::File { .. }));
        let others = self.nodes(|node| !matches!(node, Node::Directory { .. }));
        let directory = *random.pick(&directories);
        let existing = |random: &mut Random, directory: usize| -> Vec<u8> {
            match &self.model.nodes[&directory] {
                Node::Directory { names, .. } if !names.is_empty() => {
                    let names: Vec<&Vec<u8>> = names.keys().collect();
                    (*random.pick(&names)).clone()
                }
                _ => name(random),
            }
        };
        match random.below(20) {
            0..=3 => Step::Create(directory, name(random)),
            4 => Step::MakeDirectory(directory, name(random)),
            5 => {
                let length = 1 + random.below(120) as usize;
                Step::MakeLink(directory, name(random), vec![b'a' + (length % 26) as u8; length])
            }
            6 if !others.is_empty() => Step::Link(*random.pick(&others), directory, name(random)),
            7 | 8 => {
                let name = existing(random, directory);
                if name == b"lost+found" {
                    return Step::Create(directory, b"again".to_vec());
                }
                Step::Remove(directory, name, random.below(3) == 0)
            }
            9 | 10 => {
                let from = existing(random, directory);
                if from == b"lost+found" {
                    return Step::Create(directory, b"again".to_vec());
                }
                let to = *random.pick(&directories);
                let replace = random.below(4) > 0;
                Step::Rename((directory, from), (to, name(random)), replace)
            }
            11 if !files.is_empty() => {
                Step::Truncate(*random.pick(&files), random.below(60_000) as usize)
            }
            _ if !files.is_empty() => {
                let file = *random.pick(&files);
                let (position, length) = match random.below(3) {
                    // Blocks with holes between them: many extents.
                    0 => (random.below(80) as usize * 2 * block_size, block_size),
                    1 => (random.below(60_000) as usize, 1 + random.below(20_000) as usize),
                    _ => (random.below(3) as usize * 1000, 1 + random.below(300) as usize),
                };
                // A write across the border of a step would be two changes.
                let step = 64 * block_size;
                let length = length.min(step - position % step);
                Step::Write(file, position, random.bytes(length))
            }
            _ => Step::Create(directory, name(random)),
        }
    }

    /// Applies a step to the model alone.
    pub fn expect(model: &mut Model, step: &Step) -> Result<Option<usize>, Error> {
        let file = || Node::File { content: Vec::new(), links: 1 };
        match step {
            Step::Create(directory, name) => model.add(*directory, name, file()).map(Some),
            Step::MakeDirectory(parent, name) => {
                let node = Node::Directory { names: BTreeMap::new(), parent: *parent };
                model.add(*parent, name, node).map(Some)
            }
            Step::MakeLink(directory, name, target) => {
                let node = Node::Link { target: target.clone(), links: 1 };
                model.add(*directory, name, node).map(Some)
            }
            Step::Link(node, directory, name) => model.link(*node, *directory, name).map(|()| None),
            Step::Remove(directory, name, is_directory) => {
                model.remove(*directory, name, *is_directory).map(|()| None)
            }
            Step::Rename(from, to, replace) => {
                model.rename((from.0, &from.1), (to.0, &to.1), *replace).map(|()| None)
            }
            Step::Write(node, position, data) => {
                model.write(*node, *position, data);
                Ok(None)
            }
            Step::Truncate(node, size) => {
                model.truncate(*node, *size);
                Ok(None)
            }
        }
    }

    /// Applies a step to the file system; returns the inode of a new node.
    pub fn apply(&mut self, on: &Ext4<Device>, step: &Step) -> Result<Option<u32>, Error> {
        self.clock += 1;
        let now = at(self.clock);
        let new = New { permissions: 0o640, user: 1000, group: 70_000, now, hold: false };
        let inode = |node: &usize| self.inodes[node];
        match step {
            Step::Create(directory, name) => {
                run(on.create(inode(directory), name, Kind::Regular, new)).map(|a| Some(a.inode))
            }
            Step::MakeDirectory(directory, name) => {
                run(on.create_directory(inode(directory), name, new)).map(|a| Some(a.inode))
            }
            Step::MakeLink(directory, name, target) => {
                run(on.create_link(inode(directory), name, target, new)).map(|a| Some(a.inode))
            }
            Step::Link(node, directory, name) => {
                run(on.link(inode(node), inode(directory), name, now)).map(|_| None)
            }
            Step::Remove(directory, name, true) => {
                run(on.remove_directory(inode(directory), name, now)).map(|()| None)
            }
            Step::Remove(directory, name, false) => {
                run(on.unlink(inode(directory), name, now)).map(|()| None)
            }
            Step::Rename(from, to, replace) => {
                let (from, to) = ((inode(&from.0), &*from.1), (inode(&to.0), &*to.1));
                run(on.rename(from, to, *replace, now)).map(|()| None)
            }
            Step::Write(node, position, data) => {
                let count = run(on.write(inode(node), *position as u64, data, now))?;
                assert_eq!(count, data.len());
                Ok(None)
            }
            Step::Truncate(node, size) => {
                run(on.truncate(inode(node), *size as u64, now)).map(|_| None)
            }
        }
    }

    /// Applies a step to both; they must agree.
    pub fn play(&mut self, on: &Ext4<Device>, step: &Step, context: &str) {
        let mut model = self.model.clone();
        let expected = Player::expect(&mut model, step);
        let found = self.apply(on, step);
        match (expected, found) {
            (Ok(node), Ok(inode)) => {
                self.model = model;
                if let (Some(node), Some(inode)) = (node, inode) {
                    self.inodes.insert(node, inode);
                }
            }
            (Err(expected), Err(found)) if expected == found => {}
            (expected, found) => panic!("{context}: {step:?}: {expected:?} expected, {found:?}"),
        }
    }
}
