//! Links the kernel with its linker script and checks the inputs of the build: `COPS_VDSO`, the
//! path of the vDSO image to embed, and frame pointers, which backtraces need.

use std::{env, path::Path};

fn main() {
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo::rustc-link-arg-bins=-T{folder}/kernel.lds");
    println!("cargo::rustc-link-arg-bins=-zmax-page-size=4096");
    println!("cargo::rerun-if-changed=kernel.lds");
    println!("cargo::rerun-if-env-changed=COPS_VDSO");

    match env::var("COPS_VDSO") {
        Ok(path) if Path::new(&path).is_file() => println!("cargo::rerun-if-changed={path}"),
        Ok(path) => println!("cargo::error=COPS_VDSO names {path}, which is not a file"),
        Err(_) => println!(
            "cargo::error=COPS_VDSO is not set: it must name the linked vDSO image that the kernel embeds \
             (`./cops` builds it first and sets this)"
        ),
    }
    if !env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default().contains("force-frame-pointers") {
        println!(
            "cargo::warning=built without `-C force-frame-pointers=yes`: backtraces of a panic will be short"
        );
    }
}
