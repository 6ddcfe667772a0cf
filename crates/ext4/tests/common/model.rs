//! The model: what a file system with these operations contains, as maps in memory.

use std::collections::BTreeMap;

use cops_ext4::{Error, Ext4, Kind, ROOT};

use super::device::Device;
use super::run;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    File { content: Vec<u8>, links: u32 },
    Link { target: Vec<u8>, links: u32 },
    Directory { names: BTreeMap<Vec<u8>, usize>, parent: usize },
}

/// Nodes by a number of their own: the numbers of inodes may differ after a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    pub nodes: BTreeMap<usize, Node>,
    next: usize,
}

/// The number of the root directory in a model.
pub const TOP: usize = 0;

impl Model {
    pub fn new() -> Model {
        let lost = Node::Directory { names: BTreeMap::new(), parent: TOP };
        let names = BTreeMap::from([(b"lost+found".to_vec(), 1)]);
        let top = Node::Directory { names, parent: TOP };
        Model { nodes: BTreeMap::from([(TOP, top), (1, lost)]), next: 2 }
    }

    pub fn names(&mut self, directory: usize) -> Result<&mut BTreeMap<Vec<u8>, usize>, Error> {
        match self.nodes.get_mut(&directory) {
            Some(Node::Directory { names, .. }) => Ok(names),
            _ => Err(Error::NotDirectory),
        }
    }

    pub fn find(&self, directory: usize, name: &[u8]) -> Result<usize, Error> {
        match self.nodes.get(&directory) {
            Some(Node::Directory { names, .. }) => names.get(name).copied().ok_or(Error::NotFound),
            _ => Err(Error::NotDirectory),
        }
    }

    pub fn add(&mut self, directory: usize, name: &[u8], node: Node) -> Result<usize, Error> {
        let number = self.next;
        let names = self.names(directory)?;
        if names.contains_key(name) {
            return Err(Error::Exists);
        }
        names.insert(name.to_vec(), number);
        self.nodes.insert(number, node);
        self.next += 1;
        Ok(number)
    }

    fn links(&mut self, node: usize) -> Option<&mut u32> {
        match self.nodes.get_mut(&node) {
            Some(Node::File { links, .. } | Node::Link { links, .. }) => Some(links),
            _ => None,
        }
    }

    pub fn link(&mut self, node: usize, directory: usize, name: &[u8]) -> Result<(), Error> {
        if self.find(directory, name) != Err(Error::NotFound) {
            self.names(directory)?;
            return Err(if self.links(node).is_none() {
                Error::NotPermitted
            } else {
                Error::Exists
            });
        }
        *self.links(node).ok_or(Error::NotPermitted)? += 1;
        self.names(directory)?.insert(name.to_vec(), node);
        Ok(())
    }

    fn is_directory(&self, node: usize) -> bool {
        matches!(self.nodes.get(&node), Some(Node::Directory { .. }))
    }

    /// Ends a name of a node, which is not in a directory any more.
    fn drop_name(&mut self, node: usize) {
        let left = self.links(node).map_or(0, |links| {
            *links -= 1;
            *links
        });
        if left == 0 {
            self.nodes.remove(&node);
        }
    }

