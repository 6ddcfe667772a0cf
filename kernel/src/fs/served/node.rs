//! What a path names in a served file system. Each look-up makes a node of its own: two nodes are
//! the same file if they have the same identity.

/// The value of an attempt, or `return` to wait or with its error.
macro_rules! attempt {
    ($attempt:expr) => {
        match $attempt? {
            Ok(value) => value,
            Err(error) => return Some(Err(error)),
        }
    };
}

mod data;

use alloc::boxed::Box;
use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::file::{Status, Usage, mode};
use cops_abi::served::{self, FIRST_PLACE, change, operation};
use cops_abi::syscall::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use cops_algorithms::dirent;
use cops_fallible::{List, Text, try_arc};

use super::Terms;
use super::ask::{Answer, Ask};
use super::connection::Connection;
use super::forget::Forget;
use super::mapped::MappedFile;
use super::request::{Data, Draft};
use crate::fs::node::{Attempt, Change, Listed, New, Node, NodeRef};
use crate::mm::quota::Family;

/// Maximum size of a listing.
const LIST_BYTES_MAX: usize = 1024;
/// Bytes of a reply to [`operation::USAGE`].
const USAGE_BYTES: usize = 24;

/// A node.
pub struct ServedNode {
    connection: Arc<Connection>,
    number: u64,
    kind: u32,
    /// The message that it is not used any more; `None` for the root, which the server always has.
    forget: Option<Box<Forget>>,
}

impl ServedNode {
    /// The root of a file system, which begins to be used.
    ///
    /// # Errors
    /// `EBUSY` if it has been mounted before, `EIO` if its server is gone, `ENOMEM`.
    pub fn root(connection: &Arc<Connection>, number: u64, terms: Terms) -> Result<NodeRef, Errno> {
        connection.begin(terms)?;
        let kind = mode::DIRECTORY;
        Ok(try_arc(Self { connection: connection.clone(), number, kind, forget: None })?)
    }

    /// The node that a reply names.
    ///
    /// # Errors
    /// `EIO` if there can be no such node, `ENOMEM`.
    pub(super) fn named(
        connection: &Arc<Connection>,
        status: &Status,
        mut forget: Box<Forget>,
    ) -> Result<NodeRef, Errno> {
        let (number, kind) = (status.number, status.kind());
        if number == 0 || !is_kind(kind) {
            return Err(Errno::EIO);
        }
        forget.number = number;
        connection.uses_node();
        // If there is no memory, the node is dropped, which sends the message.
        Ok(try_arc(Self { connection: connection.clone(), number, kind, forget: Some(forget) })?)
    }

    /// Whether its server is gone.
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// A request without arguments.
    fn ask(&self, operation: u16, ask: &mut Ask) -> Attempt<Answer> {
        ask.ask(&self.connection, || Ok(Draft::new(operation, self.number)))
    }

    /// A request that `change` completes.
    fn ask_with<'d>(
        &self,
        operation: u16,
        ask: &mut Ask,
        change: impl FnOnce(&mut Draft<'d>),
    ) -> Attempt<Answer> {
        ask.ask(&self.connection, || {
            let mut draft = Draft::new(operation, self.number);
            change(&mut draft);
            Ok(draft)
        })
    }
}

/// Whether it is a name that every directory has.
fn is_dots(name: &str) -> bool {
    matches!(name, "." | "..")
}

/// Whether files of this type exist.
fn is_kind(kind: u32) -> bool {
    const KINDS: [u32; 7] = [
        mode::PIPE,
        mode::CHARACTER_DEVICE,
        mode::DIRECTORY,
        mode::BLOCK_DEVICE,
        mode::REGULAR,
        mode::LINK,
        mode::SOCKET,
    ];
    KINDS.contains(&kind)
}

/// The data of a reply as text, if it is that and not empty.
fn text(answer: &Answer) -> Result<Text, Errno> {
    let mut bytes = List::new();
    bytes.try_resize(answer.bytes, 0)?;
    answer.read_data(0, &mut bytes);
    let text = Text::from_utf8(bytes).ok_or(Errno::EIO)?;
    if text.is_empty() || text.contains('\0') { Err(Errno::EIO) } else { Ok(text) }
}

