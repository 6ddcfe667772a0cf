//! Prints 16 random bytes in hexadecimal.
#![no_std]
#![no_main]

use cops::{io, memory, println};

#[cops::main]
async fn main() -> io::Result<()> {
    let mut bytes = [0; 16];
    memory::random(&mut bytes)?;
    println!("{:032x}", u128::from_be_bytes(bytes));
    Ok(())
}
