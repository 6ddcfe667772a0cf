//! What a person types at the shell: [`edit`] makes lines of keys, and [`parse`] finds out what a
//! line means. Pure functions of their input, so that they are tested on the host.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

pub mod edit;
pub mod parse;
