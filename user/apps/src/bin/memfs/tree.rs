//! A file system in the memory of its server. The tests of served file systems use it too.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::abi::Errno::*;
use cops::abi::file::{Status, Time, Usage, mode};
use cops::fs::server::{Change, Entries, FileSystem, Result, Written, now};
use cops::sync::Mutex;

/// The number of the root.
pub const ROOT: u64 = 1;
/// Files do not grow beyond this.
const LENGTH_MAX: u64 = 1 << 26;

/// What a node is.
enum Body {
    File(Vec<u8>),
    Link(String),
    /// Names with places and nodes; the directory above.
    Directory(Directory),
}

struct Directory {
    above: u64,
    names: BTreeMap<String, (u64, u64)>,
    places: BTreeMap<u64, String>,
}

struct Node {
    body: Body,
    permissions: u32,
    links: u32,
    /// How often the kernel uses it.
    uses: u64,
    accessed: Time,
    modified: Time,
}

impl Node {
    fn kind(&self) -> u32 {
        match self.body {
            Body::File(_) => mode::REGULAR,
            Body::Link(_) => mode::LINK,
            Body::Directory(_) => mode::DIRECTORY,
        }
    }

    fn status(&self, number: u64) -> Status {
        let size = match &self.body {
            Body::File(bytes) => bytes.len(),
            Body::Link(target) => target.len(),
            Body::Directory(_) => 0,
        };
        Status {
            number,
            links: self.links,
            size: size as u64,
            blocks: size.div_ceil(512) as u64,
            accessed: self.accessed,
            modified: self.modified,
            ..Status::new(self.kind(), self.permissions)
        }
    }
}

struct State {
    nodes: BTreeMap<u64, Node>,
    last: u64,
}

/// The file system; clones share it.
#[derive(Clone)]
pub struct Tree {
    state: Arc<Mutex<State>>,
    /// Calls of [`FileSystem::synchronise`] and [`FileSystem::synchronise_all`].
    #[allow(dead_code, reason = "only the tests look at it")]
    pub synchronised: Arc<AtomicUsize>,
}

impl State {
    fn node(&mut self, number: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&number).ok_or(ENOENT)
    }

    fn directory(&mut self, number: u64) -> Result<&mut Directory> {
        match &mut self.node(number)?.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(ENOTDIR),
        }
    }

    fn find(&mut self, directory: u64, name: &str) -> Result<u64> {
        let directory = self.directory(directory)?;
        match name {
            ".." => Ok(directory.above),
            _ => directory.names.get(name).map(|&(_, node)| node).ok_or(ENOENT),
        }
    }

    fn touch(&mut self, number: u64) {
        let now = now();
        if let Some(node) = self.nodes.get_mut(&number) {
            node.modified = now;
        }
    }

    fn add_name(&mut self, directory: u64, name: &str, node: u64) -> Result<()> {
        self.last += 1;
        let place = self.last + 1;
        let is_directory = self.node(node)?.kind() == mode::DIRECTORY;
        let into = self.directory(directory)?;
        into.names.insert(name.to_string(), (place, node));
        into.places.insert(place, name.to_string());
        if is_directory {
            self.directory(node)?.above = directory;
            self.node(directory)?.links += 1;
        }
        self.touch(directory);
        Ok(())
    }

    /// Removes a name, but not its node.
    fn remove_name(&mut self, directory: u64, name: &str) -> Result<u64> {
        let from = self.directory(directory)?;
        let (place, node) = from.names.remove(name).ok_or(ENOENT)?;
        from.places.remove(&place);
        if self.node(node)?.kind() == mode::DIRECTORY {
            self.node(directory)?.links -= 1;
        }
        self.touch(directory);
        Ok(node)
    }

    /// A name of `node` is gone.
    fn lose_name(&mut self, number: u64) -> Result<()> {
        let node = self.node(number)?;
        node.links = if node.kind() == mode::DIRECTORY { 0 } else { node.links - 1 };
        if node.links == 0 && node.uses == 0 {
            self.nodes.remove(&number);
        }
        Ok(())
    }

    fn make(
        &mut self,
        directory: u64,
        name: &str,
        (body, permissions): (Body, u32),
    ) -> Result<Status> {
        match self.find(directory, name) {
            Ok(_) => return Err(EEXIST),
            Err(ENOENT) if self.node(directory)?.links > 0 => {}
            Err(error) => return Err(error),
        }
        let now = now();
        self.last += 1;
        let number = self.last;
        let links = if matches!(body, Body::Directory(_)) { 2 } else { 1 };
        let node = Node { body, permissions, links, uses: 1, accessed: now, modified: now };
        self.nodes.insert(number, node);
        self.add_name(directory, name, number)?;
        Ok(self.node(number)?.status(number))
    }

    /// Whether something may take the place of `old`.
    fn check_replace(&mut self, old: u64, by_directory: bool) -> Result<()> {
        match (&self.node(old)?.body, by_directory) {
            (Body::Directory(_), false) => Err(EISDIR),
            (Body::Directory(it), true) if !it.names.is_empty() => Err(ENOTEMPTY),
            (Body::Directory(_), true) => Ok(()),
            (_, true) => Err(ENOTDIR),
            _ => Ok(()),
        }
    }
}

