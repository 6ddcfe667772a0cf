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
//! - `forget` is the memory for the message that a node is not used any more.
//!
//! Locks: a connection's state and a request's progress are never held together. A connection's
//! state is held for O(log n) steps, a request's progress while its data are copied. Both may be
//! taken under the lock of a call's cell, and none of those is taken under them.

mod ask;
mod connection;
mod file;
mod forget;
mod node;
mod request;

pub use ask::Ask;
pub use connection::FileServer;
pub use file::{ServedFile, ServedTransfer};
pub use forget::sweep_some;
pub use node::ServedNode;
