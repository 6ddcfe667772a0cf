//! Replaces files in a directory for ever, and says of each when it is durable. The test of power
//! cuts compares that with what the disk has afterwards.
//!
//! ```text
//! durable DIRECTORY [COUNT]
//! durable DIRECTORY leave      leaves a process that uses a file, and ends with 3
//! ```
//!
//! File number N is `DIRECTORY/fileM`, where M is N modulo 40, and has N as text, followed by a
//! line feed, so often that it has 100 + 37 * N modulo 20000 bytes or a little more. Every
//! third file is written through a mapping, and another third is written a second time, which the
//! kernel keeps until it is synchronised.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::String;

use cops::Arguments;
use cops::fs::{self, File, OpenOptions};
use cops::io::{Seek, SeekFrom, Write, synchronise};
use cops::process::{self, ExitCode};
use cops::time::{Duration, sleep};

#[cops::main]
async fn main(mut arguments: Arguments) -> cops::io::Result<ExitCode> {
    let _ = arguments.next();
    let Some(directory) = arguments.next() else {
        cops::eprintln!("usage: durable DIRECTORY [COUNT]");
        return Ok(ExitCode(2));
    };
    let word = arguments.next();
    match word {
        Some("leave") => return leave(directory).await,
        Some("hold") => return hold(directory).await,
        _ => {}
    }
    let count = word.and_then(|word| word.parse().ok()).unwrap_or(u32::MAX);
    let new = format!("{directory}/new");
    for number in 0..count {
        let line = format!("{number}\n");
        let mut text = String::new();
        while text.len() < 100 + (37 * number as usize) % 20_000 {
            text.push_str(&line);
        }
        let name = format!("{directory}/file{}", number % 40);
        if number % 3 == 1 {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(true);
            let file = file.open(&new).await?;
            file.set_len(text.len() as u64).await?;
            let mapped = file.map(0, text.len()).await?;
            mapped.write_at(0, text.as_bytes());
            fs::rename(&new, &name).await?;
            mapped.synchronise().await?;
        } else if number % 3 == 2 {
            let mut file = File::create(&new).await?;
            file.write_all("x".repeat(text.len()).as_bytes()).await?;
            file.seek(SeekFrom::Start(0)).await?;
            file.write_all(text.as_bytes()).await?;
            synchronise(&file).await?;
            fs::rename(&new, &name).await?;
            synchronise(&file).await?;
        } else {
            let mut file = File::create(&new).await?;
            file.write_all(text.as_bytes()).await?;
            fs::rename(&new, &name).await?;
            synchronise(&file).await?;
        }
        cops::println!("synced {number}");
    }
    Ok(ExitCode(0))
}

/// Starts a process that uses a file of `directory`, and leaves it.
async fn leave(directory: &str) -> cops::io::Result<ExitCode> {
    let name = format!("{directory}/held");
    // An earlier run may have left it.
    let _ = fs::remove_file(&name).await;
    process::spawn("/bin/durable", &[directory, "hold"])?;
    while OpenOptions::new().read(true).open(&name).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    Ok(ExitCode(3))
}

/// Uses a file of `directory` until a signal ends this process.
async fn hold(directory: &str) -> cops::io::Result<ExitCode> {
    let mut file = File::create(&format!("{directory}/held")).await?;
    file.write_all(b"held").await?;
    loop {
        sleep(Duration::from_secs(1000)).await;
    }
}
