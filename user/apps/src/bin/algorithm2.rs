//! Algorithm 2 of the paper COPS: an asynchronous system call, made with the id of the coroutine
//! that waits for it. Without the id, the same macro is the synchronous call.
#![no_std]
#![no_main]

use cops::io::{Fd, pipe};
use cops::process::ExitCode;
use cops::task::{Priority, current, spawn};
use cops::{println, read, write};

const BUF_LEN: usize = 16;

#[cops::main(until_empty)]
fn main() -> cops::io::Result<ExitCode> {
    let (reader, writer) = pipe()?;
    spawn(async_read(reader), Priority::saturating(0));
    // Less urgent: the reader is first, finds nothing, and gives up the CPU.
    spawn(async move { sync_write(&writer) }, Priority::DEFAULT);
    Ok(ExitCode(3))
}

async fn async_read(fd: Fd) {
    let mut buf = [0; BUF_LEN];
    let Some(current_cid) = current() else { return };
    let count = read!(fd, &mut buf, current_cid).await.unwrap_or(0);
    println!("read {count} bytes: {:?}", buf.get(..count).map(core::str::from_utf8));
}

fn sync_write(fd: &Fd) {
    println!("nothing was read yet");
    if write!(*fd, b"data").is_err() {
        println!("nothing was written");
    }
}
