//! Files: the root image, pipes, the console, and the table of a process's open files.
#![forbid(unsafe_code)]

mod file;
mod image;
mod pipe;
mod table;
mod terminal;

pub use cops_algorithms::terminal::Mode as ConsoleMode;
pub use file::{File, Object, console_has_room};
pub use image::{Node, root, set_root};
pub use pipe::pipe;
pub use table::{Descriptor, FileTable};
pub use terminal::{
    ConsoleRead, TERMINAL, console_mode, hand_over_console, release_console, set_settings, settings,
};
