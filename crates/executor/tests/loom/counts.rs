//! How many executions loom went through for each scene: printed, and on request recorded in
//! `docs/results/loom.txt`, from where the table of pairs has its figures.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

/// Set: write the counts to the file.
const RECORD: &str = "COPS_RECORD_LOOM";
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/loom.txt");
const HEAD: &str = "# Executions that loom went through for each scene: weakly ordered, interleaved.\n\
                    # COPS_RECORD_LOOM=1 ./cops test --only loom\n";

static LOCK: Mutex<()> = Mutex::new(());

/// Of a scene, with weakly ordered loads, and interleaved.
pub fn report(name: &str, [weakly, interleaved]: [u32; 2]) {
    println!("{name}: {weakly} executions weakly ordered, {interleaved} interleaved");
    if std::env::var_os(RECORD).is_none() {
        return;
    }
    let _held = LOCK.lock().unwrap();
    let old = fs::read_to_string(Path::new(FILE)).unwrap_or_default();
    let others =
        old.lines().filter(|line| !line.starts_with('#') && line.split(' ').next() != Some(name));
    let mut lines: Vec<String> = others.map(str::to_owned).collect();
    lines.push(format!("{name} {weakly} {interleaved}"));
    lines.sort();
    fs::write(FILE, format!("{HEAD}{}\n", lines.join("\n"))).unwrap();
}
