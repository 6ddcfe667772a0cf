//! A program that serves a file system in its own memory at `/disk`, and runs another program.
//!
//! ```text
//! memfs [--cached] PROGRAM [ARGUMENT...]
//! ```
//!
//! With `--cached` the kernel keeps pages of the files, which can be mapped then.
//!
//! An example of `cops::fs::server`. Must be the first process. Exits as PROGRAM does.
#![no_std]
#![no_main]

extern crate alloc;

mod tree;

use alloc::vec::Vec;

use cops::Arguments;
use cops::fs::server::{Server, unmount};
use cops::process::{self, ExitCode};
use cops::task::{self, Priority};

const PLACE: &str = "/disk";

#[cops::main]
async fn main(arguments: Arguments) -> cops::io::Result<ExitCode> {
    let mut words: Vec<&str> = arguments.skip(1).collect();
    let is_cached = words.first() == Some(&"--cached");
    if is_cached {
        words.remove(0);
    }
    let Some((program, rest)) = words.split_first() else {
        cops::eprintln!("usage: memfs [--cached] PROGRAM [ARGUMENT...]");
        return Ok(ExitCode(2));
    };
    let server = Server::open().await?;
    if is_cached {
        server.mount_cached(PLACE, tree::ROOT).await?;
    } else {
        server.mount(PLACE, tree::ROOT).await?;
    }
    let tree = tree::Tree::new();
    let serving = task::spawn_join(server.serve(tree.clone()), Priority::DEFAULT);
    let status = process::spawn(program, rest)?.wait().await?;
    unmount(PLACE).await?;
    // Nothing uses the file system any more, so the server ends too.
    if let Ok(served) = serving.await {
        served?;
    }
    let (_, used) = tree.count().await;
    if used > 0 {
        cops::eprintln!("memfs: {used} nodes are still in use");
    }
    Ok(ExitCode(status.shell_code()))
}
