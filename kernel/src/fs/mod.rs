//! Files: file systems in memory and those that processes serve, pipes, counters, epoll instances,
//! the console, and the table of a process's open files.
#![forbid(unsafe_code)]

mod contents;
mod device;
mod epoll;
mod event;
mod file;
pub mod file_locks;
mod image;
mod memory;
mod mounts;
mod node;
mod pair;
mod pipe;
mod proc;
mod readiness;
mod served;
mod shared_memory;
mod table;
pub mod terminal;
mod timer_file;

pub use contents::{SWEEPER, sweep_some};
pub use epoll::Epoll;
pub use event::EventCounter;
pub use file::{File, Object, console_has_room};
pub use image::{Node, root, set_root};
pub use mounts::{
    covered_by, look_up, make_nameless, mount, mount_served, mounted, root as root_directory,
    served_after, unmount,
};
pub use node::{Attempt, Change, Device, New, NodeRef, is_directory};
pub use pair::pair;
pub use pipe::{ATOMIC_BYTES as PIPE_ATOMIC_BYTES, pipe};
pub use proc::{Bytes, Destination, Facts, Found, Subject, path_of, set_facts};
pub use served::{Answer, Ask, Keep, Mapping, ServedNode, ServedTransfer, SharedAsk, Terms};
pub use shared_memory::SharedMemory;
pub use table::{Descriptor, FileTable, TIMER_BYTES};
pub use terminal::{ConsoleRead, TERMINAL};
pub use timer_file::{TimerFile, TimerSetting};
