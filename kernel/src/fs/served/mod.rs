//! File systems that a process serves (decision 32).
//!
//! ```text
//!  call of a client                                      calls of the server
//!  PathCall, ServedTransfer                              read, write of /dev/fs
//!         |                                                    |
//!        Ask ---- Request ----> Connection ---- most urgent ---+
//!                    ^            (Requests, forgotten nodes)  |
//!                    +------------------- reply ---------------+
//! ```
//!
//! - `connection` has the requests of one server, and the server's side of them.
//! - `request` is one request: what is sent, and where the data of its reply go.
//! - `ask` is the client's side: the part of a call that waits for requests.
//! - `node` is what a path names in such a file system; `file` is an open one.
//! - `pages` keeps pages of files, so that reads of them are no requests; `ahead` asks for those
//!   that a reader will need next; `places` reads them from the disk, where the server says that
//!   they are.
//! - `mapped` has the pages of files that are mapped or written, and writes them back.
//! - `forget` is the memory for the message that a node is not used any more.
//! - `closed` frees what the connections of servers that are gone have kept.
//!
//! Locks: a connection's state and a request's progress are never held together. A connection's
//! state is held for O(log n) steps, a request's progress while its data are copied. Both may be
//! taken under the lock of a call's cell, and none of those is taken under them. The lock of the
//! pages is taken under none of them, and none under it.

mod ahead;
mod ask;
mod closed;
mod connection;
mod file;
mod forget;
mod mapped;
mod node;
mod pages;
mod places;
mod request;

pub use ask::{Answer, Ask, SharedAsk};
pub use connection::FileServer;
pub use file::{ServedFile, ServedTransfer};
pub use mapped::Mapping;
pub use node::ServedNode;

/// What the kernel keeps of the files of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// Pages (decision 47).
    Pages,
    /// Pages, and what is written to them (decision 52).
    Writes,
}

/// On what terms a file system is mounted.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// What the kernel may keep.
    pub keep: Keep,
    /// Whether replies may name places on the disk (decision 64).
    pub has_disk: bool,
}

/// Frees some of what is left of servers that are gone. Returns whether there is more.
pub fn sweep_some() -> bool {
    let has_more = forget::sweep_some();
    closed::sweep_some() || has_more
}
