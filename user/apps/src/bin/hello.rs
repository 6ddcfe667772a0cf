//! Prints its arguments.
#![no_std]
#![no_main]

use cops::{Arguments, println};

#[cops::main]
async fn main(mut arguments: Arguments) {
    let _program = arguments.next();
    println!("hello from COPS, {} arguments", arguments.len());
    for argument in arguments {
        println!("{argument}");
    }
}