impl Tree {
    /// A file system with an empty root.
    pub fn new() -> Self {
        let directory = Directory { above: ROOT, names: BTreeMap::new(), places: BTreeMap::new() };
        let root = Node {
            body: Body::Directory(directory),
            permissions: 0o777,
            links: 2,
            uses: 1,
            accessed: Time::default(),
            modified: Time::default(),
        };
        let nodes = BTreeMap::from([(ROOT, root)]);
        let state = Arc::new(Mutex::new(State { nodes, last: ROOT }));
        Self { state, synchronised: Arc::new(AtomicUsize::new(0)) }
    }

    /// How many nodes there are besides the root, and how many of them the kernel uses.
    pub async fn count(&self) -> (usize, usize) {
        let state = self.state.lock().await;
        let others = || state.nodes.iter().filter(|&(&number, _)| number != ROOT);
        (others().count(), others().filter(|(_, node)| node.uses > 0).count())
    }
}

impl FileSystem for Tree {
    async fn look_up(&self, directory: u64, name: &str) -> Result<Status> {
        let mut state = self.state.lock().await;
        let number = state.find(directory, name)?;
        let node = state.node(number)?;
        node.uses += 1;
        Ok(node.status(number))
    }

    async fn status(&self, node: u64) -> Result<Status> {
        Ok(self.state.lock().await.node(node)?.status(node))
    }

    /// There is no disk that could be full.
    async fn solid(&self, node: u64) -> u64 {
        self.status(node).await.map_or(0, |status| status.size)
    }