impl Drop for ServedNode {
    fn drop(&mut self) {
        self.connection.forgets(self.forget.take(), true);
    }
}

impl Node for ServedNode {
    fn identity(&self) -> (u64, u64) {
        (self.connection.number, self.number)
    }

    fn kind(&self) -> u32 {
        self.kind
    }

    fn served(&self) -> Option<&ServedNode> {
        Some(self)
    }

    fn status(&self, ask: &mut Ask) -> Attempt<Status> {
        // So that the server has seen the last write.
        attempt!(self.write_back_first(ask, MappedFile::has_written));
        self.status_of_server(ask)
    }

    fn resize(self: Arc<Self>, length: u64, ask: &mut Ask) -> Attempt<()> {
        match self.kind {
            mode::REGULAR => self.set_length(&(self.clone() as NodeRef), length, ask),
            mode::DIRECTORY => Some(Err(Errno::EISDIR)),
            _ => Some(Err(Errno::EINVAL)),
        }
    }

    fn synchronise(&self, ask: &mut Ask) -> Attempt<()> {
        attempt!(self.write_back_first(ask, MappedFile::has_dirty));
        attempt!(self.ask(operation::SYNCHRONISE, ask));
        Some(Ok(()))
    }

    fn synchronise_all(&self, ask: &mut Ask) -> Attempt<()> {
        attempt!(self.ask(operation::SYNCHRONISE_ALL, ask));
        Some(Ok(()))
    }

    fn change(&self, wanted: Change, ask: &mut Ask) -> Attempt<()> {
        // What is written back later would change the times again.
        if wanted.modified.is_some() || wanted.accessed.is_some() {
            attempt!(self.write_back_first(ask, MappedFile::has_written));
        }
        attempt!(self.ask_with(operation::SET_STATUS, ask, |draft| {
            let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
            draft.flags = flag(wanted.permissions.is_some(), change::PERMISSIONS)
                | flag(wanted.accessed.is_some(), change::ACCESSED)
                | flag(wanted.modified.is_some(), change::MODIFIED);
            draft.first = wanted.permissions.unwrap_or(0).into();
            let [accessed, modified] =
                [wanted.accessed, wanted.modified].map(Option::unwrap_or_default);
            draft.data = Data::Words([
                accessed.seconds as u64,
                accessed.nanoseconds.into(),
                modified.seconds as u64,
                modified.nanoseconds.into(),
            ]);
        }));
        Some(Ok(()))
    }

    fn look_up(&self, name: &str, ask: &mut Ask) -> Attempt<NodeRef> {
        if self.kind != mode::DIRECTORY {
            return Some(Err(Errno::ENOTDIR));
        }
        let answer = attempt!(ask.ask(&self.connection, || {
            let mut draft = Draft::new(operation::LOOK_UP, self.number);
            (draft.names[0], draft.names_node) = (name, true);
            Ok(draft)
        }));
        Some(answer.node.ok_or(Errno::EIO))
    }

    fn make(
        &self,
        name: &str,
        new: New<'_>,
        permissions: u32,
        _payer: Family,
        ask: &mut Ask,
    ) -> Attempt<NodeRef> {
        if is_dots(name) {
            return Some(Err(Errno::EEXIST));
        }
        let (operation, kind, target) = match new {
            New::File => (operation::CREATE, mode::REGULAR, ""),
            New::Directory => (operation::MAKE_DIRECTORY, mode::DIRECTORY, ""),
            New::Link(target) => (operation::MAKE_LINK, mode::LINK, target),
        };
        let answer = attempt!(ask.ask(&self.connection, || {
            let mut draft = Draft::new(operation, self.number);
            (draft.names, draft.names_node) = ([name, target], true);
            draft.first = permissions.into();
            Ok(draft)
        }));
        Some(answer.node.filter(|node| node.kind() == kind).ok_or(Errno::EIO))
    }

    fn link(&self, name: &str, node: &NodeRef, _payer: Family, ask: &mut Ask) -> Attempt<()> {
        if node.kind() == mode::DIRECTORY {
            return Some(Err(Errno::EPERM));
        }
        if is_dots(name) {
            return Some(Err(Errno::EEXIST));
        }
        attempt!(ask.ask(&self.connection, || {
            let mut draft = Draft::new(operation::LINK, self.number);
            (draft.names[0], draft.first) = (name, node.identity().1);
            Ok(draft)
        }));
        Some(Ok(()))
    }

