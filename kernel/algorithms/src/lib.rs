//! The kernel's pure algorithms: state machines and arithmetic without hardware, locks or memory of
//! their own.
//!
//! The kernel itself runs on RISC-V only. Decisions that do not touch the machine are in this
//! crate, so that the host can test them: with tables, exhaustively, and with random inputs.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

pub mod archive;
pub mod arrivals;
mod atomic;
pub mod buddy;
pub mod byte_queue;
pub mod chance;
pub mod compensation;
pub mod count;
pub mod cpu_state;
pub mod deadlines;
pub mod device_tree;
pub mod dirent;
pub mod dirty_room;
pub mod doorbell;
pub mod event_index;
pub mod expirations;
pub mod file_locks;
pub mod fixed_list;
pub mod frame_cache;
pub mod futex;
pub mod gathering;
pub mod held;
pub mod holes;
pub mod inheritance;
pub mod interest;
pub mod joined_frame;
pub mod kin;
pub mod later;
pub mod levels;
pub mod loaded_root;
pub mod multiplexer;
pub mod numbered;
pub mod only_child;
pub mod page_cache;
pub mod pages;
pub mod path;
pub mod priority;
pub mod promised;
pub mod quota;
pub mod range_map;
pub mod range_set;
pub mod references;
pub mod requests;
pub mod ring;
pub mod run_queue;
pub mod script;
pub mod shares;
pub mod signals;
pub mod slice;
pub mod slots;
pub mod spread;
pub mod standing;
pub mod stops;
pub mod switchers;
pub mod tags;
pub mod terminal;
pub mod timekeeper;
pub mod tree;
pub mod turn;
pub mod tutorial;
mod unanswered;
pub mod upcalls;
pub mod user_range;
pub mod virtio_net_header;
pub mod vruntime;
pub mod wait_list;
pub mod wall_clock;
pub mod watches;
