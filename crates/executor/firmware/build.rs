//! Links by `firmware.lds` and passes it the size of the RAM: an id of 64 bits in a waker goes with
//! larger tables.

fn main() {
    let variable = |name: &str| std::env::var(name).expect("cargo sets it");
    let folder = variable("CARGO_MANIFEST_DIR");
    let kibibytes = if variable("CARGO_CFG_TARGET_POINTER_WIDTH") == "32" { 8 } else { 32 };
    println!("cargo::rerun-if-changed=firmware.lds");
    println!("cargo::rustc-link-arg-bins=--defsym=ram_size={}", kibibytes * 1024);
    println!("cargo::rustc-link-arg-bins=-T{folder}/firmware.lds");
}
