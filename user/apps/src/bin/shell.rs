//! A small shell: `help` says what it can do.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::pin::pin;

use cops::abi::syscall::signal;
use cops::io::{self, Read, Write, stdin, stdout};
use cops::process::{self, Child, ExitCode, ExitStatus};
use cops::{eprintln, fs, memory, print, println};
use futures_util::future::{Either, select};

const CONTROL_C: u8 = 3;
const CONTROL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const DELETE: u8 = 0x7f;

#[cops::main]
async fn main() -> io::Result<ExitCode> {
    println!("COPS shell; try `help`.");
    let mut typed = Vec::new();
    loop {
        print!("$ ");
        let Some(line) = read_line(&mut typed).await? else { return Ok(ExitCode::SUCCESS) };
        let words: Vec<&str> = line.split_whitespace().collect();
        let [command, arguments @ ..] = words.as_slice() else { continue };
        let result = match *command {
            "exit" => {
                let code = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(0);
                return Ok(ExitCode(code));
            }
            "help" => help(),
            "ls" => list(arguments.first().unwrap_or(&"/")),
            "cat" => print_files(arguments).await,
            "echo" => {
                println!("{}", arguments.join(" "));
                Ok(())
            }
            "stats" => statistics(),
            program => run(program, arguments, &mut typed).await,
        };
        if let Err(error) = result {
            eprintln!("{command}: {error}");
        }
    }
}

fn help() -> io::Result<()> {
    println!("Commands: help, ls [DIRECTORY], cat FILE..., echo WORD..., stats, exit [CODE].");
    println!("Anything else is a program: a path, or a name in /bin. Ctrl-C ends it.");
    list("/bin")
}

fn list(directory: &str) -> io::Result<()> {
    for entry in fs::read_directory(directory)? {
        let mark = if entry.kind == fs::Kind::Directory { "/" } else { "" };
        println!("{}{mark}", entry.name);
    }
    Ok(())
}

async fn print_files(paths: &[&str]) -> io::Result<()> {
    for path in paths {
        io::copy(&mut fs::File::open(path)?, &mut stdout()).await?;
    }
    Ok(())
}

fn statistics() -> io::Result<()> {
    let bytes = memory::statistics()?.to_bytes();
    for (name, value) in memory::Statistics::NAMES.iter().zip(bytes.as_chunks().0) {
        println!("{name:28} {}", u64::from_le_bytes(*value));
    }
    Ok(())
}

async fn run(program: &str, arguments: &[&str], typed: &mut Vec<u8>) -> io::Result<()> {
    let path = if program.contains('/') { String::from(program) } else { format!("/bin/{program}") };
    let mut child = process::spawn(&path, arguments)?;
    let status = wait_or_interrupt(&mut child, typed).await?;
    if !status.success() {
        eprintln!("{program}: {status}");
    }
    Ok(())
}

/// Waits for the program and watches for Ctrl-C meanwhile. What else is typed is kept for the next line.
async fn wait_or_interrupt(child: &mut Child, typed: &mut Vec<u8>) -> io::Result<ExitStatus> {
    let pid = child.id();
    let mut end = pin!(child.wait());
    loop {
        let mut bytes = [0; 16];
        let mut input = stdin();
        let count = match select(end.as_mut(), pin!(input.read(&mut bytes))).await {
            Either::Left((status, _)) => return status,
            Either::Right((count, _)) => count?,
        };
        let bytes = bytes.get(..count).unwrap_or_default();
        if bytes.is_empty() {
            return end.await;
        }
        if bytes.contains(&CONTROL_C) {
            process::kill(pid, signal::SIGTERM)?;
        } else {
            typed.extend_from_slice(bytes);
        }
    }
}

/// A line as the user leaves it, echoed as it is typed; `None` at the end of the input. The terminal does nothing by
/// itself.
async fn read_line(typed: &mut Vec<u8>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        if typed.is_empty() {
            let mut bytes = [0; 16];
            let count = stdin().read(&mut bytes).await?;
            if count == 0 {
                return Ok(None);
            }
            typed.extend_from_slice(bytes.get(..count).unwrap_or_default());
        }
        match typed.remove(0) {
            b'\r' | b'\n' => {
                println!();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            BACKSPACE | DELETE => print!("{}", if line.pop().is_some() { "\x08 \x08" } else { "" }),
            CONTROL_C => {
                print!("^C\n$ ");
                line.clear();
            }
            CONTROL_D if line.is_empty() => {
                println!();
                return Ok(None);
            }
            byte @ b' '.. => {
                line.push(byte);
                stdout().write_all(&[byte]).await?;
            }
            _ => {}
        }
    }
}
