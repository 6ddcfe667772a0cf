//! Links every program with the user library's linker script, which sets the address of programs.

use std::env;

fn main() {
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo::rustc-link-arg-bins=-T{folder}/../runtime/program.lds");
    println!("cargo::rustc-link-arg-bins=-zmax-page-size=4096");
    println!("cargo::rerun-if-changed=../runtime/program.lds");
}
