//! Copies files, or standard input, to standard output: `copy [FILE]...`.
#![no_std]
#![no_main]

use cops::Arguments;
use cops::fs::File;
use cops::io::{self, stdin, stdout};

#[cops::main]
async fn main(arguments: Arguments) -> io::Result<()> {
    let mut paths = arguments.skip(1).peekable();
    if paths.peek().is_none() {
        io::copy(&mut stdin(), &mut stdout()).await?;
    }
    for path in paths {
        io::copy(&mut File::open(path)?, &mut stdout()).await?;
    }
    Ok(())
}
