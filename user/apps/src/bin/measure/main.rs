//! Measures the costs of the scheduler's mechanisms.
//!
//! ```text
//! measure costs               instructions of synchronous and asynchronous calls, and of switches
//! measure interrupts          instructions of a wake that interrupts a running coroutine, and of
//!                             one that does not
//! measure switches            instructions of switches between coroutines, threads and processes
//! measure order               the order in which coroutines of several priorities run
//! measure packets             latencies of a most urgent coroutine that packets wake, beside
//!                             programs that compute
//! measure disk                requests a second of the disk, which has a known content
//! measure files FOLDER MEBIBYTES ROUNDS [make]
//!                             times of reads and writes of files
//! measure papers ..           the ring and the chain of pipes of a paper: see `papers`
//! ```
//!
//! Prints lines of words for `./cops bench`; the first three are counted instructions on one hart
//! (`-icount`). Without `-icount` the processor's counter does not count instructions.
#![no_std]
#![no_main]

extern crate alloc;

mod costs;
mod counter;
mod disk;
mod files;
mod interrupts;
mod meter;
mod order;
mod packets;
mod papers;
mod pipe;
mod ring;
mod summary;
mod switches;

use alloc::vec::Vec;

use cops::process::ExitCode;
use cops::{Arguments, io, println};

#[cops::main]
async fn main(arguments: Arguments) -> io::Result<ExitCode> {
    let words: Vec<&str> = arguments.skip(1).collect();
    match words.first().copied() {
        Some("costs") => costs::run().await?,
        Some("interrupts") => interrupts::run().await?,
        Some("switches") => switches::run().await?,
        Some("yield") => switches::yield_for_ever(),
        Some("echo") => switches::echo()?,
        Some("order") => order::run().await,
        Some("packets") => packets::run().await?,
        Some("disk") => disk::run().await?,
        Some("files") => files::run(&words[1..]).await?,
        Some("papers") => return papers::run(&words[1..]).await,
        Some("papers-process") => return papers::process(&words[1..]).await,
        _ => {
            println!("usage: measure costs|interrupts|switches|order|packets|disk|files|papers");
            return Ok(ExitCode(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}