    async fn read(&self, node: u64, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut state = self.state.lock().await;
        let Body::File(bytes) = &state.node(node)?.body else { return Err(EINVAL) };
        let rest = bytes.get(offset.min(bytes.len() as u64) as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    async fn list(&self, directory: u64, after: u64, entries: &mut Entries) -> Result<()> {
        let mut state = self.state.lock().await;
        let names: Vec<(u64, u64, String)> = {
            let directory = state.directory(directory)?;
            let behind = directory.places.range(after + 1..);
            behind
                .filter_map(|(&place, name)| {
                    Some((place, directory.names.get(name)?.1, name.clone()))
                })
                .take(100)
                .collect()
        };
        for (place, number, name) in names {
            if !entries.push(place, number, state.node(number)?.kind(), &name) {
                break;
            }
        }
        Ok(())
    }

    async fn write(&self, node: u64, offset: Option<u64>, bytes: &[u8]) -> Result<Written> {
        let mut state = self.state.lock().await;
        let Body::File(contents) = &mut state.node(node)?.body else { return Err(EINVAL) };
        let start = offset.unwrap_or(contents.len() as u64);
        let end = start.checked_add(bytes.len() as u64).filter(|&end| end <= LENGTH_MAX);
        let end = end.ok_or(EFBIG)?;
        if contents.len() < end as usize {
            contents.resize(end as usize, 0);
        }
        contents[start as usize..end as usize].copy_from_slice(bytes);
        state.touch(node);
        Ok(Written { count: bytes.len(), end })
    }

    async fn change(&self, node: u64, change: Change) -> Result<()> {
        let mut state = self.state.lock().await;
        if let Some(length) = change.length {
            let Body::File(contents) = &mut state.node(node)?.body else { return Err(EINVAL) };
            if length > LENGTH_MAX {
                return Err(EFBIG);
            }
            contents.resize(length as usize, 0);
            state.touch(node);
        }
        let node = state.node(node)?;
        node.permissions = change.permissions.unwrap_or(node.permissions);
        node.accessed = change.accessed.unwrap_or(node.accessed);
        node.modified = change.modified.unwrap_or(node.modified);
        Ok(())
    }

    async fn create(&self, directory: u64, name: &str, permissions: u32) -> Result<Status> {
        let mut state = self.state.lock().await;
        state.make(directory, name, (Body::File(Vec::new()), permissions))
    }

    async fn make_directory(&self, directory: u64, name: &str, permissions: u32) -> Result<Status> {
        let new = Directory { above: directory, names: BTreeMap::new(), places: BTreeMap::new() };
        let mut state = self.state.lock().await;
        state.make(directory, name, (Body::Directory(new), permissions))
    }

    async fn make_link(&self, directory: u64, name: &str, target: &str) -> Result<Status> {
        let mut state = self.state.lock().await;
        state.make(directory, name, (Body::Link(target.to_string()), 0o777))
    }

    async fn read_link(&self, node: u64) -> Result<String> {
        match &self.state.lock().await.node(node)?.body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(EINVAL),
        }
    }

    async fn link(&self, node: u64, directory: u64, name: &str) -> Result<()> {
        let mut state = self.state.lock().await;
        match state.find(directory, name) {
            Ok(_) => return Err(EEXIST),
            Err(ENOENT) => {}
            Err(error) => return Err(error),
        }
        state.node(node)?.links += 1;
        state.add_name(directory, name, node)
    }

    async fn unlink(&self, directory: u64, name: &str) -> Result<()> {
        let mut state = self.state.lock().await;
        let node = state.find(directory, name)?;
        if state.node(node)?.kind() == mode::DIRECTORY {
            return Err(EISDIR);
        }
        state.remove_name(directory, name)?;
        state.lose_name(node)
    }

    async fn remove_directory(&self, directory: u64, name: &str) -> Result<()> {
        let mut state = self.state.lock().await;
        let node = state.find(directory, name)?;
        state.check_replace(node, true)?;
        state.remove_name(directory, name)?;
        state.lose_name(node)
    }

    async fn rename(
        &self,
        (from, name): (u64, &str),
        (to, new_name): (u64, &str),
        no_replace: bool,
    ) -> Result<()> {
        let mut state = self.state.lock().await;
        let node = state.find(from, name)?;
        let is_directory = state.node(node)?.kind() == mode::DIRECTORY;
        let mut above = to;
        while is_directory && above != ROOT {
            if above == node {
                return Err(EINVAL);
            }
            above = state.directory(above)?.above;
        }
        match state.find(to, new_name) {
            Ok(_) if no_replace => return Err(EEXIST),
            Ok(old) if old == node => return Ok(()),
            Ok(old) => {
                state.check_replace(old, is_directory)?;
                state.remove_name(to, new_name)?;
                state.lose_name(old)?;
            }
            Err(ENOENT) if state.node(to)?.links > 0 => {}
            Err(error) => return Err(error),
        }
        state.remove_name(from, name)?;
        state.add_name(to, new_name, node)
    }

    async fn synchronise(&self, node: u64) -> Result<()> {
        self.synchronised.fetch_add(1, Relaxed);
        self.state.lock().await.node(node).map(drop)
    }

    async fn synchronise_all(&self) -> Result<()> {
        self.synchronised.fetch_add(1, Relaxed);
        Ok(())
    }

    async fn usage(&self) -> Result<Usage> {
        Ok(Usage { kind: 0x1234, blocks: 1000, free_blocks: 500, ..Usage::default() })
    }

    async fn forget(&self, node: u64, count: u64) {
        let mut state = self.state.lock().await;
        if let Some(it) = state.nodes.get_mut(&node) {
            it.uses =
                it.uses.checked_sub(count).unwrap_or_else(|| panic!("node {node} is not in use"));
            if it.links == 0 && it.uses == 0 {
                state.nodes.remove(&node);
            }
        }
    }
}