    fn must_be_empty(&self, node: usize) -> Result<(), Error> {
        match self.nodes.get(&node) {
            Some(Node::Directory { names, .. }) if !names.is_empty() => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    pub fn remove(&mut self, directory: usize, name: &[u8], is_dir: bool) -> Result<(), Error> {
        let node = self.find(directory, name)?;
        match (self.is_directory(node), is_dir) {
            (true, false) => return Err(Error::IsDirectory),
            (false, true) => return Err(Error::NotDirectory),
            _ => self.must_be_empty(node)?,
        }
        self.names(directory)?.remove(name);
        self.drop_name(node);
        Ok(())
    }

    pub fn rename(
        &mut self,
        (from, from_name): (usize, &[u8]),
        (to, to_name): (usize, &[u8]),
        replace: bool,
    ) -> Result<(), Error> {
        let node = self.find(from, from_name)?;
        let is_directory = self.is_directory(node);
        if !self.is_directory(to) {
            return Err(Error::NotDirectory);
        }
        if is_directory && from != to {
            let mut at = to;
            loop {
                if at == node {
                    return Err(Error::Invalid);
                }
                if at == TOP {
                    break;
                }
                let Some(Node::Directory { parent, .. }) = self.nodes.get(&at) else { break };
                at = *parent;
            }
        }
        if let Ok(old) = self.find(to, to_name) {
            if !replace {
                return Err(Error::Exists);
            }
            if old == node {
                return Ok(());
            }
            match (self.is_directory(old), is_directory) {
                (true, false) => return Err(Error::IsDirectory),
                (false, true) => return Err(Error::NotDirectory),
                _ => self.must_be_empty(old)?,
            }
            self.names(to)?.remove(to_name);
            self.drop_name(old);
        }
        self.names(from)?.remove(from_name);
        self.names(to)?.insert(to_name.to_vec(), node);
        if let Some(Node::Directory { parent, .. }) = self.nodes.get_mut(&node) {
            *parent = to;
        }
        Ok(())
    }

    pub fn write(&mut self, node: usize, position: usize, data: &[u8]) {
        if let Some(Node::File { content, .. }) = self.nodes.get_mut(&node) {
            let end = position + data.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[position..end].copy_from_slice(data);
        }
    }

    pub fn truncate(&mut self, node: usize, size: usize) {
        if let Some(Node::File { content, .. }) = self.nodes.get_mut(&node) {
            content.resize(size, 0);
        }
    }
}

/// The content of a whole file system, read through the library. Hard links are found by inode.
pub fn read_all(file_system: &Ext4<Device>) -> Result<Model, Error> {
    let mut model = Model { nodes: BTreeMap::new(), next: 0 };
    let mut numbers = BTreeMap::from([(ROOT, TOP)]);
    let mut pending = vec![(ROOT, TOP)];
    let mut next = 1;
    while let Some((inode, parent)) = pending.pop() {
        let number = numbers[&inode];
        let attributes = run(file_system.attributes(inode))?;
        let node = match attributes.kind {
            Kind::Directory => {
                let mut names = BTreeMap::new();
                let mut position = 0;
                let mut links = 2;
                loop {
                    let some = run(file_system.read_directory(inode, position, 7))?;
                    let Some(last) = some.last() else { break };
                    position = last.next;
                    for entry in some {
                        match entry.name.as_slice() {
                            b"." => assert_eq!(entry.inode, inode),
                            b".." => {}
                            name => {
                                let child = *numbers.entry(entry.inode).or_insert_with(|| {
                                    next += 1;
                                    pending.push((entry.inode, number));
                                    next - 1
                                });
                                links += u32::from(entry.kind == Some(Kind::Directory));
                                assert!(names.insert(name.to_vec(), child).is_none(), "twice");
                            }
                        }
                    }
                }
                assert_eq!(attributes.links, links, "links of a directory");
                Node::Directory { names, parent }
            }
            Kind::Symlink => {
                Node::Link { target: run(file_system.read_link(inode))?, links: attributes.links }
            }
            _ => {
                let mut content = vec![0xEE; attributes.size as usize];
                let count = run(file_system.read(inode, 0, &mut content))?;
                assert_eq!(count as u64, attributes.size, "bytes of a file");
                Node::File { content, links: attributes.links }
            }
        };
        model.nodes.insert(number, node);
    }
    Ok(model)
}

/// Compares two trees by names, since the numbers of nodes may differ. `same` judges contents.
pub fn difference(
    one: &Model,
    other: &Model,
    same: &mut dyn FnMut(&[u8], usize) -> bool,
) -> Option<String> {
    let mut pending = vec![(TOP, TOP, String::from("/"))];
    let mut pairs = BTreeMap::new();
    while let Some((left, right, path)) = pending.pop() {
        if *pairs.entry(left).or_insert(right) != right {
            return Some(format!("{path}: linked otherwise"));
        }
        match (&one.nodes[&left], &other.nodes[&right]) {
            (Node::Directory { names: left, .. }, Node::Directory { names: right, .. }) => {
                if !left.keys().eq(right.keys()) {
                    return Some(format!("{path}: names differ"));
                }
                for (name, child) in left {
                    let path = format!("{path}{}/", String::from_utf8_lossy(name));
                    pending.push((*child, right[name], path));
                }
            }
            (
                Node::File { content: left, links: a },
                Node::File { content: expected, links: b },
            ) => {
                if a != b || left.len() != expected.len() {
                    return Some(format!(
                        "{path}: {a} {b} links, {} {} bytes",
                        left.len(),
                        expected.len()
                    ));
                }
                if !same(left, right) {
                    return Some(format!("{path}: content"));
                }
            }
            (left, right) => {
                if left != right {
                    return Some(format!("{path}: {left:?} {right:?}"));
                }
            }
        }
    }
    None
}

/// Fails unless a file system contains exactly what the model does.
pub fn must_contain(file_system: &Ext4<Device>, model: &Model, context: &str) {
    let found = read_all(file_system).unwrap_or_else(|error| panic!("{context}: {error}"));
    let expected = |node: usize| match &model.nodes[&node] {
        Node::File { content, .. } => content.as_slice(),
        _ => &[],
    };
    let wrong = difference(&found, model, &mut |content, node| content == expected(node));
    assert_eq!(wrong, None, "{context}");
}