    fn unlink(&self, name: &str, of_directory: bool, ask: &mut Ask) -> Attempt<()> {
        let operation = match (of_directory, name) {
            (true, ".") => return Some(Err(Errno::EINVAL)),
            (true, "..") => return Some(Err(Errno::ENOTEMPTY)),
            (false, "." | "..") => return Some(Err(Errno::EISDIR)),
            (true, _) => operation::REMOVE_DIRECTORY,
            (false, _) => operation::UNLINK,
        };
        attempt!(ask.ask(&self.connection, || {
            let mut draft = Draft::new(operation, self.number);
            draft.names[0] = name;
            Ok(draft)
        }));
        Some(Ok(()))
    }

    fn rename(
        &self,
        name: &str,
        (to, new_name): (&NodeRef, &str),
        no_replace: bool,
        _payer: Family,
        ask: &mut Ask,
    ) -> Attempt<()> {
        if is_dots(name) || is_dots(new_name) {
            return Some(Err(Errno::EBUSY));
        }
        attempt!(ask.ask(&self.connection, || {
            let mut draft = Draft::new(operation::RENAME, self.number);
            (draft.names, draft.first) = ([name, new_name], to.identity().1);
            draft.flags = if no_replace { served::NO_REPLACE } else { 0 };
            Ok(draft)
        }));
        Some(Ok(()))
    }

    fn list(&self, after: u64, records: &mut [u8], ask: &mut Ask) -> Attempt<Listed> {
        let room = records.len().min(LIST_BYTES_MAX);
        let after = if after < FIRST_PLACE { 0 } else { after };
        let answer = attempt!(self.ask_with(operation::LIST, ask, |draft| {
            (draft.first, draft.second) = (after, room as u64);
            draft.data = Data::Room(room);
        }));
        let Some(records) = records.get_mut(..answer.bytes) else { return Some(Err(Errno::EIO)) };
        answer.read_data(0, records);
        if records.is_empty() {
            return Some(Ok(Listed::End));
        }
        let place = dirent::last_place(records, FIRST_PLACE);
        Some(place.map(|place| Listed::Records { bytes: answer.bytes, place }).ok_or(Errno::EIO))
    }

    fn place(&self, ask: &mut Ask) -> Attempt<Option<(NodeRef, Text)>> {
        if self.kind != mode::DIRECTORY {
            return Some(Err(Errno::ENOTDIR));
        }
        let answer = attempt!(ask.ask(&self.connection, || {
            let mut draft = Draft::new(operation::PLACE, self.number);
            (draft.data, draft.names_node) = (Data::Room(NAME_BYTES_MAX), true);
            Ok(draft)
        }));
        let place = || {
            let name = text(&answer)?;
            let parent = answer.node.clone().filter(|node| node.kind() == mode::DIRECTORY);
            if name.contains('/') { Err(Errno::EIO) } else { Ok((parent.ok_or(Errno::EIO)?, name)) }
        };
        Some(place().map(Some))
    }

    fn target(&self, ask: &mut Ask) -> Attempt<Text> {
        if self.kind != mode::LINK {
            return Some(Err(Errno::EINVAL));
        }
        let answer = attempt!(self.ask_with(operation::READ_LINK, ask, |draft| {
            draft.data = Data::Room(PATH_BYTES_MAX - 1);
        }));
        Some(text(&answer))
    }

    fn usage(&self, ask: &mut Ask) -> Attempt<Usage> {
        let answer = attempt!(self.ask_with(operation::USAGE, ask, |draft| {
            draft.data = Data::Room(USAGE_BYTES);
        }));
        if answer.bytes != USAGE_BYTES {
            return Some(Err(Errno::EIO));
        }
        let mut words = [0; USAGE_BYTES];
        answer.read_data(0, &mut words);
        let [kind, blocks, free_blocks] = [0, 8, 16].map(|at| {
            words
                .get(at..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |word| u64::from_le_bytes(*word))
        });
        Some(Ok(Usage { kind, blocks, free_blocks, ..Usage::default() }))
    }
}
